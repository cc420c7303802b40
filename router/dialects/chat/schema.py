"""The body of ``POST /v1/chat/completions``: what is checked of it.

``check_chat`` looks at what the router itself reads: what else a field means is for the endpoint
to judge. ``check_fields`` is for a request that has to be translated: ``null`` counts as absent,
unknown fields pass. ``check_messages`` is for its messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.embeddings.schema import MOST_ANSWERS
from router.dialects.parameters import (
    Check,
    array,
    bad_value,
    boolean,
    integer,
    missing,
    object_,
    one_of,
    string,
    strings,
    wrong_type,
)
from router.dialects.responses.field_types import EFFORTS
from router.dialects.responses.fields import CHECKS, IN_CHAT
from router.errors import InvalidRequest

__all__ = ["CHAT_FIELDS", "check_chat", "check_fields", "kind_of", "needed"]

_MODES: Final = ("none", "auto", "required")
_TOOLS: Final = ("function", "custom")
_CHOICES: Final = (*_TOOLS, "allowed_tools")


def check_chat(body: Mapping[str, Any]) -> None:
    """Check the fields that the router itself reads; raises InvalidRequest."""
    if body.get("model") in (None, ""):
        raise missing("model")
    if body.get("messages") is None:
        raise missing("messages")
    for name, check in _READ.items():
        value = body.get(name)
        if value is not None:
            check(value, name)


def check_fields(body: Mapping[str, Any]) -> None:
    """Check each field that a translation reads; raises InvalidRequest."""
    for name, value in body.items():
        if value is not None and (check := _FIELDS.get(name)) is not None:
            check(value, name)


def kind_of(value: Mapping[str, Any], where: str, supported: tuple[str, ...]) -> str:
    """The ``type`` of an object, which must be one of these; raises InvalidRequest."""
    kind = needed(value, "type", where, string)
    if kind not in supported:
        raise bad_value(f"{where}.type", kind, supported)
    return str(kind)


def needed(value: Mapping[str, Any], name: str, where: str, check: Check) -> Any:
    """A field that must be there; raises InvalidRequest."""
    found = value.get(name)
    if found is None:
        raise missing(f"{where}.{name}")
    check(found, f"{where}.{name}")
    return found


def _objects(value: Any, param: str) -> None:
    array(value, param)
    for index, entry in enumerate(value):
        if type(entry) is not dict:
            raise wrong_type(f"{param}[{index}]", "an object", entry)


def _check_tools(value: Any, param: str) -> None:
    _objects(value, param)
    for index, tool in enumerate(value):
        _check_tool(tool, f"{param}[{index}]")


def _check_tool(tool: dict[str, Any], where: str) -> None:
    kind = kind_of(tool, where, _TOOLS)
    given, where = needed(tool, kind, where, object_), f"{where}.{kind}"
    _check_name(given, where)
    for name, check in (_FUNCTION if kind == "function" else _CUSTOM).items():
        if given.get(name) is not None:
            check(given[name], f"{where}.{name}")


def _check_grammar(value: Any, param: str) -> None:
    object_(value, param)
    if kind_of(value, param, ("text", "grammar")) == "grammar":
        grammar = needed(value, "grammar", param, object_)
        for name in ("definition", "syntax"):
            needed(grammar, name, f"{param}.grammar", string)


def _check_choice(value: Any, param: str) -> None:
    if type(value) is str:
        if value not in _MODES:
            raise bad_value(param, value, _MODES)
        return
    if type(value) is not dict:
        raise wrong_type(param, "a string or an object", value)
    kind = kind_of(value, param, _CHOICES)
    given, where = needed(value, kind, param, object_), f"{param}.{kind}"
    if kind != "allowed_tools":
        _check_name(given, where)
        return
    needed(given, "mode", where, one_of("auto", "required"))
    tools = needed(given, "tools", where, _objects)
    for index, tool in enumerate(tools):
        place = f"{where}.tools[{index}]"
        kind = kind_of(tool, place, _TOOLS)
        _check_name(needed(tool, kind, place, object_), f"{place}.{kind}")


def _check_name(value: Mapping[str, Any], where: str) -> None:
    if not needed(value, "name", where, string):
        raise InvalidRequest(
            f"Invalid '{where}.name': empty string. Expected a string with minimum length 1.",
            code="invalid_value",
            param=f"{where}.name",
        )


def _check_format(value: Any, param: str) -> None:
    object_(value, param)
    if kind_of(value, param, ("text", "json_object", "json_schema")) != "json_schema":
        return
    given, where = needed(value, "json_schema", param, object_), f"{param}.json_schema"
    _check_name(given, where)
    for name, check in _SCHEMA.items():
        if given.get(name) is not None:
            check(given[name], f"{where}.{name}")


def _check_stop(value: Any, param: str) -> None:
    if type(value) is not str:
        strings(value, param)


_READ: Final[Mapping[str, Check]] = {
    "model": string,
    "messages": _objects,
    "stream": boolean,
    "stream_options": object_,
}
_FUNCTION: Final[Mapping[str, Check]] = {
    "description": string,
    "parameters": object_,
    "strict": boolean,
}
_CUSTOM: Final[Mapping[str, Check]] = {"description": string, "format": _check_grammar}
_SCHEMA: Final[Mapping[str, Check]] = {
    "description": string,
    "schema": object_,
    "strict": boolean,
}
_FIELDS: Final[Mapping[str, Check]] = {
    **{name: check for name, check in CHECKS.items() if name in IN_CHAT},
    "frequency_penalty": CHECKS["frequency_penalty"],
    "logprobs": boolean,
    "max_completion_tokens": integer(1),
    "max_tokens": integer(1),
    "modalities": strings,
    "n": integer(1, MOST_ANSWERS),
    "presence_penalty": CHECKS["presence_penalty"],
    "reasoning_effort": one_of(*EFFORTS),
    "response_format": _check_format,
    "seed": integer(-(2**63)),
    "stop": _check_stop,
    "tool_choice": _check_choice,
    "tools": _check_tools,
    "verbosity": one_of("low", "medium", "high"),
}
"""Those that both APIs have are declared with the Responses API's; tools look otherwise."""

CHAT_FIELDS: Final = (
    frozenset(_FIELDS)
    | IN_CHAT
    | {
        "audio",
        "function_call",
        "functions",
        "logit_bias",
        "messages",
        "prediction",
        "store",
        "stream",
        "stream_options",
        "web_search_options",
    }
)
"""The request fields of Chat Completions; any other belongs to the endpoint."""
