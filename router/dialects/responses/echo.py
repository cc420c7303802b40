"""How a Response object repeats the values of its request's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = [
    "shown_conversation",
    "shown_metadata",
    "shown_reasoning",
    "shown_text",
    "shown_tools",
    "without_credentials",
    "without_secrets",
]

_TEXT_FORMAT: Final = {"type": "text"}

_SECRETS: Final[Mapping[str, frozenset[str]]] = {"mcp": frozenset({"authorization", "headers"})}
"""Fields of a tool that carry credentials: a Response may be stored and shown to others."""

_TOOL_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "file_search": {"vector_store_ids": []},
    "code_interpreter": {"container": {"type": "auto"}},
}
"""Required in a Response, but often left out of a request."""


def shown_metadata(given: dict[str, Any] | None) -> dict[str, Any]:
    """``metadata`` as a Response repeats it."""
    return given or {}


def shown_reasoning(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """``reasoning`` as a Response repeats it."""
    given = given or {}
    # generate_summary is the older name of summary.
    summary = given.get("summary") or given.get("generate_summary")
    return {"effort": given.get("effort"), "summary": summary}


def shown_text(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """``text`` as a Response repeats it."""
    given = given or {}
    form = given.get("format")
    return {
        "format": dict(_TEXT_FORMAT) if form is None else _format(form),
        "verbosity": given.get("verbosity") or "medium",
    }


def _format(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["type"] != "json_schema":
        return {"type": given["type"]}
    shown = {"type": "json_schema", "name": given["name"], "schema": given["schema"]}
    if given.get("description") is not None:
        shown["description"] = given["description"]
    shown["strict"] = given.get("strict") is True
    return shown


def without_secrets(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as it may be shown: without nulls and credentials."""
    encrypted_reasoning = _SECRETS.get(tool["type"], ())
    return {k: v for k, v in tool.items() if v is not None and k not in encrypted_reasoning}


def without_credentials(tools: Any) -> Any:
    """The tools as an endpoint repeats them, whatever that is, but for credentials."""
    if not isinstance(tools, list):
        return tools
    return [_masked(tool) for tool in tools]


def _masked(tool: Any) -> Any:
    kind = tool.get("type") if isinstance(tool, dict) else None
    encrypted_reasoning = _SECRETS.get(kind) if isinstance(kind, str) else None
    return (
        tool
        if encrypted_reasoning is None
        else {k: v for k, v in tool.items() if k not in encrypted_reasoning}
    )


def shown_tools(given: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """``tools`` as a Response repeats them: in full, without credentials."""
    return list(map(_tool, given)) if given else []


def shown_conversation(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """``conversation`` as a Response repeats it: ``{"id"}``."""
    return {"id": given if isinstance(given, str) else given["id"]}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    kind = tool["type"]
    given = without_secrets(tool)
    if kind != "function":
        return {**_TOOL_DEFAULTS.get(kind, {}), **given}
    return {
        "type": "function",
        "description": None,
        "name": tool["name"],
        "parameters": None,
        "strict": True,
        **given,
    }
