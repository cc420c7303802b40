"""Background work that belongs to somebody: tasks, and the thread for large requests.

``Tasks`` is the only place where a task is created. ``Worker`` is the thread that works on large
requests, so that the event loop can serve everybody else: what is in a JSON text is counted
(``ValueCount``) before it is parsed, while it still arrives. Parsing holds the interpreter's lock,
and what comes after takes its time for every value: one image of 30 MB is harmless, 700 000
messages are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from router.telemetry.log import get_logger

__all__ = ["MAX_WAITING", "Tasks", "ValueCount", "Worker", "most_values", "takes_long"]

T = TypeVar("T")

_log = get_logger("router.tasks")


class Tasks:
    """Owns every task it spawns until it is done; ``close`` cancels and awaits the rest."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run ``work``; an error it ends with is logged, never lost."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def see_through(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """What ``work`` returns or raises; it goes on when the caller is cancelled."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                result = await work
            except Exception as exc:
                if answer.done():
                    raise
                answer.set_exception(exc)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.spawn(run(), name).add_done_callback(lambda _: answer.cancel())
        return await answer

    def __len__(self) -> int:
        return len(self._tasks)

    async def wait(self, timeout: float) -> bool:
        """Wait until nothing runs, for ``timeout`` seconds at most; True when nothing does."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        return not self._tasks

    async def close(self) -> None:
        """Cancel what still runs and wait for its end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task failed", task=task.get_name(), exc_info=error)


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


def most_values(piece: bytes) -> int:
    """No fewer than ``ValueCount`` adds for ``piece``, wherever in a text it is: what is inside of
    strings is counted too. It takes a quarter of the time.
    """
    strings = (piece.count(b'"') + 1) // 2
    return strings + piece.count(b"{") + piece.count(b"[") + (piece.count(b",") + 9) // 10


class ValueCount:
    """Counts strings (names of members too), objects and arrays; of commas, which are all that
    shows of numbers, ten are one. What is not JSON comes to some number, too.
    """

    __slots__ = ("_commas", "_containers", "_escape", "_quotes")

    def __init__(self) -> None:
        self._quotes = 0
        self._containers = 0
        self._commas = 0
        self._escape = b""

    @property
    def total(self) -> int:
        """What has been counted so far."""
        return self._quotes // 2 + self._containers + self._commas // 10

    def feed(self, piece: bytes) -> int:
        """Count on; returns the total. All of the work is done in C: about 1 ms for 64 KiB."""
        piece = self._escape + piece
        # Half an escape sequence stays for the next piece: an odd number of backslashes at the end.
        self._escape = b"\\" if (len(piece) - len(piece.rstrip(b"\\"))) % 2 else b""
        if self._escape:
            piece = piece[:-1]
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[self._quotes % 2 :: 2])
        self._quotes += len(parts) - 1
        self._containers += outside.count(b"{") + outside.count(b"[")
        self._commas += outside.count(b",")
        return self.total
