"""The writing side of a database: gathers jobs, and sees each of them through to its end.

``Workers`` are the threads that own a SQLite connection and do one piece of work after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar

from router.state.database import WriteRefused
from router.state.health import Fault, Health, Unreachable, unavailable
from router.state.statement import Statement, StatementStep
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["Commit", "Workers", "WriteJob", "Writer", "WrittenDatabase", "gathered"]

_log = get_logger("router.state")

MAX_WAITING_JOBS: Final = 10_000
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
_MAX_BATCH_JOBS: Final = 256
_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_ALARM_SECONDS: Final = 0.05


class WriteJob:
    """What one caller wants written together.

    ``size`` is in bytes, ``deadline`` of the loop's clock. Jobs of the same ``shape`` can be run
    side by side, statement by statement; None can only be run by itself. ``held_first`` is the
    common case of a guard: the first step is one, of one row, so that nothing has to be undone
    when it does not hold.
    """

    __slots__ = ("answer", "deadline", "guarded", "held_first", "over", "shape", "size", "steps")

    def __init__(
        self, steps: tuple[StatementStep, ...], answer: asyncio.Future[bool], deadline: float
    ) -> None:
        self.steps = steps
        self.answer = answer
        self.deadline = deadline
        self.over = False
        guards = [step for step in steps if step.guard]
        self.guarded = bool(guards)
        self.held_first = len(guards) == 1 and guards[0] is steps[0] and len(steps[0].rows) == 1
        rest = steps[1:] if self.held_first else steps
        self.shape: tuple[Statement, ...] | None = None
        if steps and (self.held_first or not guards) and all(step.statement.plain for step in rest):
            self.shape = tuple([step.statement for step in steps])
        self.size = sum([_size(step) for step in steps])


def _size(step: StatementStep) -> int:
    return sum([len(v) for row in step.rows for v in row.values() if isinstance(v, (bytes, str))])


def gathered(jobs: Sequence[WriteJob]) -> Iterator[list[WriteJob]]:
    """The jobs in their order, neighbours of the same shape together."""
    group: list[WriteJob] = []
    for job in jobs:
        if group and (job.shape is None or not _alike(group[0], job)):
            yield group
            group = []
        group.append(job)
    if group:
        yield group


def _alike(one: WriteJob, other: WriteJob) -> bool:
    return one.shape == other.shape and one.held_first == other.held_first


class Commit(Protocol):
    """Writes jobs in one transaction; the answers are in their order (False: guard refused).

    Raises Fault when a row is at fault, Unreachable when the database is; either way jobs are
    handed in again.
    """

    async def __call__(self, jobs: Sequence[WriteJob], /) -> list[bool]: ...


class Writer:
    """Queues jobs and hands them to ``commit``: at once when idle, gathered while it runs.

    Jobs take effect in the order in which they came. What cannot be queued is refused at once
    rather than kept waiting: whoever waits outside the queue holds the same memory, unbounded.
    ``timeout``: seconds from submission to StateUnavailable.
    """

    def __init__(self, commit: Commit, health: Health, timeout: float) -> None:
        self._commit = commit
        self._health = health
        self._timeout = timeout
        self._longest_pause = min(_LONGEST_PAUSE, timeout / 5)
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[WriteJob] = deque()
        self._bytes = 0
        self._running: list[WriteJob] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._locked = ""
        self._alarm: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._tasks.spawn(self._run(), "state writer")

    async def write(self, steps: tuple[StatementStep, ...]) -> bool:
        """See ``Database.write``."""
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._queue(steps, answer)
        return await answer

    def submit(self, steps: tuple[StatementStep, ...]) -> asyncio.Future[bool]:
        """See ``Database.submit``."""
        answer = _Submitted(loop=self._loop)
        self._queue(steps, answer)
        return answer

    async def close(self) -> None:
        """Write what waits, within the deadlines of the jobs; nothing more is taken."""
        self._closing = True
        self._wake.set()
        await self._tasks.wait(self._timeout)
        await self._tasks.close()
        for job in (*self._running, *self._waiting):
            self._fail(job, unavailable())
        self._waiting.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    def _queue(self, steps: tuple[StatementStep, ...], answer: asyncio.Future[bool]) -> None:
        job = WriteJob(steps, answer, self._loop.time() + self._timeout)
        too_much = self._waiting and self._bytes + job.size > MAX_WAITING_BYTES
        if too_much or len(self._waiting) >= MAX_WAITING_JOBS or self._closing:
            # Not at once: whoever submits it has to have a chance to wait for it.
            self._loop.call_soon(self._fail, job, unavailable())
            return
        self._waiting.append(job)
        self._bytes += job.size
        self._wake.set()
        if self._alarm is None:
            self._alarm = self._loop.call_at(job.deadline, self._on_alarm)

    async def _run(self) -> None:
        while True:
            if self._waiting:
                self._running = self._next()
                await self._settle(self._running)
                self._running = []
            elif self._closing:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def _next(self) -> list[WriteJob]:
        batch: list[WriteJob] = []
        size = 0
        while self._waiting and len(batch) < _MAX_BATCH_JOBS:
            size += self._waiting[0].size
            if batch and size > _MAX_BATCH_BYTES:
                break
            batch.append(self._take())
        return batch

    def _take(self) -> WriteJob:
        job = self._waiting.popleft()
        self._bytes -= job.size
        return job

    async def _settle(self, jobs: list[WriteJob]) -> None:
        """Commit ``jobs``, in halves where one is at fault, until each has its answer."""
        groups = [jobs]
        pause = _FIRST_PAUSE
        while groups:
            group = [job for job in groups.pop() if not job.over]
            if not group:
                continue
            try:
                answers = await self._commit(group)
            except Unreachable as exc:
                if exc.down:
                    self._health.lost(str(exc))
                self._locked = str(exc) if exc.locked else ""
                groups.append(group)
                await asyncio.sleep(pause)
                pause = min(pause * 2, self._longest_pause)
            except Fault as exc:
                if len(group) == 1:
                    self._refuse(group[0], exc)
                else:
                    half = len(group) // 2
                    groups += [group[half:], group[:half]]
            else:
                pause = _FIRST_PAUSE
                self._locked = ""
                self._health.answered()
                for job, answer in zip(group, answers, strict=True):
                    self._answer(job, answer)

    def _answer(self, job: WriteJob, answer: bool) -> None:
        job.over = True
        if not job.answer.done():
            job.answer.set_result(answer)

    def _refuse(self, job: WriteJob, fault: Fault) -> None:
        statements = [step.statement for step in job.steps]
        _log.error("the database refuses a row", error=str(fault), statements=repr(statements))
        self._fail(job, WriteRefused("The object cannot be stored; the router's log says why."))

    def _fail(self, job: WriteJob, error: Exception) -> None:
        """The job ends with ``error``; it is logged where nobody waits to hear of it."""
        if job.over:
            return
        job.over = True
        answer = job.answer
        if answer.done() or (isinstance(answer, _Submitted) and not answer.awaited):
            _log.error("state was not written", error=str(error))
        if not answer.done():
            answer.set_exception(error)
            if isinstance(answer, _Submitted):
                answer.exception()  # so that asyncio does not complain as well

    def _on_alarm(self) -> None:
        """The first deadline has passed: end what is overdue, set the alarm for the next."""
        now = self._loop.time()
        if self._locked:
            self._health.lost(self._locked)
        for job in self._running:
            if job.deadline <= now:
                self._fail(job, unavailable())
        while self._waiting and self._waiting[0].deadline <= now:
            self._fail(self._take(), unavailable())
        left = [job.deadline for job in (*self._running, *self._waiting) if not job.over]
        at = max(min(left), now + _ALARM_SECONDS) if left else None
        self._alarm = self._loop.call_at(at, self._on_alarm) if at is not None else None


class WrittenDatabase:
    """What both databases have of ``Database``: its writes go through a ``Writer``.

    ``start`` of the derived class makes the writer, and says that it is ``_started``.
    """

    _writer: Writer

    def __init__(self) -> None:
        self._health = Health()
        self._started = False

    @property
    def up(self) -> bool:
        """See ``Database.up``."""
        return self._started and self._health.up

    async def write(self, *steps: StatementStep) -> bool:
        """See ``Database.write``."""
        return await self._writer.write(steps)

    def submit(self, *steps: StatementStep) -> asyncio.Future[bool]:
        """See ``Database.submit``."""
        return self._writer.submit(steps)


class _Submitted(asyncio.Future[bool]):
    """Knows whether anybody waits for it."""

    awaited = False

    def add_done_callback(self, fn: Callable[[Any], object], /, **kwargs: Any) -> None:
        self.awaited = True
        super().add_done_callback(fn, **kwargs)


T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]

MAX_WAITING: Final = 10_000
_LATE_SECONDS: Final = 0.005
_ASIDE_SECONDS: Final = 0.002
_LONGEST_WORKER_PAUSE: Final = 0.25


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
        pause = (
            _LATE_SECONDS
            if self._done.wait(_ASIDE_SECONDS)
            else min(2 * pause, _LONGEST_WORKER_PAUSE)
        )
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
