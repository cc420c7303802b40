"""The same question in the words of every API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.matrix.stand import MODEL

__all__ = ["BODIES", "OVER_WEBSOCKET", "PATHS", "PNG", "POSTED", "SCHEMA", "Ask"]

OVER_WEBSOCKET: Final = "Responses over a WebSocket"

PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 2}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
_NAME: Final = "get_weather"
_TOLD: Final = "Tells the weather"
_CITY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
_ID: Final = "call_1"
_MOST: Final = 30_000
_BUDGET: Final = 20_000
_URL: Final = f"data:image/png;base64,{PNG}"


@dataclass(frozen=True)
class Ask:
    """What is asked for. ``result`` is that of a call of the weather in Paris, made before."""

    text: str
    stream: bool = False
    tools: bool = False
    result: str = ""
    image: bool = False
    schema: bool = False
    reasoning: bool = False
    logprobs: bool = False


def _responses(ask: Ask) -> dict[str, Any]:
    content: Any = ask.text
    if ask.image:
        text = {"type": "input_text", "text": ask.text}
        content = [text, {"type": "input_image", "image_url": _URL, "detail": "auto"}]
    items: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if ask.result:
        call = {"type": "function_call", "call_id": _ID, "name": _NAME}
        items.append({**call, "arguments": '{"city":"Paris"}'})
        items.append({"type": "function_call_output", "call_id": _ID, "output": ask.result})
    body: dict[str, Any] = {"model": MODEL, "input": items, "stream": ask.stream}
    if ask.tools:
        function = {"name": _NAME, "description": _TOLD, "parameters": _CITY, "strict": False}
        body["tools"] = [{"type": "function", **function}]
    if ask.schema:
        body["text"] = {"format": {"type": "json_schema", "name": "trip", "schema": SCHEMA}}
    if ask.reasoning:
        body["reasoning"] = {"effort": "high", "summary": "auto"}
    if ask.logprobs:
        body |= {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    return body


def _function() -> dict[str, Any]:
    function = {"name": _NAME, "description": _TOLD, "parameters": _CITY}
    return {"type": "function", "function": function}


def _chat(ask: Ask) -> dict[str, Any]:
    content: Any = ask.text
    if ask.image:
        image = {"type": "image_url", "image_url": {"url": _URL}}
        content = [{"type": "text", "text": ask.text}, image]
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if ask.result:
        called = {"name": _NAME, "arguments": '{"city":"Paris"}'}
        call = {"id": _ID, "type": "function", "function": called}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": _ID, "content": ask.result})
    body: dict[str, Any] = {"model": MODEL, "messages": messages, **_streamed(ask)}
    if ask.tools:
        body["tools"] = [_function()]
    if ask.schema:
        body["response_format"] = _response_format()
    if ask.reasoning:
        body["reasoning_effort"] = "high"
    if ask.logprobs:
        body |= {"logprobs": True, "top_logprobs": 2}
    return body


def _streamed(ask: Ask) -> dict[str, Any]:
    return {"stream": True, "stream_options": {"include_usage": True}} if ask.stream else {}


def _response_format() -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}


def _completions(ask: Ask) -> dict[str, Any]:
    """The API has no tools, images, schemas and reasoning: they are asked for as others would."""
    body: dict[str, Any] = {"model": MODEL, "prompt": ask.text, "max_tokens": 500, **_streamed(ask)}
    if ask.tools:
        body["tools"] = [_function()]
    if ask.image:
        body["images"] = [PNG]
    if ask.schema:
        body["response_format"] = _response_format()
    if ask.reasoning:
        body["reasoning_effort"] = "high"
    if ask.logprobs:
        body["logprobs"] = 2
    return body


def _messages(ask: Ask) -> dict[str, Any]:
    content: Any = ask.text
    if ask.image:
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        content = [{"type": "text", "text": ask.text}, {"type": "image", "source": source}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if ask.result:
        call = {"type": "tool_use", "id": _ID, "name": _NAME, "input": {"city": "Paris"}}
        result = {"type": "tool_result", "tool_use_id": _ID, "content": ask.result}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [result]})
    body: dict[str, Any] = {"model": MODEL, "max_tokens": _MOST, "messages": messages}
    body["stream"] = ask.stream
    if ask.tools:
        body["tools"] = [{"name": _NAME, "description": _TOLD, "input_schema": _CITY}]
    if ask.schema:
        body["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
    if ask.reasoning:
        body["thinking"] = {"type": "enabled", "budget_tokens": _BUDGET}
    if ask.logprobs:
        body["logprobs"] = True
    return body


def _ollama(ask: Ask) -> dict[str, Any]:
    """What both of Ollama's have."""
    body: dict[str, Any] = {"model": MODEL, "stream": ask.stream}
    if ask.tools:
        body["tools"] = [_function()]
    if ask.schema:
        body["format"] = SCHEMA
    if ask.reasoning:
        body["think"] = True
    if ask.logprobs:
        body |= {"logprobs": True, "top_logprobs": 2}
    return body


def _ollama_chat(ask: Ask) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "user", "content": ask.text}
    if ask.image:
        message["images"] = [PNG]
    messages = [message]
    if ask.result:
        call = {"function": {"name": _NAME, "arguments": {"city": "Paris"}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_name": _NAME, "content": ask.result})
    return {**_ollama(ask), "messages": messages}


def _ollama_generate(ask: Ask) -> dict[str, Any]:
    images = {"images": [PNG]} if ask.image else {}
    return {**_ollama(ask), "prompt": ask.text, **images}


PATHS: Final = {
    "Responses": "/v1/responses",
    OVER_WEBSOCKET: "/v1/responses",
    "Chat Completions": "/v1/chat/completions",
    "Completions": "/v1/completions",
    "Anthropic Messages": "/v1/messages",
    "Ollama chat": "/api/chat",
    "Ollama generate": "/api/generate",
}
"""The APIs, and where they are."""

POSTED: Final = {name: path for name, path in PATHS.items() if name != OVER_WEBSOCKET}
"""Those that are asked by a POST."""

BODIES: Final[dict[str, Callable[[Ask], dict[str, Any]]]] = {
    "Responses": _responses,
    OVER_WEBSOCKET: _responses,
    "Chat Completions": _chat,
    "Completions": _completions,
    "Anthropic Messages": _messages,
    "Ollama chat": _ollama_chat,
    "Ollama generate": _ollama_generate,
}
