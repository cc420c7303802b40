"""Anthropic's Messages as a backend serves them: create and count, stream and not.

It is as particular as the original: about ``max_tokens``, about results that do not follow their
calls, about thinking that comes back changed, and about tools with ``defer_loading``, which the
model sees only where a result names them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

import orjson
from aiohttp import web

from router.response.frame import encode_event
from router.simulate.backend import BACKEND, answer, json_answer, new_id, read_fields, stream
from router.simulate.dialogue import (
    FunctionCall,
    Message,
    Options,
    SimulatedAnswer,
    SimulatedRequest,
    Tool,
    input_tokens,
    pieces,
)
from router.simulate.fields import BadRequest, Fields
from router.simulate.message_citations import citations

__all__ = ["count_tokens", "create", "list_models"]

_STOPS: Final[Mapping[str, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}
_CHOICES: Final[Mapping[str, Any]] = {"auto": "auto", "any": "required", "none": "none"}
_MOST_CALLS_MARKED: Final = 4
_CREATED: Final = "2026-01-01T00:00:00Z"


async def create(request: web.Request) -> web.StreamResponse:
    """``POST /v1/messages``."""
    fields = await read_fields(request)
    _need_version(request)
    model = request.app[BACKEND].resolve(fields.need_string("model"))
    question = _question(fields, model)
    streamed = fields.boolean("stream")
    message = _message(question, answer(question), citations(fields))
    if not streamed:
        return json_answer(message)
    frames = (encode_event(event["type"], orjson.dumps(event)) for event in _events(message))
    return await stream(request, "text/event-stream; charset=utf-8", frames)


async def count_tokens(request: web.Request) -> web.Response:
    """``POST /v1/messages/count_tokens``."""
    fields = await read_fields(request)
    _need_version(request)
    request.app[BACKEND].resolve(fields.need_string("model"))
    messages, found = _messages(fields)
    return json_answer({"input_tokens": input_tokens(messages, _tools(fields, found))})


async def list_models(request: web.Request) -> web.Response:
    """``GET /v1/models``, in one page."""
    names = request.app[BACKEND].models
    data = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": _CREATED,
            "lifecycle": "active",
            "max_input_tokens": 200_000,
            "max_tokens": 64_000,
        }
        for name in names
    ]
    return json_answer(
        {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}
    )


def _need_version(request: web.Request) -> None:
    if "anthropic-version" not in request.headers:
        raise BadRequest("anthropic-version: header is required")


def _question(fields: Fields, model: str) -> SimulatedRequest:
    limit = fields.integer("max_tokens", 1)
    if limit is None:
        raise BadRequest("max_tokens: Field required")
    fields.number("temperature", 0, 1)
    fields.number("top_p", 0, 1)
    effort = _effort(fields, limit)
    choice, forced, parallel = _tool_choice(fields)
    messages, found = _messages(fields)
    tools = _tools(fields, found)
    if forced is not None and forced not in {tool.name for tool in tools}:
        raise BadRequest(f"tool_choice: Tool '{forced}' not found in provided tools")
    if effort is not None and (forced is not None or choice == "required"):
        raise BadRequest("Thinking may not be enabled when tool_choice forces tool use.")
    output = fields.object("output_config")
    form = output.object("format") if output else None
    if form is not None:
        form.choice("type", ("json_schema",))
    marks = orjson.dumps(dict(fields.raw)).count(b'"cache_control":{')
    if marks > _MOST_CALLS_MARKED:
        raise BadRequest(f"A maximum of 4 blocks with cache_control may be provided, not {marks}.")
    options = Options(
        tool_choice=choice,
        forced=forced,
        parallel=parallel,
        effort=effort,
        max_tokens=limit,
        schema=form.need_object("schema").raw if form is not None else None,
        stop=fields.strings("stop_sequences"),
    )
    return SimulatedRequest(model, messages, tools, options)


def _effort(fields: Fields, limit: int) -> str | None:
    thinking = fields.object("thinking")
    if thinking is None:
        return None
    kind = thinking.choice("type", ("enabled", "adaptive", "disabled"))
    if kind == "disabled":
        return None
    output = fields.object("output_config")
    if kind == "adaptive":
        return (output.string("effort") if output else None) or "high"
    budget = thinking.integer("budget_tokens", 1024)
    if budget is None:
        raise thinking.missing("budget_tokens")
    if budget >= limit:
        raise BadRequest("`max_tokens` must be greater than `thinking.budget_tokens`.")
    return "low" if budget <= 4096 else "medium" if budget <= 16384 else "high"


def _tool_choice(fields: Fields) -> tuple[Any, str | None, bool]:
    choice = fields.object("tool_choice")
    if choice is None:
        return "auto", None, True
    parallel = not choice.boolean("disable_parallel_tool_use")
    kind = choice.choice("type", (*_CHOICES, "tool")) or "auto"
    if kind == "tool":
        return "auto", choice.need_string("name"), parallel
    return _CHOICES[kind], None, parallel


def _tools(fields: Fields, found: Set[str]) -> tuple[Tool, ...]:
    """Those that the model sees: of the deferred ones, what was ``found``."""
    tools, deferred = [], set()
    for tool in fields.objects("tools"):
        kind = tool.string("type")
        if kind in (None, "custom"):
            schema = tool.need_object("input_schema")
            name = tool.need_string("name")
            if tool.boolean("defer_loading"):
                deferred.add(name)
            if name in found or name not in deferred:
                tools.append(Tool(name, tool.string("description") or "", schema.raw))
    if deferred and len(deferred) == len(fields.items("tools")):
        raise BadRequest("At least one tool must have defer_loading=false.")
    for name in sorted(found - {tool.name for tool in tools}):
        raise BadRequest(f"Tool reference '{name}' not found in available tools")
    return tuple(tools)


def _messages(fields: Fields) -> tuple[tuple[Message, ...], Set[str]]:
    """The messages, and the names of the tools that were found in them."""
    reader = _Reader()
    if isinstance(fields.raw.get("system"), str):
        reader.said.append(Message("system", fields.raw["system"]))
    else:
        texts = [block.need_string("text") for block in fields.objects("system")]
        if texts:
            reader.said.append(Message("system", "\n\n".join(texts)))
    for message in fields.objects("messages"):
        reader.add(message)
    if not any(message.role != "system" for message in reader.said):
        raise BadRequest("messages: at least one message is required")
    reader.check_answered({})
    return tuple(reader.said), reader.found


class _Reader:
    """Reads message after message; ``waiting`` are the calls of the last one, by their ids,
    ``found`` the tools that results have named.
    """

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.waiting: dict[str, str] = {}
        self.found: set[str] = set()

    def add(self, message: Fields) -> None:
        role = message.choice("role", ("user", "assistant", "system"))
        if role is None:
            raise message.missing("role")
        content = message.raw.get("content")
        blocks = (
            [Fields({"type": "text", "text": content}, message.name("content"))]
            if isinstance(content, str)
            else list(message.objects("content"))
        )
        if not blocks:
            raise BadRequest(f"{message.name('content')}: must be non-empty")
        if role == "assistant":
            self._assistant(blocks)
        else:
            self._user("user" if role == "user" else "system", blocks)

    def check_answered(self, results: Mapping[str, Any]) -> None:
        for ident in self.waiting:
            if ident not in results:
                raise BadRequest(
                    "messages: `tool_use` ids were found without `tool_result` blocks immediately "
                    f"after: {ident}."
                )

    def _user(self, role: Any, blocks: list[Fields]) -> None:
        results = {
            block.need_string("tool_use_id"): block
            for block in blocks
            if block.string("type") == "tool_result"
        }
        self.check_answered(results)
        first = [block.string("type") == "tool_result" for block in blocks]
        if first != sorted(first, reverse=True):
            raise BadRequest("messages: `tool_result` blocks have to come first.")
        for ident, block in results.items():
            if ident not in self.waiting:
                raise BadRequest(f"messages: unexpected `tool_use_id`: {ident}.")
            text, images, files = self._result(block)
            if block.boolean("is_error"):
                text = f"The tool failed.\n{text}"
            self.said.append(
                Message("tool", text, images, files, call_id=ident, name=self.waiting[ident])
            )
        self.waiting = {}
        rest = [block for block in blocks if block.string("type") != "tool_result"]
        if rest:
            self.said.append(Message(role, *_seen(rest)))

    def _result(self, block: Fields) -> tuple[str, int, int]:
        """What the model sees of a result, as ``_seen``."""
        content = block.raw.get("content")
        if isinstance(content, str):
            return content, 0, 0
        rest = []
        for part in block.objects("content"):
            if part.string("type") == "tool_reference":
                self.found.add(part.need_string("tool_name"))
            else:
                rest.append(part)
        return _seen(rest)

    def _assistant(self, blocks: list[Fields]) -> None:
        self.check_answered({})
        texts, calls = [], []
        for block in blocks:
            kind = block.need_string("type")
            if kind == "thinking":
                _check_signature(block)
            elif kind == "text":
                texts.append(_text(block))
            elif kind == "tool_use":
                given = orjson.dumps(dict(block.need_object("input").raw)).decode()
                calls.append(
                    FunctionCall(block.need_string("name"), given, block.need_string("id"))
                )
        self.waiting = {call.id: call.name for call in calls}
        if texts or calls:
            self.said.append(Message("assistant", "".join(texts), calls=tuple(calls)))


def _seen(blocks: list[Fields]) -> tuple[str, int, int]:
    """The text of some blocks, and how many images and documents there are."""
    texts, images, files = [], 0, 0
    for block in blocks:
        kind = block.need_string("type")
        if kind == "text":
            texts.append(_text(block))
        elif kind == "image":
            block.need_object("source").need_string("type")
            images += 1
        elif kind == "document":
            block.need_object("source").need_string("type")
            files += 1
        else:
            raise block.invalid("type", "text, image, document or tool_result")
    return "\n".join(texts), images, files


def _text(block: Fields) -> str:
    text = block.need_string("text")
    if not text.strip():
        raise BadRequest("messages: text content blocks must contain non-whitespace text")
    return text


def _check_signature(block: Fields) -> None:
    if block.string("signature") != _signature(block.string("thinking") or ""):
        raise BadRequest(
            "messages: Invalid `signature` in `thinking` block: it was modified, or is another's."
        )


def _signature(text: str) -> str:
    return "sig" + hashlib.sha256(text.encode()).hexdigest()[:40]


def _message(
    question: SimulatedRequest, plan: SimulatedAnswer, cites: list[dict[str, Any]]
) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if plan.reasoning:
        content.append(
            {
                "type": "thinking",
                "thinking": plan.reasoning,
                "signature": _signature(plan.reasoning),
            }
        )
    if plan.text:
        cited = {"citations": cites} if cites else {}
        content.append({"type": "text", "text": plan.text, **cited})
    for call in plan.calls:
        content.append(
            {
                "type": "tool_use",
                "id": new_id("toolu_")[:30],
                "name": call.name,
                "input": orjson.loads(call.arguments or "{}"),
            }
        )
    return {
        "id": new_id("msg_")[:28],
        "type": "message",
        "role": "assistant",
        "model": question.model,
        "content": content,
        "stop_reason": _STOPS[plan.finish],
        "stop_sequence": None,
        "usage": {
            "input_tokens": plan.usage.input,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": plan.usage.output,
            "output_tokens_details": {"thinking_tokens": plan.usage.reasoning},
            "service_tier": "standard",
        },
    }


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events that amount to this message."""
    usage = message["usage"]
    begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    counts = {name: usage[name] for name in usage if name != "service_tier"}
    yield {"type": "message_delta", "delta": delta, "usage": counts}
    yield {"type": "message_stop"}


def _block_events(index: int, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = block["type"]
    if kind == "tool_use":
        begun = {**block, "input": {}}
        deltas = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in pieces(orjson.dumps(block["input"]).decode())
        ]
    elif kind == "thinking":
        begun = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])
        ]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    else:
        begun = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        for citation in block.get("citations", ()):
            deltas.append({"type": "citations_delta", "citation": citation})
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
