"""So much in a day, a week, a month or altogether: pure, time is handed in (Unix time).

What was used is counted in an ``Account``: that of one key or tag in one period. It is counted in
tokens and in money, whichever the budgets are in, so that budgets can change at any time. What a
request may come to is held in the accounts of the moment when it begins, and what it used is
counted there, even when they have become those of a former period by then.

A request passes where what is spent, what is held, and what it may come to itself are within the
budget. What costs nothing passes a budget in money, spent or not. Where no price is known, nothing
can be held or counted: that passes until the budget is spent.

Where there would be room but for what others hold, it is only for the moment that a request does
not pass (``BudgetTooSmall``); else it is until the period ends (``QuotaExceeded``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Final, NamedTuple

from router.core.key import Budget, Key, budgets_of
from router.core.usage_record import NANO, Tokens
from router.errors import QuotaExceeded, RateLimitExceeded
from router.settings.accounts import Period, TagSettings
from router.usage.rate_limiter import Standing

__all__ = [
    "NO_TAGS",
    "Account",
    "BudgetTooSmall",
    "Line",
    "Sums",
    "TagBudgets",
    "account_at",
    "accounts_of",
    "exceeds",
    "lines_of",
    "over_budget",
    "standing_of",
    "tag_budgets",
]  # fmt: skip

TagBudgets = Mapping[str, tuple[Budget, ...]]
"""The budgets of tags, by their name."""

NO_TAGS: Final[TagBudgets] = {}

_DAY: Final = timedelta(days=1)
_WORDS: Final = {"day": " for today", "week": " for this week", "month": " for this month"}


class BudgetTooSmall(RateLimitExceeded):
    """A budget is not spent, but requests that are under way may need what is left of it."""


class Account(NamedTuple):
    """``owner`` is the name of a key, or ``tag:NAME``; a total is since 0.0 and until None."""

    owner: str
    period: Period
    since: float
    until: float | None


class Line(NamedTuple):
    """One budget, and the account that it is about."""

    account: Account
    budget: Budget


@dataclass(slots=True)
class Sums:
    """What an account comes to; costs are in nano-USD."""

    spent_tokens: int = 0
    spent_cost: int = 0
    held_tokens: int = 0
    held_cost: int = 0

    def of(self, budget: Budget) -> tuple[int, int]:
        """Spent and held, in the budget's unit."""
        if budget.unit == "tokens":
            return self.spent_tokens, self.held_tokens
        return self.spent_cost, self.held_cost

    def reserve(self, tokens: int, cost: int) -> None:
        """Reserve so much; negative to give it back."""
        self.held_tokens += tokens
        self.held_cost += cost

    def spend(self, tokens: Tokens, cost: int) -> None:
        """Count what was used."""
        self.spent_tokens += tokens.total
        self.spent_cost += cost


def tag_budgets(settings: Mapping[str, TagSettings]) -> TagBudgets:
    """The budgets of the configured tags that have some."""
    return {name: budgets_of(tag.budgets) for name, tag in settings.items() if tag.budgets}


def account_at(owner: str, period: Period, now: float) -> Account:
    """The account of an owner in the period that ``now`` is in."""
    if period == "total":
        return Account(owner, period, 0.0, None)
    moment = datetime.fromtimestamp(now, UTC)
    begin = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        end = begin + _DAY
    elif period == "week":
        begin -= begin.weekday() * _DAY
        end = begin + 7 * _DAY
    else:
        begin = begin.replace(day=1)
        end = (begin + 31 * _DAY).replace(day=1)
    return Account(owner, period, begin.timestamp(), end.timestamp())


def lines_of(key: Key, tags: TagBudgets, now: float) -> tuple[Line, ...]:
    """The budgets of a key and of its tags, with the accounts of this moment."""
    lines = tuple(Line(account_at(key.name, one.period, now), one) for one in key.budgets)
    for tag in dict.fromkeys(key.tags):
        lines += tuple(
            Line(account_at(f"tag:{tag}", one.period, now), one) for one in tags.get(tag, ())
        )
    return lines


def accounts_of(lines: Sequence[Line]) -> tuple[Account, ...]:
    """The accounts of these lines, each once."""
    return tuple(dict.fromkeys(line.account for line in lines))


