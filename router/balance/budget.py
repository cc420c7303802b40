"""How much may be asked beside what clients ask: a budget for retries, or for hedges."""

from __future__ import annotations

from math import exp
from typing import Final

__all__ = ["RetryBudget"]

_LONG_AGO: Final = -1e9
"""Before any clock's zero: whoever comes first finds the reserve full."""


class RetryBudget:
    """Each request earns ``ratio`` of an extra one, on top of a ``reserve``.

    The rule is that of Finagle's retry budget: a share of the requests may be sent again, and a
    few more where there are few requests. The reserve is there at the first use, and fills up again
    evenly within ``refill_seconds``. At most the reserve and what the requests of about the last
    ``refill_seconds`` earned can be saved up: a large fleet that loses an endpoint may retry
    many at once, while a small one does not live on what it earned an hour ago. So there are
    never more extra requests than ``ratio`` of all requests, the reserve, and its refills.

    ``ratio`` and ``reserve`` may be replaced at any time. An extra request costs 1: a reserve
    below that allows none by itself. Clocks are handed in, in seconds.
    """

    __slots__ = ("_at", "_balance", "_recent", "_refill_seconds", "ratio", "reserve")

    def __init__(self, ratio: float, reserve: float, refill_seconds: float = 60.0) -> None:
        self.ratio = ratio
        self.reserve = reserve
        self._refill_seconds = refill_seconds
        self._balance = 0.0
        self._recent = 0.0
        self._at = _LONG_AGO

    def deposit(self, now: float) -> None:
        """A request came in; to be called once for each, however often it is tried."""
        self._settle(now)
        self._recent += 1.0
        self._balance += self.ratio

    def withdraw(self, now: float) -> bool:
        """Whether one more may be sent; it is then paid for."""
        self._settle(now)
        if self._balance < 1.0:
            return False
        self._balance -= 1.0
        return True

    def available(self, now: float) -> float:
        """How many more may be sent at once."""
        self._settle(now)
        return self._balance

    def _settle(self, now: float) -> None:
        """Refill for the time that has passed, and forget what was earned too long ago."""
        elapsed = (now - self._at) / self._refill_seconds
        if elapsed > 0.0:
            self._at = now
            self._recent *= exp(-elapsed)
            self._balance += self.reserve * elapsed
        self._balance = min(self._balance, self.reserve + self.ratio * self._recent)
