"""JSON Schemas in few words.

``asked`` is for what a client sends: a field that may be left out may be null as well, and unknown
fields pass. ``told`` is for answers: what is not required may be missing, and there may be more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = [
    "ANYTHING", "NULL", "Schema", "any_of", "array", "asked", "boolean", "constant", "enum",
    "integer", "mapping", "metadata", "nullable", "number", "page_of", "ref", "string", "told",
]  # fmt: skip

Schema = dict[str, Any]

ANYTHING: Final[Schema] = {}
NULL: Final[Schema] = {"type": "null"}

_MOST_PAIRS: Final = 16
_LONGEST_KEY: Final = 64
_LONGEST_VALUE: Final = 512


def ref(name: str) -> Schema:
    """One of the document's own schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def _of(kind: str, description: str, more: Mapping[str, Any]) -> Schema:
    said = {"description": description} if description else {}
    given = {name: value for name, value in more.items() if value is not None}
    return {"type": kind, **given, **said}


def string(description: str = "", **more: Any) -> Schema:
    """A string; ``more`` are keywords such as ``minLength``."""
    return _of("string", description, more)


def boolean(description: str = "", **more: Any) -> Schema:
    """true or false."""
    return _of("boolean", description, more)


def integer(
    minimum: int | None = None, maximum: int | None = None, description: str = "", **more: Any
) -> Schema:
    """A whole number."""
    return _of("integer", description, {"minimum": minimum, "maximum": maximum, **more})


def number(
    minimum: float | None = None, maximum: float | None = None, description: str = "", **more: Any
) -> Schema:
    """Any number."""
    return _of("number", description, {"minimum": minimum, "maximum": maximum, **more})


def enum(*values: str, description: str = "", **more: Any) -> Schema:
    """One of these strings."""
    return _of("string", description, {"enum": list(values), **more})


def constant(value: str) -> Schema:
    """This string."""
    return {"type": "string", "const": value}


def array(items: Schema, description: str = "", **more: Any) -> Schema:
    """A list of these."""
    return _of("array", description, {"items": items, **more})


def mapping(values: Schema, description: str = "", **more: Any) -> Schema:
    """An object with any names and these values."""
    return _of("object", description, {"additionalProperties": values, **more})


def any_of(*schemas: Schema, description: str = "") -> Schema:
    """What one of these allows."""
    said = {"description": description} if description else {}
    return {"anyOf": list(schemas), **said}


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    if not schema:
        return schema
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], NULL]}
    if "const" in schema or not isinstance(schema.get("type"), str):
        return {"anyOf": [schema, NULL]}
    found = {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        found["enum"] = [*schema["enum"], None]
    return found


def asked(
    required: Mapping[str, Schema],
    optional: Mapping[str, Schema] | None = None,
    *,
    closed: bool = False,
    **more: Any,
) -> Schema:
    """An object in a request. ``closed``: unknown fields are refused."""
    fields = {**required, **{name: nullable(each) for name, each in (optional or {}).items()}}
    return _object(fields, required, closed, more)


def told(
    required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, **more: Any
) -> Schema:
    """An object in an answer."""
    return _object({**required, **(optional or {})}, required, False, more)


def _object(
    fields: Mapping[str, Schema], required: Mapping[str, Schema], closed: bool, more: dict[str, Any]
) -> Schema:
    made: Schema = {"type": "object", "properties": dict(fields)}
    if required:
        made["required"] = list(required)
    if closed:
        made["additionalProperties"] = False
    return {**made, **more}


def metadata() -> Schema:
    """Pairs of strings, as OpenAI's APIs bound them."""
    return mapping(
        string(maxLength=_LONGEST_VALUE),
        "Up to 16 pairs of strings.",
        maxProperties=_MOST_PAIRS,
        propertyNames={"maxLength": _LONGEST_KEY},
    )


def page_of(item: Schema) -> Schema:
    """A page of a list."""
    return told(
        {
            "object": constant("list"),
            "data": array(item),
            "first_id": nullable(string()),
            "last_id": nullable(string()),
            "has_more": boolean("Whether there are more after the last one."),
        }
    )
