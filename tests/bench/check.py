"""Whether an answer that came back is the one that was asked for. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from .shapes import MOCK_RESPONSE_ID, Shape

__all__ = ["Checker", "decode"]


class Checker:
    """Checks the answers of one target.

    ``own_ids`` says that the target gives ids of its own: then the mock's id, or one id twice,
    is a fault.
    """

    def __init__(self, *, own_ids: bool) -> None:
        self._own_ids = own_ids
        self._seen: set[str] = set()

    def stream(self, body: bytes, shape: Shape) -> str | None:
        """What is wrong with a streamed answer (``body`` without its HTTP framing), or None."""
        events: list[dict[str, Any]] = []
        frames = body.split(b"\n\n")
        if frames.pop():
            return "the stream ends within an event"
        for frame in frames:
            event = decode(frame)
            if isinstance(event, str):
                return event
            if event is not None:
                events.append(event)
        return _order(events) or self._content(events, shape)

    def body(self, body: bytes, shape: Shape) -> str | None:
        """What is wrong with an answer that was not streamed, or None."""
        try:
            response = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            return f"the body is not JSON: {error}"
        return self._response(response, shape)

    def _content(self, events: list[dict[str, Any]], shape: Shape) -> str | None:
        deltas = [e.get("delta") for e in events if e["type"] == "response.output_text.delta"]
        if not all(isinstance(delta, str) for delta in deltas):
            return "a delta is not text"
        if (text := "".join(map(str, deltas))) != shape.text:
            return f"the deltas make another text: {text[:60]!r}, not {shape.text[:60]!r}"
        for event in events:
            if event["type"] == "response.output_text.done" and event.get("text") != shape.text:
                return "response.output_text.done has another text than the deltas"
        first, last = events[0].get("response"), events[-1].get("response")
        if not isinstance(first, dict) or not isinstance(last, dict):
            return "response.created or response.completed carries no response"
        if first.get("id") != last.get("id"):
            return f"the response's id changes from {first.get('id')!r} to {last.get('id')!r}"
        return self._response(last, shape)

    def _response(self, response: Any, shape: Shape) -> str | None:
        if not isinstance(response, dict) or response.get("object") != "response":
            return "the body is not a response object"
        if response.get("status") != "completed":
            return f"status is {response.get('status')!r}, not 'completed'"
        if (text := _output_text(response)) != shape.text:
            return f"the output is {text[:60]!r}, not {shape.text[:60]!r}"
        usage = response.get("usage")
        if not isinstance(usage, dict) or usage.get("output_tokens") != shape.deltas:
            return f"usage is {usage!r}, not {shape.deltas} output tokens"
        return self._identity(response.get("id"))

    def _identity(self, response_id: object) -> str | None:
        if not isinstance(response_id, str) or not response_id.startswith("resp_"):
            return f"the response's id is {response_id!r} and does not begin with resp_"
        if not self._own_ids:
            return None
        if response_id == MOCK_RESPONSE_ID:
            return f"the response's id is the upstream's, {response_id}"
        if response_id in self._seen:
            return f"two answers have the id {response_id}"
        self._seen.add(response_id)
        return None


def decode(frame: bytes) -> dict[str, Any] | str | None:
    """The event of one frame; None for a frame of comments, a text that says what is wrong."""
    name, data = None, None
    for line in frame.split(b"\n"):
        if line.startswith(b":"):
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data = value
        else:
            return f"a line of the stream is neither event nor data: {line[:60]!r}"
    if name is None and data is None:
        return None
    try:
        event = orjson.loads(data or b"")
    except orjson.JSONDecodeError:
        return f"an event is not JSON: {(data or b'')[:60]!r}"
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return f"an event has no type: {(data or b'')[:60]!r}"
    if name != event["type"].encode():
        return f"an event is named {name!r} and has the type {event['type']!r}"
    return event


def _order(events: list[dict[str, Any]]) -> str | None:
    if not events:
        return "the stream has no events"
    for number, event in enumerate(events):
        if event.get("sequence_number") != number:
            return f"event {number} has the sequence_number {event.get('sequence_number')!r}"
    if events[0]["type"] != "response.created":
        return f"the stream begins with {events[0]['type']}"
    if events[-1]["type"] != "response.completed":
        return f"the stream ends with {events[-1]['type']}"
    return None


def _output_text(response: dict[str, Any]) -> str:
    text = []
    for item in _objects(response.get("output")):
        if item.get("type") == "message":
            text += [str(part.get("text")) for part in _objects(item.get("content"))]
    return "".join(text)


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
