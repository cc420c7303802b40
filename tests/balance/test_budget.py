"""The budget: a few for the small, many for the large, a storm for nobody."""

from __future__ import annotations

from math import e, exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.balance.averages import RetryBudget


def spend(budget: RetryBudget, now: float) -> int:
    """Take all there is."""
    spent = 0
    while budget.withdraw(now):
        spent += 1
    return spent


def serve(budget: RetryBudget, requests: int, start: float, seconds: float) -> float:
    """So many requests, evenly over so many seconds; returns when the last came."""
    for number in range(1, requests + 1):
        budget.deposit(start + seconds * number / requests)
    return start + seconds


@pytest.mark.parametrize(
    ("ratio", "reserve", "requests", "expected"),
    [
        (0.0, 0, 1000, 0),
        (0.0, 5, 1000, 5),
        (0.25, 0, 3, 0),
        (0.25, 0, 4, 1),
        (0.25, 0, 1000, 250),
        (0.25, 10, 0, 10),
        (0.25, 10, 7, 11),
        (0.25, 100, 2000, 600),
        (1.0, 1, 3, 4),
    ],
    ids=[
        "nothing ever",
        "a reserve alone",
        "not yet",
        "one in four",
        "a share alone",
        "before any request",
        "both",
        "a large fleet",
        "one each",
    ],
)
def test_what_there_is_to_spend_at_once(
    ratio: float, reserve: float, requests: int, expected: int
) -> None:
    budget = RetryBudget(ratio, reserve)
    for _ in range(requests):
        budget.deposit(100.0)
    assert budget.available(100.0) == pytest.approx(reserve + ratio * requests)
    assert spend(budget, 100.0) == expected


@pytest.mark.parametrize(
    ("after", "expected"), [(0.0, 0), (5.9, 0), (6.0, 1), (30.0, 5), (60.0, 10), (1e9, 10)]
)
def test_the_reserve_fills_up_evenly(after: float, expected: int) -> None:
    budget = RetryBudget(0.5, 10)
    assert spend(budget, 100.0) == 10
    assert spend(budget, 100.0 + after) == expected


def test_a_large_fleet_is_not_cut_to_its_reserve() -> None:
    """An endpoint with 2000 requests dies: a fifth of the last minute's may be sent again."""
    budget = RetryBudget(0.2, 100)
    now = serve(budget, 2000, 0.0, 20.0)
    assert 400 < spend(budget, now) <= 500


def test_a_fleet_where_everything_fails_is_asked_little_more_than_usual() -> None:
    """Ten requests a second for ten minutes, and every one of them would be tried again."""
    budget = RetryBudget(0.2, 100)
    retries = 0
    for number in range(6000):
        budget.deposit(number / 10)
        retries += budget.withdraw(number / 10)
    assert retries == pytest.approx(100 + 100 * 10 + 0.2 * 6000, abs=20)


def test_what_was_earned_long_ago_is_gone() -> None:
    budget = RetryBudget(0.2, 10)
    now = serve(budget, 10_000, 0.0, 100.0)
    earned = budget.available(now) - 10
    assert earned > 800
    assert budget.available(now + 60.0) == pytest.approx(10 + earned / e)
    assert spend(budget, now + 3600.0) == 10


def test_hedges_have_a_bound() -> None:
    """A steady stream of requests that all would be hedged: a twentieth of them is."""
    budget = RetryBudget(0.05, 1)
    hedged = 0
    for number in range(60_000):
        budget.deposit(number / 100)
        hedged += budget.withdraw(number / 100)
    assert hedged == pytest.approx(0.05 * 60_000 + 10, abs=3)


def test_it_is_changed_at_run_time() -> None:
    budget = RetryBudget(0.0, 100)
    budget.reserve = 5
    assert spend(budget, 100.0) == 5
    budget.reserve = 60
    assert spend(budget, 100.0) == 0, "more of it comes in time"
    assert spend(budget, 110.0) == 10
    budget.ratio = 1.0
    budget.deposit(110.0)
    assert spend(budget, 110.0) == 1
    budget.ratio, budget.reserve = 0.0, 0
    budget.deposit(1e6)
    assert spend(budget, 1e6) == 0


def test_what_is_set_before_the_first_use_is_there_at_once() -> None:
    budget = RetryBudget(0.0, 0)
    budget.reserve = 5
    assert budget.available(0.0) == 5.0


