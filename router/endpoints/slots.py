"""Slots: how many requests an endpoint works on per model, and the queue in front of them.

A slot that is given back goes straight to the first waiter that can use it, so that nobody who
came later overtakes. The queue is bounded and has a deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from router.errors import Overloaded

__all__ = ["SlotKey", "Slots"]

SlotKey = tuple[str, str]
"""An endpoint's name and a model as it calls it."""


class Slots:
    """Counts what is in flight. ``changed(key, in_flight)`` is told of every change.

    ``queue_size`` requests may wait, each for ``queue_timeout`` seconds.
    """

    def __init__(
        self, queue_size: int, queue_timeout: float, changed: Callable[[SlotKey, int], None]
    ) -> None:
        self._queue_size = queue_size
        self._queue_timeout = queue_timeout
        self._changed = changed
        self._in_flight: dict[SlotKey, int] = {}
        self._waiters: deque[tuple[frozenset[SlotKey], asyncio.Future[SlotKey]]] = deque()

    def in_flight(self, key: SlotKey) -> int:
        """How many slots of this endpoint and model are taken."""
        return self._in_flight.get(key, 0)

    @property
    def waiting(self) -> int:
        """How many requests stand in the queue."""
        return len(self._waiters)

    def take(self, key: SlotKey) -> None:
        """Take a slot that is known to be free."""
        count = self._in_flight[key] = self._in_flight.get(key, 0) + 1
        self._changed(key, count)

    def give_back(self, key: SlotKey) -> None:
        """Return a slot, to the first waiter that can use it."""
        for entry in self._waiters:
            keys, future = entry
            if key in keys and not future.done():
                self._waiters.remove(entry)
                future.set_result(key)
                return
        count = self._in_flight[key] - 1
        if count:
            self._in_flight[key] = count
        else:
            del self._in_flight[key]
        self._changed(key, count)

    async def wait(self, keys: Iterable[SlotKey]) -> SlotKey:
        """Stand in the queue for a slot of any of these; it is then taken.

        Raises Overloaded when the queue is full or its time is over.
        """
        if len(self._waiters) >= self._queue_size:
            raise self._overloaded("and the queue is full")
        future: asyncio.Future[SlotKey] = asyncio.get_running_loop().create_future()
        entry = (frozenset(keys), future)
        self._waiters.append(entry)
        try:
            async with asyncio.timeout(self._queue_timeout):
                return await future
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()
            raise self._overloaded(f"and none got free in {self._queue_timeout:g} s") from None
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(future.result())
            raise
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    def _overloaded(self, why: str) -> Overloaded:
        seconds = max(1, round(self._queue_timeout))
        return Overloaded(
            f"Every slot for this model is taken {why}. Try again later.",
            headers={"Retry-After": str(seconds)},
        )
