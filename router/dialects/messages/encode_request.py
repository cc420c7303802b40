"""A request of the Responses API as one of Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from router.dialects.chat.encode_request import ToolPlan, plan_tools
from router.dialects.dialect import EncodedRequest
from router.dialects.dropped import dropped_fields, is_default
from router.dialects.messages.answer_schema import ANSWER_TOOL, answer_tool, fitted_schema
from router.dialects.messages.cache_control import add_breakpoints
from router.dialects.messages.citations import ask_for_citations
from router.dialects.messages.claude import ModelTraits, traits_of
from router.dialects.messages.encode_history import encode_history
from router.dialects.messages.encode_thinking import ThinkingPlan, plan_thinking
from router.settings.schema import EndpointSettings

__all__ = ["encode_count_for_messages", "encode_for_messages"]

_LIMITS: Final = ("max_output_tokens", "max_completion_tokens", "max_tokens")
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_MOST_STRICT: Final = 20
"""Strict functions that a request may have."""

_TIERS: Final[Mapping[Any, str]] = {"auto": "auto", "default": "standard_only"}
_CARRIED: Final = frozenset(_LIMITS).union(
    _SAMPLING,
    {"input", "instructions", "model", "parallel_tool_calls", "reasoning", "stop", "text"},
    {"prompt_cache_retention", "service_tier", "tool_choice", "tools", "user"},
)
"""Fields that are sent, whole or in part, or named by themselves where they are not."""

_COUNTED: Final = ("model", "messages", "system", "tools", "tool_choice", "thinking")


def encode_for_messages(
    body: Mapping[str, Any],
    *,
    model: str,
    stream: bool,
    usage: bool,
    settings: EndpointSettings,
    images: Mapping[str, str],
    account: str = "",
    most: int | None = None,
) -> EncodedRequest:
    """See ``router.dialects.dialect.EncodeRequest``. ``account`` is the endpoint's mark (see
    ``messages.sealing``), ``most`` how many tokens an answer of the model may have, where the
    endpoint has told.
    """
    traits = traits_of(model)
    later_system = settings.system_messages or "merge"
    history = encode_history(body, account=account, later_system=later_system)
    plan = plan_tools(body)
    limit = _limit(body, settings, traits, most)
    sent: dict[str, Any] = {"model": model, "max_tokens": limit, "messages": history.messages}
    if history.system:
        sent["system"] = history.system
    if stream:
        sent["stream"] = True
    dropped = [*plan.dropped]
    _add_tools(sent, plan, body, traits)
    forced = _add_format(sent, body, traits) or plan.mode == "required"
    thinking = plan_thinking(body, settings, traits, history.messages, limit, forced=forced)
    if thinking.thinking is not None:
        sent["thinking"] = thinking.thinking
    if thinking.effort is not None:
        sent["output_config"] = {**sent.get("output_config", {}), "effort": thinking.effort}
    dropped += thinking.dropped
    dropped += _add_sampling(sent, body, traits, thinking)
    dropped += _add_options(sent, body)
    documents: tuple[str, ...] = ()
    if settings.citations and "format" not in sent.get("output_config", ()):  # it takes but one
        documents = ask_for_citations(history.messages)
    if settings.prompt_caching != "off":
        add_breakpoints(sent, body)
    dropped += dropped_fields(body, _CARRIED)
    return EncodedRequest(
        "/messages",
        sent,
        tuple(dropped),
        foreign_reasoning=history.foreign_reasoning,
        documents=documents,
    )


def encode_count_for_messages(
    body: Mapping[str, Any], *, model: str, settings: EndpointSettings, account: str
) -> dict[str, Any]:
    """The body for ``/messages/count_tokens``."""
    encoded = encode_for_messages(
        body, model=model, stream=False, usage=False, settings=settings, images={}, account=account
    )
    return {name: encoded.body[name] for name in _COUNTED if name in encoded.body}


def _limit(
    body: Mapping[str, Any], settings: EndpointSettings, traits: ModelTraits, most: int | None
) -> int:
    """What ``max_tokens`` is, which has to be there."""
    asked = next((body[name] for name in _LIMITS if body.get(name) is not None), None)
    limit = asked or settings.max_tokens or traits.max_tokens
    return int(limit if most is None else min(limit, most))


def _add_tools(
    sent: dict[str, Any], plan: ToolPlan, body: Mapping[str, Any], traits: ModelTraits
) -> None:
    if not plan.tools:
        return
    functions = [tool["function"] for tool in plan.tools]
    strict = [one for one in functions if one.get("strict")] if traits.schemas else []
    sent["tools"] = [_tool(one, strict=0 < len(strict) <= _MOST_STRICT) for one in functions]
    choice: dict[str, Any] = {"type": "auto"}
    if plan.name is not None:
        choice = {"type": "tool", "name": plan.name}
    elif plan.mode != "auto":
        choice = {"type": "any" if plan.mode == "required" else "none"}
    one_by_one = body.get("parallel_tool_calls") is False and plan.mode != "none"
    if one_by_one:
        choice["disable_parallel_tool_use"] = True
    if choice != {"type": "auto"}:
        sent["tool_choice"] = choice


def _tool(function: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    schema = function["parameters"]
    tool = {"name": function["name"], "input_schema": schema}
    if schema.get("type") != "object":
        tool["input_schema"] = {**schema, "type": "object"}
    if function.get("description"):
        tool["description"] = function["description"]
    if strict and function.get("strict") and (fitted := fitted_schema(schema)) is not None:
        tool |= {"input_schema": fitted, "strict": True}
    return tool


def _add_format(sent: dict[str, Any], body: Mapping[str, Any], traits: ModelTraits) -> bool:
    """Have the answer in a form; whether a function has to be called for that."""
    form = (body.get("text") or {}).get("format") or {}
    kind = form.get("type")
    if kind not in ("json_object", "json_schema"):
        return False
    schema = form["schema"] if kind == "json_schema" else None
    fitted = fitted_schema(schema) if schema is not None and traits.schemas else None
    if fitted is not None:
        sent["output_config"] = {"format": {"type": "json_schema", "schema": fitted}}
        return False
    choice = dict(sent.get("tool_choice", {"type": "auto"}))
    if choice["type"] in ("tool", "any"):
        return True  # a function is to be called, and no answer given
    if choice["type"] == "none" or "tools" not in sent:
        choice = {"type": "tool", "name": ANSWER_TOOL}
    sent["tools"] = [*sent.get("tools", ()), answer_tool(schema, form.get("description"))]
    sent["tool_choice"] = choice if "name" in choice else {**choice, "type": "any"}
    return True


def _add_sampling(
    sent: dict[str, Any], body: Mapping[str, Any], traits: ModelTraits, plan: ThinkingPlan
) -> Iterator[str]:
    """Add what the model takes of it; yields the names of the rest. Temperatures end at 1, and a
    model that thinks has its own.
    """
    for name in _SAMPLING:
        value = body.get(name)
        if value is None or (value == 1 and name != "top_k"):  # which is the default
            continue
        second = name == "top_p" and traits.one_sample and "temperature" in sent
        if second or plan.thinks or name not in traits.samples:
            yield name
        elif name == "temperature" and value > 1:
            sent[name] = 1
            yield name
        else:
            sent[name] = value


def _add_options(sent: dict[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
    """Add fields that have a counterpart; yields the names of those that have none."""
    stops = body.get("stop")
    if stops := [stops] if isinstance(stops, str) else list(stops or ()):
        sent["stop_sequences"] = stops
    if body.get("user"):
        sent["metadata"] = {"user_id": body["user"]}
    tier = body.get("service_tier")
    if tier is not None and tier in _TIERS:
        sent["service_tier"] = _TIERS[tier]
    elif not is_default("service_tier", tier):
        yield "service_tier"
    if not is_default("text.verbosity", (body.get("text") or {}).get("verbosity")):
        yield "text.verbosity"
