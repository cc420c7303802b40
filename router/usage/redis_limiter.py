"""Limits and budgets counted in Redis, for several routers. Implements
``router.usage.rate_limiter``.

Every hold and every settlement is one step there (``router.usage.redis_scripts``). What cannot be
told to it, since it is away, is kept here until it is back, and told then. A Redis that was
emptied is told by the usage ledger what was spent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from cache.stores.scripts import Script
from router.core.key import Key
from router.core.usage_record import NO_TOKENS, Tokens
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
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
from router.usage.limits import HAIR, amount_of, limit_headers, over_limit, rules_of
from router.usage.memory_limiter import OnDown
from router.usage.opening_balance import OpeningBalance, Spent, unavailable
from router.usage.rate_limiter import Demand, Reservation, Standing
from router.usage.redis_link import Away, Link
from router.usage.redis_reservation import ROOM, RedisReservation, Settlement, Untold, account_names
from router.usage.redis_scripts import CHECK, OPEN, RENEW, RESERVE, SETTLE

__all__ = ["RedisRateLimiter"]

_log = get_logger("router.limits")

_TRIES: Final = 4
"""Accounts are opened, and have to be there then; a period may end meanwhile."""

_KEPT_SECONDS: Final = 86_400.0
_TOTAL_SECONDS: Final = 30 * 86_400.0
_RENEWED_AT_ONCE: Final = 500
_CLOSE_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.1


class RedisRateLimiter:
    """Counts in the Redis at ``url``; raises ValueError where that is none.

    While it is away requests pass uncounted (``fail_open``) or are refused (``fail_closed``), and
    so they do where ``spent``, the usage ledger, does not answer within ``ledger_timeout``. A call
    has ``timeout`` once it is sent. What a router holds that was killed is given back after
    ``lease``. All are in seconds. ``tags`` may be replaced at any time, by those of another
    configuration.
    """

    instant = False

    def __init__(
        self,
        url: str,
        spent: Spent,
        *,
        tags: TagBudgets = NO_TAGS,
        on_down: OnDown = "fail_closed",
        prefix: str = "pointsman:limits",
        timeout: float = 0.25,
        ledger_timeout: float = 2.0,
        lease: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.tags = tags
        self.uncounted = self.unbudgeted = 0
        self._told = 0
        self._on_down = on_down
        self._lease = lease
        self._clock = clock
        self._link = Link(url, prefix, timeout, self._changed)
        self._spent = spent
        self._opening_balance = OpeningBalance(self._look, ledger_timeout, time.monotonic)
        self._running: dict[str, RedisReservation] = {}
        self._renewed = time.monotonic()
        self._wake = asyncio.Event()
        self._untold = Untold(self._wake.set)
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"<RedisMeter {self._link.name}>"

    @property
    def up(self) -> bool:
        """Whether requests are counted."""
        return self._link.up

    @property
    def lost(self) -> int:
        """How many settlements were dropped because too many waited for Redis."""
        return self._untold.lost

    @property
    def untold(self) -> int:
        """How many settlements wait for Redis to come back."""
        return len(self._untold)

    async def start(self) -> None:
        """Begin to renew leases, and to tell what could not be told. It may be away: requests
        find that out again.
        """
        try:
            await self._run(CHECK, [ROOM], {})
        except Away:
            _log.warning(
                "limits cannot be counted yet", redis=self._link.name, error=self._link.why
            )
        self._tasks.spawn(self._tend(), "tend the limits in Redis")

    async def close(self) -> None:
        """Tell what is left to tell, in 2 seconds, and end all connections."""
        await self._tasks.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._tell_all()
        except (Away, TimeoutError):
            _log.warning("what was used could not be told to Redis", settlements=self.untold)
        await self._opening_balance.close()
        await self._link.close()

    async def reserve(self, demand: Demand) -> Reservation:
        """See ``RateLimiter.hold``."""
        rules = rules_of(demand.key, demand.model)
        if demand.spares is not None:
            rules = tuple(rule for rule in rules if rule.what != demand.spares)
        hold = RedisReservation(rules, demand.tokens, demand.cost or 0)
        unknown: set[Account] = set()
        for _ in range(_TRIES):
            lines = self._lines(demand.key, unknown)
            hold.accounts = accounts_of(lines)
            if not (rules or lines):
                self.unbudgeted += bool(unknown)
                return hold
            try:
                answer = await self._ask(hold, demand, lines)
                if answer[0] != b"missing":
                    reserved = self._reserved(hold, demand, lines, answer)
                    self.unbudgeted += bool(unknown)
                    return reserved
                unknown |= await self._open([hold.accounts[int(n) - 1] for n in answer[1:]])
            except Away as away:
                return self._not_reserved(hold, sent=away.sent)
            if unknown and self._on_down == "fail_closed":
                raise unavailable("the usage ledger does not answer")
        raise unavailable(f"{self._link.name} does not keep what it is told")

    def _lines(self, key: Key, unknown: set[Account]) -> tuple[Line, ...]:
        lines = lines_of(key, self.tags, self._clock())
        return tuple(line for line in lines if line.account not in unknown)

    async def _ask(
        self, hold: RedisReservation, demand: Demand, lines: Sequence[Line]
    ) -> list[bytes]:
        places = {account: place for place, account in enumerate(hold.accounts, 1)}
        cost = -1 if demand.cost is None else demand.cost
        ask = {
            "id": hold.id,
            "member": hold.member,
            "lease": int(self._lease * 1000),
            "hair": HAIR,
            "levels": [(amount_of(rule, hold.tokens), rule.most) for rule in hold.rules],
            "slots": [rule.most for rule in hold.slots],
            "accounts": [self._ttl(account) for account in hold.accounts],
            "lines": [
                (places[account], 1, budget.most, hold.tokens)
                if budget.unit == "tokens"
                else (places[account], 2, budget.most, cost)
                for account, budget in lines
            ],
        }
        try:
            answer: list[bytes] = await self._run(RESERVE, hold.names(hold.rules), ask)
        except asyncio.CancelledError:
            self._untold.add(hold.settlement(NO_TOKENS, 0, self._clock()))
            raise
        return answer

    def _reserved(
        self, hold: RedisReservation, demand: Demand, lines: Sequence[Line], answer: list[bytes]
    ) -> Reservation:
        """The hold, or raise why there is none."""
        rules = (*hold.rules, *hold.slots)
        used = [float(number) for number in answer[1 : len(rules) + 1]]
        if answer[0] == b"yes":
            hold.sure = True
            hold.headers = limit_headers(rules, used)
            self._running[hold.id] = hold
            return hold
        if len(used) == len(rules):
            sums = _sums(hold.accounts, answer[len(rules) + 1 :])
            by_line = [sums[line.account] for line in lines]
            tokens, cost = demand.tokens, demand.cost
            refusal = over_budget(lines, by_line, tokens, cost, self._clock())
            over = refusal or over_limit(rules, used, tokens)
            if over is not None:
                raise over
        raise unavailable(f"{self._link.name} answers what makes no sense")

    def _not_reserved(self, hold: RedisReservation, *, sent: bool) -> Reservation:
        """Redis is away."""
        self._wake.set()
        if self._on_down == "fail_open":
            self.uncounted += 1
            return hold
        if sent:
            self._untold.add(hold.settlement(NO_TOKENS, 0, self._clock()))
        raise unavailable("what counts it does not answer")

    async def settle(self, hold: Reservation, tokens: Tokens, cost: int) -> None:
        """See ``RateLimiter.settle``."""
        assert isinstance(hold, RedisReservation)
        if hold.settled:
            return
        hold.settled = True
        self._running.pop(hold.id, None)
        await self._tell(hold.settlement(tokens, cost, self._clock()))

    async def charge(self, key: Key, tokens: Tokens, cost: int) -> None:
        """See ``RateLimiter.charge``. An account that is not counted there yet gets it from the
        ledger.
        """
        hold = RedisReservation((), 0, 0)
        hold.accounts = accounts_of(lines_of(key, self.tags, self._clock()))
        await self._tell(hold.settlement(tokens, cost, self._clock()))

    async def standing(self, key: Key) -> Sequence[Standing]:
        """See ``RateLimiter.standing``."""
        for _ in range(_TRIES):
            lines = self._lines(key, set())
            if not lines:
                return []
            accounts = accounts_of(lines)
            try:
                answer = await self._run(CHECK, [ROOM, *account_names(accounts)], {})
                if answer[0] == b"yes":
                    sums = _sums(accounts, answer[1:])
                    return [standing_of(line, sums[line.account]) for line in lines]
                if await self._open([accounts[int(number) - 1] for number in answer[1:]]):
                    raise unavailable("the usage ledger does not answer")
            except Away:
                self._wake.set()
                raise unavailable("what counts it does not answer") from None
        raise unavailable(f"{self._link.name} does not keep what it is told")

    async def _tell(self, settlement: Settlement) -> None:
        if len(settlement.names) == 1:
            return
        try:
            await self._run(SETTLE, *settlement)
        except Away:
            self._untold.add(settlement)
        except asyncio.CancelledError:
            self._untold.add(settlement)
            raise

    async def _run(self, script: Script, names: Sequence[str], ask: dict[str, Any]) -> Any:
        return await self._link.run(script, [*map(self._link.key, names)], ask)

    async def _open(self, accounts: Sequence[Account]) -> set[Account]:
        """Begin to count these; those that the ledger tells nothing of."""
        answers = await self._opening_balance.ask(accounts)
        return {
            account for account, answer in zip(accounts, answers, strict=True) if answer is None
        }

    async def _look(self, account: Account) -> tuple[int, int]:
        """Ask the ledger, and begin to count from there."""
        since = int(self._clock() * 1000)
        tokens, cost = await self._spent(account.owner, account.since)
        ask = {"tokens": str(tokens), "cost": str(cost), "from": since}
        ask["ttl"] = self._ttl(account)
        # Whether Redis is away is found out by those who wait for this.
        with suppress(Away):
            await self._run(OPEN, account_names((account,)), ask)
        return tokens, cost

    def _ttl(self, account: Account) -> int:
        """How long Redis keeps it, in ms: the ledger knows it, too."""
        until = account.until
        seconds = _TOTAL_SECONDS if until is None else until - self._clock() + _KEPT_SECONDS
        return int(max(seconds, 1.0) * 1000)

    def _changed(self, up: bool) -> None:
        if up:
            passed, self._told = self.uncounted - self._told, self.uncounted
            _log.info("limits are counted again", redis=self._link.name, uncounted=passed)
        else:
            _log.warning(
                "limits cannot be counted",
                redis=self._link.name,
                policy=self._on_down,
                error=self._link.why,
            )
        self._wake.set()

    async def _tend(self) -> None:
        """Look for Redis while it is away, renew leases, tell what could not be told."""
        while True:
            await self._pause()
            if not self._link.up and not await self._link.probe(CHECK, [self._link.key(ROOM)]):
                continue
            try:
                await self._renew()
                await self._tell_all()
            except Away:
                self._wake.set()

    async def _pause(self) -> None:
        if not self._link.up:
            await asyncio.sleep(max(self._link.rests, _RETRY_SECONDS))
        elif self._untold:
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            try:
                async with asyncio.timeout(self._lease / 3):
                    await self._wake.wait()
            except TimeoutError:
                self._wake.clear()
                return
        self._wake.clear()

    async def _renew(self) -> None:
        now = time.monotonic()
        if now - self._renewed < self._lease / 3:
            return
        running = iter([*self._running.values()])
        while some := list(islice(running, _RENEWED_AT_ONCE)):
            leases = [lease for hold in some if not hold.settled for lease in hold.leases()]
            ask = {
                "lease": int(self._lease * 1000),
                "members": [member for _, member, _ in leases],
                "slots": [slot for _, _, slot in leases],
            }
            await self._run(RENEW, [name for name, _, _ in leases], ask)
        self._renewed = now

    async def _tell_all(self) -> None:
        while self._untold:
            settlement = self._untold.first()
            await self._run(SETTLE, *settlement)
            self._untold.told(settlement)


def _sums(accounts: Sequence[Account], numbers: Sequence[bytes]) -> dict[Account, Sums]:
    return {
        account: Sums(*map(int, numbers[4 * place : 4 * place + 4]))
        for place, account in enumerate(accounts)
    }
