"""The files of a request, and the form in which an endpoint is sent each: its data, or its text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes, urlsplit

from router.dialects.parts import Where, is_textual

__all__ = [
    "PDF",
    "FileForm",
    "InputFile",
    "any_files",
    "decoded_data",
    "file_key",
    "lacks",
    "named_files",
    "with_files",
]

FileForm = Literal["data", "pdf", "text"]
"""What endpoints read: files as data; PDF only, and the text of others; or text only."""

PDF: Final = "application/pdf"

_SOURCES: Final = ("file_data", "file_id", "file_url")
_FILE: Final = "input_file"
_IMAGES: Final = frozenset({"input_image", "computer_screenshot"})
_LISTS: Final = ("instructions", "input")
_PARTS: Final = ("content", "output")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as it was got: ``data`` in base64 and ``text``, each where somebody needed it."""

    filename: str
    media_type: str
    data: str | None = None
    text: str | None = None

    @property
    def url(self) -> str:
        """The data as a URL."""
        return f"data:{self.media_type};base64,{self.data}"


def file_key(part: Mapping[str, Any]) -> str | None:
    """What the file of a content part is known by in ``Exchange.files``; None for what is no file,
    and for images that are no uploaded file.
    """
    kind = part.get("type")
    if kind == _FILE:
        for name in _SOURCES:
            value = part.get(name)
            if isinstance(value, str):
                return value
    elif kind in _IMAGES and part.get("image_url") is None:
        ident = part.get("file_id")
        return ident if isinstance(ident, str) else None
    return None


def any_files(body: Mapping[str, Any]) -> bool:
    """Whether ``named_files`` finds any. It is asked of every request whose input is a list."""
    for field in _LISTS:
        items = body.get(field)
        if type(items) is not list:
            continue
        for item in items:
            for name in _PARTS:
                parts = item.get(name)
                if type(parts) is list:
                    for part in parts:
                        kind = part.get("type") if type(part) is dict else None
                        if kind == _FILE or (kind in _IMAGES and part.get("file_id")):
                            return True
    return False


def named_files(body: Mapping[str, Any]) -> dict[str, tuple[dict[str, Any], Where]]:
    """The content parts of a Responses request that are files, by ``file_key``: each with the
    place where it is named first.
    """
    found: dict[str, tuple[dict[str, Any], Where]] = {}
    for field in _LISTS:
        items = body.get(field)
        for index, item in enumerate(items if type(items) is list else ()):
            for name, place, part in _of_item(item):
                if (key := file_key(part)) is not None:
                    found.setdefault(key, (part, (field, index, name, place)))
    return found


def lacks(
    part: Mapping[str, Any], form: FileForm, there: InputFile | None
) -> Literal["data", "text"] | None:
    """What has to be got before an endpoint can be sent this file; None for nothing."""
    uploaded = part.get("file_data") is None and part.get("file_id") is not None
    if part["type"] in _IMAGES or (form == "data" and uploaded):
        wanted: Literal["data", "text"] = "data"
    elif form == "data" or ((data := part.get("file_data")) is not None and is_textual(data)):
        return None  # it is sent as it is
    elif form == "pdf" and (_is_pdf(part) or (there is not None and there.media_type == PDF)):
        if not uploaded:
            return None
        wanted = "data"
    else:
        wanted = "text"
    return None if there is not None and getattr(there, wanted) is not None else wanted


def with_files(
    body: dict[str, Any], files: Mapping[str, InputFile], form: FileForm
) -> dict[str, Any]:
    """The body with its files in this form, as far as they are in ``files``."""
    changed = dict(body)
    for field in _LISTS:
        items = body.get(field)
        if type(items) is list:
            changed[field] = [_replaced(item, files, form) for item in items]
    return changed


def decoded_data(data: str) -> tuple[bytes, str]:
    """The content and the media type of ``file_data``: a ``data:`` URL, or only base64. The type
    is "" where it is not said. Raises ValueError.
    """
    try:
        if not data.startswith("data:"):
            return base64.b64decode(data, validate=True), ""
        head, comma, payload = data.partition(",")
        if not comma:
            raise ValueError
        media_type, *parameters = head.removeprefix("data:").lower().split(";")
        if "base64" in parameters:
            return base64.b64decode(payload, validate=True), media_type
        return unquote_to_bytes(payload), media_type
    except binascii.Error as error:
        raise ValueError from error


def _of_item(item: Any) -> Iterator[tuple[str, int, dict[str, Any]]]:
    if type(item) is not dict:
        return
    for name in _PARTS:
        parts = item.get(name)
        for place, part in enumerate(parts if type(parts) is list else ()):
            if type(part) is dict:
                yield name, place, part


def _replaced(item: Any, files: Mapping[str, InputFile], form: FileForm) -> Any:
    if type(item) is not dict:
        return item
    changed = item
    for name in _PARTS:
        parts = item.get(name)
        if type(parts) is list:
            new = [_part(part, files, form) for part in parts]
            if any(one is not other for one, other in zip(new, parts, strict=True)):
                changed = {**changed, name: new}
    return changed


def _part(part: Any, files: Mapping[str, InputFile], form: FileForm) -> Any:
    key = file_key(part) if type(part) is dict else None
    file = files.get(key) if key is not None else None
    if file is None:
        return part
    if part["type"] in _IMAGES:
        if file.data is None:
            return part
        kept = {name: value for name, value in part.items() if name != "file_id"}
        return {**kept, "image_url": file.url}
    as_data = form == "data" or (form == "pdf" and file.media_type == PDF)
    if as_data and file.data is not None:
        kept = {name: value for name, value in part.items() if name not in _SOURCES}
        return {**kept, "filename": file.filename, "file_data": file.url}
    if not as_data and file.text is not None:
        return {"type": "input_text", "text": f"File {file.filename}:\n{file.text}"}
    return part


def _is_pdf(part: Mapping[str, Any]) -> bool:
    """Whether a part says that it is a PDF."""
    data, url = part.get("file_data"), part.get("file_url")
    if isinstance(data, str):
        return data[:64].lower().startswith((f"data:{PDF};", "jvberi"))
    if isinstance(url, str):
        return _path(url).lower().endswith(".pdf")
    return False


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""
