"""Averages and quantiles against their definitions."""

from __future__ import annotations

from math import e, exp, inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.balance.averages import Ewma, PeakEwma, Quantile

SECONDS = st.floats(0.0, 1000.0)
OBSERVATIONS = st.lists(st.tuples(st.floats(0.0, 100.0), SECONDS), min_size=1, max_size=40)
"""How long after the one before, and what was observed."""


def test_nothing_is_known_at_first() -> None:
    average = PeakEwma()
    assert (average.known, average.latest, average.value(1e9)) == (False, 0.0, 0.0)
    average.observe(0.0, 1e9)
    assert average.known


@pytest.mark.parametrize(
    ("observed", "at", "expected"),
    [
        ([(0.0, 2.0)], 0.0, 2.0),
        ([(0.0, 2.0)], 10.0, 2.0 / e),
        ([(0.0, 2.0)], 20.0, 2.0 / e**2),
        ([(0.0, 2.0), (0.0, 8.0)], 0.0, 8.0),
        ([(0.0, 2.0), (30.0, 8.0)], 30.0, 8.0),
        ([(0.0, 8.0), (0.0, 2.0)], 0.0, 8.0),
        ([(0.0, 8.0), (10.0, 2.0)], 10.0, 2.0 + 6.0 / e),
        ([(0.0, 8.0), (10.0, 2.0)], 20.0, (2.0 + 6.0 / e) / e),
        ([(0.0, 8.0), (1e9, 2.0)], 1e9, 2.0),
    ],
    ids=[
        "one",
        "one after a while",
        "one after a longer while",
        "a peak",
        "a late peak",
        "a shorter one at once",
        "a shorter one later",
        "a shorter one, and a while",
        "a shorter one after ages",
    ],
)
def test_it_follows_peaks_at_once_and_comes_down_slowly(
    observed: list[tuple[float, float]], at: float, expected: float
) -> None:
    average = PeakEwma(decay=10.0)
    for now, seconds in observed:
        average.observe(seconds, now)
    assert average.value(at) == pytest.approx(expected)


def test_the_latest_does_not_decay() -> None:
    average = PeakEwma()
    average.observe(3.0, 5.0)
    assert average.value(100.0) < 0.001
    assert average.latest == 3.0


def test_a_clock_that_steps_back_changes_no_average() -> None:
    average = PeakEwma()
    average.observe(8.0, 1e6)
    assert average.value(0.0) == 8.0
    average.observe(2.0, 0.0)
    assert average.value(1e6) == 8.0


@settings(deadline=None)
@given(OBSERVATIONS, st.floats(0.1, 100.0))
def test_it_is_the_rule_applied_one_by_one(
    observed: list[tuple[float, float]], decay: float
) -> None:
    average = PeakEwma(decay)
    now, cost = 0.0, 0.0
    for elapsed, seconds in observed:
        now += elapsed
        weight = exp(-elapsed / decay)
        cost = seconds if seconds > cost else cost * weight + seconds * (1.0 - weight)
        average.observe(seconds, now)
        assert average.latest == average.value(now) == pytest.approx(cost)
        assert seconds <= average.latest <= max(value for _, value in observed) * (1 + 1e-12)
        later = [average.value(now + wait) for wait in (0.0, 1.0, 10.0, 1e6)]
        assert later == sorted(later, reverse=True)


@settings(deadline=None)
@given(OBSERVATIONS, st.lists(st.floats(0.0, 5000.0), max_size=10))
def test_reading_changes_nothing(observed: list[tuple[float, float]], reads: list[float]) -> None:
    alone, read = PeakEwma(), PeakEwma()
    now = 0.0
    for elapsed, seconds in observed:
        now += elapsed
        for at in reads:
            read.value(at)
        alone.observe(seconds, now)
        read.observe(seconds, now)
        assert read.value(now + 1.0) == alone.value(now + 1.0)


@settings(deadline=None)
@given(OBSERVATIONS, SECONDS, SECONDS, st.floats(0.0, 100.0))
def test_what_is_slower_never_looks_faster(
    observed: list[tuple[float, float]], one: float, other: float, elapsed: float
) -> None:
    faster, slower = PeakEwma(), PeakEwma()
    now = 0.0
    for wait, seconds in observed:
        now += wait
        faster.observe(seconds, now)
        slower.observe(seconds, now)
    faster.observe(min(one, other), now + elapsed)
    slower.observe(max(one, other), now + elapsed)
    assert faster.latest <= slower.latest * (1 + 1e-12)


def test_a_moving_average() -> None:
    average = Ewma(alpha=0.25)
    assert average.value is None
    values: list[float | None] = []
    for observed in (8.0, 4.0, 4.0, 0.0):
        average.observe(observed)
        values.append(average.value)
    assert values == [8.0, 7.0, 6.25, 4.6875]


@given(st.lists(SECONDS, min_size=1), st.floats(0.01, 1.0))
def test_a_moving_average_lies_between_what_was_observed(
    observed: list[float], alpha: float
) -> None:
    average = Ewma(alpha)
    for value in observed:
        average.observe(value)
    assert average.value is not None
    assert min(observed) - 1e-9 <= average.value <= max(observed) + 1e-9


@given(SECONDS, SECONDS)
def test_a_moving_average_forgets_where_it_began(first: float, then: float) -> None:
    average = Ewma(alpha=0.2)
    average.observe(first)
    for _ in range(150):
        average.observe(then)
    assert average.value == pytest.approx(then, abs=1e-9)


def test_a_quantile_needs_twenty() -> None:
    quantile = Quantile(0.95)
    for value in range(19):
        quantile.observe(float(value))
        assert quantile.value is None
    quantile.observe(19.0)
    assert quantile.value == 18.0


@pytest.mark.parametrize(
    ("q", "expected"),
    [(0.0, 1.0), (0.01, 1.0), (0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (1.0, 100.0)],
)
def test_quantiles_of_the_first_hundred_numbers(q: float, expected: float) -> None:
    numbers = [float(number) for number in range(1, 101)]
    Random(1).shuffle(numbers)
    quantile = Quantile(q)
    for number in numbers:
        quantile.observe(number)
    assert quantile.value == expected


# Few different values, so that many are equal; and some that are not.
VALUES = st.one_of(st.sampled_from([0.0, 1.0, 2.0, inf]), SECONDS)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=30, max_size=90), st.integers(20, 40), st.floats(0.0, 1.0))
def test_a_quantile_is_that_of_the_newest(values: list[float], size: int, q: float) -> None:
    quantile = Quantile(q, size)
    for count, value in enumerate(values, 1):
        quantile.observe(value)
        window = values[max(0, count - size) : count]
        if len(window) < 20:
            assert quantile.value is None
            continue
        within = [
            limit for limit in window if sum(value <= limit for value in window) >= q * len(window)
        ]
        assert quantile.value == min(within)
