"""The queue in front of the slots: bounded, fair, with a deadline.

A slot that is given back goes straight to a waiter that can use it, so that nobody who came later
overtakes. Callers take turns: the slot goes to the one who was served longest ago, so that a
caller's hundredth request waits behind the first of another (fair queueing by round-robin, Nagle
1985, RFC 970). Of one caller, the order is that of arrival. Callers of a lower ``rank`` go first,
as long as there are any.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from math import inf
from operator import attrgetter
from typing import Final, Generic, TypeVar

__all__ = ["Queue", "QueueFull", "QueueTimeout", "Ticket"]

S = TypeVar("S")

_MAX_CALLERS: Final = 1024


class QueueFull(Exception):
    """As many wait as may."""


class QueueTimeout(Exception):
    """No slot came in time."""


class Ticket(Generic[S]):
    """A place in the queue, kept when its holder looks around and comes back.

    ``slots`` are those that its holder can use, ``granted`` the one that it got.
    """

    __slots__ = ("caller", "due", "granted", "number", "rank", "slots", "woken")

    woken: asyncio.Future[None]

    def __init__(self, caller: str, number: int, due: float, rank: int) -> None:
        self.caller = caller
        self.rank = rank
        self.number = number
        self.due = due
        self.slots: frozenset[S] = frozenset()
        self.granted: S | None = None


class Queue(Generic[S]):
    """Requests that wait for one of several slots; ``size`` of them at most.

    ``give_back`` gets the slot of a waiter that was cancelled with it already in hand.
    """

    def __init__(self, size: int, give_back: Callable[[S], None]) -> None:
        self.size = size
        self._give_back = give_back
        self._waiting: list[Ticket[S]] = []
        self._arrivals = count()
        self._turns = count(1)
        self._turn: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ticket(self, caller: str, seconds: float, rank: int = 1) -> Ticket[S]:
        """A place for this caller, good for so many seconds; raises QueueFull."""
        if len(self._waiting) >= self.size:
            raise QueueFull
        due = asyncio.get_running_loop().time() + seconds
        return Ticket(caller, next(self._arrivals), due, rank)

    async def wait(self, ticket: Ticket[S], slots: Iterable[S]) -> S | None:
        """Wait for one of these slots; None when it is time to look around again.

        The slot has been taken by whoever offered it. Raises QueueTimeout.
        """
        ticket.woken = woken = asyncio.get_running_loop().create_future()
        ticket.slots = frozenset(slots)
        insort(self._waiting, ticket, key=_NUMBER)
        try:
            async with asyncio.timeout_at(ticket.due):
                await woken
        except TimeoutError:
            if woken.cancelled():
                raise QueueTimeout from None
        except asyncio.CancelledError:
            if ticket.granted is not None:
                self._give_back(ticket.granted)
            raise
        finally:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
        return ticket.granted

    def offer(self, slot: S) -> bool:
        """Hand a slot to the waiter whose turn it is; False when there is none that can use it."""
        first, next_in_turn = None, (inf, inf)
        for ticket in self._waiting:
            if slot in ticket.slots and not ticket.woken.cancelled():
                turn = (ticket.rank, self._turn.get(ticket.caller, 0))
                if turn < next_in_turn:
                    first, next_in_turn = ticket, turn
        if first is None:
            return False
        self._waiting.remove(first)
        self.served(first)
        first.granted = slot
        if not first.woken.done():
            first.woken.set_result(None)
        return True

    def served(self, ticket: Ticket[S]) -> None:
        """The holder of this ticket has got a slot: it is the turn of other callers."""
        self._turn.pop(ticket.caller, None)
        self._turn[ticket.caller] = next(self._turns)
        if len(self._turn) > _MAX_CALLERS:
            del self._turn[next(iter(self._turn))]

    def look_again(self) -> None:
        """Have everybody look around, in turn: something has changed."""
        before: Counter[str] = Counter()
        order = []
        for ticket in self._waiting:
            caller = ticket.caller
            turn = self._turn.get(caller, 0)
            order.append((ticket.rank, before[caller], turn, ticket.number, ticket))
            before[caller] += 1
        for *_, ticket in sorted(order):
            if not ticket.woken.done():
                ticket.woken.set_result(None)


_NUMBER: Final = attrgetter("number")
