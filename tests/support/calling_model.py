"""A model that calls functions as a test says, on an endpoint of any dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from router.settings.schema import Dialect
from tests.support.upstream import Received, Script, Wire

__all__ = ["Call", "Said", "asked_tools", "calling", "outputs_of"]

Call = tuple[str, dict[str, Any]]
"""A function's name, and its arguments."""

Said = Sequence[Call | str]
"""What the model says in one turn: text, and calls."""

_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def calling(dialect: Dialect, answer: Callable[[Received], Said]) -> Script:
    """A script that says what ``answer`` makes of each request."""

    async def script(wire: Wire) -> None:
        request = wire.request
        said = answer(request)
        stream = bool(request.json.get("stream"))
        body, kind = _BODIES[dialect](said, stream)
        wire.head(200, {"Content-Type": kind}, framing="length", length=len(body))
        wire.raw(body)

    return script


def asked_tools(request: Received) -> list[str]:
    """The names of the functions that the model was offered."""
    tools = request.json.get("tools") or []
    return [tool.get("name") or tool["function"]["name"] for tool in tools]


def outputs_of(request: Received) -> list[str]:
    """What the model was told came of its calls, in order."""
    body = request.json
    if "input" in body:
        items = body["input"] if isinstance(body["input"], list) else []
        return [i["output"] for i in items if i.get("type") == "function_call_output"]
    told = [m["content"] for m in body["messages"] if m["role"] == "tool"]
    blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
    return told + [_told(block) for block in blocks if block["type"] == "tool_result"]


def _told(result: dict[str, Any]) -> str:
    content = result.get("content", "")
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _parts(said: Said) -> tuple[str, list[Call]]:
    text = "".join(one for one in said if isinstance(one, str))
    return text, [one for one in said if not isinstance(one, str)]


def _chat(said: Said, stream: bool) -> tuple[bytes, str]:
    text, calls = _parts(said)
    made = [
        {
            "index": i,
            "id": f"call_{i}",
            "type": "function",
            "function": {"name": name, "arguments": orjson.dumps(given).decode()},
        }
        for i, (name, given) in enumerate(calls)
    ]
    finish = "tool_calls" if made else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if made:
        message["tool_calls"] = made
    base = {"id": "chatcmpl-1", "created": 1, "model": "m"}
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {**base, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
        return orjson.dumps(whole), "application/json"
    chunks = [
        {"index": 0, "delta": message, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": finish},
    ]
    events = [{**base, "object": "chat.completion.chunk", "choices": [c]} for c in chunks]
    events.append({**base, "object": "chat.completion.chunk", "choices": [], "usage": _USAGE})
    lines = [b"data: %b\n\n" % orjson.dumps(event) for event in events]
    return b"".join(lines) + b"data: [DONE]\n\n", "text/event-stream"


def _ollama(said: Said, stream: bool) -> tuple[bytes, str]:
    text, calls = _parts(said)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [{"function": {"name": n, "arguments": a}} for n, a in calls]
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5}
    base = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    if not stream:
        return orjson.dumps({**base, "message": message, **end}), "application/json"
    lines = [
        {**base, "message": message, "done": False},
        {**base, "message": {"role": "assistant", "content": ""}, **end},
    ]
    return b"".join(orjson.dumps(line) + b"\n" for line in lines), "application/x-ndjson"


def _items(said: Said) -> list[dict[str, Any]]:
    text, calls = _parts(said)
    items: list[dict[str, Any]] = [
        {
            "id": f"fc_{i}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{i}",
            "name": name,
            "arguments": orjson.dumps(given).decode(),
        }
        for i, (name, given) in enumerate(calls)
    ]
    if text:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        message = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"}
        items.insert(0, {**message, "content": [part]})
    return items


def _responses(said: Said, stream: bool) -> tuple[bytes, str]:
    items = _items(said)
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    base = {"id": "resp_up", "object": "response", "created_at": 1, "model": "m"}
    final = {**base, "status": "completed", "output": items, "usage": usage}
    if not stream:
        return orjson.dumps(final), "application/json"
    begun = {**base, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for place, item in enumerate(items):
        events += _item_events(place, item)
    events.append({"type": "response.completed", "response": final})
    lines = [
        b"event: %b\ndata: %b\n\n"
        % (event["type"].encode(), orjson.dumps({**event, "sequence_number": number}))
        for number, event in enumerate(events)
    ]
    return b"".join(lines), "text/event-stream"


def _item_events(place: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    about: dict[str, Any] = {"item_id": item["id"], "output_index": place}
    if item["type"] == "function_call":
        begun = {**item, "arguments": "", "status": "in_progress"}
        given = item["arguments"]
        between = [
            {"type": "response.function_call_arguments.delta", **about, "delta": given},
            {"type": "response.function_call_arguments.done", **about, "arguments": given},
        ]
    else:
        begun = {**item, "content": [], "status": "in_progress"}
        part = item["content"][0]
        about["content_index"] = 0
        empty, text = {**part, "text": ""}, {"text": part["text"], "logprobs": []}
        between = [
            {"type": "response.content_part.added", **about, "part": empty},
            {
                "type": "response.output_text.delta",
                **about,
                "delta": part["text"],
                "logprobs": [],
            },
            {"type": "response.output_text.done", **about, **text},
            {"type": "response.content_part.done", **about, "part": part},
        ]
    return [
        {"type": "response.output_item.added", "output_index": place, "item": begun},
        *between,
        {"type": "response.output_item.done", "output_index": place, "item": item},
    ]


def _messages(said: Said, stream: bool) -> tuple[bytes, str]:
    text, calls = _parts(said)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "tool_use", "id": f"toolu_{i}", "name": name, "input": given}
        for i, (name, given) in enumerate(calls)
    ]
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": 10, "output_tokens": 5}
    base = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    whole = {**base, "content": blocks, **stop, "usage": usage}
    if not stream:
        return orjson.dumps(whole), "application/json"
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    ]
    for index, block in enumerate(blocks):
        events += _block_events(index, block)
    events += [{"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"}]
    lines = [
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))
        for event in events
    ]
    return b"".join(lines), "text/event-stream"


def _block_events(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    if block["type"] == "text":
        begun = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        begun = {**block, "input": {}}
        given = orjson.dumps(block["input"]).decode()
        delta = {"type": "input_json_delta", "partial_json": given}
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


_BODIES = {"chat": _chat, "messages": _messages, "ollama": _ollama, "responses": _responses}
