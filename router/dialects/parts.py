"""Content parts of messages, one converter per dialect.

A converter takes a content part that is not text, and the path to it, and returns the dialect's
form of it; what the dialect cannot carry is refused with a word on what to send instead.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from router.errors import InvalidRequest

__all__ = [
    "PartConverter",
    "Where",
    "chat_part",
    "is_textual",
    "ollama_part",
    "path_of",
    "refused",
]

Where = tuple[str | int, ...]
"""The way to a value: ``("input", 2, "content", 0)``; written out only when it is complained of."""

PartConverter = Callable[[Mapping[str, Any], Where], dict[str, Any]]

_TEXTUAL: Final = frozenset(
    {
        "application/json",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)
"""Media types beside ``text/*`` whose content is plain text."""

_LONGEST_HEADER: Final = 1024
"""Characters before the comma of a ``data:`` URL."""


def path_of(where: Where) -> str:
    """The path as an error names it: ``input[2].content[0]``."""
    path = ""
    for step in where:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path


def refused(message: str, where: Where) -> InvalidRequest:
    """The error for a value that is fine as such, but not where it has to go."""
    return InvalidRequest(message, code="unsupported_value", param=path_of(where))


def chat_part(part: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """An image, file or audio part in the form of Chat Completions."""
    kind = part["type"]
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": part["input_audio"]}
    if kind == "input_file":
        if part.get("file_data") is not None and is_textual(part["file_data"]):
            return {"type": "text", "text": _file_text(part, where)}
        return {"type": "file", "file": _chat_file(part, where)}
    image: dict[str, Any] = {"url": _image_url(part, where)}
    if part.get("detail") is not None:
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def ollama_part(
    part: Mapping[str, Any], where: Where, images: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """An image part as ``{"type": "image", "data": base64}``, a text file as a text part.

    ``images`` are those that have been fetched, in base64, by their URLs.
    """
    kind = part["type"]
    if kind == "input_audio":
        raise refused("This model's endpoint takes no audio. Send text or images.", where)
    if kind == "input_file":
        return {"type": "text", "text": _file_text(part, where)}
    url = _image_url(part, where)
    if images and url in images:
        return {"type": "image", "data": images[url]}
    header, comma, data = url.partition(",")
    if not comma or not header.startswith("data:") or not header.endswith(";base64"):
        raise refused(
            "This model's endpoint fetches no images. Send the image itself, as a "
            "'data:image/png;base64,…' URL.",
            (*where, "image_url"),
        )
    return {"type": "image", "data": data}


def _image_url(part: Mapping[str, Any], where: Where) -> str:
    url = part.get("image_url")
    if url is None:
        raise refused(
            "This model's endpoint has no uploaded files. Send the image in 'image_url' "
            "instead of 'file_id'.",
            (*where, "file_id"),
        )
    return str(url)


def _chat_file(part: Mapping[str, Any], where: Where) -> dict[str, Any]:
    data, file_id = part.get("file_data"), part.get("file_id")
    if data is not None:
        file = {"file_data": data}
        if part.get("filename") is not None:
            file["filename"] = part["filename"]
        return file
    if file_id is not None:
        return {"file_id": file_id}
    raise refused(
        "This model's endpoint fetches no files. Send the content in 'file_data' (a data: URL) "
        "with a 'filename' instead of 'file_url'.",
        (*where, "file_url"),
    )


def _file_text(part: Mapping[str, Any], where: Where) -> str:
    data = part.get("file_data")
    if data is None:
        name = "file_id" if part.get("file_id") is not None else "file_url"
        raise refused(
            f"This model's endpoint cannot read '{name}'. Send a text file in 'file_data', as a "
            "'data:text/plain;base64,…' URL.",
            (*where, name),
        )
    if not is_textual(data):
        raise refused(
            "This model's endpoint reads text files only. Send 'file_data' as a "
            "'data:text/plain;base64,…' URL, or the file's text as an 'input_text' part.",
            (*where, "file_data"),
        )
    header, _, payload = data.partition(",")
    text = _decoded(payload, "base64" in header.lower().split(";"), where)
    return f"File {part.get('filename') or 'without a name'}:\n{text}"


def is_textual(data: str) -> bool:
    """Whether ``file_data`` is a ``data:`` URL whose media type is that of a text."""
    header, comma, _ = data[:_LONGEST_HEADER].partition(",")
    media_type = header.removeprefix("data:").lower().partition(";")[0]
    textual = media_type.startswith("text/") or media_type in _TEXTUAL
    return bool(comma) and header.startswith("data:") and textual


def _decoded(payload: str, is_base64: bool, where: Where) -> str:
    try:
        raw = base64.b64decode(payload, validate=True) if is_base64 else unquote_to_bytes(payload)
        return raw.decode("utf-8-sig")
    except (binascii.Error, ValueError):
        raise InvalidRequest(
            "Invalid 'file_data': it is not UTF-8 text, or its base64 is broken.",
            code="invalid_value",
            param=path_of((*where, "file_data")),
        ) from None
