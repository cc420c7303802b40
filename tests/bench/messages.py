"""Anthropic's Messages at both ends of a router: the same questions, answers and checks. Pure."""

from __future__ import annotations

from typing import Any, Final

import orjson

from .bodies import Request, taken, wire
from .check import Checker, decode
from .shapes import INPUT_TOKENS, Shape, writes

__all__ = [
    "PATH",
    "MessagesChecker",
    "MessagesShape",
    "as_messages",
    "messages_body",
    "messages_writes",
]

PATH: Final = "/v1/messages"

_ON_BOTH: Final = ("model", "stream", "temperature", "top_p")
_MAX_TOKENS: Final = 1024
"""Where the other request has no limit: here there must be one."""


class MessagesShape(Shape):
    """The same answer in Messages' own events: three before the deltas, three after them."""

    __slots__ = ()

    @property
    def events(self) -> int:
        return self.deltas + 6


def as_messages(request: Request) -> Request:
    """The same asked with Messages, by a client of Anthropic's."""
    _, head, body = taken(request)
    asked = body["input"]
    turns = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    made: dict[str, Any] = {name: body[name] for name in _ON_BOTH if name in body}
    made["max_tokens"] = body.get("max_output_tokens", _MAX_TOKENS)
    if "instructions" in body:
        made["system"] = body["instructions"]
    made["messages"] = [_turn(turn) for turn in turns]
    if "tools" in body:
        made["tools"] = [
            {
                "name": tool["name"],
                "description": tool["description"],
                "input_schema": tool["parameters"],
            }
            for tool in body["tools"]
        ]
    if "tool_choice" in body:
        made["tool_choice"] = {"type": body["tool_choice"]}
    shape = MessagesShape(request.shape.deltas, request.shape.delay_ms, request.shape.variant)
    head += b"\r\nanthropic-version: 2023-06-01"
    return Request(wire(PATH, head, made), shape, request.stream)


def _turn(item: dict[str, Any]) -> dict[str, Any]:
    if item.get("type") == "function_call":
        arguments = orjson.loads(item["arguments"])
        call = {"type": "tool_use", "id": item["call_id"], "name": item["name"]}
        return {"role": "assistant", "content": [{**call, "input": arguments}]}
    if item.get("type") == "function_call_output":
        result = {"type": "tool_result", "tool_use_id": item["call_id"], "content": item["output"]}
        return {"role": "user", "content": [result]}
    content = item["content"]
    if not isinstance(content, str):
        content = [{"type": "text", "text": part["text"]} for part in content]
    return {"role": item["role"], "content": content}


def _message(shape: Shape, done: bool) -> dict[str, Any]:
    return {
        "id": "msg_mock0001",
        "type": "message",
        "role": "assistant",
        "model": shape.model,
        "content": [{"type": "text", "text": shape.text}] if done else [],
        "stop_reason": "end_turn" if done else None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": INPUT_TOKENS,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": shape.deltas if done else 1,
            "service_tier": "standard",
        },
    }


def messages_body(shape: Shape) -> bytes:
    return orjson.dumps(_message(shape, True))


def messages_writes(shape: Shape) -> list[bytes]:
    """As ``responses_writes``."""
    empty = {"type": "text", "text": ""}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    deltas: list[dict[str, Any]] = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": piece},
        }
        for piece in shape.pieces
    ]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": _message(shape, False)},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "ping"},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": shape.deltas}},
        {"type": "message_stop"},
    ]
    frames = [
        b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(event))
        for event in events
    ]
    return writes(frames, lead=4, tail=3)


class MessagesChecker(Checker):
    """Checks answers in the form of Messages; ids are the upstream's, as they are passed on."""

    def __init__(self) -> None:
        super().__init__(own_ids=False)

    def stream(self, body: bytes, shape: Shape) -> str | None:
        """See ``Checker.stream``."""
        frames = body.split(b"\n\n")
        if frames.pop():
            return "the stream ends within an event"
        events: list[dict[str, Any]] = []
        for frame in frames:
            event = decode(frame)
            if isinstance(event, str):
                return event
            if event is not None:
                events.append(event)
        kinds = [event["type"] for event in events if event["type"] != "content_block_delta"]
        if kinds != _KINDS:
            return f"the events are {kinds}, not {_KINDS}"
        deltas = [e["delta"]["text"] for e in events if e["type"] == "content_block_delta"]
        if (text := "".join(deltas)) != shape.text:
            return f"the deltas make another text: {text[:60]!r}, not {shape.text[:60]!r}"
        return _wrong(events[0]["message"]["model"], events[-2]["usage"], shape)

    def body(self, body: bytes, shape: Shape) -> str | None:
        """See ``Checker.body``."""
        try:
            message = orjson.loads(body)
            text, model, usage = message["content"][0]["text"], message["model"], message["usage"]
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
            return f"the body is no message: {body[:60]!r}"
        if text != shape.text:
            return f"the text is {text[:60]!r}, not {shape.text[:60]!r}"
        return _wrong(model, usage, shape)


_KINDS: Final = [
    *("message_start", "content_block_start", "ping"),
    *("content_block_stop", "message_delta", "message_stop"),
]


def _wrong(model: object, usage: Any, shape: Shape) -> str | None:
    if model != shape.model:
        return f"the model is {model!r}, not {shape.model!r}"
    if not isinstance(usage, dict) or usage.get("output_tokens") != shape.deltas:
        return f"usage is {usage!r}, not {shape.deltas} output tokens"
    return None
