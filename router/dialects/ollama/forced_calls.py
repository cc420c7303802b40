"""Tool calls forced through a structured output.

Ollama has no ``tool_choice``. Where one is asked for, the answer is bound to the JSON of a call:

    {"name": "get_weather", "arguments": {…}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from router.errors import InvalidRequest

__all__ = ["forced_format"]

_MAX_DEPTH: Final = 200


def forced_format(tools: Iterable[Mapping[str, Any]], name: str | None) -> dict[str, Any]:
    """The JSON schema of a call of one of ``tools`` (chat form), or of the one named ``name``."""
    definitions: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    for i, tool in enumerate(tools):
        function = tool["function"]
        if name is None or function["name"] == name:
            arguments = _arguments(function["parameters"], f"tool{i}", definitions)
            calls.append(_call(function["name"], arguments))
    schema: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    if definitions:
        schema["$defs"] = definitions
    return schema


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _arguments(parameters: Mapping[str, Any], key: str, definitions: dict[str, Any]) -> Any:
    """The schema of the arguments.

    Its references point to its own root, which it no longer is. A schema that has some is put
    under ``$defs`` of the new root, and they are led there.
    """
    found: list[str] = []
    moved = _moved(parameters, f"#/$defs/{key}", found, 0)
    if not found:
        return parameters
    definitions[key] = moved
    return {name: value for name, value in moved.items() if name not in ("$defs", "definitions")}


def _moved(node: Any, root: str, found: list[str], depth: int) -> Any:
    """A copy of ``node`` whose local references start at ``root``; they are noted in ``found``."""
    if depth > _MAX_DEPTH:
        raise InvalidRequest(
            "Invalid 'tools': the parameters of a tool are nested too deeply.",
            code="invalid_value",
            param="tools",
        )
    if isinstance(node, list):
        return [_moved(entry, root, found, depth + 1) for entry in node]
    if not isinstance(node, dict):
        return node
    copy = {name: _moved(entry, root, found, depth + 1) for name, entry in node.items()}
    reference = node.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        copy["$ref"] = root + reference[1:]
        found.append(reference)
    return copy
