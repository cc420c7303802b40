"""What the tests of the readers share: builders with predictable ids, streams made of parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import settings

from router.dialects.responses.fields import OWN_FIELDS
from router.dialects.responses.schema import echo_fields
from router.errors import RouterError, UpstreamFailure
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.frame import Frame
from tests.support.order import Event, check_order, parse_sse

__all__ = [
    "BROKEN",
    "DATA",
    "FUZZ",
    "NOW",
    "TRACES",
    "checked",
    "decoded",
    "events_of",
    "in_bytes",
    "make_builder",
    "native",
    "ollama",
    "read_all",
    "read_to_the_end",
    "said",
    "sse",
    "trace",
    "traces",
]

NOW = 1_800_000_000
BROKEN = UpstreamFailure("The connection broke.")
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
TRACES = DATA / "ConformanceTraces"
FUZZ = settings(derandomize=True, deadline=None, max_examples=30, database=None)
"""Hypothesis without surprises: the same examples every time, and few of them."""

REQUEST: dict[str, Any] = {"model": "m", "input": "12345678", "metadata": {"a": "b"}}


def make_builder(*, muted: bool = False, **request: Any) -> ResponseBuilder:
    """A builder whose ids count up from 1 for each builder."""
    count = 0

    def new_id(prefix: str) -> str:
        nonlocal count
        count += 1
        return f"{prefix}{count:04d}"

    echo = echo_fields({**REQUEST, **request}, model="m")
    return ResponseBuilder(
        echo=echo, own_fields=OWN_FIELDS, new_id=new_id, now=lambda: NOW, muted=muted
    )


def sse(*objects: Any) -> bytes:
    """A stream of ``data`` lines; bytes stand for themselves."""
    datas = (o if isinstance(o, bytes) else orjson.dumps(o) for o in objects)
    return b"".join(b"data: %b\n\n" % data for data in datas)


def ollama(*messages: dict[str, Any], reason: str | None = "stop", **last: Any) -> bytes:
    """An NDJSON stream with these messages and, unless ``reason`` is None, its last line."""
    lines: list[dict[str, Any]] = [{"message": message, "done": False} for message in messages]
    if reason is not None:
        counts = {"prompt_eval_count": 3, "eval_count": 2}
        message = {"role": "assistant", "content": ""}
        lines.append({"message": message, "done": True, "done_reason": reason, **counts, **last})
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def native(*events: dict[str, Any], start: int = 0) -> bytes:
    """A native stream of these events, numbered where they carry no number of their own."""
    numbered = ({"sequence_number": start + i, **event} for i, event in enumerate(events))
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (str(event.get("type")).encode(), orjson.dumps(event))
        for event in numbered
    )


def decoded(frames: Iterable[Frame]) -> list[Event]:
    """The events of these frames, taken from the bytes on the wire."""
    body = b"".join(frame.encode() for frame in frames)
    return parse_sse(body) if body else []


def read_all(decoder: StreamDecoder, data: bytes | Sequence[bytes]) -> list[Frame]:
    """Every frame that these reads and the end of the body make."""
    reads = [data] if isinstance(data, bytes) else data
    frames = [frame for read in reads for frame in decoder.feed(read)]
    return [*frames, *decoder.finish()]


def read_to_the_end(
    decoder: StreamDecoder, data: bytes | Sequence[bytes], error: RouterError = BROKEN
) -> list[Frame]:
    """The same, with ``fail`` where the answer did not end."""
    frames = read_all(decoder, data)
    assert decoder.ended == (decoder.error is None)
    return frames if decoder.ended else [*frames, *decoder.fail(error)]


def events_of(decoder: StreamDecoder, data: bytes | Sequence[bytes]) -> list[Event]:
    """The events of an answer that must end by itself, their order checked."""
    events = decoded(read_all(decoder, data))
    assert decoder.error is None, decoder.error.message
    check_order(events)
    return events


def checked(decoder: StreamDecoder, data: bytes | Sequence[bytes]) -> dict[str, Any]:
    """The final response of an answer that must end by itself, its order checked."""
    final: dict[str, Any] = events_of(decoder, data)[-1]["response"]
    return final


def said(final: dict[str, Any]) -> list[tuple[str, str]]:
    """What each item of an output says: ``("text", "Hi")``, ``("f", '{"a":1}')``."""
    return [_said(item) for item in final["output"]]


def _said(item: dict[str, Any]) -> tuple[str, str]:
    if item["type"] == "function_call":
        return item["name"], item["arguments"]
    if item["type"] == "custom_tool_call":
        return item["name"], item["input"]
    if item["type"] == "reasoning":
        return "reasoning", "".join(part["text"] for part in item["summary"])
    (part,) = item["content"]
    if part["type"] == "refusal":
        return "refusal", part["refusal"]
    return "text", part["text"]


def in_bytes(data: bytes, size: int = 1) -> list[bytes]:
    """``data`` in reads of ``size`` bytes."""
    return [data[i : i + size] for i in range(0, len(data), size)]


def trace(name: str) -> bytes:
    """A recorded body; skips the test where there are no recordings."""
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path.read_bytes()


def traces(*patterns: str) -> list[str]:
    """The names of the recordings; what ``trace`` skips where there are none."""
    paths = [path for pattern in patterns for path in TRACES.glob(pattern)]
    return sorted(str(path.relative_to(TRACES)) for path in paths) or list(patterns)
