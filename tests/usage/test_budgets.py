"""Budgets: periods, what fits, and what is said where it does not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.key import Budget, Key, KeyLimits, is_limited
from router.core.usage_record import NANO, Tokens
from router.errors import QuotaExceeded, RateLimitExceeded
from router.settings.accounts import BudgetSettings, Period, TagSettings
from router.usage.budgets import (
    Account,
    Line,
    Sums,
    account_at,
    accounts_of,
    exceeds,
    lines_of,
    over_budget,
    standing_of,
    tag_budgets,
)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW = at("2026-11-22T15:30:00")  # a Sunday


@pytest.mark.parametrize(
    ("period", "now", "since", "until"),
    [
        ("day", "2026-11-22T15:30", "2026-11-22", "2026-11-23"),
        ("day", "2026-12-31T23:59:59.999", "2026-12-31", "2027-01-01"),
        ("day", "2026-03-29T00:00", "2026-03-29", "2026-03-30"),
        ("week", "2026-11-22T15:30", "2026-11-16", "2026-11-23"),
        ("week", "2026-11-23T00:00", "2026-11-23", "2026-11-30"),
        ("week", "2027-01-01T00:00", "2026-12-28", "2027-01-04"),
        ("month", "2026-11-30T23:59", "2026-11-01", "2026-12-01"),
        ("month", "2026-12-01T00:00", "2026-12-01", "2027-01-01"),
        ("month", "2028-02-29T12:00", "2028-02-01", "2028-03-01"),
        ("month", "2026-01-31T12:00", "2026-01-01", "2026-02-01"),
    ],
)
def test_periods(period: Period, now: str, since: str, until: str) -> None:
    assert account_at("alice", period, at(now)) == Account("alice", period, at(since), at(until))


def test_a_total_never_ends() -> None:
    assert account_at("alice", "total", NOW) == Account("alice", "total", 0.0, None)


@given(now=st.floats(0, 4e9), period=st.sampled_from(["day", "week", "month"]))
def test_every_moment_is_in_one_period(now: float, period: Period) -> None:
    account = account_at("alice", period, now)
    assert account.until is not None
    assert account.since <= now < account.until
    assert account_at("alice", period, account.until).since == account.until
    assert account_at("alice", period, account.since) == account


def test_whose_budgets_a_request_is_about() -> None:
    tags = {"team": (Budget("day", "tokens", 5),), "other": (Budget("day", "usd", 1),)}
    key = Key(
        "alice",
        tags=("team", "none", "team"),
        budgets=(Budget("month", "usd", 1), Budget("month", "tokens", 2)),
    )
    lines = lines_of(key, tags, NOW)
    assert [(line.account.owner, line.budget.most) for line in lines] == [
        ("alice", 1),
        ("alice", 2),
        ("tag:team", 5),
    ]
    assert [account.owner for account in accounts_of(lines)] == ["alice", "tag:team"]


def test_who_is_limited_at_all() -> None:
    tags = tag_budgets(
        {"team": TagSettings(budgets=(BudgetSettings(period="day", usd=2.5),)), "x": TagSettings()}
    )
    assert tags == {"team": (Budget("day", "usd", 2_500_000_000),)}
    assert not is_limited(Key("alice", tags=("x",), limits=KeyLimits()), tags)
    assert is_limited(Key("alice", tags=("team",)), tags)
    assert not is_limited(Key("alice", tags=("team",)), {})
    assert is_limited(Key("alice", limits=KeyLimits(concurrent=1)), tags)
    assert is_limited(Key("alice", budgets=(Budget("day", "usd", 1),)), tags)
    assert is_limited(Key("alice", model_limits=(("*", KeyLimits(1)),)), tags)


USD = 50 * NANO


@pytest.mark.parametrize(
    ("unit", "spent", "held", "tokens", "cost", "refused"),
    [
        ("usd", 0, 0, 10**9, USD, False),
        ("usd", 0, 0, 0, USD + 1, True),
        ("usd", USD - 2, 1, 0, 1, False),
        ("usd", USD - 2, 1, 0, 2, True),
        ("usd", USD, 0, 5, 0, False),  # what costs nothing
        ("usd", USD + 1, 0, 5, 0, False),
        ("usd", USD - 1, 5, 5, None, False),  # nobody knows what it costs
        ("usd", USD, 0, 5, None, True),
        ("tokens", 0, 0, USD, None, False),
        ("tokens", 0, 1, USD, 0, True),
    ],
)
def test_what_fits(
    unit: str, spent: int, held: int, tokens: int, cost: int | None, refused: bool
) -> None:
    budget = Budget("month", unit, USD)  # type: ignore[arg-type]
    sums = Sums(spent, 0, held, 0) if unit == "tokens" else Sums(0, spent, 0, held)
    assert exceeds(budget, sums, tokens, cost) is refused
    line = Line(account_at("alice", "month", NOW), budget)
    assert (over_budget((line,), (sums,), tokens, cost, NOW) is not None) is refused


def refusal(line: Line, sums: Sums, tokens: int, cost: int) -> tuple[str, dict[str, str]]:
    error = over_budget((line,), (sums,), tokens, cost, NOW)
    assert isinstance(error, QuotaExceeded)
    assert (error.status, error.code, error.type) == (429, *("insufficient_quota",) * 2)
    assert error.response_error() == {"code": "insufficient_quota", "message": error.message}
    return error.message, error.headers


def test_what_is_said() -> None:
    month = Line(account_at("alice", "month", NOW), Budget("month", "usd", USD))
    text, headers = refusal(month, Sums(spent_cost=USD + 7), 1, 1)
    assert text == (
        "The budget of key 'alice' for this month is spent: 50.00 USD; it resets on "
        "2026-12-01T00:00:00Z."
    )
    assert headers == {"Retry-After": str(int(at("2026-12-01T00:00") - NOW))}
    text, headers = refusal(month, Sums(spent_cost=USD - NANO // 40), 1, NANO // 20)
    assert text == (
        "The budget of key 'alice' for this month has 0.025 USD left of 50.00 USD, and the "
        "request may come to 0.05 USD; it resets on 2026-12-01T00:00:00Z. With less input, or a "
        "lower maximum of output tokens, it may fit into what is left."
    )
    assert "Retry-After" in headers
    text, headers = refusal(month, Sums(), 1, USD + 1)
    assert "50.000000001 USD: it would never pass" in text
    assert headers == {"x-should-retry": "false"}
    day = Line(account_at("tag:team", "day", NOW), Budget("day", "tokens", 10))
    text, _ = refusal(day, Sums(spent_tokens=12), 1, 1)
    assert text == (
        "The budget of tag 'team' for today is spent: 10 tokens; it resets on 2026-11-23T00:00:00Z."
    )
    total = Line(account_at("alice", "total", NOW), Budget("total", "tokens", 10))
    text, headers = refusal(total, Sums(spent_tokens=12), 1, 1)
    assert text == "The budget of key 'alice' is spent: 10 tokens."
    assert headers == {"x-should-retry": "false"}


def test_what_others_hold_is_in_the_way_for_a_moment() -> None:
    month = Line(account_at("alice", "month", NOW), Budget("month", "usd", USD))
    error = over_budget((month,), (Sums(spent_cost=NANO, held_cost=USD - NANO),), 1, 1, NOW)
    assert isinstance(error, RateLimitExceeded)
    assert (error.status, error.code, error.type) == (
        429, "rate_limit_exceeded", "rate_limit_error",
    )  # fmt: skip
    assert "49.00 USD left, of which requests under way may need 49.00 USD" in error.message
    assert error.headers == {"Retry-After": "1"}
    assert error.limit == "budget key month"
    # In the last second of a period what is spent is spent, all the same.
    end = at("2026-12-01T00:00:00") - 0.01
    error = over_budget((month,), (Sums(spent_cost=USD),), 1, 1, end)
    assert isinstance(error, QuotaExceeded)
    assert error.headers == {"Retry-After": "2"}


@pytest.mark.parametrize(
    ("owner", "period", "name"),
    [
        ("alice", "month", "budget key month"),
        ("alice", "total", "budget key total"),
        ("tag:team-a", "day", "budget tag:team-a day"),
    ],
)
def test_the_name_of_what_refused(owner: str, period: Period, name: str) -> None:
    line = Line(account_at(owner, period, NOW), Budget(period, "tokens", 10))
    for sums in (Sums(spent_tokens=10), Sums(held_tokens=10)):
        error = over_budget((line,), (sums,), 1, 1, NOW)
        assert error is not None
        assert error.limit == name


def test_of_several_a_spent_one_is_named_before_one_that_is_held() -> None:
    budgets = (Budget("month", "tokens", 2), Budget("day", "usd", 1))
    lines = lines_of(Key("alice", budgets=budgets), {}, NOW)
    error = over_budget(lines, [Sums(held_tokens=2), Sums(spent_cost=1)], 1, 1, NOW)
    assert isinstance(error, QuotaExceeded)
    assert error.limit == "budget key day"


def test_of_several_that_which_lasts_longest_is_named() -> None:
    budgets = (Budget("day", "tokens", 1), Budget("month", "tokens", 1), Budget("week", "usd", 9))
    lines = lines_of(Key("alice", budgets=budgets), {}, NOW)
    error = over_budget(lines, [Sums(spent_tokens=1)] * 3, 1, 1, NOW)
    assert error is not None
    assert "this month" in error.message


def test_a_standing() -> None:
    line = Line(account_at("alice", "day", NOW), Budget("day", "usd", 5))
    standing = standing_of(line, Sums(1, 2, 3, 4))
    assert (standing.owner, standing.spent, standing.held) == ("alice", 2, 4)
    assert standing.resets == at("2026-11-23")


@given(
    most=st.integers(1, 100),
    steps=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 90), st.booleans()), max_size=80),
)
def test_never_overspent_by_more_than_was_used_beyond_what_was_held(
    most: int, steps: list[tuple[int, int, bool]]
) -> None:
    budget, sums = Budget("day", "tokens", most), Sums()
    running: list[tuple[int, int]] = []
    excess = 0
    for amount, used, ends in steps:
        if ends and running:
            held, spent = running.pop()
            sums.reserve(-held, 0)
            sums.spend(Tokens(output=spent), 0)
            excess += max(0, spent - held)
        elif not exceeds(budget, sums, amount, None):
            sums.reserve(amount, 0)
            running.append((amount, used))
        assert sums.held_tokens == sum(held for held, _ in running) >= 0
        assert sums.spent_tokens + sums.held_tokens <= most + excess
