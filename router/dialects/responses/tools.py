"""Validation of ``tools`` and ``tool_choice``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from router.dialects.parameters import (
    Check,
    array,
    bad_value,
    boolean,
    missing,
    object_,
    string,
    wrong_type,
)
from router.errors import InvalidRequest

__all__ = [
    "check_execution",
    "check_tool_choice",
    "check_tools",
    "hosted_tool_name",
    "is_sound_tool",
    "is_web_search",
]

_TOOL_TYPES: Final = (
    "function",
    "custom",
    "web_search",
    "web_search_preview",
    "file_search",
    "code_interpreter",
    "mcp",
    "image_generation",
    "local_shell",
    "shell",
    "computer_use_preview",
    "computer_use",
    "computer",
    "apply_patch",
    "namespace",
    "tool_search",
    "programmatic_tool_calling",
)

_KNOWN_TOOLS: Final = frozenset(_TOOL_TYPES)

_WEB_SEARCH: Final = re.compile(r"web_search(_preview)?(_\d{4}_\d\d_\d\d)?", re.ASCII)
"""Web search has dated versions. The type may end in a header, so nothing looser will do."""

_NAMED: Final = frozenset({"function", "custom"})

_CLIENTS_OWN: Final = ("server_url", "connector_id", "headers", "authorization")
"""Where one of these is given, an MCP server, or what it is shown of, is the client's."""
_NOTHING: Final[Mapping[str, Check]] = {}

_MODES: Final = ("none", "auto", "required")

_EXECUTIONS: Final = ("server", "client")
"""Who runs a search for tools."""

_OPTIONAL: Final[Mapping[str, Mapping[str, Check]]] = {
    "function": {
        "description": string,
        "parameters": object_,
        "strict": boolean,
        "defer_loading": boolean,
    },
    "custom": {"description": string, "defer_loading": boolean},
    "namespace": {"description": string},
    "tool_search": {"description": string, "parameters": object_},
}
"""What is checked of each type of tool where it is there."""


def is_web_search(kind: object) -> bool:
    """Whether this is the type of a web search tool, dated or not."""
    return isinstance(kind, str) and _WEB_SEARCH.fullmatch(kind) is not None


def hosted_tool_name(tool: Mapping[str, Any]) -> str | None:
    """What settings call a hosted tool that is the operator's choice: ``web_search``, or
    ``mcp:LABEL`` for a server that is known by its label alone.
    """
    if is_web_search(tool.get("type")):
        return "web_search"
    if tool.get("type") != "mcp" or any(tool.get(name) is not None for name in _CLIENTS_OWN):
        return None
    label = tool.get("server_label")
    return f"mcp:{label}" if isinstance(label, str) else None


def check_tools(value: Any, param: str) -> None:
    """A list of tools; raise InvalidRequest naming the tool and its field."""
    array(value, param)
    for i, tool in enumerate(value):
        where = f"{param}[{i}]"
        object_(tool, where)
        kind = _check_type(tool, where)
        if kind in _NAMED:
            _check_name(tool, where)
        for name, check in _OPTIONAL.get(kind, _NOTHING).items():
            if tool.get(name) is not None:
                check(tool[name], f"{where}.{name}")
        if kind == "namespace":
            _check_members(tool, where)
        elif kind == "tool_search":
            check_execution(tool, where)


def check_execution(fields: Mapping[str, Any], where: str) -> None:
    """``execution``, of a search for tools or what came of it; raise InvalidRequest."""
    execution = fields.get("execution")
    if execution is not None:
        string(execution, f"{where}.execution")
        if execution not in _EXECUTIONS:
            raise bad_value(f"{where}.execution", execution, _EXECUTIONS)


def is_sound_tool(tool: Any) -> bool:
    """Whether what the router reads of a tool is there: an endpoint may have sent anything."""
    if type(tool) is not dict or type(tool.get("type")) is not str:
        return False
    if tool["type"] in _NAMED | {"namespace"} and type(tool.get("name")) is not str:
        return False
    if type(tool.get("description") or "") is not str:
        return False
    if tool["type"] != "namespace":
        return True
    members = tool.get("tools")
    return type(members) is list and all(
        is_sound_tool(member) and member["type"] in _NAMED for member in members
    )


def _check_members(tool: Mapping[str, Any], where: str) -> None:
    """The name and the tools of a namespace."""
    _check_name(tool, where)
    members = tool.get("tools")
    if members is None:
        raise missing(f"{where}.tools")
    check_tools(members, f"{where}.tools")
    for i, member in enumerate(members):
        if member["type"] not in _NAMED:
            raise bad_value(f"{where}.tools[{i}].type", member["type"], ("function", "custom"))


def check_tool_choice(value: Any, param: str) -> None:
    """``none``, ``auto``, ``required``, or an object that names a tool or a set of them."""
    if type(value) is str:
        if value not in _MODES:
            raise bad_value(param, value, _MODES)
        return
    if type(value) is not dict:
        raise wrong_type(param, "a string or an object", value)
    if value.get("type") == "allowed_tools":
        _check_allowed(value, param)
        return
    kind = _check_type(value, param)
    if kind in _NAMED:
        _check_name(value, param)


def _check_type(tool: Mapping[str, Any], where: str) -> str:
    kind = tool.get("type")
    if kind is None:
        raise missing(f"{where}.type")
    if type(kind) is not str:
        raise wrong_type(f"{where}.type", "a string", kind)
    if kind not in _KNOWN_TOOLS and not is_web_search(kind):
        raise bad_value(f"{where}.type", kind, _TOOL_TYPES)
    return kind


def _check_name(tool: Mapping[str, Any], where: str) -> None:
    name = tool.get("name")
    if name is None:
        raise missing(f"{where}.name")
    if type(name) is not str:
        raise wrong_type(f"{where}.name", "a string", name)
    if not name:
        raise InvalidRequest(
            f"Invalid '{where}.name': empty string. Expected a string with minimum length 1.",
            code="invalid_value",
            param=f"{where}.name",
        )


def _check_allowed(choice: Mapping[str, Any], param: str) -> None:
    mode = choice.get("mode")
    if mode is None:
        raise missing(f"{param}.mode")
    string(mode, f"{param}.mode")
    if mode not in ("auto", "required"):
        raise bad_value(f"{param}.mode", mode, ("auto", "required"))
    tools = choice.get("tools")
    if tools is None:
        raise missing(f"{param}.tools")
    array(tools, f"{param}.tools")
    for i, tool in enumerate(tools):
        where = f"{param}.tools[{i}]"
        object_(tool, where)
        if _check_type(tool, where) in _NAMED:
            _check_name(tool, where)
