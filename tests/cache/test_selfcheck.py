"""The ledger of the self-check: rates, intervals, where the tier is off, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.selfcheck import WINDOW, SelfCheck, wilson


def record(check: SelfCheck, namespace: str, wrong: int, right: int) -> None:
    for _ in range(wrong):
        check.record(namespace, False)
    for _ in range(right):
        check.record(namespace, True)


@pytest.mark.parametrize(
    ("wrong", "compared", "low", "high"),
    [(0, 0, 0.0, 1.0), (0, 20, 0.0, 0.1611), (1, 1, 0.2065, 1.0), (10, 100, 0.0552, 0.1744)],
)
def test_the_interval_is_wilsons(wrong: int, compared: int, low: float, high: float) -> None:
    rate = wilson(wrong, compared)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_rate_is_within_its_interval(counts: tuple[int, int]) -> None:
    rate = wilson(*counts)
    assert 0.0 <= rate.low <= rate.rate + 1e-12
    assert rate.rate <= rate.high + 1e-12
    assert rate.high <= 1.0


def test_it_takes_the_minimum_and_evidence() -> None:
    check = SelfCheck(limit=0.03)
    record(check, "a", wrong=3, right=16)
    assert not check.is_off("a")
    assert check.record("a", True)  # 3 of 20
    assert check.is_off("a")
    record(check, "b", wrong=2, right=18)
    assert not check.is_off("b")
    assert not check.is_off("never heard of")


def test_it_is_said_once_that_the_tier_goes_off() -> None:
    check = SelfCheck(limit=0.03)
    assert [check.record("a", False) for _ in range(40)].count(True) == 1


def test_a_namespace_is_on_again_when_it_is_forgiven() -> None:
    check = SelfCheck(limit=0.03)
    record(check, "a", wrong=20, right=0)
    assert check.forgive("a")
    assert not check.is_off("a")
    assert not check.forgive("a")
    assert check.rate("a").compared == 0


def test_a_whole_window_of_good_comparisons_switches_it_on_again() -> None:
    check = SelfCheck(limit=0.03)
    record(check, "a", wrong=20, right=WINDOW - 1)
    assert check.is_off("a")
    record(check, "a", wrong=0, right=1)
    assert not check.is_off("a")


def test_a_window_with_too_many_wrong_ones_does_not() -> None:
    check = SelfCheck(limit=0.03)
    record(check, "a", wrong=27, right=WINDOW - 7)
    assert check.is_off("a")


def test_only_the_last_comparisons_of_a_namespace_count() -> None:
    check = SelfCheck(limit=0.03)
    record(check, "a", wrong=0, right=1000)
    record(check, "a", wrong=10, right=0)
    assert check.rate("a").compared == WINDOW
    assert not check.is_off("a")
    assert check.record("a", False)  # 11 of the last 200


def test_the_report_has_everything() -> None:
    check = SelfCheck(limit=0.03)
    record(check, "bad", wrong=20, right=5)
    record(check, "good", wrong=0, right=10)
    report = check.report()
    assert report.overall.compared == 35
    assert report.overall.wrong == 20
    assert report.off == ("bad",)
    assert report.namespaces["good"].rate == 0.0
    assert report.namespaces["bad"].compared == 5


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=400))
def test_it_is_bounded_and_those_that_are_off_stay(comparisons: list[tuple[int, bool]]) -> None:
    check = SelfCheck(limit=0.03, minimum=3, max_namespaces=4)
    for number, agreed in comparisons:
        before = check.report()
        check.record(f"n{number}", agreed)
        after = check.report()
        assert len(after.namespaces) <= 4
        lost = set(before.off) - set(after.off) - {f"n{number}"}
        assert not lost or len(before.off) == 4
