"""Tool search: tools that a model is not offered before it has found them.

A tool with ``defer_loading`` is *deferred* until a ``tool_reference`` in the history names it: one
in a ``tool_search_tool_result``, which the router made, or in the result of a tool of the client's
own that searches. What is loaded follows from the history alone.

In a Responses request, Anthropic's search tools are tools of their own types, which the router
always runs itself (``router.tools.tool_search``): a function to offer, with the ``deferred`` ones
that it searches. Its calls are items of the type ``tool_search_call``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = [
    "SEARCH_CALL",
    "SEARCH_TOOLS",
    "as_function",
    "failed_text",
    "found_text",
    "is_tool_search",
    "search_tool",
]

Tool = dict[str, Any]

SEARCH_CALL: Final = "tool_search_call"
"""The type of the item that a search is shown as."""

_PATTERN: Final = (
    "A regular expression, as for Python's re.search(), such as 'weather', 'get_.*_data' or "
    "'(?i)slack|mail'. At most 200 characters."
)
_QUERY: Final = "What the tool should do, in a few words."

SEARCH_TOOLS: Final[Mapping[str, tuple[str, str]]] = {
    "tool_search_tool_regex": ("pattern", _PATTERN),
    "tool_search_tool_bm25": ("query", _QUERY),
}
"""The types of search tools, and what each is called with: an argument and its description."""

_MOST_NAMED: Final = 2000
"""Characters of the deferred tools' names that the model is told."""


def is_tool_search(tool: Mapping[str, Any]) -> bool:
    """Whether a tool of a Responses request is one of these."""
    return tool.get("type") in SEARCH_TOOLS


def search_tool(kind: str, name: str, deferred: Sequence[Tool]) -> Tool:
    """The tool of this type that searches the ``deferred`` functions."""
    return {"type": kind, "name": name, "deferred": list(deferred)}


def as_function(tool: Mapping[str, Any]) -> Tool:
    """The function that the model is offered for the search tool."""
    argument, meaning = SEARCH_TOOLS[tool["type"]]
    names = ", ".join(function["name"] for function in tool["deferred"])
    if len(names) > _MOST_NAMED:
        names = f"{names[:_MOST_NAMED].rpartition(', ')[0]}, …"
    described = (
        "Searches the tools that are not loaded yet, by their names, descriptions and arguments. "
        "The tools that it finds can be called from then on. "
    )
    return {
        "type": "function",
        "name": tool["name"],
        "description": described + (f"Not loaded: {names}." if names else "All are loaded."),
        "parameters": {
            "type": "object",
            "properties": {argument: {"type": "string", "description": meaning}},
            "required": [argument],
            "additionalProperties": False,
        },
        "strict": False,
    }


def found_text(names: Sequence[str]) -> str:
    """What the model is told of a search that found these tools."""
    if not names:
        return "No tool was found. Try other words."
    return f"These tools can be called now: {', '.join(names)}."


def failed_text(message: str) -> str:
    """What the model is told of a search that failed."""
    return f"Error: {message}"
