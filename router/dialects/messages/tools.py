"""``tools`` and ``tool_choice``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from router.dialects.messages.fields import bad, given, need, objects, one_of, refused

__all__ = ["choice_of", "tools_of"]

Tool = dict[str, Any]

_DATED: Final = re.compile(r"([a-z][a-z0-9_]*?)_20\d{6}", re.ASCII)
_CHOICES: Final[Mapping[str, str]] = {"auto": "auto", "any": "required", "none": "none"}

_KNOWN: Final = frozenset({"name", "type", "description", "input_schema", "strict"})
_DOMAINS: Final = ("allowed_domains", "blocked_domains")
_HINTS: Final = frozenset({"cache_control", "eager_input_streaming", "allowed_callers"})
"""They change neither what a model may call nor what it says."""


def tools_of(body: Mapping[str, Any]) -> tuple[list[Tool], list[str]]:
    """The tools, and the paths of what of them is not sent."""
    tools: list[Tool] = []
    dropped: list[str] = []
    names: set[str] = set()
    for where, tool in objects(given(body, "tools", list, "") or [], "tools"):
        kind = given(tool, "type", str, where) or "custom"
        name = need(tool, "name", str, where)
        if not name:
            raise bad(f"{where}.name", "String should have at least 1 character")
        if name in names:
            raise bad(f"{where}.name", f"Tool names must be unique, and '{name[:64]}' is not")
        names.add(name)
        if kind == "custom":
            tools.append(_function(tool, where))
            known = _KNOWN
        else:
            made, known = _hosted(kind, tool, where)
            tools.append(made)
        others = sorted(set(tool) - known - _HINTS)
        dropped += [f"{where}.{field}" for field in others if tool[field] not in (None, False, [])]
    return tools, dropped


def _function(tool: Mapping[str, Any], where: str) -> Tool:
    function: Tool = {
        "type": "function",
        "name": tool["name"],
        "parameters": need(tool, "input_schema", dict, where),
        "strict": given(tool, "strict", bool, where) or False,
    }
    description = given(tool, "description", str, where)
    if description is not None:
        function["description"] = description
    return function


def _hosted(kind: str, tool: Mapping[str, Any], where: str) -> tuple[Tool, frozenset[str]]:
    """The hosted tool of the Responses API that does the same, and the fields it has."""
    dated = _DATED.fullmatch(kind)
    make = _HOSTED.get(dated[1]) if dated else None
    if make is None:
        raise refused(
            f"{where}.type",
            f"The tool '{kind[:64]}'",
            "Describe it as a tool of type 'custom' with an 'input_schema'.",
        )
    return make(tool, where)


def _web_search(tool: Mapping[str, Any], where: str) -> tuple[Tool, frozenset[str]]:
    """Responses have no ``max_uses`` and no ``blocked_domains``; the router's own search has."""
    made: Tool = {"type": "web_search"}
    filters = {name: given(tool, name, list, where) for name in _DOMAINS}
    if filters := {name: domains for name, domains in filters.items() if domains}:
        made["filters"] = filters
    if location := given(tool, "user_location", dict, where):
        made["user_location"] = location
    if (most := given(tool, "max_uses", int, where)) is not None:
        if most < 1:
            raise bad(f"{where}.max_uses", "Input should be at least 1")
        made["max_uses"] = most
    return made, frozenset({"name", "type", "user_location", "max_uses", *_DOMAINS})


def _code(tool: Mapping[str, Any], where: str) -> tuple[Tool, frozenset[str]]:
    made = {"type": "code_interpreter", "container": {"type": "auto"}}
    return made, frozenset({"name", "type"})


_HOSTED: Final[Mapping[str, Callable[[Mapping[str, Any], str], tuple[Tool, frozenset[str]]]]] = {
    "web_search": _web_search,
    "code_execution": _code,
}


def choice_of(body: Mapping[str, Any], tools: list[Tool]) -> dict[str, Any]:
    """The fields that say which tools may be called."""
    choice = given(body, "tool_choice", dict, "")
    if choice is None:
        return {}
    kind = need(choice, "type", str, "tool_choice")
    one_of(kind, (*_CHOICES, "tool"), "tool_choice.type")
    if not tools and kind in ("any", "tool"):
        raise bad("tool_choice", "It may only be specified while providing tools")
    fields: dict[str, Any] = {"tool_choice": _CHOICES.get(kind)}
    if kind == "tool":
        name = need(choice, "name", str, "tool_choice")
        fields["tool_choice"] = _chosen(name, body["tools"], tools)
    if given(choice, "disable_parallel_tool_use", bool, "tool_choice"):
        fields["parallel_tool_calls"] = False
    return fields


def _chosen(name: str, given: list[Tool], tools: list[Tool]) -> dict[str, str]:
    for theirs, ours in zip(given, tools, strict=True):
        if theirs["name"] == name:
            if ours["type"] == "function":
                return {"type": "function", "name": name}
            return {"type": ours["type"]}
    raise bad("tool_choice.name", f"Tool '{name[:64]}' not found in provided tools")
