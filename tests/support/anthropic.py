"""What is true of every stream of Anthropic's Messages API, and the message that it adds up to.

    message_start · (content_block_start · content_block_delta* · content_block_stop)*
    · message_delta · message_stop

Blocks are numbered from 0 without a gap and never overlap; ``ping`` may come anywhere after the
start; ``error`` ends a stream anywhere. Every event, and the message, has to fit the types of the
official client, which has no field beside them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaContextManagementResponse
from pydantic import BaseModel, TypeAdapter

from router.response.frame import Frame
from tests.support.sse import Event, parse_events

__all__ = [
    "PDF",
    "PNG",
    "SAID",
    "SCHEMA",
    "TOOL",
    "VERSION",
    "accumulated",
    "asked",
    "bodies_of",
    "check_message",
    "check_stream",
    "events_of",
]

VERSION: Final = {"anthropic-version": "2023-06-01"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL: dict[str, Any] = {"name": "look", "description": "Looks", "input_schema": SCHEMA}
PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
SAID = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]
"""What becomes of the only message of ``asked``."""

_EVENT: Final[TypeAdapter[Any]] = TypeAdapter(RawMessageStreamEvent)
_FIELDS: Final = {
    "text_delta": (("text",), "text"),
    "citations_delta": (("text",), "citation"),
    "thinking_delta": (("thinking",), "thinking"),
    "signature_delta": (("thinking",), "signature"),
    "input_json_delta": (("tool_use", "server_tool_use"), "partial_json"),
}


def asked(**fields: Any) -> dict[str, Any]:
    """A request with these fields; ``...`` leaves one out."""
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": "m", "max_tokens": 2000, "messages": messages, **fields}
    return {name: value for name, value in body.items() if value is not ...}


def events_of(frames: Iterable[Frame]) -> list[dict[str, Any]]:
    """The events in frames, as a client reads them off the wire."""
    return bodies_of(parse_events(b"".join(frame.encode() for frame in frames)))


def bodies_of(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The bodies of events, each of which is of the type that its name says."""
    for event in events:
        assert event.json["type"] == event.type, event
    return [event.json for event in events]


def check_message(message: dict[str, Any]) -> None:
    """Check a finished message."""
    message = dict(message)
    if (managed := message.pop("context_management", None)) is not None:
        _check_known(BetaContextManagementResponse.model_validate(managed, strict=True))
    _check_known(Message.model_validate(message, strict=True))
    assert message["id"].startswith("msg_")
    assert len(message["id"]) > len("msg_")
    assert message["stop_reason"] is not None
    called = any(block["type"] == "tool_use" for block in message["content"])
    if message["stop_reason"] == "tool_use":
        assert called
    for block in message["content"]:
        assert block.get("text") != "", "a block of text without any"
        if block["type"] == "thinking":
            assert block["signature"]


def check_stream(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Check a whole stream; the message it adds up to, None where it ended in an error."""
    if events[-1]["type"] == "error":
        _check_error(events[-1])
        if len(events) > 1:
            _check_grammar(events[:-1], broken=True)
        return None
    _check_grammar(events, broken=False)
    message = accumulated(events)
    check_message(message)
    return message


def _check_error(event: dict[str, Any]) -> None:
    assert sorted(event) == ["error", "request_id", "type"]
    assert sorted(event["error"]) == ["message", "type"]


def _check_grammar(events: list[dict[str, Any]], *, broken: bool) -> None:
    state, index, kind, signed = "new", -1, "", False
    for event in events:
        what = event["type"]
        if what == "ping":
            assert state != "new"
            continue
        known = {k: v for k, v in event.items() if k != "context_management"}
        _check_known(_EVENT.validate_python(known, strict=True))
        if what == "message_start":
            assert state == "new"
            assert event["message"]["content"] == []
            assert event["message"]["stop_reason"] is None
            state = "between"
        elif what == "content_block_start":
            assert state == "between"
            index += 1
            assert event["index"] == index
            kind, state, signed = event["content_block"]["type"], "block", False
        elif what == "content_block_delta":
            assert (state, event["index"]) == ("block", index)
            wanted, field = _FIELDS[event["delta"]["type"]]
            assert kind in wanted
            assert not signed, "something follows a signature"
            assert event["delta"][field] != ""
            signed = event["delta"]["type"] == "signature_delta"
        elif what == "content_block_stop":
            assert (state, event["index"]) == ("block", index)
            assert signed == (kind == "thinking")
            state = "between"
        elif what == "message_delta":
            assert state == "between"
            state = "told"
        else:
            assert (what, state) == ("message_stop", "told")
            state = "ended"
    assert broken or state == "ended", state


def accumulated(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream adds up to."""
    message: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    for event in events:
        what = event["type"]
        if what == "message_start":
            message = orjson.loads(orjson.dumps(event["message"]))
        elif what == "content_block_start":
            message["content"].append(dict(event["content_block"]))
        elif what == "content_block_delta":
            _, field = _FIELDS[event["delta"]["type"]]
            block, piece = message["content"][event["index"]], event["delta"][field]
            if field == "citation":
                block.setdefault("citations", []).append(piece)
            elif field == "partial_json":
                inputs[event["index"]] = inputs.get(event["index"], "") + piece
            else:
                block[field] += piece
        elif what == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
            if "context_management" in event:
                message["context_management"] = event["context_management"]
    for index, text in inputs.items():
        message["content"][index]["input"] = _input(text)
    return message


def _input(text: str) -> dict[str, Any]:
    """The input of a tool; a client cannot read what was cut short, which whole is kept as text."""
    try:
        value = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError:
        value = text
    return value if isinstance(value, dict) else {"input": text}


def _check_known(model: BaseModel) -> None:
    """Nothing is in it that the type does not have."""
    todo: list[Any] = [model]
    while todo:
        value = todo.pop()
        if isinstance(value, BaseModel):
            assert not value.model_extra, value
            todo += [getattr(value, name) for name in type(value).model_fields]
        elif isinstance(value, list):
            todo += value
