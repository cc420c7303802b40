"""The questions to a model, as small as they can be, and what its answers show."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.response.tokens import from_response

__all__ = ["PLAIN", "QUESTIONS", "Finding", "ProbeQuestion"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one field of ``capabilities``; None: nothing, and that is ``why``."""

    value: bool | int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ProbeQuestion:
    """``ask`` has the fields of a Responses request but for its model; ``judge`` looks at the
    final response to it, which did not fail, and finds whether the model has ``field``.
    """

    field: str
    ask: Mapping[str, Any]
    judge: Callable[[Mapping[str, Any]], Finding]


def _items(holder: Mapping[str, Any], field: str, kind: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a type in a list; an endpoint may have made it of anything."""
    entries = holder.get(field)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("type") == kind:
            yield entry


def _text(response: Mapping[str, Any]) -> str:
    messages = _items(response, "output", "message")
    parts = (part for message in messages for part in _items(message, "content", "output_text"))
    return "".join(text for part in parts if isinstance(text := part.get("text"), str))


def _has_a_call(response: Mapping[str, Any]) -> bool:
    return any(_items(response, "output", "function_call"))


def _was_cut(response: Mapping[str, Any]) -> bool:
    return response.get("status") == "incomplete"


def _shows_a_call(response: Mapping[str, Any]) -> Finding:
    if _has_a_call(response):
        return Finding(True)
    return Finding(None, "accepted, but the model made no call")


def _shows_a_forced_call(response: Mapping[str, Any]) -> Finding:
    if _has_a_call(response):
        return Finding(True)
    if _was_cut(response):
        return Finding(None, "accepted, but the answer was cut off before a call")
    return Finding(False, "ignored: the model answered without a call")


def _follows_the_schema(response: Mapping[str, Any]) -> Finding:
    try:
        value = orjson.loads(_text(response))
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict) and type(value.get("ok")) is bool:
        return Finding(True)
    if _was_cut(response):
        return Finding(None, "accepted, but the answer was cut off")
    return Finding(False, "ignored: the answer does not follow the schema")


def _names_the_color(response: Mapping[str, Any]) -> Finding:
    if re.search(r"\bred\b", _text(response), re.IGNORECASE):
        return Finding(True)
    return Finding(None, "accepted, but the answer does not tell what the image shows")


def _shows_reasoning(response: Mapping[str, Any]) -> Finding:
    usage = from_response(response.get("usage")) or {"output_tokens_details": {}}
    counted = usage["output_tokens_details"].get("reasoning_tokens")
    if counted or any(_items(response, "output", "reasoning")):
        return Finding(True)
    return Finding(None, "accepted, but the answer shows no reasoning")


def _red_square(size: int = 64) -> str:
    """A PNG as a data URL; some models take no image that is smaller than a few of its patches."""
    rows = (b"\0" + b"\xff\0\0" * size) * size
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


_FEW: Final = 16  # no limit may be lower in the Responses API
_THOUGHT: Final = 2048  # Anthropic lets no model think with less than half of that
_SOME: Final = 256  # for a call or an object, and what some models think before it

_PING: Final = {
    "type": "function",
    "name": "ping",
    "description": "Sends a word and answers whether it arrived.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
}
_CALL: Final = {
    "input": "Call the function ping with the word hi.",
    "tools": [_PING],
    "max_output_tokens": _SOME,
}
_OK: Final = {
    "type": "json_schema",
    "name": "answer",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    },
}
_LOOK: Final = [
    {"type": "input_text", "text": "Which color is this? Answer with one word."},
    {"type": "input_image", "image_url": _red_square(), "detail": "low"},
]

PLAIN: Final[Mapping[str, Any]] = {"input": "Say yes.", "max_output_tokens": _FEW}
"""What any model can be asked."""

QUESTIONS: Final = (
    ProbeQuestion("tools", _CALL, _shows_a_call),
    ProbeQuestion("tool_choice", {**_CALL, "tool_choice": "required"}, _shows_a_forced_call),
    ProbeQuestion(
        "json_schema",
        {"input": "Are you there?", "text": {"format": _OK}, "max_output_tokens": _SOME},
        _follows_the_schema,
    ),
    ProbeQuestion(
        "vision",
        {"input": [{"role": "user", "content": _LOOK}], "max_output_tokens": _SOME},
        _names_the_color,
    ),
    ProbeQuestion(
        "reasoning",
        {**PLAIN, "reasoning": {"effort": "low"}, "max_output_tokens": _THOUGHT},
        _shows_reasoning,
    ),
)
