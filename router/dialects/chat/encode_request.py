"""A request of the Responses API as one of Chat Completions.

``plan_tools`` is for every endpoint that knows functions only: functions go out as they are, custom
tools as functions with one string; hosted tools are not sent, and named in a header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from router.dialects.chat.messages import to_messages
from router.dialects.dialect import EncodedRequest
from router.dialects.dropped import dropped_fields
from router.dialects.responses.fields import (
    CHAT_SAME,
    CHAT_TRANSLATED,
    PRIVATE_FIELDS,
    RESPONSES_FIELDS,
    ROUTERS,
)
from router.errors import InvalidRequest
from router.settings.schema import EndpointSettings

__all__ = [
    "NO_PARAMETERS",
    "ToolPlan",
    "chat_function",
    "custom_tool_names",
    "encode_for_chat",
    "plan_tools",
    "wants_logprobs",
]

_NOT_SENT: Final = (
    RESPONSES_FIELDS
    | PRIVATE_FIELDS
    # They would change the shape of the answer: several choices, calls in the old form.
    | {"messages", "n", "functions", "function_call"}
)

_DROPPED: Final = _NOT_SENT - CHAT_TRANSLATED - frozenset(CHAT_SAME) - ROUTERS

_LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens"})

_OPTIONS: Final = frozenset(
    {
        "include",
        "max_output_tokens",
        "reasoning",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
    }
)
"""What becomes another field of a chat, or several."""

_NEW_LIMIT: Final = re.compile(r"(?:.*/)?(?:o\d|gpt-[5-9])")
"""OpenAI's reasoning models."""


def encode_for_chat(
    body: Mapping[str, Any],
    *,
    model: str,
    stream: bool,
    usage: bool,
    settings: EndpointSettings,
    images: Mapping[str, str],
) -> EncodedRequest:
    """See ``router.dialects.dialect.EncodeRequest``."""
    later_system = settings.system_messages or "merge"
    chat: dict[str, Any] = {
        "model": model,
        "messages": _question(body) or to_messages(body, later_system=later_system),
    }
    if stream:
        chat["stream"] = True
        if usage:
            chat["stream_options"] = {"include_usage": True}
    for name in CHAT_SAME:
        if body.get(name) is not None:
            chat[name] = body[name]
    dropped: tuple[str, ...] = ()
    if not _OPTIONS.isdisjoint(body):
        dropped = _add_options(chat, body)
    limited = body.get("max_output_tokens") is not None
    for name, value in body.items():
        if value is None or name in _NOT_SENT or name in chat:
            continue
        if not limited or name not in _LIMITS:
            chat[name] = value
    if settings.thinking_switch is not None:
        _switch_thinking(chat, body, settings.thinking_switch)
    if left_out := _DROPPED & body.keys():
        given = {name: body[name] for name in left_out}
        dropped = (*dropped, *sorted(dropped_fields(given, ())))
    return EncodedRequest("/chat/completions", chat, dropped)


def _add_options(chat: dict[str, Any], body: Mapping[str, Any]) -> tuple[str, ...]:
    """Add what is of ``_OPTIONS`` in the body; the types of the tools that are left out of it."""
    limit = body.get("max_output_tokens")
    if limit is not None:
        chat[_limit_field(chat["model"])] = limit
    plan = plan_tools(body)
    if plan.tools:
        _add_tools(chat, plan, body.get("parallel_tool_calls"))
    if text := body.get("text"):
        _add_text(chat, text)
    effort = (body.get("reasoning") or {}).get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    if wants_logprobs(body):
        chat["logprobs"] = True
        if body.get("top_logprobs"):
            chat["top_logprobs"] = body["top_logprobs"]
    return plan.dropped


def _switch_thinking(chat: dict[str, Any], body: Mapping[str, Any], switch: str) -> None:
    """Have the chat template switch thinking on or off, if the request says anything of it."""
    wanted = body.get("switch_thinking")
    if wanted is None and (effort := (body.get("reasoning") or {}).get("effort")) is not None:
        wanted = effort != "none"
    if wanted is not None:
        given = chat.get("chat_template_kwargs")
        given = given if isinstance(given, dict) else {}
        chat["chat_template_kwargs"] = {switch: wanted, **given}


