"""JSON schemas as Anthropic's structured outputs take them.

They know fewer keywords than OpenAI's: what is left out of a schema is said in its description, as
Anthropic's own clients do. A schema that they cannot hold an answer to at all has none of this
form; a function that must be called takes its place (``ANSWER_TOOL``), whose input is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

__all__ = ["ANSWER_TOOL", "answer_tool", "fitted_schema"]

ANSWER_TOOL: Final = "give_answer"
"""The function that stands for an answer in JSON."""

_DESCRIPTION: Final = "Give the final answer, as the input of this tool."
_SAME: Final = ("type", "enum", "const", "title", "description", "$ref", "required", "default")
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_GIVEN: Final = ("type", "enum", "const", "$ref", "anyOf", "allOf", "oneOf")
_MAX_DEPTH: Final = 60
_HANDLED: Final = frozenset(
    {*_SAME, "$defs", "definitions", "$schema", "properties", "items", "additionalProperties"}
    | {"anyOf", "oneOf", "allOf"}
)


class _Unfit(Exception):
    """It has something that cannot be said."""


def fitted_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema in the form of structured outputs; None where it has none. Every object is closed:
    one that says that it is open has no such form.
    """
    try:
        return _fitted(schema, 0)
    except _Unfit:
        return None


def answer_tool(schema: Mapping[str, Any] | None, description: str | None) -> dict[str, Any]:
    """The function whose input is the answer; without a ``schema`` that is any object."""
    about = f"{_DESCRIPTION}\n\n{description}" if description else _DESCRIPTION
    if schema is None:
        form: Mapping[str, Any] = {"type": "object", "additionalProperties": True}
    else:
        form = schema if schema.get("type") == "object" else {**schema, "type": "object"}
    return {"name": ANSWER_TOOL, "description": about, "input_schema": form}


def _fitted(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        raise _Unfit
    if not any(name in schema for name in _GIVEN):
        raise _Unfit
    made = {name: schema[name] for name in _SAME if name in schema}
    for name in ("$defs", "definitions"):
        if isinstance(schema.get(name), Mapping):
            made[name] = {key: _fitted(one, depth + 1) for key, one in schema[name].items()}
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list):
            made["allOf" if name == "allOf" else "anyOf"] = [
                _fitted(one, depth + 1) for one in schema[name]
            ]
    rest = {name: value for name, value in schema.items() if name not in _HANDLED}
    _add_members(made, schema, rest, depth)
    if rest:
        said = ", ".join(f"{name}: {orjson.dumps(value).decode()}" for name, value in rest.items())
        about = made.get("description")
        made["description"] = f"{about}\n\n{{{said}}}" if about else f"{{{said}}}"
    return made


def _add_members(
    made: dict[str, Any], schema: Mapping[str, Any], rest: dict[str, Any], depth: int
) -> None:
    """What the types of the schema have of their own; what is said of it is taken from ``rest``."""
    kinds = schema.get("type")
    kinds = [] if kinds is None else kinds if isinstance(kinds, list) else [kinds]
    if not all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
        raise _Unfit
    if "object" in kinds:
        if schema.get("additionalProperties") not in (None, False) or "patternProperties" in schema:
            raise _Unfit
        properties = schema.get("properties") or {}
        if not isinstance(properties, Mapping):
            raise _Unfit
        made["properties"] = {name: _fitted(one, depth + 1) for name, one in properties.items()}
        made["additionalProperties"] = False
    if "array" in kinds:
        if "items" in schema:
            made["items"] = _fitted(schema["items"], depth + 1)
        if rest.get("minItems") in (0, 1):
            made["minItems"] = rest.pop("minItems")
    form = rest.get("format")
    if "string" in kinds and isinstance(form, str) and form in _FORMATS:
        made["format"] = rest.pop("format")
