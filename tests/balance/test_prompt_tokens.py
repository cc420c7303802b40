"""Estimates of prompts, corrected by what a model reports."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.balance.averages import PromptTokens

SHARES = st.integers(0, 200_000)
REPORTS = st.lists(st.tuples(SHARES, st.integers(1, 2**53)), max_size=60)


def test_nothing_is_known_at_first() -> None:
    subject = PromptTokens()
    assert (subject.estimate(0), subject.estimate(6), subject.reports) == (4, 10, 0)


def test_one_report_of_a_short_prompt_is_enough_for_its_like() -> None:
    subject = PromptTokens()
    subject.learn(6, 26)
    assert 24 <= subject.estimate(6) <= 26
    assert 26 <= subject.estimate(8) <= 29
    assert 1000 <= subject.estimate(1000) <= 1200  # and says little of a long one


def test_one_report_of_a_long_prompt_says_nothing_of_short_ones() -> None:
    subject = PromptTokens()
    subject.learn(8000, 12_000)
    assert 11_900 <= subject.estimate(8000) <= 12_000
    assert subject.estimate(6) <= 20


@settings(deadline=None)
@given(
    st.floats(0.6, 2.0), st.integers(4, 500), st.lists(st.sampled_from([5, 50, 3000]), min_size=3)
)
def test_it_converges(slope: float, fixed: int, order: list[int]) -> None:
    subject = PromptTokens()
    for share in [5, 50, 3000, *order] * 20:
        subject.learn(share, round(slope * share + fixed))
    for share in (5, 3000):
        wanted = slope * share + fixed
        assert subject.estimate(share) == pytest.approx(wanted, rel=0.15, abs=8)


@settings(deadline=None)
@given(REPORTS, SHARES)
def test_reports_that_are_nonsense_do_bounded_harm(
    reports: list[tuple[int, int]], share: int
) -> None:
    subject = PromptTokens()
    for given_share, reported in reports:
        subject.learn(given_share, reported)
    assert max(1, share // 2) <= subject.estimate(share) <= 4 * share + 2048


def test_not_every_report_is_learned() -> None:
    subject = PromptTokens()
    for _ in range(16):
        assert subject.due()
        subject.learn(6, 26)
    assert [subject.due() for _ in range(16)] == [*[False] * 7, True, *[False] * 7, True]
