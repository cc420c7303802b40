"""The thread that works on large requests, so that the event loop can serve everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["MAX_WAITING", "Worker", "takes_long"]

_T = TypeVar("_T")

MAX_WAITING: Final = 256
"""How many pieces of work may wait before no further large request is let in."""


_BYTES: Final = 512 * 1024
_VALUES: Final = 10_000


def takes_long(size: int, values: int) -> bool:
    """Whether a body of ``size`` bytes with so many JSON values is too much for the event loop's
    own thread.

    Less than this takes a few milliseconds at most, and the 200 KB that a coding agent sends with
    each turn less than one. To have another thread do it costs a tenth of a millisecond for each
    step, and several where the event loop is busy, since the two take turns.
    """
    return size > _BYTES or values > _VALUES


class Worker:
    """One thread, which begins with its first piece of work: several would take turns with the
    event loop for the interpreter's lock. It belongs to one application, which closes it.

    An exchange has one piece of work here at a time. So what waits is bounded by ``full``, which
    is asked before a request is let in; one that was let in is not refused later.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "large-requests")
        self._under_way = 0

    @property
    def full(self) -> bool:
        """Whether so much waits that no further large request is to be let in."""
        return self._under_way >= MAX_WAITING

    async def run(self, work: Callable[[], _T]) -> _T:
        """What ``work`` returns or raises; it is not begun where the caller was cancelled."""
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._under_way -= 1

    def close(self) -> None:
        """Begin nothing any more, without waiting for what is under way: whoever still awaits a
        piece of work that has not begun is cancelled.
        """
        self._threads.shutdown(wait=False, cancel_futures=True)
