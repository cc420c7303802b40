"""Limits and budgets counted in memory, for one process. Implements ``router.accounts.metering``.

What was spent before the process began is asked of the usage ledger, once for every account, when
it is first needed. From then on nothing waits: what is held and settled is so in one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, Literal

from router.accounts.budgets import (
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
from router.accounts.key import Key
from router.accounts.limits import Level, Rule, amount_of, limit_headers, over_limit, rules_of
from router.accounts.metering import Demand, Hold, Standing
from router.accounts.row import Tokens
from router.books.opening import Opening, Spent, unavailable

__all__ = ["MemoryMeter", "OnDown"]

OnDown = Literal["fail_open", "fail_closed"]

_SWEEP_EVERY: Final = 1024
_MOST_KNOWN: Final = 4096
"""So many entries more than the last sweep left bring on the next."""

_IDLE_SECONDS: Final = 3600.0
"""So long an account that nobody uses is kept: by then the ledger has all of it."""


class _Account(Sums):
    """``used`` is when it was last needed."""

    __slots__ = ("used",)

    def __init__(self, spent: tuple[int, int], used: float) -> None:
        super().__init__(*spent)
        self.used = used


class _Hold:
    """Implements ``router.accounts.metering.Hold``."""

    __slots__ = ("accounts", "cost", "headers", "rules", "settled", "tokens")

    def __init__(
        self, demand: Demand, rules: tuple[Rule, ...], accounts: tuple[_Account, ...]
    ) -> None:
        self.tokens = demand.tokens
        self.cost = demand.cost or 0
        self.rules = rules
        self.accounts = accounts
        self.headers: dict[str, str] = {}
        self.settled = False


class MemoryMeter:
    """``spent`` is what the ledger knows; it has ``timeout`` seconds. Where it does not answer,
    requests pass without regard to the budget (``fail_open``) or are refused (``fail_closed``).

    ``tags`` may be replaced at any time, by those of another configuration. ``clock`` tells Unix
    time, for periods; ``monotonic`` is for rates.
    """

    instant = True

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
        self._on_down = on_down
        self._clock = clock
        self._monotonic = monotonic
        self._opening = Opening(
            lambda account: spent(account.owner, account.since), timeout, monotonic
        )
        self._levels: dict[str, tuple[Level, int]] = {}
        self._under_way: dict[str, int] = {}
        self._accounts: dict[Account, _Account] = {}
        self._sweep_at = _SWEEP_EVERY
        self._rules_known: dict[tuple[str, str], tuple[Key, tuple[Rule, ...]]] = {}
        self._lines_known: dict[str, tuple[Key, TagBudgets, float, float, tuple[Line, ...]]] = {}

    def __len__(self) -> int:
        """How many entries its tables have."""
        return len(self._levels) + len(self._under_way) + len(self._accounts)

    async def start(self) -> None:
        """Make ready; there is nothing to do."""

    async def close(self) -> None:
        """Nobody is counted any more."""
        await self._opening.close()

    async def hold(self, demand: Demand) -> Hold:
        """See ``Meter.hold``."""
        rules = self._rules(demand.key, demand.model)
        lines = self._lines(demand.key)
        while lines and not self._opened(lines):
            missing = await self._open(lines)
            if missing and self._on_down == "fail_closed":
                raise unavailable("the usage ledger does not answer")
            # A period may have ended meanwhile.
            lines = tuple(line for line in self._lines(demand.key) if line.account not in missing)
        return self._hold(demand, rules, lines)

    def _hold(self, demand: Demand, rules: tuple[Rule, ...], lines: tuple[Line, ...]) -> Hold:
        now, moment = self._clock(), self._monotonic()
        sums = [self._accounts[line.account] for line in lines]
        refusal = over_budget(lines, sums, demand.tokens, demand.cost, now)
        if refusal is not None:
            raise refusal
        used = [self._used(rule, moment) for rule in rules]
        over = over_limit(rules, used, demand.tokens)
        if over is not None:
            raise over
        hold = _Hold(demand, rules, tuple(self._accounts[a] for a in accounts_of(lines)))
        for account in hold.accounts:
            account.hold(hold.tokens, hold.cost)
            account.used = now
        taken = [self._take(rule, moment, amount_of(rule, hold.tokens)) for rule in rules]
        hold.headers = limit_headers(rules, taken)
        if len(self) >= self._sweep_at:
            self._sweep(now, moment)
        return hold

    async def settle(self, hold: Hold, tokens: Tokens, cost: int) -> None:
        """See ``Meter.settle``."""
        assert isinstance(hold, _Hold)
        if hold.settled:
            return
        hold.settled = True
        for account in hold.accounts:
            account.hold(-hold.tokens, -hold.cost)
            account.spend(tokens, cost)
        moment = self._monotonic()
        for rule in hold.rules:
            if rule.what == "tokens":
                self._take(rule, moment, tokens.total - hold.tokens)
            elif rule.what == "concurrent":
                self._take(rule, moment, -1)

    async def charge(self, key: Key, model: str, tokens: Tokens, cost: int) -> None:
        """See ``Meter.charge``. An account that is not counted here yet gets it from the ledger."""
        moment = self._monotonic()
        for rule in rules_of(key, model):
            if rule.what == "tokens":
                self._take(rule, moment, tokens.total)
        for account in accounts_of(lines_of(key, self.tags, self._clock())):
            if (counted := self._accounts.get(account)) is not None:
                counted.spend(tokens, cost)

    async def standing(self, key: Key) -> Sequence[Standing]:
        """See ``Meter.standing``."""
        while not self._opened(lines := lines_of(key, self.tags, self._clock())):
            if await self._open(lines):
                raise unavailable("the usage ledger does not answer")
        return [standing_of(line, self._accounts[line.account]) for line in lines]

    def _opened(self, lines: Sequence[Line]) -> bool:
        return all(line.account in self._accounts for line in lines)

    async def _open(self, lines: Sequence[Line]) -> set[Account]:
        """Begin to count these; those that it cannot be told for."""
        asked = [one for one in accounts_of(lines) if one not in self._accounts]
        answers = await self._opening.ask(asked)
        now = self._clock()
        for account, answer in zip(asked, answers, strict=True):
            if answer is not None:
                # Another may have been sooner, and counted something since.
                self._accounts.setdefault(account, _Account(answer, now))
        return {one for one, answer in zip(asked, answers, strict=True) if answer is None}

    def _rules(self, key: Key, model: str) -> tuple[Rule, ...]:
        """``rules_of``, remembered: the same few are asked for over and over."""
        known = self._rules_known.get((key.name, model))
        if known is None or known[0] is not key:
            if len(self._rules_known) >= _MOST_KNOWN:
                self._rules_known.clear()
            known = self._rules_known[key.name, model] = key, rules_of(key, model)
        return known[1]

    def _lines(self, key: Key) -> tuple[Line, ...]:
        """``lines_of``, remembered until the first of their periods ends."""
        if not (key.budgets or key.tags):
            return ()
        now = self._clock()
        known = self._lines_known.get(key.name)
        if known is not None:
            same, tags, begin, end, lines = known
            if same is key and tags is self.tags and begin <= now < end:
                return lines
        if len(self._lines_known) >= _MOST_KNOWN:
            self._lines_known.clear()
        lines = lines_of(key, self.tags, now)
        end = min((line.account.until or inf for line in lines), default=inf)
        self._lines_known[key.name] = key, self.tags, now, end, lines
        return lines

    def _used(self, rule: Rule, moment: float) -> float:
        if rule.what == "concurrent":
            return self._under_way.get(rule.id, 0)
        entry = self._levels.get(rule.id)
        return entry[0].now(moment, rule.most) if entry is not None else 0.0

    def _take(self, rule: Rule, moment: float, amount: int) -> float:
        """What is missing then, or how many are under way."""
        if rule.what == "concurrent":
            under_way = self._under_way.get(rule.id, 0) + amount
            if under_way > 0:
                self._under_way[rule.id] = under_way
            else:
                self._under_way.pop(rule.id, None)
            return under_way
        level = self._levels.get(rule.id, (Level(), 0))[0]
        self._levels[rule.id] = level, rule.most
        return level.add(moment, rule.most, amount)

    def _sweep(self, now: float, moment: float) -> None:
        """Drop what says nothing any more, and what the ledger can tell as well."""
        self._levels = {
            ident: (level, most)
            for ident, (level, most) in self._levels.items()
            if level.now(moment, most) > 0.0
        }
        self._accounts = {
            account: sums
            for account, sums in self._accounts.items()
            if (account.until is None or now < account.until)
            and (sums.held_tokens or sums.held_cost or now - sums.used < _IDLE_SECONDS)
        }
        self._sweep_at = 2 * len(self) + _SWEEP_EVERY
