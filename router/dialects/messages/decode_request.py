"""A request of the Messages API as one of the Responses API.

Of what has no place there, some is left out for good reason: ``cache_control`` and its like change
no answer, and endpoints cache prompts by themselves; Claude Code's attribution of a request is for
Anthropic's billing only. All else is named in ``dropped``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from router.dialects.messages.content import text_parts
from router.dialects.messages.context import AppliedEdits, parse_edits
from router.dialects.messages.decode_history import MessagesHistory
from router.dialects.messages.fields import bad, given, need, number, one_of, required, typed
from router.dialects.messages.thinking import Show, Thinking, parse_thinking
from router.dialects.messages.tool_search import as_function, is_tool_search
from router.dialects.messages.tools import choice_of, tools_of

__all__ = ["DecodedMessagesRequest", "decode_count_request", "decode_messages_request"]

_ENCRYPTED: Final = "reasoning.encrypted_content"
_MAX_USER: Final = 64
"""Characters; a longer name of a user is refused by endpoints, so that its hash stands for it."""

_READ: Final = frozenset(
    {
        "cache",
        "cache_control",
        "context_management",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "output_format",
        "service_tier",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
    }
)
_COUNTED: Final[tuple[str, ...]] = (
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
)
_BILLING: Final = "x-anthropic-billing-header:"
"""How the block begins that Claude Code puts before its system prompt, as in
``x-anthropic-billing-header: cc_version=…; cc_entrypoint=cli; cch=…;``. It differs from request to
request: with it no two prompts would have a prefix in common for an engine to keep.
"""
_TIERS: Final[Mapping[str, str]] = {"auto": "auto", "standard_only": "default"}


@dataclass(frozen=True, slots=True)
class DecodedMessagesRequest:
    """``dropped`` are the paths of what a Responses request cannot carry, ``dropped_thinking`` is
    how many blocks of thinking were signed by somebody else, ``show`` what is to be shown of new
    ones, ``edits`` what was cleared of the history.
    """

    body: dict[str, Any]
    dropped: tuple[str, ...]
    dropped_thinking: int
    show: Show
    edits: AppliedEdits


def decode_messages_request(body: Mapping[str, Any]) -> DecodedMessagesRequest:
    """The Responses request for the body of ``POST /v1/messages``; raises InvalidRequest."""
    limit = _positive(body, "max_tokens")
    if limit is None:
        raise required("max_tokens")
    return _translated(body, limit)


def decode_count_request(body: Mapping[str, Any]) -> DecodedMessagesRequest:
    """The same for ``POST /v1/messages/count_tokens``: what of it makes up the prompt."""
    made = _translated({**body, "stream": False}, None)
    counted = {name: made.body[name] for name in _COUNTED if name in made.body}
    if tools := counted.get("tools"):
        counted["tools"] = [as_function(tool) if is_tool_search(tool) else tool for tool in tools]
    return replace(made, body=counted)


def _translated(body: Mapping[str, Any], limit: int | None) -> DecodedMessagesRequest:
    model = need(body, "model", str, "")
    if not model:
        raise bad("model", "String should have at least 1 character")
    history = MessagesHistory()
    history.add(need(body, "messages", list, ""))
    if not history.items:
        raise bad("messages", "At least one message with content is required")
    tools, dropped = tools_of(body, history.references)
    thinking = parse_thinking(body, limit)
    made: dict[str, Any] = {"model": model, "input": history.items, "store": False}
    if instructions := _system(body):
        made["instructions"] = instructions
    if tools:
        made["tools"] = tools
    made |= choice_of(body, tools)
    made |= _reasoning(thinking)
    made |= _options(body)
    if limit is not None:
        made["max_output_tokens"] = limit
    if form := _format(body):
        made["text"] = {"format": form}
    metadata = given(body, "metadata", dict, "") or {}
    if user := given(metadata, "user_id", str, "metadata"):
        made["user"] = _user(user)
    if history.may_cite:
        dropped.append("citations")
    dropped += [f"metadata.{name}" for name in metadata if name != "user_id"]
    dropped += [name for name, value in body.items() if name not in _READ and value is not None]
    output = body.get("output_config") or {}
    dropped += [f"output_config.{name}" for name in output if name not in ("effort", "format")]
    edits = parse_edits(body)
    return DecodedMessagesRequest(
        made,
        (*dropped, *edits.dropped),
        history.dropped_thinking,
        thinking.show,
        edits.apply(made),
    )


def _system(body: Mapping[str, Any]) -> str:
    system = body.get("system")
    if system is None or isinstance(system, str):
        return _without_billing(system or "")
    texts = [part["text"] for part in text_parts(typed(system, list, "system"), "system")]
    while texts and texts[0].startswith(_BILLING):
        texts[0] = _without_billing(texts[0])
        if not texts[0]:
            del texts[0]
    return "\n\n".join(texts)


def _without_billing(text: str) -> str:
    """The text after the lines at its head that attribute the request."""
    while text.startswith(_BILLING):
        text = text.partition("\n")[2].lstrip("\n")
    return text


def _reasoning(thinking: Thinking) -> dict[str, Any]:
    reasoning: dict[str, str] = {}
    if thinking.effort is not None:
        reasoning["effort"] = thinking.effort
    if thinking.show == "text":
        reasoning["summary"] = "auto"
    fields: dict[str, Any] = {"reasoning": reasoning} if reasoning else {}
    if thinking.on is not None and not (thinking.on and thinking.effort):
        fields["switch_thinking"] = thinking.on  # an effort says it as well
    if thinking.show != "nothing":
        fields["include"] = [_ENCRYPTED]
    return fields


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that have a counterpart of their own, or are known to many endpoints."""
    fields: dict[str, Any] = {
        "stream": given(body, "stream", bool, ""),
        "temperature": number(body, "temperature", 1),
        "top_p": number(body, "top_p", 1),
        "top_k": _positive(body, "top_k"),
        "cache": body.get("cache"),
    }
    tier = given(body, "service_tier", str, "")
    if tier is not None:
        fields["service_tier"] = _TIERS[one_of(tier, _TIERS, "service_tier")]
    if stops := given(body, "stop_sequences", list, ""):
        for index, stop in enumerate(stops):
            where = f"stop_sequences.{index}"
            if not typed(stop, str, where):
                raise bad(where, "String should have at least 1 character")
        fields["stop"] = stops
    return {name: value for name, value in fields.items() if value is not None}


