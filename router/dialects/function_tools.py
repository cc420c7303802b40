"""``tools`` and ``tool_choice`` for endpoints that know functions only.

Functions go out as they are, custom tools as functions with one string; hosted tools are not
sent, and named, so that the client can be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from router.errors import InvalidRequest

__all__ = ["NO_PARAMETERS", "ToolPlan", "custom_tool_names", "plan_tools"]

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
    functions = tuple(_function(tool) for tool in tools if tool["type"] in _CALLABLE)
    hosted = dict.fromkeys(tool["type"] for tool in tools if tool["type"] not in _CALLABLE)
    mode: Mode = "auto"
    if functions:  # else nothing that is sent could be required
        mode = "none" if wanted == "none" else "required" if wanted == "required" else "auto"
    return ToolPlan(functions, mode, name, tuple(hosted))


def custom_tool_names(body: Mapping[str, Any]) -> frozenset[str]:
    """The custom tools of a validated body: their calls come back as calls of functions."""
    return frozenset(t["name"] for t in body.get("tools") or () if t["type"] == "custom")


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


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
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
