"""A request of the Responses API as one of Ollama's ``/api/chat``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from router.dialects.chat.encode_request import (
    ToolPlan,
    plan_tools,
    wants_logprobs,
)
from router.dialects.chat.messages import to_messages
from router.dialects.dialect import EncodedRequest
from router.dialects.dropped import dropped_fields, is_default
from router.dialects.history import arguments_object
from router.dialects.ollama.forced_calls import forced_format
from router.dialects.parts import PartConverter, ollama_part
from router.dialects.system_messages import SystemMessages
from router.settings.schema import EndpointSettings

__all__ = ["OllamaMode", "encode_for_ollama", "encode_ollama_request"]

_OPTIONS: Final = frozenset(
    {
        "frequency_penalty",
        "min_p",
        "mirostat",
        "mirostat_eta",
        "mirostat_tau",
        "num_keep",
        "presence_penalty",
        "repeat_last_n",
        "repeat_penalty",
        "seed",
        "stop",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
    }
)
"""Options a request may set. Those of the runner (``num_ctx``, ``num_gpu`` …) would reload the
model for everybody, so they are the configuration's."""

_LIMITS: Final = ("max_output_tokens", "max_completion_tokens", "max_tokens")

_CARRIED: Final = _OPTIONS.union(
    _LIMITS,
    {"input", "instructions", "model", "parallel_tool_calls", "reasoning", "text"},
    {"tool_choice", "tools", "top_logprobs"},
)
"""Fields that are sent, whole or in part."""

_GPT_OSS_LEVELS: Final[Mapping[str, str]] = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""These models always think and take a level; true and false are ignored."""


@dataclass(frozen=True, slots=True)
class OllamaMode:
    """How to read the answer to the request.

    ``forced``: its text is a tool call as JSON, ``{"name", "arguments"}``. ``dropped``: what was
    accepted but not sent, types of tools and fields.
    """

    forced: bool = False
    dropped: tuple[str, ...] = ()


def encode_for_ollama(
    body: Mapping[str, Any],
    *,
    model: str,
    stream: bool,
    usage: bool,
    settings: EndpointSettings,
    images: Mapping[str, str],
) -> EncodedRequest:
    """See ``router.dialects.dialect.EncodeRequest``."""
    sent, mode = encode_ollama_request(
        body,
        model=model,
        stream=stream,
        num_ctx=settings.num_ctx,
        later_system=settings.system_messages or "merge",
        images=images,
    )
    if settings.keep_alive is not None:
        sent["keep_alive"] = settings.keep_alive
    return EncodedRequest("/api/chat", sent, mode.dropped, mode.forced)


def encode_ollama_request(
    body: Mapping[str, Any],
    *,
    model: str,
    stream: bool,
    num_ctx: int | None,
    later_system: SystemMessages = "merge",
    images: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], OllamaMode]:
    """The body for ``/api/chat``, and how to read the answer.

    ``body`` is validated and stays as it is (the result shares values with it), ``model`` is the
    endpoint's name for the model, ``num_ctx`` its configured context in tokens,
    ``later_system`` as for ``to_messages``, ``images`` as for ``ollama_part``. Raises
    InvalidRequest for what Ollama cannot carry.
    """
    out: dict[str, Any] = {
        "model": model,
        "messages": _messages(body, later_system, partial(ollama_part, images=images)),
        "stream": stream,
        # A prompt that does not fit is an error unless the client says otherwise, and an answer
        # that does not fit ends: by default Ollama drops the oldest messages in both cases and
        # says nothing.
        "truncate": body.get("truncation") == "auto",
        "shift": False,
    }
    options = _options(body, num_ctx)
    if options:
        out["options"] = options
    plan = plan_tools(body)
    forced = plan.mode == "required"
    if plan.tools and plan.mode != "none":
        out["tools"] = list(plan.tools)
    form: Any = _format(body.get("text") or {})
    if forced:
        form = forced_format(plan.tools, plan.name)
    if form is not None:
        out["format"] = form
    # Switched on without an effort it is the model's own: those that cannot think would refuse.
    effort = (body.get("reasoning") or {}).get("effort")
    if body.get("switch_thinking") is False:
        effort = "none"
    if effort is not None:
        out["think"] = _think(model, effort)
    if wants_logprobs(body):
        out["logprobs"] = True
        if body.get("top_logprobs"):
            out["top_logprobs"] = body["top_logprobs"]
    return out, OllamaMode(forced, (*plan.dropped, *_dropped(body, plan)))


def _dropped(body: Mapping[str, Any], plan: ToolPlan) -> Iterator[str]:
    """The fields that Ollama has nothing for."""
    name = "parallel_tool_calls"
    if plan.tools and not is_default(name, body.get(name)):
        yield name
    if not is_default("text.verbosity", (body.get("text") or {}).get("verbosity")):
        yield "text.verbosity"
    yield from dropped_fields(body, _CARRIED)


def _options(body: Mapping[str, Any], num_ctx: int | None) -> dict[str, Any]:
    options = {
        name: value for name, value in body.items() if name in _OPTIONS and value is not None
    }
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    for name in _LIMITS:
        if body.get(name) is not None:
            options["num_predict"] = body[name]
            break
    if num_ctx is not None:
        options["num_ctx"] = num_ctx
    return options


def _format(text: Mapping[str, Any]) -> Any:
    form = text.get("format") or {}
    if form.get("type") == "json_object":
        return "json"
    return form["schema"] if form.get("type") == "json_schema" else None


def _think(model: str, effort: str) -> bool | str:
    if model.rpartition("/")[2].startswith("gpt-oss"):
        return _GPT_OSS_LEVELS[effort]
    return effort != "none"


def _messages(
    body: Mapping[str, Any], later_system: SystemMessages, convert: PartConverter
) -> list[dict[str, Any]]:
    messages = to_messages(body, convert=convert, reasoning=True, later_system=later_system)
    names: dict[str, str] = {}
    out = []
    for message in messages:
        role = message["role"]
        if role == "assistant":
            out.append(_assistant(message, names))
        elif role == "tool":
            out.append(_tool(message, names))
        else:
            out.append(_with_images(role, message["content"]))
    return out


def _with_images(role: str, content: str | list[dict[str, Any]] | None) -> dict[str, Any]:
    """A message with its texts in one string and its images beside it."""
    if not isinstance(content, list):
        return {"role": role, "content": content or ""}
    message: dict[str, Any] = {
        "role": role,
        "content": "\n".join(part["text"] for part in content if part["type"] == "text"),
    }
    images = [part["data"] for part in content if part["type"] == "image"]
    if images:
        message["images"] = images
    return message


def _assistant(message: Mapping[str, Any], names: dict[str, str]) -> dict[str, Any]:
    out = _with_images("assistant", message["content"])
    if message.get("reasoning"):
        out["thinking"] = message["reasoning"]
    if message.get("tool_calls"):
        out["tool_calls"] = calls = []
        for call in message["tool_calls"]:
            function = call["function"]
            names[call["id"]] = function["name"]
            arguments = arguments_object(function["arguments"])
            calls.append(
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": function["name"], "arguments": arguments},
                }
            )
    return out


def _tool(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    call_id = message["tool_call_id"]
    out = {"role": "tool", "content": message["content"], "tool_call_id": call_id}
    if call_id in names:
        out["tool_name"] = names[call_id]
    return out
