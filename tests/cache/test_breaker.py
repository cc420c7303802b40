"""The breaker, step by step: when it opens, for how long, and what closes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cache.breaker import Breaker, BreakerRules, BreakerState

RULES = BreakerRules(failures=3, ratio=0.5, min_requests=6, open_seconds=1.0, max_open_seconds=60.0)
NEVER_IN_A_ROW = replace(RULES, failures=1000)


def steady() -> float:
    """In the middle: open for exactly what the rules say."""
    return 0.5


def breaker(rules: BreakerRules = RULES, random: Callable[[], float] = steady) -> Breaker:
    return Breaker(rules, random)


def feed(subject: Breaker, results: str, now: float = 0.0, every: float = 0.0) -> list[bool]:
    """Report ``.`` as a success and ``x`` as a failure; what each of them changed."""
    changed = []
    for number, result in enumerate(results):
        report = subject.succeeded if result == "." else subject.failed
        changed.append(report(now + number * every))
    return changed


def close(subject: Breaker) -> float:
    """Let the probe succeed, at the first moment that it may; returns when that was."""
    now = subject.opens_until
    assert subject.begin_probe()
    assert subject.succeeded(now, probe=True)
    return now


@pytest.mark.parametrize(
    ("results", "opens"),
    [
        ("", False),
        ("xx", False),
        ("xxx", True),
        ("xx.xx", False),
        ("xx.xxx", True),
        (".x.x.x", True),
        (".x.xx", False),
        ("...x.xx.x", False),
        ("...x.xx.xx", True),
        ("......xx......xx.....", False),
    ],
    ids=[
        "nothing",
        "two in a row",
        "three in a row",
        "a success begins a new row",
        "three in a row at last",
        "half of six",
        "too few for a share",
        "four of nine",
        "half of ten",
        "a quarter",
    ],
)
def test_when_it_opens(results: str, opens: bool) -> None:
    subject = breaker()
    changed = feed(subject, results)
    assert subject.state(0.0) is (BreakerState.OPEN if opens else BreakerState.CLOSED)
    assert (True in changed) == opens
    # It says so when it happens, and not again.
    assert changed == [False] * (len(results) - opens) + [True] * opens


def test_the_share_opens_without_a_row() -> None:
    subject = breaker(NEVER_IN_A_ROW)
    assert feed(subject, "xxxxx") == [False] * 5
    assert subject.failed(0.0)


def test_a_success_that_completes_the_minimum_opens_nothing() -> None:
    """It is not the moment to leave an endpoint alone; the next failure is."""
    subject = breaker(NEVER_IN_A_ROW)
    assert feed(subject, "xxxxx.") == [False] * 6
    assert subject.failed(0.0)


@pytest.mark.parametrize(
    ("every", "opens"), [(0.0, True), (0.1, True), (5.0, False)], ids=["burst", "often", "seldom"]
)
def test_what_was_counted_is_forgotten(every: float, opens: bool) -> None:
    """At one request per half-life no more than two of them are ever remembered."""
    subject = breaker(NEVER_IN_A_ROW)
    assert any(feed(subject, "x" * 20, every=every)) is opens


def test_old_successes_do_not_hide_that_everything_fails_now() -> None:
    subject = breaker(NEVER_IN_A_ROW)
    feed(subject, "." * 1000)
    assert not any(feed(subject, "x" * 10))
    assert any(feed(subject, "x" * 10, now=50.0))


@pytest.mark.parametrize(
    ("random", "seconds"), [(0.0, 6.0), (0.5, 8.0), (1.0, 10.0)], ids=["least", "middle", "most"]
)
def test_the_time_is_spread(random: float, seconds: float) -> None:
    subject = breaker(replace(RULES, open_seconds=8.0), lambda: random)
    subject.trip(100.0)
    assert subject.opens_until == 100.0 + seconds
    assert subject.state(100.0 + seconds - 0.001) is BreakerState.OPEN
    assert subject.state(100.0 + seconds) is BreakerState.HALF_OPEN


def test_the_time_doubles_up_to_the_most() -> None:
    subject = breaker(random=lambda: 0.75)
    now, times = 0.0, []
    subject.trip(now)
    for _ in range(9):
        times.append(subject.opens_until - now)
        now = subject.opens_until
        assert subject.begin_probe()
        assert subject.failed(now, probe=True)
    assert times == [1.125 * seconds for seconds in (1, 2, 4, 8, 16, 32)] + [60.0] * 3


def test_it_doubles_also_when_it_was_closed_in_between() -> None:
    subject = breaker()
    subject.trip(0.0)
    now = close(subject)
    feed(subject, "xxx", now + 9.9)
    assert subject.opens_until == now + 9.9 + 2.0


@pytest.mark.parametrize(
    ("open_seconds", "half_life", "well"),
    [(1.0, 5.0, 10.0), (1.0, 50.0, 100.0), (8.0, 5.0, 80.0)],
    ids=["both", "two half-lives", "ten times as long"],
)
def test_after_a_long_time_well_it_begins_anew(
    open_seconds: float, half_life: float, well: float
) -> None:
    rules = replace(RULES, open_seconds=open_seconds, half_life=half_life)
    for waited, expected in ((well, open_seconds), (well - 0.5, 2 * open_seconds)):
        subject = breaker(rules)
        subject.trip(0.0)
        now = close(subject) + waited
        subject.trip(now)
        assert subject.opens_until == now + expected


def test_late_results_change_nothing_while_it_is_open() -> None:
    subject = breaker()
    subject.trip(0.0)
    for now in (0.5, 1.0, 99.0):
        assert not subject.succeeded(now)
        assert not subject.failed(now)
        assert subject.opens_until == 1.0
    assert subject.state(99.0) is BreakerState.HALF_OPEN


def test_the_probe_decides() -> None:
    subject = breaker()
    subject.trip(0.0)
    assert subject.begin_probe()
    assert subject.failed(1.5, probe=True)
    assert subject.opens_until == 3.5
    assert subject.begin_probe()
    assert subject.succeeded(4.0, probe=True)
    assert subject.state(4.0) is BreakerState.CLOSED
    assert subject.opens_until == 0.0


def test_a_check_that_succeeds_early_closes_it() -> None:
    subject = breaker()
    subject.trip(0.0)
    assert not subject.failed(0.2, probe=True)
    assert subject.opens_until == 1.0
    assert subject.succeeded(0.5, probe=True)
    assert subject.state(0.5) is BreakerState.CLOSED


def test_one_probe_at_a_time() -> None:
    subject = breaker()
    assert not subject.begin_probe(), "nothing to find out"
    subject.trip(0.0)
    assert [subject.begin_probe(), subject.probing, subject.begin_probe()] == [True, True, False]
    subject.abandon_probe()
    assert not subject.probing
    assert subject.state(5.0) is BreakerState.HALF_OPEN, "a cancelled probe says nothing"
    assert subject.begin_probe()
    # The old probe holds its place while the breaker is opened from outside.
    subject.trip(5.0)
    assert not subject.begin_probe()
    assert not subject.failed(5.1, probe=True)
    assert subject.opens_until == 7.0
    assert subject.begin_probe()


def test_closing_begins_a_new_count() -> None:
    subject = breaker()
    feed(subject, "x.x.x.xx")
    assert subject.failure_ratio(0.0) > 0.5
    now = close(subject)
    assert subject.failure_ratio(now) == 0.0
    assert not any(feed(subject, "xx", now))
    subject.succeeded(now)
    assert not any(feed(subject, "xx", now))
    assert subject.failed(now)


def test_tripping_an_open_one_does_not_keep_it_open() -> None:
    subject = breaker()
    subject.trip(0.0)
    subject.trip(0.9)
    assert subject.opens_until == 1.0
    subject.trip(1.0)
    assert subject.opens_until == 3.0


def test_rules_are_replaced_and_the_state_stays() -> None:
    subject = breaker()
    feed(subject, "xx")
    subject.rules = replace(RULES, failures=4, open_seconds=5.0, max_open_seconds=7.0)
    assert feed(subject, "xx") == [False, True]
    assert subject.opens_until == 5.0
    subject.rules = RULES
    assert subject.opens_until == 5.0
    assert subject.state(4.9) is BreakerState.OPEN
    assert subject.failed(5.0, probe=True)
    assert subject.opens_until == 7.0


def test_the_displayed_share_fades() -> None:
    subject = breaker(NEVER_IN_A_ROW)
    assert subject.failure_ratio(0.0) == 0.0
    feed(subject, "x...", now=100.0)
    shares = [subject.failure_ratio(100.0 + seconds) for seconds in (0, 5, 10, 15, 20, 1e9)]
    assert shares == [0.25, 0.25, 0.25, 0.125, 0.0625, 0.0]


def test_a_clock_that_steps_back_is_not_an_explosion() -> None:
    subject = breaker(NEVER_IN_A_ROW)
    feed(subject, "x.x.x", now=1e6)
    assert subject.failure_ratio(0.0) == 0.6
    subject.succeeded(0.0)
    assert subject.failure_ratio(1e6) == 0.5


def test_each_opening_draws_its_own_time() -> None:
    draws: Iterator[float] = iter([0.0, 1.0])
    subject = breaker(random=lambda: next(draws))
    subject.trip(0.0)
    assert subject.opens_until == 0.75
    subject.trip(10.0)
    assert subject.opens_until == 10.0 + 2.0 * 1.25
