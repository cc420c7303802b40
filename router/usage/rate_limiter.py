"""What counts limits and budgets: the contract of its implementations, in memory, in Redis, and in
the supervisor of several workers (``router.workers.limits``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from router.core.key import Budget, Key
from router.core.usage_record import Tokens
from router.usage.limits import What

if TYPE_CHECKING:
    from router.usage.budgets import TagBudgets

__all__ = ["Demand", "OwnedRateLimiter", "RateLimiter", "Reservation", "Standing"]


@dataclass(slots=True)
class Demand:
    """What one request may come to: ``tokens`` and ``cost`` (nano-USD) are what is reserved for it
    until it is over.

    ``cost`` is 0 for what costs nothing, and None where no price is known: then nothing can be
    reserved, and the request passes as long as its budgets in money are not spent. ``spares`` is a
    kind of limit that does not apply to it.
    """

    request: str
    key: Key
    model: str
    tokens: int
    cost: int | None
    spares: What | None = None


class Reservation(Protocol):
    """What is reserved for a request. ``headers`` are those of ``x-ratelimit-*``."""

    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a budget stands. ``owner`` is the name of a key, or ``tag:NAME``; ``spent`` is settled,
    ``held`` is reserved; ``resets`` is in Unix time, None for never.
    """

    owner: str
    budget: Budget
    spent: int
    held: int
    resets: float | None


class RateLimiter(Protocol):
    """Counts what keys and tags use. Every wait on something outside has a deadline. ``instant``:
    to settle takes no wait.

    ``uncounted`` is how many requests passed although the store was away, ``unbudgeted`` how many
    did without regard to a budget, since the usage ledger did not tell what was spent of it.
    """

    instant: bool
    uncounted: int
    unbudgeted: int

    @property
    def up(self) -> bool:
        """Whether the store answers."""
        ...

    async def reserve(self, demand: Demand) -> Reservation:
        """Reserve what the request may come to.

        Raises RateLimitExceeded and QuotaExceeded, and reserves nothing then; LimitsUnavailable
        where the store is away and ``on_down`` is ``fail_closed``.
        """
        ...

    async def settle(self, reserve: Reservation, tokens: Tokens, cost: int) -> None:
        """Give back what was reserved, and count what was used. Once for every hold; a second call
        does nothing. Raises nothing: what a store that is away could not be told is told later.
        """
        ...

    async def charge(self, key: Key, tokens: Tokens, cost: int) -> None:
        """Count in the budgets what was used without a hold. Raises nothing, as ``settle``."""
        ...

    async def standing(self, key: Key) -> Sequence[Standing]:
        """How the budgets of a key and of its tags stand.

        Raises LimitsUnavailable where that cannot be told, whatever ``on_down`` is.
        """
        ...


class OwnedRateLimiter(RateLimiter, Protocol):
    """A rate limiter to whoever starts and ends it. ``tags`` may be replaced at any time, by those
    of another configuration.
    """

    tags: TagBudgets

    async def start(self) -> None:
        """Begin."""
        ...

    async def close(self) -> None:
        """Tell what is left to tell, within a few seconds."""
        ...
