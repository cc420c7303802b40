"""What a request holds in Redis, and what Redis is told when it is over."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from router.core.usage_record import Tokens
from router.usage.budgets import Account
from router.usage.limits import LimitRule

__all__ = ["ROOM", "RedisReservation", "Settlement", "Untold", "account_names"]

ROOM: Final = "room"
"""The name of the key that says whether Redis can be written to."""

_MOST: Final = 10_000
_DONE_MS: Final = 300_000
"""So long Redis knows that a settlement was carried out whose answer was lost."""


class Settlement(NamedTuple):
    """The names of its keys, and what the script is asked."""

    names: list[str]
    ask: dict[str, Any]


class RedisReservation:
    """Implements ``router.usage.rate_limiter.Reservation``. ``sure``: Redis has said that it has
    it.
    """

    __slots__ = (
        "accounts", "cost", "headers", "id", "member", "rules", "settled", "slots", "sure",
        "tokens",
    )  # fmt: skip

    def __init__(self, rules: tuple[LimitRule, ...], tokens: int, cost: int) -> None:
        self.id = secrets.token_hex(12)
        self.tokens = tokens
        self.cost = cost
        self.member = f"{tokens} {cost} {self.id}"
        self.rules = tuple(rule for rule in rules if rule.what != "concurrent")
        self.slots = tuple(rule for rule in rules if rule.what == "concurrent")
        self.accounts: tuple[Account, ...] = ()
        self.headers: dict[str, str] = {}
        self.settled = False
        self.sure = False

    def names(self, rules: Iterable[LimitRule]) -> list[str]:
        """The names of its keys in Redis, with the levels of these rules."""
        names = [f"done {self.id}"]
        names += [f"level {rule.id}" for rule in rules]
        names += [f"slots {rule.id}" for rule in self.slots]
        return names + account_names(self.accounts)

    def leases(self) -> Iterator[tuple[str, str, bool]]:
        """The name of the key, its member there, and whether it is a slot."""
        for rule in self.slots:
            yield f"slots {rule.id}", self.id, True
        for name in account_names(self.accounts)[1::2]:
            yield name, self.member, False

    def settlement(self, tokens: Tokens, cost: int, now: float) -> Settlement:
        """What gives it back, and counts what was used."""
        # What may not have been taken is not given back: it comes back by itself.
        rules = [rule for rule in self.rules if rule.what == "tokens"] if self.sure else []
        ask = {
            "id": self.id,
            "member": self.member,
            "keep": _DONE_MS,
            "levels": [(tokens.total - self.tokens, rule.most) for rule in rules],
            "slots": len(self.slots),
            "tokens": str(tokens.total),
            "cost": str(cost),
            "at": int(now * 1000),
        }
        return Settlement(self.names(rules), ask)


class Untold:
    """Settlements that wait for Redis; the oldest are dropped when there are too many, which
    ``lost`` counts. ``added`` is called for each.
    """

    def __init__(self, added: Callable[[], None]) -> None:
        self._waiting: deque[Settlement] = deque()
        self._added = added
        self.lost = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, settlement: Settlement) -> None:
        """Keep it."""
        if len(self._waiting) >= _MOST:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(settlement)
        self._added()

    def first(self) -> Settlement:
        """The one that waits the longest."""
        return self._waiting[0]

    def told(self, settlement: Settlement) -> None:
        """It need not wait any more."""
        if self._waiting and self._waiting[0] is settlement:
            self._waiting.popleft()


def account_names(accounts: Iterable[Account]) -> list[str]:
    """The names of the keys of accounts in Redis: sums and leases of each."""
    return [
        f"{part} {account.owner} {account.period} {account.since:.0f}"
        for account in accounts
        for part in ("sums", "leases")
    ]
