"""Content parts of the Responses API as blocks of Anthropic's Messages."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from router.dialects.parts import Where, ollama_part, refused
from router.dialects.responses.input_items import TEXT_PARTS

__all__ = ["blocks_of_content", "text_block"]

Block = dict[str, Any]

_PDF: Final = "application/pdf"
_NO_FILES: Final = "This model's endpoint has no uploaded files. Send the content itself in "


def text_block(text: str) -> Block:
    """A block of text."""
    return {"type": "text", "text": text}


def blocks_of_content(content: Any, where: Where) -> list[Block]:
    """The blocks of a message's content, or of a tool's output; blank texts, which Anthropic
    refuses, are left out. Raises InvalidRequest for what cannot be carried.
    """
    if isinstance(content, str):
        return [text_block(content)] if content.strip() else []
    blocks = []
    for index, part in enumerate(content):
        field = TEXT_PARTS.get(part["type"])
        if field is None:
            blocks.append(_block(part, (*where, index)))
        elif part[field].strip():
            blocks.append(text_block(part[field]))
    return blocks


def _block(part: Mapping[str, Any], where: Where) -> Block:
    kind = part["type"]
    if kind == "input_audio":
        raise refused("This model's endpoint takes no audio. Send text or images.", where)
    if kind == "input_file":
        return _document(part, where)
    url = part.get("image_url")
    if url is None:
        raise refused(f"{_NO_FILES}'image_url', as a data: URL.", (*where, "file_id"))
    return {"type": "image", "source": _source(str(url))}


def _source(url: str) -> Block:
    header, comma, data = url.partition(",")
    if comma and header.startswith("data:") and header.endswith(";base64"):
        media_type = header.removeprefix("data:").removesuffix(";base64").partition(";")[0]
        return {"type": "base64", "media_type": media_type.lower(), "data": data}
    return {"type": "url", "url": url}


def _document(part: Mapping[str, Any], where: Where) -> Block:
    data, url, name = part.get("file_data"), part.get("file_url"), part.get("filename")
    if url is not None:
        block: Block = {"type": "document", "source": {"type": "url", "url": url}}
    elif data is None:
        raise refused(f"{_NO_FILES}'file_data', as a data: URL.", (*where, "file_id"))
    elif _is_pdf(data):
        payload = data.partition(",")[2] if data.startswith("data:") else data
        source = {"type": "base64", "media_type": _PDF, "data": payload}
        block = {"type": "document", "source": source}
    else:  # a text, or refused
        return text_block(ollama_part(part, where)["text"])
    if name:
        block["title"] = name
    return block


def _is_pdf(data: str) -> bool:
    """Whether file data is a PDF: by its media type, or bare base64 by its first bytes."""
    if data.startswith("data:"):
        return data[:64].lower().startswith(f"data:{_PDF};")
    return data.startswith(base64.b64encode(b"%PDF-").decode()[:6])
