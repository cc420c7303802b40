"""Limits and budgets counted in memory, for one process. Implements ``router.usage.rate_limiter``.

What was spent before the process began is asked of the usage ledger, once for every account, when
it is first needed. From then on nothing waits: what is held and settled is so in one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Literal

from router.core.key import Key
from router.core.usage_record import Tokens
from router.usage.budgets import (
    NO_TAGS,
    Account,
    Line,
    Sums,
    TagBudgets,
    accounts_of,
    lines_of,
    over_budget,
    standing_of,
)
from router.usage.limits import HAIR, Level, LimitHeadings, LimitRule, over_limit, rules_of
from router.usage.opening_balance import OpeningBalance, Spent, unavailable
from router.usage.rate_limiter import Demand, Reservation, Standing

__all__ = ["MemoryRateLimiter", "OnDown"]

OnDown = Literal["fail_open", "fail_closed"]

_SWEEP_EVERY: Final = 1024
_MOST_KNOWN: Final = 4096
"""So many entries more than the last sweep left bring on the next."""

_IDLE_SECONDS: Final = 3600.0
"""So long an account that nobody uses is kept: by then the ledger has all of it."""


class _AccountState(Sums):
    """``used`` is when it was last needed."""

    __slots__ = ("used",)

    def __init__(self, spent: tuple[int, int], used: float) -> None:
        super().__init__(*spent)
        self.used = used


@dataclass(slots=True)
class _Gauge:
    """How a limit stands: how much of a minute's worth is missing, or how many are under way."""

    most: int
    level: Level
    under_way: int = 0

    def used(self, rule: LimitRule, moment: float) -> float:
        if rule.what == "concurrent":
            return self.under_way
        return self.level.now(moment, rule.most)

    def put(self, rule: LimitRule, moment: float, used: float) -> float:
        """So much is used then; how much that comes to."""
        if rule.what == "concurrent":
            self.under_way = int(used)
            return used
        self.most = rule.most
        return self.level.put(moment, used)


class _Terms:
    """What limits a key for a model, found once: in force from ``begin`` until ``end``, when the
    first period of its budgets does. ``gauges`` are those of each rule; ``sums`` are those of the
    accounts of ``lines``, once all are known, and ``accounts`` each of them once.
    """

    __slots__ = (
        "accounts", "begin", "end", "gauges", "headings", "key", "lines", "rules", "sums", "tags",
    )  # fmt: skip

    def __init__(
        self, key: Key, tags: TagBudgets, now: float, rules: tuple[LimitRule, ...]
    ) -> None:
        self.key = key
        self.tags = tags
        self.rules = rules
        self.headings = LimitHeadings(rules)
        self.gauges: tuple[tuple[LimitRule, _Gauge], ...] = ()
        self.lines = lines_of(key, tags, now)
        self.sums: tuple[_AccountState, ...] | None = None if self.lines else ()
        self.accounts: tuple[_AccountState, ...] = ()
        self.begin = now
        self.end = min((line.account.until or inf for line in self.lines), default=inf)


class _MemoryReservation:
    """Implements ``router.usage.rate_limiter.Reservation``."""

    __slots__ = ("accounts", "cost", "gauges", "headers", "settled", "tokens")

    def __init__(self, demand: Demand, terms: _Terms, accounts: tuple[_AccountState, ...]) -> None:
        self.tokens = demand.tokens
        self.cost = demand.cost or 0
        self.gauges = terms.gauges
        self.accounts = accounts
        self.headers: dict[str, str] = {}
        self.settled = False


