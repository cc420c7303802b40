"""Content of a user: texts, images, documents, as parts of a Responses message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.messages.fields import bad, given, need, objects, one_of, refused

__all__ = ["CONTENT", "parts_of", "text_parts"]

Part = dict[str, Any]

CONTENT: Final = ("text", "image", "document", "search_result")
"""Blocks that are content in a message and in a tool's result."""

_IMAGES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_SEND_IT: Final = "Send the content itself in a source of type 'base64'."


def parts_of(block: Mapping[str, Any], where: str) -> list[Part]:
    """The parts for a block of one of the types in ``CONTENT``."""
    kind = block["type"]
    if kind == "text":
        text = need(block, "text", str, where)
        return [_text(text)] if text else []
    if kind == "image":
        return [_image(need(block, "source", dict, where), f"{where}.source")]
    if kind == "document":
        return _document(block, where)
    return _search_result(block, where)


def text_parts(content: str | list[Any], where: str) -> list[Part]:
    """The parts of content that may only be text."""
    if isinstance(content, str):
        return [_text(content)] if content else []
    parts = []
    for path, block in objects(content, where):
        one_of(need(block, "type", str, path), ("text",), f"{path}.type")
        parts += parts_of(block, path)
    return parts


def _text(text: str) -> Part:
    return {"type": "input_text", "text": text}


def _image(source: Mapping[str, Any], where: str) -> Part:
    kind = need(source, "type", str, where)
    if kind == "file":
        raise refused(f"{where}.type", "A file that was uploaded before", _SEND_IT)
    if one_of(kind, ("base64", "url"), f"{where}.type") == "url":
        return {"type": "input_image", "image_url": need(source, "url", str, where)}
    media_type = need(source, "media_type", str, where)
    one_of(media_type, _IMAGES, f"{where}.media_type")
    data = need(source, "data", str, where)
    return {"type": "input_image", "image_url": f"data:{media_type};base64,{data}"}


def _document(block: Mapping[str, Any], where: str) -> list[Part]:
    source = need(block, "source", dict, where)
    title = given(block, "title", str, where)
    context = given(block, "context", str, where)
    about = [f"Document: {title}"] if title else []
    if context:
        about.append(f"About it: {context}")
    where = f"{where}.source"
    kind = need(source, "type", str, where)
    if kind == "file":
        raise refused(f"{where}.type", "A file that was uploaded before", _SEND_IT)
    one_of(kind, ("base64", "text", "content", "url"), f"{where}.type")
    if kind == "text":
        one_of(need(source, "media_type", str, where), ("text/plain",), f"{where}.media_type")
        return [_text("\n".join([*about, need(source, "data", str, where)]))]
    head = [_text("\n".join(about))] if about else []
    if kind == "content":
        return head + _nested(source, where)
    file: Part = {"type": "input_file", "filename": _filename(title)}
    if kind == "url":
        return [*head, {"type": "input_file", "file_url": need(source, "url", str, where)}]
    media_type = need(source, "media_type", str, where)
    one_of(media_type, ("application/pdf",), f"{where}.media_type")
    file["file_data"] = f"data:{media_type};base64,{need(source, 'data', str, where)}"
    return [*head, file]


def _filename(title: str | None) -> str:
    name = title or "document"
    return name if name.lower().endswith(".pdf") else f"{name}.pdf"


def _nested(source: Mapping[str, Any], where: str) -> list[Part]:
    """The parts of a document that is given as content."""
    content = source.get("content")
    if isinstance(content, str):
        return text_parts(content, where)
    parts: list[Part] = []
    for path, block in objects(need(source, "content", list, where), f"{where}.content"):
        one_of(need(block, "type", str, path), ("text", "image"), f"{path}.type")
        parts += parts_of(block, path)
    return parts


def _search_result(block: Mapping[str, Any], where: str) -> list[Part]:
    title, source = need(block, "title", str, where), need(block, "source", str, where)
    texts = text_parts(need(block, "content", list, where), f"{where}.content")
    if not texts:
        raise bad(f"{where}.content", "At least one text block is required")
    return [_text("\n".join([f"Search result: {title} ({source})", *(p["text"] for p in texts)]))]