def _question(body: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The messages of a text with instructions or without; None for any other input."""
    given, instructions = body.get("input"), body.get("instructions")
    if not isinstance(given, str) or isinstance(instructions, list):
        return None
    question = {"role": "user", "content": given}
    return [{"role": "system", "content": instructions}, question] if instructions else [question]


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


NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}

_CUSTOM_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}

Mode = Literal["auto", "none", "required"]

_CALLABLE: Final = frozenset({"function", "custom"})


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """What is sent of a request's tools.

    ``tools`` are functions in chat form. ``mode`` is ``auto`` where nothing is asked for; with
    ``name`` the one function that must be called, ``mode`` is ``required``. ``dropped`` are the
    types of the tools that are left out, each once.
    """

    tools: tuple[dict[str, Any], ...] = ()
    mode: Mode = "auto"
    name: str | None = None
    dropped: tuple[str, ...] = ()


_NO_TOOLS: Final = ToolPlan()


def plan_tools(body: Mapping[str, Any]) -> ToolPlan:
    """The plan for a validated body; raise InvalidRequest when the choice names no tool."""
    tools = body.get("tools")
    choice = body.get("tool_choice")
    if not tools and not isinstance(choice, dict):
        return _NO_TOOLS
    tools = tools or []
    wanted, name = choice, None
    if isinstance(choice, dict):
        wanted, name, tools = _chosen(choice, tools)
    functions = tuple(chat_function(tool) for tool in tools if tool["type"] in _CALLABLE)
    hosted = dict.fromkeys(tool["type"] for tool in tools if tool["type"] not in _CALLABLE)
    mode: Mode = "auto"
    if functions:  # else nothing that is sent could be required
        mode = "none" if wanted == "none" else "required" if wanted == "required" else "auto"
    return ToolPlan(functions, mode, name, tuple(hosted))


def custom_tool_names(body: Mapping[str, Any]) -> frozenset[str]:
    """The custom tools of a validated body: their calls come back as calls of functions."""
    tools = body.get("tools") or ()
    return frozenset(tool["name"] for tool in tools if tool["type"] == "custom")


def _chosen(
    choice: Mapping[str, Any], tools: list[dict[str, Any]]
) -> tuple[str, str | None, list[dict[str, Any]]]:
    """The mode, the one function's name and the tools left by a choice that is an object."""
    known = {_identity(tool) for tool in tools}
    if choice["type"] == "allowed_tools":
        for i, tool in enumerate(choice["tools"]):
            _require(tool, known, f"tool_choice.tools[{i}]")
        allowed = {_identity(tool) for tool in choice["tools"]}
        return choice["mode"], None, [tool for tool in tools if _identity(tool) in allowed]
    if choice["type"] in _CALLABLE:
        _require(choice, known, "tool_choice")
        return "required", choice["name"], tools
    return "auto", None, tools  # a hosted tool, which is not sent


def _identity(tool: Mapping[str, Any]) -> tuple[str, Any]:
    if tool["type"] in _CALLABLE:
        return tool["type"], tool["name"]
    label = tool.get("server_label")
    return tool["type"], label if isinstance(label, str) else None


def _require(choice: Mapping[str, Any], known: set[tuple[str, Any]], param: str) -> None:
    if choice["type"] in _CALLABLE and _identity(choice) not in known:
        raise InvalidRequest(
            f"Invalid '{param}': the tool it names is not in 'tools'.",
            code="invalid_value",
            param=param,
        )


def chat_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function, or a custom tool as a function with one string, in chat form."""
    function: dict[str, Any] = {"name": tool["name"]}
    if tool["type"] == "custom":
        description = _custom_description(tool)
        parameters: Mapping[str, Any] = _CUSTOM_PARAMETERS
    else:
        description = tool.get("description")
        parameters = tool.get("parameters") or NO_PARAMETERS
    if description is not None:
        function["description"] = description
    # Always there: llama.cpp and Ollama do without neither it nor its type.
    function["parameters"] = parameters
    if tool["type"] == "function" and tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _custom_description(tool: Mapping[str, Any]) -> str | None:
    """The description, with the grammar of the input: a function's schema cannot say it."""
    texts = [tool.get("description")]
    grammar = tool.get("format")
    if isinstance(grammar, dict) and isinstance(grammar.get("definition"), str):
        syntax = grammar.get("syntax")
        texts.append(f"The input follows this {syntax} grammar:\n{grammar['definition']}")
    return "\n\n".join(text for text in texts if text) or None
