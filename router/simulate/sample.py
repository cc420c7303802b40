"""An instance of a JSON Schema, filled from the words of the question where they fit.

Understood: ``type`` (also a list), ``properties``, ``required``, ``items``, ``prefixItems``,
``minItems``, ``maxItems``, ``uniqueItems``, ``enum``, ``const``, local ``$ref``, ``anyOf``,
``oneOf``, ``allOf``, numeric bounds, ``multipleOf``, string lengths and the usual formats.
``pattern``, ``not`` and conditions are not solved: what they forbid may be answered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Hints", "SchemaError", "sample"]

_MAX_NODES: Final = 5_000
_MAX_DEPTH: Final = 60
_OPTIONAL_DEPTH: Final = 12
_MAX_LENGTH: Final = 10_000
_MAX_EXACT: Final = 2.0**53
_WHOLE_QUESTION: Final = frozenset(
    {"query", "question", "text", "prompt", "message", "input", "q", "search", "answer"}
)
_FORMATS: Final = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_IMPLIED: Final = (
    ("object", ("properties", "required", "additionalProperties")),
    ("array", ("items", "prefixItems", "minItems")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)


class SchemaError(ValueError):
    """The schema is broken, unsatisfiable or too big; the message says where."""


class _TooBig(SchemaError):
    """The budget is spent: unlike other errors this one is not a reason to try another branch."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What the question offers to fill in: itself, a name it speaks of, and its numbers."""

    question: str = ""
    subject: str = ""
    numbers: tuple[float, ...] = ()


def sample(schema: Mapping[str, Any], hints: Hints) -> Any:
    """An instance of ``schema``; raises SchemaError where there is none to be found."""
    return _Sampler(schema, hints).build(schema, "value", 0, 0)


