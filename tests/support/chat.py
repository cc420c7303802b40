"""Chat Completions, streamed and whole, made of parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.chat.encode_request import encode_for_chat
from router.response.machine import MachineOptions
from router.settings.schema import EndpointSettings
from tests.support.reading import make_builder, sse

__all__ = ["USAGE", "chat", "chat_chunk", "completion", "decoder", "encoded", "text", "tool"]

USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


_ENDPOINT: Final = EndpointSettings(name="one", url="http://127.0.0.1:9", dialect="chat")


def encoded(
    body: Mapping[str, Any], *, model: str = "m", stream: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a chat endpoint is sent for a validated Responses request, and what is dropped of it."""
    request = encode_for_chat(
        body, model=model, stream=stream, usage=True, settings=_ENDPOINT, images={}
    )
    return request.body, request.dropped


def decoder(**options: Any) -> ChatDecoder:
    return ChatDecoder(make_builder(), MachineOptions(**options))


def chat_chunk(finish: str | None = None, *, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    """One chat completion chunk with this delta."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}


def chat(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> bytes:
    """A chat stream with these deltas, its finish reason and its end marker."""
    chunks: list[Any] = [chat_chunk(**delta) for delta in deltas]
    if finish is not None:
        chunks.append(chat_chunk(finish))
    return sse(*chunks, *([b"[DONE]"] if done else []))


def tool(
    arguments: Any = "", *, name: Any = None, id: Any = None, index: Any = 0
) -> dict[str, Any]:
    """A delta with a fragment of a tool call; ``index=None`` leaves the index out."""
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    if index is not None:
        call["index"] = index
    return {"tool_calls": [call]}


def text(content: Any) -> dict[str, Any]:
    return {"content": content}


def completion(message: dict[str, Any], finish: Any = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return orjson.dumps({"object": "chat.completion", "choices": [choice], **more})
