"""Instances of JSON Schemas, checked by a validator."""

from __future__ import annotations

import math
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.simulate.sample import Hints, SchemaError, sample

HINTS = Hints("Is it 7 or 12 in Oslo?", "Oslo", (7.0, 12.0))
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name", "children"],
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({"type": "string"}, "Oslo"),
        ({"type": "integer"}, 7),
        ({"type": "number", "minimum": 10}, 12),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "exclusiveMinimum": 20, "multipleOf": 8}, 24),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": ["null", "boolean"]}, True),
        ({"const": {"a": [None]}}, {"a": [None]}),
        ({"enum": ["bergen", "oslo"]}, "oslo"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 7),
        ({"properties": {"query": {"type": "string"}}}, {"query": "Is it 7 or 12 in Oslo?"}),
        ({"required": ["free"]}, {"free": "Oslo"}),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [7, 7]),
        (
            {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "uniqueItems": True},
            ["a", "b"],
        ),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}]}, [7, None]),
        ({"type": "array", "maxItems": 0}, []),
        (
            {"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]},
            {"a": 1, "b": 2},
        ),
        ({"type": "string", "maxLength": 2}, "Os"),
        ({"type": "string", "minLength": 6}, "Oslo.."),
        ({"type": "string", "format": "date"}, "2025-01-31"),
        (True, "Oslo"),
    ],
)
def test_samples(schema: Any, instance: Any) -> None:
    assert sample(schema, HINTS) == instance
    jsonschema.validate(instance, schema)


def test_a_recursive_schema_ends() -> None:
    tree = sample(TREE, Hints())
    jsonschema.validate(tree, TREE)
    assert tree["name"] == "sample name"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "#/$defs/none"}, "points nowhere"),
        ({"$ref": "https://example.com/s"}, "not a local reference"),
        ({"$ref": "#"}, "no finite instance"),
        ({"allOf": [{"$ref": "#/allOf/0"}]}, "without an end"),
        ({"type": "strnig"}, "unknown"),
        ({"enum": []}, "empty"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "no number"),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "exceeds maxItems"),
        ({"type": "array", "minItems": 10**12}, "more than"),
        ({"type": "string", "minLength": 10**12}, "cannot be met"),
        ({"type": "string", "minLength": "3"}, "not a count"),
        ({"properties": [1]}, "properties"),
        ({"required": ["a"], "additionalProperties": False}, "allows no value"),
        (False, "allows no value"),
    ],
)
def test_what_has_no_instance_is_said(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        sample(schema, HINTS)


def test_branching_without_end_is_given_up() -> None:
    wide = {"anyOf": [{"properties": {"x": {"$ref": "#"}}, "required": ["x"]}] * 9}
    with pytest.raises(SchemaError, match="more than"):
        sample(wide, HINTS)


def numbers(low: int, high: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": st.integers(low, 0),
            "maximum": st.integers(1, high),
            "multipleOf": st.just(1),
        },
    )


leaves: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    numbers(-50, 50),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={"minLength": st.integers(0, 8), "maxLength": st.integers(8, 20)},
    ),
    st.lists(st.text(max_size=5), min_size=1, max_size=4).map(lambda values: {"enum": values}),
)


def branches(
    inner: st.SearchStrategy[dict[str, Any]],
) -> st.SearchStrategy[dict[str, Any]]:
    objects = st.dictionaries(st.text(max_size=6), inner, max_size=4).flatmap(
        lambda properties: st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.just(properties),
                "required": st.just(sorted(properties)[:2]),
                "additionalProperties": st.just(False),
            }
        )
    )
    lists = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner, "minItems": st.integers(0, 3)}
    )
    either = st.lists(inner, min_size=1, max_size=3).map(lambda some: {"anyOf": some})
    return st.one_of(objects, lists, either)


@settings(deadline=None)
@given(
    st.recursive(leaves, branches, max_leaves=12),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    st.text(max_size=20),
)
def test_every_sample_is_valid(schema: dict[str, Any], known: list[float], text: str) -> None:
    instance = sample(schema, Hints(text, text[:5], tuple(known)))
    jsonschema.validate(instance, schema)
    assert orjson.loads(orjson.dumps(instance)) == instance


@given(
    st.dictionaries(
        st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "multipleOf"]),
        st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_extreme_numbers_are_met_or_refused(bounds: dict[str, float]) -> None:
    try:
        value = sample({"type": "number", **bounds}, HINTS)
    except SchemaError:
        return
    assert math.isfinite(value)
    assert value >= bounds.get("minimum", -math.inf)
    assert value <= bounds.get("maximum", math.inf)
    assert value > bounds.get("exclusiveMinimum", -math.inf)
