"""Limits and budgets of several workers, counted by the supervisor.

``SharedLimits`` is the supervisor's side: the rate limiter of one process, for all of them.
``WorkerRateLimiter`` is a worker's: it asks for what a request may come to (one call, with others
of the same turn of the event loop in one write), and tells what it used without waiting. Requests
of keys without limits ask nobody.

What a key may use is sent once, and referred to by its number then. A worker that dies gives back
what it had reserved; what it recorded nonetheless is in the ledger, which is asked again as soon as
none of the accounts' requests is under way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import orjson

from router.core.key import Budget, Key, KeyLimits, is_limited
from router.core.usage_record import NO_TOKENS, Tokens
from router.errors import LimitsUnavailable, QuotaExceeded, RateLimitExceeded, RouterError
from router.usage.budgets import NO_TAGS, BudgetTooSmall, TagBudgets
from router.usage.limits import OverLimit
from router.usage.memory_limiter import MemoryRateLimiter, OnDown
from router.usage.opening_balance import Spent, unavailable
from router.usage.rate_limiter import Demand, Reservation, Standing
from router.workers.link import Handler, LinkFailed, WorkerLink

if TYPE_CHECKING:
    from router.workers.children import Child

__all__ = ["SharedLimits", "WorkerRateLimiter"]

_TIMEOUT: Final = 3.0
"""Longer than the ledger may take to tell what was spent."""

_MOST_KEYS: Final = 10_000
_REFUSALS: Final[Mapping[str, type[RouterError]]] = {
    kind.__name__: kind
    for kind in (RateLimitExceeded, OverLimit, BudgetTooSmall, QuotaExceeded, LimitsUnavailable)
}


def _counting(spent: Spent, on_down: OnDown) -> MemoryRateLimiter:
    return MemoryRateLimiter(spent, on_down=on_down)


class SharedLimits:
    """Counts for all workers. ``spent`` is what the ledger knows of an owner; ``make`` makes what
    counts, when the first worker has begun.
    """

    def __init__(
        self, spent: Spent, make: Callable[[Spent, OnDown], MemoryRateLimiter] = _counting
    ) -> None:
        self._spent = spent
        self._make = make
        self._limiter: MemoryRateLimiter | None = None
        self._keys: dict[bytes, Key] = {}
        self._workers: dict[Child, _Holds] = {}

    def handlers(self, child: Child) -> dict[str, Handler]:
        """What answers a worker."""
        holds = self._workers[child] = _Holds(self)
        return {
            "limits begin": self._configure,
            "limits key": holds.know,
            "limits reserve": holds.reserve,
            "limits settle": holds.settle,
            "limits charge": holds.charge,
            "limits standing": holds.standing,
        }

    def forget(self, child: Child) -> None:
        """A worker has ended: nothing of its requests is under way any more."""
        self._workers.pop(child).give_back()

    async def close(self) -> None:
        """Count no more."""
        if self._limiter is not None:
            await self._limiter.close()

    @property
    def limiter(self) -> MemoryRateLimiter:
        """What counts; it is there once a worker has begun."""
        assert self._limiter is not None
        return self._limiter

    def key(self, told: dict[str, Any]) -> Key:
        """The same object for the same terms: what is known of a key is remembered by it."""
        if len(self._keys) >= _MOST_KEYS:
            self._keys.clear()
        return self._keys.setdefault(orjson.dumps(told), _key_of(told))

    def _configure(self, told: dict[str, Any]) -> None:
        if self._limiter is None:
            self._limiter = self._make(self._spent, told["on_down"])
        self._limiter.tags = {
            name: tuple(Budget(**one) for one in budgets) for name, budgets in told["tags"].items()
        }


class _Holds:
    """What one worker has reserved, by its own numbers.

    A number without a reservation is one that is just being made. What the worker says of its end
    meanwhile is in ``_ends``.
    """

    def __init__(self, shared: SharedLimits) -> None:
        self._shared = shared
        self._keys: dict[int, Key] = {}
        self._holds: dict[int, Reservation | None] = {}
        self._ends: dict[int, tuple[Tokens, int]] = {}

    def know(self, told: list[Any]) -> None:
        """A number for the key of these terms from now on."""
        number, terms = told
        self._keys[number] = self._shared.key(terms)

    def give_back(self) -> None:
        """The worker is gone."""
        for number, hold in list(self._holds.items()):
            if hold is None:
                self._ends[number] = NO_TOKENS, 0
                continue
            del self._holds[number]
            _at_once(self._shared.limiter.settle(hold, NO_TOKENS, 0))
            self._shared.limiter.doubt(hold)

    def reserve(self, asked: list[Any]) -> Awaitable[list[Any]]:
        """Headers of the reservation, or the error that refuses it."""
        number, key, model, tokens, cost, spares = asked
        self._holds[number] = None
        return self._reserve(number, Demand("", self._keys[key], model, tokens, cost, spares))

    async def _reserve(self, number: int, demand: Demand) -> list[Any]:
        limiter = self._shared.limiter
        before = limiter.unbudgeted
        try:
            hold = await limiter.reserve(demand)
        except BaseException as error:
            del self._holds[number]
            self._ends.pop(number, None)
            if isinstance(error, RouterError):
                return [0, _told(error)]
            raise
        self._holds[number] = hold
        if (end := self._ends.pop(number, None)) is not None:
            self._settle(number, *end)
        return [1, hold.headers, limiter.unbudgeted - before]

    def settle(self, told: list[Any]) -> None:
        """A request is over."""
        number, *used, cost = told
        if number not in self._holds:
            return  # it was refused
        if self._holds[number] is None:
            self._ends[number] = Tokens(*used), cost
        else:
            self._settle(number, Tokens(*used), cost)

    def _settle(self, number: int, tokens: Tokens, cost: int) -> None:
        hold = self._holds.pop(number)
        assert hold is not None
        _at_once(self._shared.limiter.settle(hold, tokens, cost))

    async def charge(self, told: list[Any]) -> None:
        """Count what was used without a reservation."""
        key, *used, cost = told
        await self._shared.limiter.charge(self._keys[key], Tokens(*used), cost)

    async def standing(self, key: int) -> list[Any]:
        """How the budgets of a key stand, or the error that does not let it be told."""
        try:
            found = await self._shared.limiter.standing(self._keys[key])
        except RouterError as error:
            return [0, _told(error)]
        return [1, [asdict(one) for one in found]]


class _WorkerReservation:
    """Implements ``router.usage.rate_limiter.Reservation``; number 0 reserves nothing."""

    __slots__ = ("headers", "number", "settled")

    def __init__(self, number: int) -> None:
        self.number = number
        self.headers: dict[str, str] = {}
        self.settled = number == 0


class WorkerRateLimiter:
    """Implements ``router.usage.rate_limiter.RateLimiter``, counting at the other end of ``link``.

    While the supervisor does not answer, nothing can be told to it either: requests of limited keys
    are refused, whatever ``on_down`` says (that is about the ledger here), and the worker ends.
    """

    instant = True

    def __init__(self, link: WorkerLink, tags: TagBudgets, on_down: OnDown) -> None:
        self.uncounted = self.unbudgeted = 0
        self._link = link
        self._on_down = on_down
        self._tags: TagBudgets = NO_TAGS
        self._number = 0
        self._keys: dict[str, tuple[Key, int]] = {}
        self._key_number = 0
        self.tags = tags

    @property
    def tags(self) -> TagBudgets:
        """The budgets of tags; those of another configuration may be set at any time."""
        return self._tags

    @tags.setter
    def tags(self, tags: TagBudgets) -> None:
        self._tags = tags
        told = {name: [asdict(one) for one in budgets] for name, budgets in tags.items()}
        self._link.tell("limits begin", {"tags": told, "on_down": self._on_down})

    @property
    def up(self) -> bool:
        """Whether the supervisor is there."""
        return self._link.up

    async def start(self) -> None:
        """Make ready; there is nothing to do."""

    async def close(self) -> None:
        """Nothing is left to tell: the link sends what it was given."""

    async def reserve(self, demand: Demand) -> Reservation:
        """See ``RateLimiter.reserve``."""
        if not is_limited(demand.key, self._tags):
            return _WorkerReservation(0)
        key = self._known(demand.key)
        self._number += 1
        hold = _WorkerReservation(self._number)
        asked = [hold.number, key, demand.model, demand.tokens, demand.cost, demand.spares]
        try:
            passed, answer, *unbudgeted = await self._link.call("limits reserve", asked, _TIMEOUT)
        except LinkFailed as exc:
            await self.settle(hold, NO_TOKENS, 0)  # it may have been reserved all the same
            raise unavailable(str(exc)) from None
        except BaseException:  # cancelled
            await self.settle(hold, NO_TOKENS, 0)
            raise
        if not passed:
            raise _error_of(answer)
        hold.headers = answer
        self.unbudgeted += sum(unbudgeted)
        return hold

    async def settle(self, hold: Reservation, tokens: Tokens, cost: int) -> None:
        """See ``RateLimiter.settle``."""
        assert isinstance(hold, _WorkerReservation)
        if not hold.settled:
            hold.settled = True
            self._link.tell("limits settle", [hold.number, *tokens, cost])

    async def charge(self, key: Key, tokens: Tokens, cost: int) -> None:
        """See ``RateLimiter.charge``."""
        if is_limited(key, self._tags):
            self._link.tell("limits charge", [self._known(key), *tokens, cost])

    async def standing(self, key: Key) -> Sequence[Standing]:
        """See ``RateLimiter.standing``."""
        if not is_limited(key, self._tags):
            return []
        try:
            told, answer = await self._link.call("limits standing", self._known(key), _TIMEOUT)
        except LinkFailed as exc:
            raise unavailable(str(exc)) from None
        if not told:
            raise _error_of(answer)
        return [Standing(**{**one, "budget": Budget(**one["budget"])}) for one in answer]

    def _known(self, key: Key) -> int:
        """The number by which the supervisor knows the key; sends it where it does not."""
        known = self._keys.get(key.name)
        if known is None or known[0] is not key:
            if len(self._keys) >= _MOST_KEYS:
                self._keys.clear()
            self._key_number += 1
            known = self._keys[key.name] = key, self._key_number % _MOST_KEYS
            self._link.tell("limits key", [known[1], _terms_of(key)])
        return known[1]


def _at_once(settled: Coroutine[Any, Any, None]) -> None:
    """Run what never waits (``RateLimiter.instant``)."""
    try:
        settled.send(None)
    except StopIteration:
        return
    raise AssertionError("to settle in memory takes no wait")


def _terms_of(key: Key) -> dict[str, Any]:
    return {
        "name": key.name,
        "tags": key.tags,
        "budgets": [asdict(one) for one in key.budgets],
        "limits": asdict(key.limits),
        "model_limits": [[pattern, asdict(one)] for pattern, one in key.model_limits],
    }


def _key_of(terms: dict[str, Any]) -> Key:
    return Key(
        terms["name"],
        tags=tuple(terms["tags"]),
        budgets=tuple(Budget(**one) for one in terms["budgets"]),
        limits=KeyLimits(**terms["limits"]),
        model_limits=tuple((one, KeyLimits(**most)) for one, most in terms["model_limits"]),
    )


def _told(error: RouterError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "headers": error.headers,
        "limit": error.limit,
        "which": error.which if isinstance(error, OverLimit) else None,
    }


def _error_of(told: dict[str, Any]) -> RouterError:
    error = _REFUSALS[told["kind"]](told["message"], headers=told["headers"])
    error.limit = told["limit"]
    if isinstance(error, OverLimit):
        error.which = told["which"]
    return error