class MemoryRateLimiter:
    """``spent`` is what the ledger knows; it has ``timeout`` seconds. Where it does not answer,
    requests pass without regard to the budget (``fail_open``) or are refused (``fail_closed``).

    ``tags`` may be replaced at any time, by those of another configuration. ``clock`` tells Unix
    time, for periods; ``monotonic`` is for rates.
    """

    instant = True
    up = True

    def __init__(
        self,
        spent: Spent,
        *,
        tags: TagBudgets = NO_TAGS,
        on_down: OnDown = "fail_closed",
        timeout: float = 2.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tags = tags
        self.uncounted = self.unbudgeted = 0
        self._on_down = on_down
        self._clock = clock
        self._monotonic = monotonic
        self._opening_balance = OpeningBalance(
            lambda account: spent(account.owner, account.since), timeout, monotonic
        )
        self._gauges: dict[str, _Gauge] = {}
        self._accounts: dict[Account, _AccountState] = {}
        self._sweep_at = _SWEEP_EVERY
        self._terms_known: dict[tuple[str, str], _Terms] = {}
        self._doubtful: set[Account] = set()

    def __len__(self) -> int:
        """How many entries its tables have."""
        return len(self._gauges) + len(self._accounts)

    async def start(self) -> None:
        """Make ready; there is nothing to do."""

    async def close(self) -> None:
        """Nobody is counted any more."""
        await self._opening_balance.close()

    async def reserve(self, demand: Demand) -> Reservation:
        """See ``RateLimiter.hold``."""
        terms = self._terms(demand)
        while terms.sums is None:
            missing = await self._open(terms.lines)
            if missing and self._on_down == "fail_closed":
                raise unavailable("the usage ledger does not answer")
            terms = self._terms(demand)  # a period may have ended meanwhile
            known = tuple(line for line in terms.lines if line.account not in missing)
            if missing and self._opened(known):
                sums = tuple(self._accounts[line.account] for line in known)
                hold = self._reserve(demand, terms, known, sums)
                self.unbudgeted += 1
                return hold
        return self._reserve(demand, terms, terms.lines, terms.sums)

    def _reserve(
        self, demand: Demand, terms: _Terms, lines: Sequence[Line], sums: Sequence[_AccountState]
    ) -> Reservation:
        now, moment, tokens = self._clock(), self._monotonic(), demand.tokens
        if lines and (refusal := over_budget(lines, sums, tokens, demand.cost, now)) is not None:
            raise refusal
        used, fits = [], True
        for rule, gauge in terms.gauges:
            missing = gauge.used(rule, moment)
            used.append(missing)
            amount = tokens if rule.what == "tokens" else 1
            fits = fits and missing + amount - rule.most <= HAIR
        if not fits and (over := over_limit(terms.rules, used, tokens)) is not None:
            raise over
        accounts = (
            terms.accounts if sums is terms.sums else tuple({id(s): s for s in sums}.values())
        )
        hold = _MemoryReservation(demand, terms, accounts)
        for account in accounts:
            account.reserve(hold.tokens, hold.cost)
            account.used = now
        for place, (rule, gauge) in enumerate(terms.gauges):
            amount = tokens if rule.what == "tokens" else 1
            used[place] = gauge.put(rule, moment, used[place] + amount)
        hold.headers = terms.headings.at(used)
        return hold

    async def settle(self, hold: Reservation, tokens: Tokens, cost: int) -> None:
        """See ``RateLimiter.settle``."""
        assert isinstance(hold, _MemoryReservation)
        if hold.settled:
            return
        hold.settled = True
        for account in hold.accounts:
            account.reserve(-hold.tokens, -hold.cost)
            account.spend(tokens, cost)
        moment = self._monotonic()
        for rule, gauge in hold.gauges:
            if rule.what == "tokens":
                # A sweep may have dropped it, when all of what was held had come back.
                level = self._gauges.setdefault(rule.id, gauge).level
                level.add(moment, rule.most, tokens.total - hold.tokens)
            elif rule.what == "concurrent":
                gauge.under_way -= 1
        if self._doubtful:
            self._drop_doubtful()

    def doubt(self, hold: Reservation) -> None:
        """What was used of this one is not known here, but may be in the ledger: it is asked again
        about its accounts, once nothing is reserved in them.
        """
        assert isinstance(hold, _MemoryReservation)
        theirs = {id(one) for one in hold.accounts}
        self._doubtful.update(one for one, sums in self._accounts.items() if id(sums) in theirs)
        self._drop_doubtful()

    def _drop_doubtful(self) -> None:
        for account in tuple(self._doubtful):
            sums = self._accounts.get(account)
            if sums is not None and (sums.held_tokens or sums.held_cost):
                continue
            self._doubtful.discard(account)
            if sums is not None:
                del self._accounts[account]
                self._terms_known.clear()  # they know what was dropped

    async def charge(self, key: Key, tokens: Tokens, cost: int) -> None:
        """See ``RateLimiter.charge``. An account that is not counted here yet gets it from the
        ledger.
        """
        for account in accounts_of(lines_of(key, self.tags, self._clock())):
            if (counted := self._accounts.get(account)) is not None:
                counted.spend(tokens, cost)

    async def standing(self, key: Key) -> Sequence[Standing]:
        """See ``RateLimiter.standing``."""
        while not self._opened(lines := lines_of(key, self.tags, self._clock())):
            if await self._open(lines):
                raise unavailable("the usage ledger does not answer")
        return [standing_of(line, self._accounts[line.account]) for line in lines]

    def _opened(self, lines: Sequence[Line]) -> bool:
        return all(line.account in self._accounts for line in lines)

    async def _open(self, lines: Sequence[Line]) -> set[Account]:
        """Begin to count these; those that it cannot be told for."""
        asked = [one for one in accounts_of(lines) if one not in self._accounts]
        answers = await self._opening_balance.ask(asked)
        now = self._clock()
        for account, answer in zip(asked, answers, strict=True):
            if answer is not None:
                # Another may have been sooner, and counted something since.
                self._accounts.setdefault(account, _AccountState(answer, now))
        return {one for one, answer in zip(asked, answers, strict=True) if answer is None}

    def _terms(self, demand: Demand) -> _Terms:
        """What limits the request, remembered: the same few are asked for over and over."""
        key, now = demand.key, self._clock()
        name = (key.name, demand.model)
        terms = self._terms_known.get(name)
        if (
            terms is None
            or demand.spares is not None
            or terms.key is not key
            or terms.tags is not self.tags
            or not terms.begin <= now < terms.end
        ):
            rules = rules_of(key, demand.model)
            rules = tuple(rule for rule in rules if rule.what != demand.spares)
            terms = self._found(_Terms(key, self.tags, now, rules))
            if demand.spares is None:
                if len(self._terms_known) >= _MOST_KNOWN:
                    self._terms_known.clear()
                self._terms_known[name] = terms
        if terms.sums is None and self._opened(terms.lines):
            terms.sums = tuple(self._accounts[line.account] for line in terms.lines)
            terms.accounts = tuple(self._accounts[one] for one in accounts_of(terms.lines))
        return terms

    def _found(self, terms: _Terms) -> _Terms:
        """The same, with its gauges."""
        if len(self) >= self._sweep_at:
            self._sweep(self._clock(), self._monotonic())
        terms.gauges = tuple(
            (rule, self._gauges.setdefault(rule.id, _Gauge(rule.most, Level())))
            for rule in terms.rules
        )
        return terms

    def _sweep(self, now: float, moment: float) -> None:
        """Drop what says nothing any more, and what the ledger can tell as well."""
        self._gauges = {
            ident: gauge
            for ident, gauge in self._gauges.items()
            if gauge.under_way or gauge.level.now(moment, gauge.most) > 0.0
        }
        self._accounts = {
            account: sums
            for account, sums in self._accounts.items()
            if (account.until is None or now < account.until)
            and (sums.held_tokens or sums.held_cost or now - sums.used < _IDLE_SECONDS)
        }
        self._terms_known.clear()  # they know what was dropped
        self._sweep_at = 2 * len(self) + _SWEEP_EVERY
