"""Requests that vary as an application's do: in length, turns, tools, instructions. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from .shapes import VARIANTS, Shape

__all__ = ["Request", "get", "make_requests", "post", "taken", "wire"]

_NOTHING: Final[Mapping[str, Any]] = {}
_HEAD_END: Final = b"\r\n\r\n"

_WORDS = (
    *("router", "stream", "token", "model", "queue", "latency", "answer", "backend", "request"),
    *("cache", "proxy", "window", "batch", "prompt", "buffer", "header", "a", "the", "of", "to"),
    *("Größe", "naïve", "résumé", "負荷", "分散", "“quoted”", 'say "so"', "tab\tstop", "end.\n"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as bytes on the wire, and the answer that it must get."""

    wire: bytes
    shape: Shape
    stream: bool


def make_requests(
    shape: Shape,
    *,
    stream: bool,
    key: str,
    store: bool = False,
    more: Mapping[str, Any] = _NOTHING,
    count: int = 64,
    seed: int = 1,
) -> list[Request]:
    """``count`` different requests for ``shape`` (in all its variants), the same for one seed.

    ``more`` are fields that every one of them has.
    """
    source = random.Random(seed)
    made = []
    for number in range(count):
        wanted = Shape(shape.deltas, shape.delay_ms, number % VARIANTS)
        body = {"model": wanted.model, **_content(source, number), "store": store, **more}
        if stream or number % 2:
            body["stream"] = stream
        made.append(Request(post(body, key), wanted, stream))
    return made


def post(body: Mapping[str, Any], key: str) -> bytes:
    """A request for /v1/responses as bytes on the wire."""
    data = orjson.dumps(body)
    head = (
        "POST /v1/responses HTTP/1.1\r\n"
        "Host: 127.0.0.1\r\n"
        "Content-Type: application/json\r\n"
        "Accept: */*\r\n"
        f"Authorization: Bearer {key}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def wire(path: str, head: bytes, body: Mapping[str, Any]) -> bytes:
    """A request with another body, on another path; ``head`` is that of a POST."""
    data = orjson.dumps(body)
    lines = [b"POST %s HTTP/1.1" % path.encode(), *head.split(b"\r\n")[1:]]
    kept = [line for line in lines if not line.lower().startswith(b"content-length:")]
    return b"\r\n".join([*kept, b"Content-Length: %d" % len(data)]) + _HEAD_END + data


def taken(request: Request) -> tuple[str, bytes, dict[str, Any]]:
    """Path, head and body of a POST."""
    head, _, data = request.wire.partition(_HEAD_END)
    return head.split(b" ", 2)[1].decode(), head, orjson.loads(data)


def get(path: str, key: str) -> bytes:
    """A GET as bytes on the wire."""
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n"
    return head.encode()


def _content(source: random.Random, number: int) -> dict[str, Any]:
    kinds = (_plain, _instructed, _turns, _parts, _with_tools, _tool_round)
    return kinds[number % len(kinds)](source)


def _prose(source: random.Random, longest: int = 2000) -> str:
    """Between 20 and ``longest`` characters, short ones more often than long ones."""
    length = int(20 * (longest / 20) ** source.random())
    words: list[str] = []
    while sum(map(len, words)) + len(words) < length:
        words.append(source.choice(_WORDS))
    return " ".join(words) + f" #{source.randrange(10**9)}"


def _plain(source: random.Random) -> dict[str, Any]:
    return {"input": _prose(source)}


def _instructed(source: random.Random) -> dict[str, Any]:
    return {
        "instructions": _prose(source, 600),
        "input": _prose(source),
        "temperature": round(source.uniform(0.1, 1.0), 2),
        "metadata": {"ticket": str(source.randrange(10**6))},
    }


def _turns(source: random.Random) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for _ in range(source.randint(1, 6)):
        turns.append({"role": "user", "content": _prose(source, 400)})
        turns.append({"role": "assistant", "content": _prose(source, 800)})
    turns.append({"role": "user", "content": _prose(source)})
    return {"input": turns, "max_output_tokens": source.choice((256, 512, 1024))}


def _parts(source: random.Random) -> dict[str, Any]:
    parts = [{"type": "input_text", "text": _prose(source, 500)} for _ in range(2)]
    return {
        "instructions": _prose(source, 200),
        "input": [{"type": "message", "role": "user", "content": parts}],
        "top_p": 0.9,
    }


def _tool(source: random.Random, name: str) -> dict[str, Any]:
    properties = {
        field: {"type": kind, "description": _prose(source, 80)}
        for field, kind in (("place", "string"), ("days", "integer"))
    }
    return {
        "type": "function",
        "name": name,
        "description": _prose(source, 120),
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": ["place", "days"],
            "additionalProperties": False,
        },
        "strict": True,
    }


def _with_tools(source: random.Random) -> dict[str, Any]:
    names = ("weather", "calendar", "search")[: source.randint(1, 3)]
    return {
        "input": _prose(source),
        "tools": [_tool(source, name) for name in names],
        "tool_choice": "auto",
    }


def _tool_round(source: random.Random) -> dict[str, Any]:
    call_id = f"call_{source.randrange(10**12):012d}"
    arguments = orjson.dumps({"place": _prose(source, 40), "days": source.randint(1, 9)}).decode()
    call = {
        "type": "function_call",
        "call_id": call_id,
        "name": "weather",
        "arguments": arguments,
    }
    output = {"type": "function_call_output", "call_id": call_id, "output": _prose(source, 300)}
    return {
        "instructions": _prose(source, 200),
        "input": [{"role": "user", "content": _prose(source, 400)}, call, output],
        "tools": [_tool(source, "weather")],
    }
