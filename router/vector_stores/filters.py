"""Conditions on the attributes of files: checked, and as SQL.

A comparison holds only where the attribute is there and of the value's kind: a text is neither
less nor more than a number. ``ne`` and ``nin`` also hold for files without the attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.dialects.parameters import bad_value, missing, object_, string, wrong_type
from router.errors import InvalidRequest

__all__ = [
    "AttributeValue",
    "Comparison",
    "Condition",
    "Every",
    "parse_filter",
    "postgresql_condition",
    "sqlite_condition",
]

AttributeValue = str | float | bool

_OPERATORS: Final = {"eq": "=", "ne": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_LISTS: Final = ("in", "nin")
_TYPES: Final = (*_OPERATORS, *_LISTS, "and", "or")
_DEEPEST: Final = 10
_LARGE: Final = 1 << 63
_MOST: Final = 100
"""Comparisons in a filter, and values in a list."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``kind`` is one of OpenAI's; ``values`` is one, but for ``in`` and ``nin``."""

    kind: str
    key: str
    values: tuple[AttributeValue, ...]


@dataclass(frozen=True, slots=True)
class Every:
    """All of the parts hold, or ``either`` of them."""

    parts: tuple[Condition, ...]
    either: bool


Condition = Comparison | Every


def parse_filter(given: Any, where: str) -> Condition | None:
    """The filter at the path ``where``; None for one that is null or an empty compound.

    Raises InvalidRequest that names the field.
    """
    if given is None:
        return None
    left = [_MOST]
    return _parsed(given, where, _DEEPEST, left)


def _parsed(given: Any, where: str, depth: int, left: list[int]) -> Condition | None:
    object_(given, where)
    kind = given.get("type")
    if kind is None:
        raise missing(f"{where}.type")
    string(kind, f"{where}.type")
    if kind not in _TYPES:
        raise bad_value(f"{where}.type", kind, _TYPES)
    if kind not in ("and", "or"):
        left[0] -= 1
        if left[0] < 0:
            raise _invalid(where, f"a filter may have {_MOST} comparisons at most")
        return _comparison(given, kind, where)
    parts = given.get("filters")
    if parts is None:
        raise missing(f"{where}.filters")
    if type(parts) is not list:
        raise wrong_type(f"{where}.filters", "an array", parts)
    if depth == 0:
        raise _invalid(where, f"filters may be nested {_DEEPEST} deep at most")
    found = [
        _parsed(part, f"{where}.filters[{index}]", depth - 1, left)
        for index, part in enumerate(parts)
    ]
    held = tuple(part for part in found if part is not None)
    return Every(held, kind == "or") if held else None


def _comparison(given: Mapping[str, Any], kind: str, where: str) -> Comparison:
    for name in ("key", "value"):
        if given.get(name) is None:
            raise missing(f"{where}.{name}")
    key, value = given["key"], given["value"]
    string(key, f"{where}.key")
    if "\0" in key:
        raise _invalid(f"{where}.key", "NUL is not allowed")
    if kind not in _LISTS:
        return Comparison(kind, key, (_value(value, f"{where}.value"),))
    if type(value) is not list:
        raise wrong_type(f"{where}.value", "an array", value)
    if len(value) > _MOST:
        raise _invalid(f"{where}.value", f"a list may have {_MOST} values at most")
    values = tuple(_value(one, f"{where}.value[{index}]") for index, one in enumerate(value))
    return Comparison(kind, key, values)


def _value(value: Any, where: str) -> AttributeValue:
    if type(value) not in (str, int, float, bool):
        raise wrong_type(where, "a string, a number or a boolean", value)
    if isinstance(value, str) and "\0" in value:
        raise _invalid(where, "NUL is not allowed")
    found: AttributeValue = value
    return found


def _invalid(where: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid '{where}': {why}.", code="invalid_value", param=where)


Render = Callable[[Comparison, list[Any]], str]


def sqlite_condition(condition: Condition, column: str, values: list[Any]) -> str:
    """SQL on the JSON text in ``column``, with a ``?`` for each of the ``values`` it adds."""
    return _sql(condition, values, lambda one, into: _sqlite(one, column, into))


def postgresql_condition(condition: Condition, column: str, values: list[Any]) -> str:
    """SQL on the JSONB in ``column``; its parameters are numbered behind those in ``values``."""
    return _sql(condition, values, lambda one, into: _postgresql(one, column, into))


def _sql(condition: Condition, values: list[Any], render: Render) -> str:
    if isinstance(condition, Comparison):
        return render(condition, values)
    word = " OR " if condition.either else " AND "
    return "(" + word.join(_sql(part, values, render) for part in condition.parts) + ")"


def _sqlite(one: Comparison, column: str, values: list[Any]) -> str:
    """The member is looked up by its name as a value: no path is written of it."""
    if not one.values:
        return "1" if one.kind == "nin" else "0"
    tests = []
    values.append(one.key)
    operator = _OPERATORS.get(one.kind, "=")
    for value in one.values:
        kinds, held = _in_sqlite(value)
        tests.append(f"member.type IN ({kinds}) AND member.value {_positive(operator)} ?")
        values.append(held)
    found = " OR ".join(tests)
    exists = (
        f"EXISTS (SELECT 1 FROM json_each({column}) AS member WHERE member.key = ? AND ({found}))"
    )
    return f"NOT {exists}" if one.kind in ("ne", "nin") else exists


def _positive(operator: str) -> str:
    return "=" if operator == "<>" else operator


def _in_sqlite(value: AttributeValue) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "'true', 'false'", int(value)
    if isinstance(value, str):
        return "'text'", value
    # SQLite reads a larger number in the attributes as a real, too.
    return "'integer', 'real'", value if abs(value) < _LARGE else float(value)


def _postgresql(one: Comparison, column: str, values: list[Any]) -> str:
    """Values of another kind are told apart first: JSONB orders all kinds among each other."""
    if not one.values:
        return "TRUE" if one.kind == "nin" else "FALSE"
    values.append(one.key)
    member = f"({column} -> CAST(${len(values)} AS TEXT))"
    operator = _positive(_OPERATORS.get(one.kind, "="))
    tests = []
    for value in one.values:
        if isinstance(value, str):
            values.append(value)
            # Bytewise, as in SQLite, whatever the database's collation.
            text = f"({member} #>> '{{}}') COLLATE \"C\" {operator} CAST(${len(values)} AS TEXT)"
            tests.append(f"(jsonb_typeof({member}) = 'string' AND {text})")
            continue
        kind = "boolean" if isinstance(value, bool) else "number"
        values.append(orjson.dumps(value).decode())
        compared = f"{member} {operator} CAST(CAST(${len(values)} AS TEXT) AS JSONB)"
        tests.append(f"(jsonb_typeof({member}) = '{kind}' AND {compared})")
    found = f"({' OR '.join(tests)})"
    if one.kind in ("ne", "nin"):
        return f"NOT COALESCE({found}, FALSE)"
    return f"COALESCE({found}, FALSE)"
