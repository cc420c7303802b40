"""Work that would hold up the event loop, done in a few threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

__all__ = ["Busy", "Offload"]

T = TypeVar("T")

_WAITING: Final = 32
"""So many jobs may wait for each thread."""


class Busy(Exception):
    """Too much is waiting already, or the threads were closed: do without."""


class Offload:
    """Runs quick, CPU-bound functions in ``threads`` threads; whoever builds it closes it."""

    def __init__(self, threads: int, *, waiting: int | None = None) -> None:
        """``waiting`` is how many jobs may wait for a thread; by default 32 for each."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="cache")
        bound = threads * _WAITING if waiting is None else waiting
        self._room = threading.BoundedSemaphore(threads + bound)
        self._closed = False

    async def run(self, function: Callable[..., T], *args: Any, timeout: float) -> T:
        """What ``function`` returns or raises.

        Raises Busy at once when the queue is full or closed, TimeoutError after ``timeout``
        seconds. A job that has begun then goes on, and keeps its place until it is done.
        """
        if self._closed or not self._room.acquire(blocking=False):
            raise Busy
        try:
            job = self._pool.submit(function, *args)
        except RuntimeError:  # no thread can be started
            self._room.release()
            raise Busy from None
        job.add_done_callback(self._done)
        waiter = asyncio.wrap_future(job)
        try:
            await asyncio.wait((waiter,), timeout=timeout)
            if not waiter.done():
                raise TimeoutError
        finally:
            waiter.cancel()
        if waiter.cancelled():
            raise Busy
        return waiter.result()

    def close(self) -> None:
        """Drop what waits; threads end with the job they are at. Waits for nothing."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, _job: Future[Any]) -> None:
        self._room.release()
