"""Ollama's own API: ``/api/chat`` as NDJSON or whole, and what tells about the models."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from aiohttp import web

from router.simulate.backend import (
    BACKEND,
    answer,
    json_answer,
    new_id,
    read_fields,
    stream,
)
from router.simulate.chat import read_function
from router.simulate.dialogue import (
    FunctionCall,
    Message,
    Options,
    Role,
    SimulatedAnswer,
    SimulatedRequest,
    Tool,
    input_tokens,
    pieces,
)
from router.simulate.fields import BadRequest, Fields
from router.simulate.logprobs import entries, wanted
from router.simulate.vectors import is_embedder

__all__ = [
    "chat",
    "generate",
    "keep_alive",
    "num_ctx",
    "ps",
    "served_name",
    "show",
    "tags",
    "version",
]

_VERSION: Final = "0.12.0"
_CONTEXT: Final = 32_768
_CAPABILITIES: Final = ("completion", "tools", "thinking", "vision")
_SIZE: Final = 4_000_000_000
_NANOSECONDS_PER_TOKEN: Final = 10_000_000
_FOREVER: Final = timedelta(days=36_500)
_DURATION: Final = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)")
_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_DETAILS: Final = {
    "parent_model": "",
    "format": "gguf",
    "family": "simulated",
    "families": ["simulated"],
    "parameter_size": "0B",
    "quantization_level": "Q4_K_M",
}


async def version(request: web.Request) -> web.Response:
    """``GET /api/version``."""
    return json_answer({"version": _VERSION})


async def tags(request: web.Request) -> web.Response:
    """``GET /api/tags``: the models there are."""
    backend = request.app[BACKEND]
    modified = _timestamp(datetime.fromtimestamp(backend.started, UTC))
    models = [{**_description(name), "modified_at": modified} for name in backend.models]
    return json_answer({"models": models})


async def ps(request: web.Request) -> web.Response:
    """``GET /api/ps``: the models in memory, and those that are being loaded."""
    models = [
        {
            **_description(name),
            "expires_at": _timestamp(expires),
            "size_vram": _SIZE,
            "context_length": _CONTEXT,
        }
        for name, expires in request.app[BACKEND].memory.listed().items()
    ]
    return json_answer({"models": models})


async def show(request: web.Request) -> web.Response:
    """``POST /api/show``: what a model can do."""
    fields = await read_fields(request)
    name = served_name(request, fields.string("model") or fields.need_string("name"))
    return json_answer(
        {
            "license": "",
            "modelfile": f"FROM {name}",
            "parameters": "",
            "template": "{{ .Prompt }}",
            "details": _DETAILS,
            "model_info": {
                "general.architecture": "simulated",
                "simulated.context_length": _CONTEXT,
            },
            "capabilities": ["embedding"] if is_embedder(name) else _CAPABILITIES,
        }
    )


async def chat(request: web.Request) -> web.StreamResponse:
    """``POST /api/chat``: streamed unless ``stream`` is false."""
    fields = await read_fields(request)
    name = fields.need_string("model")
    served = served_name(request, name)
    if fields.items("messages"):
        _must_generate(served, "chat")
    else:
        reason = await _load_or_unload(request, fields, served)
        line = _line(name, {"role": "assistant", "content": ""})
        return json_answer({**line, "done": True, "done_reason": reason})
    kept_for = keep_alive(fields)
    question = _read_question(fields, served)
    _check_context(fields, question)
    streamed = fields.boolean("stream", True)
    plan = answer(question)
    loading = await request.app[BACKEND].load(request, served, kept_for, num_ctx(fields))
    if not streamed:
        message: dict[str, Any] = {"role": "assistant", "content": plan.text}
        if plan.reasoning:
            message["thinking"] = plan.reasoning
        if plan.calls:
            message["tool_calls"] = _tool_calls(plan)
        whole = _last_line(name, message, plan, loading)
        return json_answer({**whole, **_sure(question, plan.text)})
    lines = (orjson.dumps(line) + b"\n" for line in _lines(name, question, plan, loading))
    return await stream(request, "application/x-ndjson", lines)


async def generate(request: web.Request) -> web.Response:
    """``POST /api/generate``, as far as it loads and unloads: nothing is generated here."""
    fields = await read_fields(request)
    name = fields.need_string("model")
    served = served_name(request, name)
    if fields.string("prompt"):
        raise BadRequest("only /api/chat is simulated", status=501)
    reason = await _load_or_unload(request, fields, served)
    return json_answer(
        {
            "model": name,
            "created_at": _timestamp(datetime.now(UTC)),
            "response": "",
            "done": True,
            "done_reason": reason,
        }
    )


def served_name(request: web.Request, name: str) -> str:
    """The name that a model is served by; raises BadRequest in Ollama's words."""
    try:
        return request.app[BACKEND].resolve(name)
    except BadRequest as error:
        raise BadRequest(f"model '{name}' not found", status=error.status) from None


