"""Threads that own a SQLite connection and do one piece of work after the other."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from router.state.health import Unreachable

__all__ = ["Workers"]

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]

MAX_WAITING: Final = 10_000
_LATE_SECONDS: Final = 0.005
_ASIDE_SECONDS: Final = 0.002
_LONGEST_PAUSE: Final = 0.25


class Workers:
    """``count`` threads behind one queue, each with a connection from ``connect``.

    What ``connect`` raises is the answer to whoever needed the connection.

    They are daemons: one that hangs in the operating system does not keep the process alive.

    An event loop that never rests starves threads of the interpreter's lock: a commit of 2 ms
    then takes a second. So the loop stands aside for a moment when work is late, less and less
    often where that does not help.
    """

    def __init__(self, name: str, count: int, connect: Callable[[], sqlite3.Connection]) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect = connect
        self._queue: SimpleQueue[tuple[Work, asyncio.Future[Any]] | None] = SimpleQueue()
        self._under_way = 0
        self._done = threading.Event()
        self._patience: asyncio.TimerHandle | None = None
        self._ended = [self._loop.create_future() for _ in range(count)]
        for number, ended in enumerate(self._ended):
            threading.Thread(
                target=self._live, args=(ended,), name=f"{name} {number}", daemon=True
            ).start()

    async def run(self, work: Callable[[sqlite3.Connection], T], timeout: float | None) -> T:
        """What ``work`` returns or raises, done in a thread.

        Raises Unreachable past ``timeout`` (seconds): then it may still be done.
        """
        if self._queue.qsize() >= MAX_WAITING:
            raise Unreachable("too many statements wait for the database")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((work, answer))
        self._under_way += 1
        if self._patience is None:
            self._patience = self._loop.call_later(_LATE_SECONDS, self._late, _LATE_SECONDS)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise Unreachable(f"no answer within {timeout:g} s") from None

    async def close(self, timeout: float) -> None:
        """End the threads and their connections; one that hangs is left behind."""
        for _ in self._ended:
            self._queue.put(None)
        await asyncio.wait(self._ended, timeout=timeout)
        if self._patience is not None:
            self._patience.cancel()

    def _late(self, pause: float) -> None:
        self._patience = None
        if not self._under_way:
            return
        self._done.clear()
        pause = _LATE_SECONDS if self._done.wait(_ASIDE_SECONDS) else min(2 * pause, _LONGEST_PAUSE)
        self._patience = self._loop.call_later(pause, self._late, pause)

    def _settle(self, answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._under_way -= 1
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _live(self, ended: asyncio.Future[None]) -> None:
        connection: sqlite3.Connection | None = None
        while (item := self._queue.get()) is not None:
            work, answer = item
            result: Any = None
            error: Exception | None = None
            try:
                connection = connection or self._connect()
                result = work(connection)
            except Exception as exc:
                error = exc
            self._tell(self._settle, answer, result, error)
            self._done.set()
            del item, work, answer, result, error
        if connection is not None:
            connection.close()
        self._tell(ended.set_result, None)

    def _tell(self, what: Callable[..., object], *arguments: Any) -> None:
        # The loop is closed when the application was: then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *arguments)
