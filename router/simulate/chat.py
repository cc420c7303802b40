"""Chat Completions as OpenAI, vLLM and Ollama serve them: ``POST /v1/chat/completions``.

Also the readers that the Responses dialect shares: functions on offer, response format.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

import orjson
from aiohttp import web

from router.response.frame import encode_event
from router.simulate.backend import (
    BACKEND,
    answer,
    json_answer,
    new_id,
    read_fields,
    stream,
)
from router.simulate.dialogue import (
    FunctionCall,
    Message,
    Options,
    Role,
    SimulatedAnswer,
    SimulatedRequest,
    TokenUsage,
    Tool,
    pieces,
)
from router.simulate.fields import BadRequest, Fields
from router.simulate.logprobs import entries, wanted

__all__ = ["chat_completions", "read_function", "read_json_schema"]

_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_REASONING_FIELD: Final[Mapping[str, str | None]] = {
    "chat": "reasoning_content",
    "ollama": "reasoning",
    "responses": None,
}
_DONE: Final = b"data: [DONE]\n\n"


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answer one request, streamed or whole."""
    fields = await read_fields(request)
    backend = request.app[BACKEND]
    question = _read_question(fields, backend.resolve(fields.need_string("model")))
    options = fields.object("stream_options")
    with_usage = options is not None and options.boolean("include_usage")
    streamed = fields.boolean("stream")
    plan = answer(question)
    await backend.load(request, question.model)
    completion = _Completion(question, plan, _REASONING_FIELD[backend.dialect])
    if not streamed:
        return json_answer(completion.whole())
    chunks = (encode_event("", orjson.dumps(chunk)) for chunk in completion.chunks(with_usage))
    return await stream(request, "text/event-stream; charset=utf-8", chain(chunks, (_DONE,)))