def _positive(body: Mapping[str, Any], name: str) -> int | None:
    value = given(body, name, int, "")
    if value is not None and value < 1:
        raise bad(name, "Input should be greater than or equal to 1")
    return value


def _format(body: Mapping[str, Any]) -> dict[str, Any] | None:
    output = given(body, "output_config", dict, "") or {}
    form, where = given(output, "format", dict, "output_config"), "output_config.format"
    if form is None:
        form, where = given(body, "output_format", dict, ""), "output_format"
    if form is None:
        return None
    one_of(need(form, "type", str, where), ("json_schema",), f"{where}.type")
    schema = need(form, "schema", dict, where)
    return {"type": "json_schema", "name": "answer", "schema": schema, "strict": _is_strict(schema)}


def _is_strict(schema: dict[str, Any]) -> bool:
    """Whether every object in it is closed and needs all of its properties, without which
    endpoints refuse to hold an answer to it strictly.
    """
    todo: list[Any] = [schema]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            properties = value.get("properties")
            if isinstance(properties, dict) and value.get("type") == "object":
                wanted = value.get("required")
                if value.get("additionalProperties") is not False or not isinstance(wanted, list):
                    return False
                if not all(name in wanted for name in properties):
                    return False
            todo += value.values()
    return True


def _user(user: str) -> str:
    if len(user) <= _MAX_USER:
        return user
    return hashlib.sha256(user.encode()).hexdigest()
