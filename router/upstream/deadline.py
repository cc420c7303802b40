"""Deadlines for waiting on an endpoint, cheap enough to have on every read.

One timer serves the whole answer: it is set once and, when it fires early because there has been
progress meanwhile, sets itself again. Nothing is created or cancelled per read.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from router.errors import UpstreamTimeout

__all__ = ["Deadline"]


class Deadline:
    """Bounds every ``with deadline.wait(seconds, what)`` block, and all of them by ``total``.

    A block that takes too long is cancelled from outside and raises UpstreamTimeout naming what
    was waited for. Outside of the blocks no time counts but the total.
    """

    __slots__ = ("_due", "_expired", "_loop", "_task", "_timer", "_total", "_waiting", "_what")

    def __init__(self, total: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._total = self._loop.time() + total
        self._due = self._total
        self._what = ""
        self._waiting = False
        self._expired = False
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, seconds: float, what: str) -> Deadline:
        """Set the deadline of the next block; use as a context manager."""
        now = self._loop.time()
        due = now + seconds
        if due >= self._total:
            due, what = self._total, "the whole answer"
        self._due, self._what = due, what
        timer = self._timer
        if timer is None or timer.when() > due:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(due, self._fire)
        return self

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._waiting = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._waiting = False
        task, self._task = self._task, None
        if self._expired and task is not None:
            self._expired = False
            if task.uncancel() == 0 and kind is asyncio.CancelledError:
                raise UpstreamTimeout(f"The endpoint timed out: waited for {self._what}.")

    def close(self) -> None:
        """Drop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        if not self._waiting:
            return  # the next wait() sets a new timer
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._fire)
        elif self._task is not None:
            self._expired = True
            self._task.cancel()
