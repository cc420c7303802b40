"""What is in a JSON text is counted before it is parsed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from router.telemetry.tasks import ValueCount, most_values

TEXT = st.text(st.sampled_from('a"\\{}[],:\n\té😀'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | TEXT,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXT, inner, max_size=6),
    max_leaves=30,
)


def weight(value: Any) -> tuple[int, int]:
    """Strings, objects and arrays in a value; commas that it takes to write it."""
    if isinstance(value, str):
        return 1, 0
    if not isinstance(value, list | dict):
        return 0, 0
    inner = list(value) if isinstance(value, list) else [*value.keys(), *value.values()]
    parts = [weight(one) for one in inner]
    counted = 1 + sum(part[0] for part in parts)
    return counted, sum(part[1] for part in parts) + max(0, len(value) - 1)


@settings(deadline=None)
@given(VALUES, st.lists(st.integers(0, 400), max_size=8))
def test_it_is_exact_however_the_text_is_cut(value: Any, cuts: list[int]) -> None:
    text = orjson.dumps(value)
    edges = sorted({0, *[min(cut, len(text)) for cut in cuts], len(text)})
    count = ValueCount()
    for start, end in pairwise(edges):
        count.feed(text[start:end])
    counted, commas = weight(value)
    assert count.total == counted + commas // 10


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_anything_else_comes_to_some_number(junk: bytes) -> None:
    assert ValueCount().feed(junk) >= 0


@settings(deadline=None)
@given(VALUES | st.binary(max_size=60), st.lists(st.integers(0, 400), max_size=8))
def test_most_values_is_never_less_however_the_text_is_cut(value: Any, cuts: list[int]) -> None:
    text = value if isinstance(value, bytes) else orjson.dumps(value)
    edges = sorted({0, *[min(cut, len(text)) for cut in cuts], len(text)})
    most = sum(most_values(text[start:end]) for start, end in pairwise(edges))
    assert most >= ValueCount().feed(text)