class _Completion:
    """A plan as a completion object or as the chunks that amount to it."""

    def __init__(
        self, question: SimulatedRequest, plan: SimulatedAnswer, reasoning_field: str | None
    ) -> None:
        self._plan = plan
        self._top = question.options.logprobs
        self._reasoning_field = reasoning_field
        self._calls = [(new_id("call_")[:29], call) for call in plan.calls]
        self._head = {
            "id": new_id("chatcmpl-"),
            "created": int(time.time()),
            "model": question.model,
            "system_fingerprint": "fp_simulated",
        }

    def whole(self) -> dict[str, Any]:
        """The ``chat.completion`` object."""
        plan = self._plan
        message: dict[str, Any] = {
            "role": "assistant",
            "content": plan.text or (None if plan.calls else ""),
            "refusal": None,
        }
        if plan.reasoning and self._reasoning_field:
            message[self._reasoning_field] = plan.reasoning
        if self._calls:
            message["tool_calls"] = [
                _tool_call(ident, call.name, call.arguments) for ident, call in self._calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(plan.text),
            "finish_reason": plan.finish,
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": _usage(plan.usage),
        }

    def chunks(self, with_usage: bool) -> Iterator[dict[str, Any]]:
        """The ``chat.completion.chunk`` objects; the last has the usage where asked for."""
        head = {**self._head, "object": "chat.completion.chunk"}
        if with_usage:
            head["usage"] = None
        for delta in self._deltas():
            choice = _delta_choice(delta, None)
            if sure := self._logprobs(delta.get("content")):
                choice["logprobs"] = sure
            yield {**head, "choices": [choice]}
        yield {**head, "choices": [_delta_choice({}, self._plan.finish)]}
        if with_usage:
            yield {**head, "choices": [], "usage": _usage(self._plan.usage)}

    def _logprobs(self, text: str | None) -> dict[str, Any] | None:
        if self._top is None or not text:
            return None
        return {"content": entries(text, self._top), "refusal": None}

    def _deltas(self) -> Iterator[dict[str, Any]]:
        plan = self._plan
        yield {"role": "assistant", "content": None if plan.calls else ""}
        if self._reasoning_field:
            for piece in pieces(plan.reasoning):
                yield {self._reasoning_field: piece}
        for piece in pieces(plan.text):
            yield {"content": piece}
        for index, (ident, call) in enumerate(self._calls):
            yield {"tool_calls": [{"index": index, **_tool_call(ident, call.name, "")}]}
            for piece in pieces(call.arguments):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _tool_call(ident: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def _delta_choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _read_question(fields: Fields, model: str) -> SimulatedRequest:
    if (fields.integer("n", 1) or 1) > 1:
        raise fields.invalid("n", "1: a simulated model gives one answer")
    fields.number("temperature", 0, 2)
    fields.number("top_p", 0, 1)
    choice, forced = _read_tool_choice(fields)
    schema, json_mode = _read_format(fields)
    limit = fields.integer("max_completion_tokens", 1)
    options = Options(
        tool_choice=choice,
        forced=forced,
        parallel=fields.boolean("parallel_tool_calls", True),
        effort=fields.string("reasoning_effort"),
        max_tokens=limit if limit is not None else fields.integer("max_tokens", 1),
        schema=schema,
        json_mode=json_mode,
        stop=fields.strings("stop"),
        logprobs=wanted(fields),
    )
    tools = tuple(_read_tool(tool) for tool in fields.objects("tools"))
    if forced is not None and forced not in {tool.name for tool in tools}:
        raise fields.invalid("tool_choice", f"the name of a tool on offer, not '{forced}'")
    return SimulatedRequest(model, _read_messages(fields), tools, options)


def _read_tool(tool: Fields) -> Tool:
    if tool.choice("type", ("function",)) is None:
        raise tool.missing("type")
    return read_function(tool.need_object("function"))


def read_function(function: Fields) -> Tool:
    """A function on offer: ``name``, ``description``, ``parameters``."""
    parameters = function.object("parameters")
    return Tool(
        function.need_string("name"),
        function.string("description") or "",
        parameters.raw if parameters else {},
    )


def _read_tool_choice(fields: Fields) -> tuple[Any, str | None]:
    if isinstance(fields.raw.get("tool_choice"), dict):
        choice = fields.need_object("tool_choice")
        choice.choice("type", ("function",))
        return "auto", choice.need_object("function").need_string("name")
    return fields.choice("tool_choice", ("auto", "none", "required")) or "auto", None


def _read_format(fields: Fields) -> tuple[Mapping[str, Any] | None, bool]:
    wanted = fields.object("response_format")
    if wanted is None:
        return None, False
    kind = wanted.choice("type", ("text", "json_object", "json_schema"))
    if kind != "json_schema":
        return None, kind == "json_object"
    return read_json_schema(wanted.need_object("json_schema")), False


def read_json_schema(wanted: Fields) -> Mapping[str, Any]:
    """The schema of a ``json_schema`` format, which must have a name."""
    wanted.need_string("name")
    return wanted.need_object("schema").raw


def _read_messages(fields: Fields) -> tuple[Message, ...]:
    if not fields.items("messages"):
        raise fields.missing("messages")
    messages: list[Message] = []
    open_calls: dict[str, str] = {}
    for item in fields.objects("messages"):
        message = _read_message(item, open_calls)
        if message.role == "tool":
            del open_calls[message.call_id]
        elif open_calls:
            raise _unanswered(item, open_calls)
        open_calls.update({call.id: call.name for call in message.calls})
        messages.append(message)
    if open_calls:
        raise _unanswered(fields, open_calls)
    return tuple(messages)


def _unanswered(fields: Fields, open_calls: Mapping[str, str]) -> BadRequest:
    return BadRequest(
        "An assistant message with 'tool_calls' must be followed by tool messages for each "
        f"'tool_call_id'; without one: {', '.join(open_calls)}.",
        param=fields.path or "messages",
        code="invalid_value",
    )


def _read_message(item: Fields, open_calls: Mapping[str, str]) -> Message:
    role = item.choice("role", tuple(_ROLES))
    if role is None:
        raise item.missing("role")
    calls = tuple(_read_call(call) for call in item.objects("tool_calls"))
    if not item.has("content") and not calls and not item.has("refusal"):
        raise item.missing("content")
    text, images, files = _read_content(item)
    if role == "tool":
        call_id = item.need_string("tool_call_id")
        if call_id not in open_calls:
            raise item.invalid("tool_call_id", f"the id of a preceding tool call, not '{call_id}'")
        return Message("tool", text, call_id=call_id, name=open_calls[call_id])
    return Message(_ROLES[role], text, images, files, calls)


def _read_call(call: Fields) -> FunctionCall:
    function = call.need_object("function")
    arguments = function.string("arguments") or ""
    return FunctionCall(function.need_string("name"), arguments, call.need_string("id"))


def _read_content(item: Fields) -> tuple[str, int, int]:
    """The text of a message, and how many images and files it has."""
    if isinstance(item.raw.get("content"), str):
        return item.raw["content"], 0, 0
    texts, images, files = [], 0, 0
    for part in item.objects("content"):
        kind = part.need_string("type")
        if kind == "text":
            texts.append(part.string("text") or "")
        elif kind == "refusal":
            texts.append(part.string("refusal") or "")
        elif kind == "image_url":
            part.need_object("image_url").need_string("url")
            images += 1
        elif kind == "file":
            part.need_object("file")
            files += 1
        else:
            raise part.invalid("type", "text, refusal, image_url or file")
    return "\n".join(texts), images, files
