"""The fields of a Response object that repeat the request, with OpenAI's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["echo_fields", "without_credentials", "without_secrets"]

_TEXT_FORMAT: Final = {"type": "text"}

_SECRETS: Final[Mapping[str, frozenset[str]]] = {"mcp": frozenset({"authorization", "headers"})}
"""Fields of a tool that carry credentials: a Response may be stored and shown to others."""

_TOOL_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "file_search": {"vector_store_ids": []},
    "code_interpreter": {"container": {"type": "auto"}},
}
"""Required in a Response, but often left out of a request."""

_PLAIN: Final[Mapping[str, Any]] = {
    "background": False,
    "frequency_penalty": 0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "model": None,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": None,
    "safety_identifier": None,
    "service_tier": "auto",
    "store": True,
    "temperature": 1.0,
    "text": None,
    "tool_choice": "auto",
    "tools": None,
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": None,
}
"""Every echoed field with its default. The penalties are required by OpenResponses."""


def echo_fields(body: Mapping[str, Any], *, model: str) -> dict[str, Any]:
    """What a Response repeats of a validated request body; nothing in ``body`` is changed.

    ``model`` is the name to show. ``conversation`` and ``prompt`` are there only when the
    request has them, the former always as ``{"id"}``. Values are shared with ``body``.
    """
    echo = dict(_PLAIN)
    for name, value in body.items():
        if value is not None and name in _PLAIN:
            echo[name] = value
    echo["model"] = model
    echo["reasoning"] = _reasoning(body.get("reasoning") or {})
    echo["text"] = _text(body.get("text") or {})
    echo["tools"] = [_tool(tool) for tool in body.get("tools") or ()]
    echo["metadata"] = body.get("metadata") or {}
    conversation = body.get("conversation")
    if conversation is not None:
        known = conversation if isinstance(conversation, str) else conversation["id"]
        echo["conversation"] = {"id": known}
    if body.get("prompt") is not None:
        echo["prompt"] = body["prompt"]
    return echo


def _reasoning(given: Mapping[str, Any]) -> dict[str, Any]:
    # generate_summary is the older name of summary.
    summary = given.get("summary") or given.get("generate_summary")
    return {"effort": given.get("effort"), "summary": summary}


def _text(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": _format(given.get("format") or _TEXT_FORMAT),
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
