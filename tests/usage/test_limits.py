"""Limits: what passes, what is said where it does not, and that it is never too much."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.key import Key, KeyLimits
from router.usage.limits import (
    HAIR,
    Level,
    LimitHeadings,
    LimitRule,
    duration,
    limit_headers,
    most_tokens,
    over_limit,
    remaining,
    rules_of,
    wait_of,
)


def rule(what: str, most: int, pattern: str | None = None) -> LimitRule:
    return LimitRule(f"{what}:alice", what, most, "alice", pattern)  # type: ignore[arg-type]


def test_the_rules_of_a_request() -> None:
    key = Key(
        "alice",
        limits=KeyLimits(60, None, 2),
        model_limits=(("gpt-*", KeyLimits(tokens_per_minute=1000)), ("other", KeyLimits(1, 1, 1))),
    )
    assert [(one.id, one.what, one.most) for one in rules_of(key, "gpt-5")] == [
        ("requests:alice", "requests", 60),
        ("concurrent:alice", "concurrent", 2),
        ("tokens:alice gpt-*", "tokens", 1000),
    ]
    assert len(rules_of(key, "llama")) == 2
    assert rules_of(Key("bob"), "llama") == ()
    assert most_tokens(rules_of(key, "gpt-5")) == 1000
    assert most_tokens(rules_of(key, "llama")) is None


def test_a_model_has_one_limit_under_both_of_its_names() -> None:
    key = Key("alice", models=("llama",), model_limits=(("llama", KeyLimits(2)),))
    assert rules_of(key, "llama") == rules_of(key, "llama:latest") != ()
    assert key.may_use("llama:latest")
    assert rules_of(key, "llama:1b") == ()
    assert not key.may_use("llama:1b")


@pytest.mark.parametrize(
    ("what", "most", "used", "amount", "wait"),
    [
        ("requests", 60, 0.0, 1, 0.0),
        ("requests", 60, 59.0, 1, 0.0),
        ("requests", 60, 60.0, 1, 1.0),
        ("requests", 1, 1.0, 1, 60.0),
        ("tokens", 600, 0.0, 600, 0.0),
        ("tokens", 600, 0.0, 601, inf),
        ("tokens", 600, 300.0, 400, 10.0),
        ("tokens", 600, 1200.0, 300, 90.0),
        ("tokens", 600, 600.0, 0, 0.0),
        ("concurrent", 2, 1, 1, 0.0),
        ("concurrent", 2, 2, 1, 1.0),
    ],
)
def test_how_long_until_it_passes(
    what: str, most: int, used: float, amount: int, wait: float
) -> None:
    assert wait_of(rule(what, most), used, amount) == pytest.approx(wait)


def test_a_minutes_worth_at_once_and_then_evenly() -> None:
    level, most = Level(), 7
    for _ in range(most):
        assert wait_of(rule("requests", most), level.now(5.0, most), 1) == 0.0
        level.add(5.0, most, 1)
    assert wait_of(rule("requests", most), level.now(5.0, most), 1) == pytest.approx(60 / 7)
    assert wait_of(rule("requests", most), level.now(5.0 + 60 / 7, most), 1) == 0.0
    assert level.now(65.0, most) == pytest.approx(0.0)
    assert level.now(1.0, most) == 7.0  # a clock that went backwards


def test_what_was_used_is_settled() -> None:
    level = Level()
    level.add(0.0, 600, 600)
    assert level.add(6.0, 600, -500) == pytest.approx(40.0)  # 60 came back by itself
    assert level.add(6.0, 600, 900) == pytest.approx(940.0)  # owes more than there is
    assert remaining(rule("tokens", 600), 940.0) == 0
    assert level.add(1000.0, 600, -50) == 0.0


def test_a_refusal_says_which_how_long_and_what_is_left() -> None:
    rules = (rule("requests", 60), rule("tokens", 600, "gpt-*"), rule("concurrent", 5))
    assert over_limit(rules, (0.0, 0.0, 4), 100) is None
    error = over_limit(rules, (60.0, 550.0, 0), 101)
    assert error is not None
    assert (error.status, error.code, error.which) == (429, "rate_limit_exceeded", "tokens")
    assert error.message == (
        "Too many tokens: key 'alice' for models 'gpt-*' may have at most 600 per minute, of "
        "which 50 are left, and the request may come to 101. Try again in 6 s."
    )
    assert error.headers == {
        "Retry-After": "6",
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "50",
        "x-ratelimit-reset-tokens": "55s",
    }
    error = over_limit(rules, (0.0, 0.0, 5), 1)
    assert error is not None
    assert (error.which, error.headers["Retry-After"]) == ("concurrent", "1")
    assert "at most 5 under way, and 5 are" in error.message
    error = over_limit(rules, (59.5, 0.0, 0), 1)
    assert error is not None
    assert (error.which, error.headers["Retry-After"]) == ("requests", "1")


def test_what_would_never_pass_is_said_at_once() -> None:
    error = over_limit((rule("tokens", 600), rule("requests", 1)), (0.0, 1.0), 601)
    assert error is not None
    assert "601 tokens" in error.message
    assert "at most 600 per minute" in error.message
    assert "Retry-After" not in error.headers
    assert error.headers["x-should-retry"] == "false"


def test_the_tightest_of_several_is_shown() -> None:
    rules = (rule("requests", 100), rule("requests", 10, "gpt-*"), rule("requests", 9, "*"))
    assert limit_headers(rules, (90.0, 9.0, 1.0)) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "54s",
    }
    # Of those that leave as much, that which takes longer.
    assert limit_headers(rules, (99.0, 9.0, 8.0))["x-ratelimit-limit-requests"] == "100"
    assert limit_headers((rule("concurrent", 2),), (1,)) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("requests", "tokens", "concurrent")),
            st.integers(1, 1000),
            st.floats(0.0, 1500.0),
        ),
        max_size=4,
    )
)
def test_headings_are_the_headers(limits: list[tuple[str, int, float]]) -> None:
    rules = [rule(what, most) for what, most, _ in limits]
    used = [missing for _, _, missing in limits]
    assert LimitHeadings(rules).at(used) == limit_headers(rules, used)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.0001, "1ms"),
        (0.02, "20ms"),
        (1.0, "1s"),
        (8.64, "8.64s"),
        (59.9999, "1m0s"),
        (360.0, "6m0s"),
        (90.951, "1m30.951s"),
        (3661.0, "1h1m1s"),
        (600.0, "10m0s"),
        (70.0, "1m10s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


_STEPS = st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(1, 40)), min_size=1, max_size=60)


@given(most=st.integers(1, 40), steps=_STEPS, begin=st.floats(0.0, 1e6))
def test_never_more_than_the_limit_and_what_comes_back(
    most: int, steps: list[tuple[float, int]], begin: float
) -> None:
    """In any window of time, however it is asked."""
    level, limit, now = Level(), rule("tokens", most), begin
    passed: list[tuple[float, int]] = []
    for pause, amount in steps:
        now += pause
        wait = wait_of(limit, level.now(now, most), amount)
        if wait == 0.0:
            level.add(now, most, amount)
            passed.append((now, amount))
        elif wait != inf:
            # It is told exactly how long: a hair earlier it does not pass.
            assert wait_of(limit, level.now(now + wait * 0.99, most), amount) > 0.0
            assert wait_of(limit, level.now(now + wait + 1e-6, most), amount) == 0.0
    for first, (start, _) in enumerate(passed):
        total = 0
        for moment, amount in passed[first:]:
            total += amount
            assert total <= most + (moment - start) * most / 60 + 1e-3


@given(
    most=st.integers(10, 100),
    steps=st.lists(
        st.tuples(st.floats(0.0, 20.0), st.integers(1, 50), st.integers(0, 80), st.booleans()),
        max_size=60,
    ),
)
def test_what_counts_in_the_end_is_what_was_used(
    most: int, steps: list[tuple[float, int, int, bool]]
) -> None:
    """Held and settled in any order: over all the time no more than a minute's worth, what came
    back, and what was used beyond what had been held.
    """
    level, limit, now = Level(), rule("tokens", most), 0.0
    running: list[tuple[int, int]] = []
    used = excess = 0
    for pause, amount, really, ends in steps:
        now += pause
        if ends and running:
            held, spent = running.pop(0)
            level.add(now, most, spent - held)
            used += spent
            excess += max(0, spent - held)
        elif wait_of(limit, level.now(now, most), amount) == 0.0:
            level.add(now, most, amount)
            running.append((amount, really))
        assert level.used >= 0.0
        held_now = sum(held for held, _ in running)
        assert used + held_now <= most + now * most / 60 + excess + HAIR * (len(steps) + 1)