class _Sampler:
    def __init__(self, root: Mapping[str, Any], hints: Hints) -> None:
        self._root = root
        self._hints = hints
        self._nodes = 0

    def build(self, schema: Any, name: str, depth: int, variant: int) -> Any:
        """The ``variant``-th instance: unique items of a list differ by it."""
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _TooBig(f"the schema needs more than {_MAX_NODES} values (at {name!r})")
        if depth > _MAX_DEPTH:
            raise SchemaError(f"the schema has no finite instance (at {name!r})")
        if schema is True:
            schema = {}
        if not isinstance(schema, Mapping):
            raise SchemaError(f"the schema of {name!r} allows no value")
        if "$ref" in schema:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self.build(_merge(rest, self._resolve(schema["$ref"])), name, depth + 1, variant)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._choose(schema["enum"], name, variant)
        for key in ("allOf", "anyOf", "oneOf"):
            if key in schema:
                return self._combine(schema, key, name, depth, variant)
        return self._typed(schema, name, depth, variant)

    def _resolve(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise SchemaError(f"$ref {ref!r} is not a local reference (#/…)")
        target: Any = self._root
        for step in ref.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and step in target:
                target = target[step]
            elif isinstance(target, list) and step in map(str, range(len(target))):
                target = target[int(step)]
            else:
                raise SchemaError(f"$ref {ref!r} points nowhere")
        return target

    def _choose(self, values: Any, name: str, variant: int) -> Any:
        if not isinstance(values, list) or not values:
            raise SchemaError(f"the enum of {name!r} is empty")
        question = self._hints.question.lower()
        named = [v for v in values if isinstance(v, str) and v and v.lower() in question]
        if named and variant == 0:
            return named[0]
        if variant < len(values):
            return values[variant]
        raise SchemaError(f"the enum of {name!r} has too few values")

    def _combine(
        self, schema: Mapping[str, Any], key: str, name: str, depth: int, variant: int
    ) -> Any:
        rest = {k: v for k, v in schema.items() if k != key}
        branches = schema[key]
        if not isinstance(branches, list) or not branches:
            raise SchemaError(f"{key} of {name!r} is not a list of schemas")
        if key == "allOf":
            merged: Any = rest
            for branch in branches:
                while isinstance(branch, Mapping) and "$ref" in branch:
                    self._spend(name)
                    own = {k: v for k, v in branch.items() if k != "$ref"}
                    branch = _merge(own, self._resolve(branch["$ref"]))
                merged = _merge(merged, branch)
            return self.build(merged, name, depth + 1, variant)
        # A null branch is last: an optional value is better shown than left out.
        ordered = sorted(branches, key=lambda b: isinstance(b, Mapping) and b.get("type") == "null")
        problem = SchemaError(f"{key} of {name!r} has no branch that can be met")
        for branch in ordered:
            try:
                return self.build(_merge(rest, branch), name, depth + 1, variant)
            except _TooBig:
                raise
            except SchemaError as error:
                problem = error
        raise problem

    def _spend(self, name: str) -> None:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _TooBig(f"the schema refers to itself without an end (at {name!r})")

    def _typed(self, schema: Mapping[str, Any], name: str, depth: int, variant: int) -> Any:
        kind = schema.get("type", _implied_type(schema))
        if isinstance(kind, list):
            ordered = sorted(kind, key=lambda k: k == "null")
            branches = [{"type": k} for k in ordered]
            rest = {k: v for k, v in schema.items() if k != "type"}
            return self._combine({**rest, "anyOf": branches}, "anyOf", name, depth, variant)
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "string":
                return self._string(schema, name, variant)
            case "integer" | "number":
                return self._number(schema, name, variant, whole=kind == "integer")
            case "boolean":
                return variant % 2 == 0
            case "null":
                return None
        raise SchemaError(f"the type of {name!r} is unknown: {kind!r}")

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise SchemaError("properties must be an object and required a list")
        made: dict[str, Any] = {}
        for key, inner in properties.items():
            if key in required:
                made[key] = self.build(inner, key, depth + 1, 0)
            elif depth < _OPTIONAL_DEPTH:
                try:
                    made[key] = self.build(inner, key, depth + 1, 0)
                except _TooBig:
                    raise
                except SchemaError:
                    # Optional, and without a finite instance (a recursion): left out.
                    continue
        for key in required:
            if key not in made:
                made[key] = self.build(schema.get("additionalProperties", True), key, depth + 1, 0)
        return made

    def _array(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        prefix = schema.get("prefixItems", [])
        least = _size(schema, "minItems", 0)
        count = min(max(least, len(prefix), 1), _size(schema, "maxItems", _MAX_LENGTH))
        if least > count:
            raise SchemaError(f"minItems of {name!r} exceeds maxItems")
        items = schema.get("items", True)
        unique = schema.get("uniqueItems") is True
        made: list[Any] = []
        try:
            for place in range(count):
                inner = prefix[place] if place < len(prefix) else items
                made.append(self.build(inner, name, depth + 1, place if unique else 0))
        except _TooBig:
            raise
        except SchemaError:
            if len(made) < least:
                raise
        return made

    def _string(self, schema: Mapping[str, Any], name: str, variant: int) -> str:
        text = _FORMATS.get(str(schema.get("format")), "") or self._words(name)
        if variant:
            text = f"{text} {variant + 1}"
        shortest = _size(schema, "minLength", 0)
        longest = _size(schema, "maxLength", _MAX_LENGTH)
        if schema.get("minLength", 0) > longest:
            raise SchemaError(f"minLength of {name!r} cannot be met")
        return text.ljust(shortest, ".")[:longest]

    def _words(self, name: str) -> str:
        if name.lower() in _WHOLE_QUESTION and self._hints.question:
            return self._hints.question[:200]
        return self._hints.subject or f"sample {name}"

    def _number(
        self, schema: Mapping[str, Any], name: str, variant: int, *, whole: bool
    ) -> int | float:
        step = _limit(schema, "multipleOf") or (1.0 if whole else None)
        low, high = _limit(schema, "minimum"), _limit(schema, "maximum")
        above, below = _limit(schema, "exclusiveMinimum"), _limit(schema, "exclusiveMaximum")

        def fits(value: float) -> bool:
            return (
                math.isfinite(value)
                and (low is None or value >= low)
                and (high is None or value <= high)
                and (above is None or value > above)
                and (below is None or value < below)
                and (not whole or value == math.floor(value))
                and (step is None or _on_grid(value, step))
            )

        for value in _candidates(self._hints.numbers, (low, above), (high, below), step):
            if fits(value + variant * (step or 1.0)):
                value += variant * (step or 1.0)
                exact = value == math.floor(value) and abs(value) < _MAX_EXACT
                return int(value) if exact else value
        raise SchemaError(f"no number meets the bounds of {name!r}")


def _candidates(
    numbers: tuple[float, ...],
    floors: tuple[float | None, ...],
    ceilings: tuple[float | None, ...],
    step: float | None,
) -> list[float]:
    """Numbers worth trying: the question's own, then small ones, then those next to a bound."""
    found = [*numbers, 1.0, 0.0]
    for bound in (*floors, *ceilings):
        if bound is None:
            continue
        found.append(bound)
        grid = step or 1.0
        if abs(bound / grid) < _MAX_EXACT:
            base = math.floor(bound / grid) * grid
            found += [base, base + grid, base - grid]
    known = [bound for bound in (*floors, *ceilings) if bound is not None]
    if len(known) > 1:
        found.append(sum(known) / len(known))
    return found


def _on_grid(value: float, step: float) -> bool:
    count = value / step
    return abs(count) < _MAX_EXACT and math.isclose(count, round(count))


def _implied_type(schema: Mapping[str, Any]) -> str:
    for kind, keys in _IMPLIED:
        if any(key in schema for key in keys):
            return kind
    return "string"


def _limit(schema: Mapping[str, Any], key: str) -> float | None:
    value = schema.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{key} is not a number")
    if not math.isfinite(value):
        raise SchemaError(f"{key} is not a finite number")
    return float(value)


def _size(schema: Mapping[str, Any], key: str, default: int) -> int:
    value = schema.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SchemaError(f"{key} is not a count")
    return min(value, _MAX_LENGTH)


def _merge(one: Any, other: Any) -> Any:
    """Both schemas at once, as far as joining their keywords says so."""
    if other is True:
        return one
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return False
    merged = {**one, **other}
    for key in ("properties", "$defs"):
        if isinstance(one.get(key), Mapping) and isinstance(other.get(key), Mapping):
            merged[key] = {**one[key], **other[key]}
    if isinstance(one.get("required"), list) and isinstance(other.get("required"), list):
        merged["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return merged