def test_a_clock_that_steps_back_earns_nothing() -> None:
    budget = RetryBudget(0.0, 10)
    assert spend(budget, 1000.0) == 10
    assert spend(budget, 0.0) == 0
    assert spend(budget, 1006.0) == 1


RATIO = st.one_of(st.just(0.0), st.floats(0.0, 1.0))
RESERVE = st.one_of(st.just(0.0), st.floats(0.0, 50.0))
EVENTS = st.lists(
    st.tuples(
        st.one_of(st.just(0.0), st.floats(0.0, 1.0), st.floats(0.0, 200.0)),
        st.sampled_from(["request", "request", "requests", "extra", "extras"]),
    ),
    max_size=40,
)
"""How long after the one before, and what; the plurals stand for a burst of twenty."""


class Told:
    """A budget, and everything that it was told and said."""

    def __init__(self, ratio: float, reserve: float, refill: float) -> None:
        self.budget = RetryBudget(ratio, reserve, refill)
        self.ratio, self.reserve, self.refill = ratio, reserve, refill
        self.requests: list[float] = []
        self.extras: list[float] = []
        self.now = 0.0

    def play(self, events: list[tuple[float, str]]) -> None:
        for wait, what in events:
            self.now += wait
            for _ in range(20 if what.endswith("s") else 1):
                if what.startswith("request"):
                    self.budget.deposit(self.now)
                    self.requests.append(self.now)
                    continue
                had = self.budget.available(self.now)
                allowed = self.budget.withdraw(self.now)
                assert allowed == (had >= 1.0)
                assert self.budget.available(self.now) == had - allowed
                self.extras += [self.now] * allowed

    def saved(self, at: float) -> float:
        """The most that can be there just before a moment."""
        recent = sum(exp((then - at) / self.refill) for then in self.requests if then < at)
        return self.reserve + self.ratio * recent

    def most(self, start: float, end: float) -> float:
        """The most that may be spent from one moment to another, both included."""
        earned = self.ratio * sum(start <= at <= end for at in self.requests)
        return self.saved(start) + self.reserve * (end - start) / self.refill + earned


@settings(max_examples=300, deadline=None)
@given(RATIO, RESERVE, st.sampled_from([1.0, 10.0, 60.0]), EVENTS)
def test_no_window_sees_more_than_its_share(
    ratio: float, reserve: float, refill: float, events: list[tuple[float, str]]
) -> None:
    told = Told(ratio, reserve, refill)
    told.play(events)
    moments = sorted({*told.extras, *told.requests})
    for i, start in enumerate(moments):
        for end in moments[i:]:
            spent = sum(start <= at <= end for at in told.extras)
            assert spent <= told.most(start, end) + 1e-6
    # Over its whole life nothing was saved up before, but the reserve.
    earned = reserve * (1 + told.now / refill) + ratio * len(told.requests)
    assert len(told.extras) <= earned + 1e-6
    assert ratio or reserve or not told.extras


@settings(max_examples=300, deadline=None)
@given(RATIO, RESERVE, EVENTS)
def test_the_balance_is_the_obvious_one(
    ratio: float, reserve: float, events: list[tuple[float, str]]
) -> None:
    """Kept in a slow way: each request and its age, and the balance from event to event."""
    told = Told(ratio, reserve, 60.0)
    balance = reserve
    for wait, what in events:
        requests, extras, before = len(told.requests), len(told.extras), told.now
        told.play([(wait, what)])
        refilled = balance + reserve * (told.now - before) / 60.0
        recent = sum(exp((at - told.now) / 60.0) for at in told.requests[:requests])
        balance = min(refilled, reserve + ratio * recent)
        balance += ratio * (len(told.requests) - requests) - (len(told.extras) - extras)
        assert told.budget.available(told.now) == pytest.approx(balance, abs=1e-6)


@settings(deadline=None)
@given(RATIO, RESERVE, EVENTS, st.integers(1, 20))
def test_looking_at_it_changes_nothing(
    ratio: float, reserve: float, events: list[tuple[float, str]], looks: int
) -> None:
    alone, seen = RetryBudget(ratio, reserve), RetryBudget(ratio, reserve)
    now = 0.0
    for wait, what in events:
        for look in range(looks):
            seen.available(now + wait * look / looks)
        now += wait
        for budget in (alone, seen):
            if what.startswith("request"):
                budget.deposit(now)
        assert seen.available(now) == pytest.approx(alone.available(now), abs=1e-6)
