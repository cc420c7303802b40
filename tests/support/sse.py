"""A client's view of a stream: its events, and what is true of every one of the router's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

__all__ = ["Event", "check_responses_stream", "parse_events", "text_of"]

_TERMINAL = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True)
class Event:
    """One event; ``data`` is None for what is not JSON (``[DONE]``)."""

    type: str
    data: dict[str, Any] | None
    raw: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The data, which has to be JSON."""
        assert self.data is not None, self.raw
        return self.data

    @property
    def response(self) -> dict[str, Any]:
        """The Response object in it."""
        response: dict[str, Any] = self.json["response"]
        return response


def parse_events(body: bytes) -> list[Event]:
    """The events of a whole stream; comments are left out, half an event is an error."""
    *blocks, rest = body.split(b"\n\n")
    assert rest == b"", f"the stream ends in the middle of an event: {rest[-200:]!r}"
    return [_event(block) for block in blocks if not block.startswith(b":")]


def _event(block: bytes) -> Event:
    kind, data = "", None
    for line in block.split(b"\n"):
        name, _, value = line.partition(b": ")
        assert name in (b"event", b"data"), block
        if name == b"event":
            kind = value.decode()
        else:
            data = value
    assert data is not None, block
    return Event(kind, None if data == b"[DONE]" else orjson.loads(data), data)


def check_responses_stream(events: list[Event]) -> dict[str, Any]:
    """Check what the contract says of every Responses stream; the final Response object."""
    types = [event.type for event in events]
    waited = ["response.queued"] if "response.queued" in types else []
    opening = ["response.created", *waited, "response.in_progress"]
    assert types[: len(opening)] == opening, types
    assert [t for t in types if t in _TERMINAL] == types[-1:], types
    assert types.count("response.created") == types.count("response.in_progress") == 1, types
    bodies = [event.data or {} for event in events]
    assert [body.get("type") for body in bodies] == types
    assert [body["sequence_number"] for body in bodies] == list(range(len(events)))
    responses = [body["response"] for body in bodies if "response" in body]
    for constant in ("id", "created_at", "metadata"):
        assert len({repr(response[constant]) for response in responses}) == 1, constant
    final: dict[str, Any] = responses[-1]
    assert types[-1] == f"response.{final['status']}"
    return final


def text_of(events: list[Event]) -> str:
    """All text deltas, joined."""
    return "".join(
        event.data["delta"]
        for event in events
        if event.type == "response.output_text.delta" and event.data is not None
    )