def _must_generate(served: str, what: str) -> None:
    """Raise BadRequest for a model of embeddings: Ollama does not even load one so."""
    if is_embedder(served):
        raise BadRequest(f'"{served}" does not support {what}')


async def _load_or_unload(request: web.Request, fields: Fields, served: str) -> str:
    """Without a prompt the model is only moved into memory, or out of it; which of them it was."""
    backend = request.app[BACKEND]
    kept_for = keep_alive(fields)
    if kept_for == timedelta():
        backend.memory.unload(served)
        return "unload"
    _must_generate(served, "generate")
    await backend.load(request, served, kept_for, num_ctx(fields))
    return "load"


def keep_alive(fields: Fields) -> timedelta | None:
    """How long the model is to be kept in memory; None where nothing is said."""
    value = fields.raw.get("keep_alive")
    if value is None:
        return None
    if isinstance(value, str) and (parts := _DURATION.fullmatch(value)):
        seconds = float(parts[1]) * _SECONDS[parts[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    else:
        raise fields.wrong("keep_alive", 'a number of seconds or a duration such as "5m"')
    return _FOREVER if seconds < 0 else min(timedelta(seconds=min(seconds, 1e9)), _FOREVER)


def num_ctx(fields: Fields) -> int:
    """The context that is asked for; 0 is the default."""
    options = fields.object("options")
    return (options.integer("num_ctx", 1) if options else None) or 0


def _check_context(fields: Fields, question: SimulatedRequest) -> None:
    """With ``truncate: false`` a prompt that does not fit is refused instead of being cut."""
    window = num_ctx(fields) or _CONTEXT
    asked = input_tokens(question.messages, question.tools)
    if not fields.boolean("truncate", True) and asked > window:
        raise BadRequest(f"prompt too long; exceeded max context length by {asked - window} tokens")


def _read_question(fields: Fields, served: str) -> SimulatedRequest:
    options = fields.object("options") or Fields({}, "options")
    limit = options.integer("num_predict", -2)
    schema, json_mode = _read_format(fields)
    # A format constrains every token that is sampled: the model cannot leave it to call a tool.
    offered = () if schema is not None or json_mode else tuple(_read_tools(fields))
    return SimulatedRequest(
        served,
        tuple(_read_messages(fields)),
        offered,
        Options(
            effort=_read_think(fields),
            max_tokens=limit if limit is not None and limit > 0 else None,
            schema=schema,
            json_mode=json_mode,
            stop=options.strings("stop"),
            logprobs=wanted(fields),
        ),
    )


def _read_format(fields: Fields) -> tuple[Mapping[str, Any] | None, bool]:
    wanted = fields.raw.get("format")
    if wanted in (None, ""):
        return None, False
    if wanted == "json":
        return None, True
    if not isinstance(wanted, dict):
        raise fields.wrong("format", '"json" or a JSON Schema')
    return wanted, False


def _read_think(fields: Fields) -> str | None:
    think = fields.raw.get("think")
    if think is None or isinstance(think, bool):
        return "high" if think else None
    return fields.choice("think", ("low", "medium", "high"))


def _read_tools(fields: Fields) -> Iterator[Tool]:
    for tool in fields.objects("tools"):
        tool.choice("type", ("function",))
        yield read_function(tool.need_object("function"))


def _read_messages(fields: Fields) -> Iterator[Message]:
    called: dict[str, str] = {}
    for item in fields.objects("messages"):
        message = _read_message(item)
        called.update({call.id: call.name for call in message.calls})
        if message.role == "tool" and not message.name:
            message = replace(message, name=called.get(message.call_id, ""))
        yield message


def _read_message(item: Fields) -> Message:
    role = item.choice("role", tuple(_ROLES))
    if role is None:
        raise item.missing("role")
    images = item.items("images")
    for image in images:
        _check_image(item, image)
    return Message(
        _ROLES[role],
        item.string("content") or "",
        images=len(images),
        calls=tuple(_read_call(call) for call in item.objects("tool_calls")),
        call_id=item.string("tool_call_id") or "",
        name=item.string("tool_name") or "",
    )


def _check_image(item: Fields, image: Any) -> None:
    try:
        base64.b64decode(image, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise item.invalid("images", "base64 text without a data: prefix") from None


def _read_call(call: Fields) -> FunctionCall:
    function = call.need_object("function")
    arguments = function.object("arguments")
    written = orjson.dumps(arguments.raw if arguments else {}).decode()
    return FunctionCall(function.need_string("name"), written, call.string("id") or "")


def _sure(question: SimulatedRequest, text: str) -> dict[str, Any]:
    """How sure the model was of a text, where that was asked for."""
    top = question.options.logprobs
    return {} if top is None else {"logprobs": entries(text, top)}


def _lines(
    name: str, question: SimulatedRequest, plan: SimulatedAnswer, loading: float
) -> Iterator[dict[str, Any]]:
    for piece in pieces(plan.reasoning):
        yield _line(name, {"role": "assistant", "content": "", "thinking": piece})
    for piece in pieces(plan.text):
        said = _line(name, {"role": "assistant", "content": piece})
        yield {**said, **_sure(question, piece)}
    for call in _tool_calls(plan):
        yield _line(name, {"role": "assistant", "content": "", "tool_calls": [call]})
    yield _last_line(name, {"role": "assistant", "content": ""}, plan, loading)


def _line(name: str, message: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": name,
        "created_at": _timestamp(datetime.now(UTC)),
        "message": message,
        "done": False,
    }


def _last_line(
    name: str, message: dict[str, Any], plan: SimulatedAnswer, loading: float
) -> dict[str, Any]:
    load = int(loading * 1e9)
    prompt = plan.usage.input * _NANOSECONDS_PER_TOKEN
    generation = plan.usage.output * _NANOSECONDS_PER_TOKEN
    return {
        **_line(name, message),
        "done": True,
        "done_reason": "length" if plan.finish == "length" else "stop",
        "total_duration": load + prompt + generation,
        "load_duration": load,
        "prompt_eval_count": plan.usage.input,
        "prompt_eval_duration": prompt,
        "eval_count": plan.usage.output,
        "eval_duration": generation,
    }


def _tool_calls(plan: SimulatedAnswer) -> list[dict[str, Any]]:
    return [
        {
            "id": new_id("call_")[:13],
            "function": {
                "index": index,
                "name": call.name,
                "arguments": orjson.loads(call.arguments),
            },
        }
        for index, call in enumerate(plan.calls)
    ]


def _description(name: str) -> dict[str, Any]:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return {"name": name, "model": name, "size": _SIZE, "digest": digest, "details": _DETAILS}


def _timestamp(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
