"""``tools`` and ``tool_choice``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from router.dialects.messages.fields import bad, given, need, objects, one_of, refused
from router.dialects.messages.tool_search import SEARCH_TOOLS, search_tool

__all__ = ["choice_of", "tools_of"]

Tool = dict[str, Any]

_DATED: Final = re.compile(r"([a-z][a-z0-9_]*?)_20\d{6}", re.ASCII)
_CHOICES: Final[Mapping[str, str]] = {"auto": "auto", "any": "required", "none": "none"}

_KNOWN: Final = frozenset(
    {"name", "type", "description", "input_schema", "strict", "defer_loading"}
)
_OF_SEARCH: Final = frozenset({"name", "type", "defer_loading", "strict"})
_DOMAINS: Final = ("allowed_domains", "blocked_domains")
_HINTS: Final = frozenset({"cache_control", "eager_input_streaming", "allowed_callers"})
"""They change neither what a model may call nor what it says."""


def tools_of(
    body: Mapping[str, Any], referenced: Mapping[str, object]
) -> tuple[list[Tool], list[str]]:
    """The tools, and the paths of what of them is not sent.

    ``referenced`` are the names of tools that were found, in that order: these come last. Tools
    that are deferred and not found are in the list only as what the search tools search.
    """
    tools: list[Tool] = []
    found: list[Tool] = []
    deferred: list[Tool] = []
    searches: list[Tool] = []
    dropped: list[str] = []
    names: set[str] = set()
    chosen = _named_choice(body)
    for where, tool in objects(given(body, "tools", list, "") or [], "tools"):
        kind = given(tool, "type", str, where) or "custom"
        name = need(tool, "name", str, where)
        if not name:
            raise bad(f"{where}.name", "String should have at least 1 character")
        if name in names:
            raise bad(f"{where}.name", f"Tool names must be unique, and '{name[:64]}' is not")
        names.add(name)
        later = given(tool, "defer_loading", bool, where)
        if kind == "custom":
            made, known = _function(tool, where), _KNOWN
        elif (undated := _undated(kind)) in SEARCH_TOOLS:
            made, known, later = search_tool(undated, name, ()), _OF_SEARCH, False
            searches.append(made)
        else:
            made, known = _hosted(kind, tool, where)
            later = False
        if not later:
            tools.append(made)
        else:
            (found if name in referenced or name == chosen else deferred).append(made)
        others = sorted(set(tool) - known - _HINTS)
        dropped += [f"{where}.{field}" for field in others if tool[field] not in (None, False, [])]
    if not tools and not found and deferred:
        raise bad("tools", "At least one tool must not have defer_loading set")
    for search in searches:
        search["deferred"] = deferred
    places = {name: place for place, name in enumerate(referenced)}
    found.sort(key=lambda tool: places.get(tool["name"], len(places)))
    return [*tools, *found], dropped


def _undated(kind: str) -> str:
    """The name of a type of tools, without the day of its version."""
    dated = _DATED.fullmatch(kind)
    return dated[1] if dated else kind


def _named_choice(body: Mapping[str, Any]) -> Any:
    """The tool that has to be called, which has to be there."""
    choice = body.get("tool_choice")
    return choice.get("name") if isinstance(choice, dict) else None


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
    """The choice of a tool by its name, which hosted tools do not have in the Responses API."""
    for tool in tools:
        if tool.get("name") == name:
            is_function = tool["type"] == "function"
            return {"type": "function", "name": name} if is_function else {"type": tool["type"]}
    for theirs in given:
        if theirs["name"] == name:
            return {"type": _HOSTED[_undated(theirs["type"])](theirs, "tools")[0]["type"]}
    raise bad("tool_choice.name", f"Tool '{name[:64]}' not found in provided tools")
