"""A request of the Responses API as one of Chat Completions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from router.dialects.chat.messages import to_messages
from router.dialects.dropped import dropped_fields
from router.dialects.function_tools import ToolPlan, plan_tools
from router.dialects.system_messages import SystemMessages

__all__ = ["PRIVATE_FIELDS", "RESPONSES_FIELDS", "encode_chat_request", "wants_logprobs"]

RESPONSES_FIELDS: Final = frozenset(
    {
        "background",
        "client_metadata",
        "context_management",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "moderation",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""The request fields of the Responses API; any other belongs to the endpoint."""

PRIVATE_FIELDS: Final = frozenset({"cache", "nomyo"})
"""Fields for the router itself, never sent on."""

_SAME: Final = (
    "temperature",
    "top_p",
    "user",
    "service_tier",
    "prompt_cache_key",
    "safety_identifier",
)
"""Fields with the same name and meaning on both sides."""

_NOT_SENT: Final = (
    RESPONSES_FIELDS
    | PRIVATE_FIELDS
    # They would change the shape of the answer: several choices, calls in the old form.
    | {"messages", "n", "functions", "function_call"}
)

_READ: Final = frozenset(
    {"input", "instructions", "max_output_tokens", "model", "parallel_tool_calls", "reasoning"}
    | {"text", "tool_choice", "tools", "top_logprobs"}
)
"""Fields that become others."""

_DROPPED: Final = _NOT_SENT - _READ - frozenset(_SAME)

_LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens"})

_NEW_LIMIT: Final = re.compile(r"(?:.*/)?(?:o\d|gpt-[5-9])")
"""OpenAI's reasoning models."""


def encode_chat_request(
    body: Mapping[str, Any],
    *,
    model: str,
    stream: bool,
    later_system: SystemMessages = "merge",
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body for ``/v1/chat/completions``, and what it leaves out: types of tools, and fields.

    ``body`` is validated and stays as it is (the result shares values with it), ``model`` is the
    endpoint's name for the model, ``later_system`` as for ``to_messages``. Raises InvalidRequest
    for what a chat cannot carry.
    """
    chat: dict[str, Any] = {
        "model": model,
        "messages": to_messages(body, later_system=later_system),
    }
    if stream:
        chat["stream"] = True
        chat["stream_options"] = {"include_usage": True}
    for name in _SAME:
        if body.get(name) is not None:
            chat[name] = body[name]
    limit = body.get("max_output_tokens")
    if limit is not None:
        chat[_limit_field(model)] = limit
    plan = plan_tools(body)
    if plan.tools:
        _add_tools(chat, plan, body.get("parallel_tool_calls"))
    _add_text(chat, body.get("text") or {})
    effort = (body.get("reasoning") or {}).get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    if wants_logprobs(body):
        chat["logprobs"] = True
        if body.get("top_logprobs"):
            chat["top_logprobs"] = body["top_logprobs"]
    for name, value in body.items():
        if value is None or name in _NOT_SENT or name in chat:
            continue
        if limit is None or name not in _LIMITS:
            chat[name] = value
    given = {name: body[name] for name in _DROPPED & body.keys()}
    return chat, (*plan.dropped, *sorted(dropped_fields(given, ())))


def wants_logprobs(body: Mapping[str, Any]) -> bool:
    """Whether the answer's text should come with log probabilities."""
    return bool(body.get("top_logprobs")) or "message.output_text.logprobs" in (
        body.get("include") or ()
    )


def _limit_field(model: str) -> str:
    """The field for the output limit that the server behind ``model`` understands.

    ``max_tokens`` is read by every server there is: vLLM, SGLang, llama.cpp, TGI, Mistral and
    older ones. ``max_completion_tokens`` is refused by Mistral and silently ignored, which is
    worse, by TGI and by llama.cpp before 2026. Sending both is refused by OpenAI and Azure. Only
    OpenAI's reasoning models refuse ``max_tokens``, and they are known by their names.
    """
    return "max_completion_tokens" if _NEW_LIMIT.match(model) else "max_tokens"


def _add_tools(chat: dict[str, Any], plan: ToolPlan, parallel: bool | None) -> None:
    chat["tools"] = list(plan.tools)
    if plan.name is not None:
        chat["tool_choice"] = {"type": "function", "function": {"name": plan.name}}
    elif plan.mode != "auto":
        chat["tool_choice"] = plan.mode
    if parallel is not None:
        chat["parallel_tool_calls"] = parallel


def _add_text(chat: dict[str, Any], text: Mapping[str, Any]) -> None:
    if text.get("verbosity") is not None:
        chat["verbosity"] = text["verbosity"]
    form = text.get("format") or {}
    if form.get("type") == "json_object":
        chat["response_format"] = {"type": "json_object"}
    elif form.get("type") == "json_schema":
        given = {
            name: form[name]
            for name in ("name", "description", "schema", "strict")
            if form.get(name) is not None
        }
        chat["response_format"] = {"type": "json_schema", "json_schema": given}
