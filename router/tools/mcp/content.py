"""What a tool gives back, as text for a model."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import orjson

from router.tools.mcp.server import McpResult

__all__ = ["as_result", "cut"]


def as_result(result: types.CallToolResult, most: int) -> McpResult:
    """The result with at most ``most`` bytes of text.

    Text is as it came. What is no text is named, with its type and size: an image, a sound, a file.
    Structured content is in place of text where there is none.
    """
    structured, written = _structured(result.structured_content)
    text = "\n".join(_block(block) for block in result.content)
    if not result.content and written is not None:
        text = written
    if written is None or len(written) > most:
        structured = None
    return McpResult(cut(text, most), bool(result.is_error), structured)


def cut(text: str, most: int) -> str:
    """The beginning, where ``text`` is longer than ``most`` bytes; it then says so."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return data.decode()
    start = data[:most].decode(errors="ignore")
    return f"{start}\n[cut: these are the first {most} of {len(data)} bytes]"


def _structured(value: Any) -> tuple[Any, str | None]:
    if value is None:
        return None, None
    try:
        return value, orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # too deep, or numbers that are too large
        return None, None


def _block(block: types.ContentBlock) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ImageContent | types.AudioContent):
        return f"[{block.type}: {block.mime_type}, {_size(block.data)}]"
    if isinstance(block, types.ResourceLink):
        about = ", ".join(one for one in (block.mime_type, block.description) if one)
        return f"[link to {block.name}: {block.uri}{', ' if about else ''}{about}]"
    resource = block.resource
    if isinstance(resource, types.TextResourceContents):
        return f"[{resource.uri}]\n{resource.text}"
    kind = resource.mime_type or "application/octet-stream"
    return f"[file {resource.uri}: {kind}, {_size(resource.blob)}]"


def _size(data: str) -> str:
    """Of what Base64 stands for."""
    return f"{len(data) * 3 // 4 - data[-2:].count('=')} bytes"