def exceeds(budget: Budget, sums: Sums, tokens: int, cost: int | None) -> bool:
    """Whether a request that may come to so much does not fit; ``cost`` is None where no price is
    known.
    """
    if budget.unit == "tokens":
        return tokens > 0 and sums.spent_tokens + sums.held_tokens + tokens > budget.most
    if cost is None:
        return sums.spent_cost >= budget.most
    return cost > 0 and sums.spent_cost + sums.held_cost + cost > budget.most


def over_budget(
    lines: Sequence[Line], sums: Sequence[Sums], tokens: int, cost: int | None, now: float
) -> QuotaExceeded | BudgetTooSmall | None:
    """Why a request that may come to so much is refused; None where it may pass.

    ``sums`` are those of the account of each line. Of several budgets that refuse, that is named
    which does so the longest.
    """
    refusing = [
        (line, one)
        for line, one in zip(lines, sums, strict=True)
        if exceeds(line.budget, one, tokens, cost)
    ]
    if not refusing:
        return None
    pauses = [_pause(line, one, tokens, cost, now) for line, one in refusing]
    pause = max(pauses)
    line, one = refusing[pauses.index(pause)]
    headers = {"Retry-After": str(ceil(pause))} if pause != _NEVER else {"x-should-retry": "false"}
    kind = BudgetTooSmall if pause == _SOON else QuotaExceeded
    error = kind(_message(line, one, tokens, cost), headers=headers)
    whose = "" if line.account.owner.startswith("tag:") else "key"
    error.limit = f"budget {whose or line.account.owner} {line.account.period}"
    return error


_NEVER: Final = float("inf")
_SOON: Final = 1.0
_LATER: Final = 2.0
"""A budget that is spent is so for longer than one that is squeezed."""


def _pause(line: Line, sums: Sums, tokens: int, cost: int | None, now: float) -> float:
    """Seconds until it may pass; a guess where others that are under way may leave room for it."""
    spent, _ = sums.of(line.budget)
    amount = (tokens if line.budget.unit == "tokens" else cost) or 0
    if amount > line.budget.most:
        return _NEVER
    if spent < line.budget.most and spent + amount <= line.budget.most:
        return _SOON
    until = line.account.until
    return _NEVER if until is None else max(_LATER, until - now)


def _message(line: Line, sums: Sums, tokens: int, cost: int | None) -> str:
    """What the client is told: whose budget, why it does not fit, and when it resets."""
    owner, period, _, until = line.account
    unit, most = line.budget.unit, line.budget.most
    spent, held = sums.of(line.budget)
    amount = (tokens if unit == "tokens" else cost) or 0
    whose = f"tag '{owner[4:]}'" if owner.startswith("tag:") else f"key '{owner}'"
    budget = f"The budget of {whose}{_WORDS.get(period, '')}"
    resets = ""
    if until is not None:
        when = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        resets = f"; it resets on {when}"
    if spent >= most:
        return f"{budget} is spent: {_shown(most, unit)}{resets}."
    if amount > most:
        return (
            f"{budget} is {_shown(most, unit)}, and the request alone may come to "
            f"{_shown(amount, unit)}: it would never pass. Set a lower maximum of output tokens."
        )
    if spent + amount <= most:
        return (
            f"{budget} has {_shown(most - spent, unit)} left, of which requests under way may "
            f"need {_shown(held, unit)}, and the request may come to {_shown(amount, unit)}. "
            "Try again when they are done."
        )
    return (
        f"{budget} has {_shown(most - spent, unit)} left of {_shown(most, unit)}, and the request "
        f"may come to {_shown(amount, unit)}{resets}. With less input, or a lower "
        "maximum of output tokens, it may fit into what is left."
    )


def _shown(amount: int, unit: str) -> str:
    """With as many decimals as it has, and two for money."""
    if unit == "tokens":
        return f"{amount} tokens"
    whole, rest = divmod(amount, NANO)
    decimals = f"{rest:09}".rstrip("0").ljust(2, "0")
    return f"{whole}.{decimals} USD"


def standing_of(line: Line, sums: Sums) -> Standing:
    """How a budget stands."""
    spent, held = sums.of(line.budget)
    return Standing(line.account.owner, line.budget, spent, held, line.account.until)
