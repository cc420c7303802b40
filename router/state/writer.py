"""What both databases have in common: jobs are gathered and seen through to their end, what the
database does is measured, and whether it answers is known.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from itertools import filterfalse, groupby
from operator import attrgetter
from typing import Any, Final

from prometheus_client import CollectorRegistry

from router.state.database import Fault, Unreachable, WriteRefused, unavailable
from router.state.statement import Row, Statement, StatementStep, Value
from router.telemetry.account_metrics import StateMetrics
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["WriteJob", "WrittenDatabase", "gathered"]

_log = get_logger("router.state")

MAX_WAITING_JOBS: Final = 10_000
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
_MAX_BATCH_JOBS: Final = 256
_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_ALARM_SECONDS: Final = 0.05

_over: Final = attrgetter("over")
_statement: Final = attrgetter("statement")

Shape = tuple[bool, tuple[Statement, ...]]


@dataclass(slots=True, eq=False)
class WriteJob:
    """What one caller wants written together.

    ``heard``: somebody waits for ``answer``. ``size`` is in bytes; ``began`` is of
    ``time.monotonic``, since the loop's clock, of which ``deadline`` is, may have milliseconds
    only.
    """

    steps: tuple[StatementStep, ...]
    answer: asyncio.Future[bool]
    heard: bool
    size: int
    began: float
    deadline: float
    over: bool = False

    @property
    def guarded(self) -> bool:
        """Whether it may be refused."""
        return any(step.guard for step in self.steps)

    def shape(self) -> Shape | None:
        """What it has in common with jobs that can be run beside it, statement by statement; None
        where it can only be run by itself.

        A guard may be its first step only, and of one row, which is the common case: then nothing
        has to be undone when that does not hold.
        """
        steps = self.steps
        held_first = bool(steps) and steps[0].guard and len(steps[0].rows) == 1
        for step in steps[held_first:]:
            if step.guard or not step.statement.plain:
                return None
        return (held_first, tuple(map(_statement, steps))) if steps else None


def gathered(jobs: Sequence[WriteJob]) -> Iterator[tuple[list[WriteJob], bool]]:
    """The jobs in their order, neighbours of the same shape together, and whether they have one."""
    for shape, alike in groupby(jobs, WriteJob.shape):
        if shape is not None:
            yield [*alike], True
        else:
            for job in alike:
                yield [job], False


class WrittenDatabase:
    """What both databases have of ``Database``: jobs are queued and handed to ``_commit``, at once
    when idle, gathered while it runs; and everything that is done is counted in ``metrics``.

    Jobs take effect in the order in which they came. What cannot be queued is refused at once
    rather than kept waiting: whoever waits outside the queue holds the same memory, unbounded.
    ``timeout``: seconds from submission to StateUnavailable. ``heard`` is when it last did what it
    was asked, of ``time.monotonic``; ``down`` says that it did not answer since.

    ``start`` of the derived class calls ``_begin``, and ``close`` calls ``_end``.
    """

    def __init__(self, timeout: float, metrics: StateMetrics | None = None) -> None:
        self.up = False
        self.heard = time.monotonic()
        self._metrics = metrics or StateMetrics(CollectorRegistry())
        self._timeout = timeout
        self._longest_pause = min(_LONGEST_PAUSE, timeout / 5)
        self._waiting: deque[WriteJob] = deque()
        self._bytes = 0
        self._running: list[WriteJob] = []
        self._wake = asyncio.Event()
        self._started = False
        self.down = False
        self._locked = ""
        self._alarm: asyncio.TimerHandle | None = None
        self._tasks = Tasks()

    def answered(self) -> None:
        """It did what it was asked; says once that it is back."""
        self.heard = time.monotonic()
        if self.down:
            self.down = False
            self.up = self._started
            _log.info("the database answers again")

    def lost(self, reason: str) -> None:
        """It did not; says so once. ``reason`` is for the operator."""
        if not self.down:
            self.down = True
            self.up = False
            _log.error("the database does not answer", error=reason)

    async def read(self, statement: Statement, **parameters: Value) -> list[tuple[Any, ...]]:
        """See ``Database.read``."""
        began, reads = time.monotonic(), self._metrics.reads
        count = reads.failed
        try:
            rows = await self._rows(statement, parameters)
            count = reads.ok
            return rows
        finally:
            count.inc()
            reads.seconds.observe(time.monotonic() - began)

    async def write(self, *steps: StatementStep) -> bool:
        """See ``Database.write``."""
        return await self.submit(*steps)

    def submit(self, *steps: StatementStep, heard: bool = True) -> asyncio.Future[bool]:
        """See ``Database.submit``."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        size = sum([step.bytes for step in steps])
        deadline = loop.time() + self._timeout
        job = WriteJob(steps, answer, heard, size, time.monotonic(), deadline)
        too_much = self._waiting and self._bytes + job.size > MAX_WAITING_BYTES
        if too_much or len(self._waiting) >= MAX_WAITING_JOBS or not self._started:
            # Not at once: whoever submits it has to have a chance to wait for it.
            loop.call_soon(self._fail, job, unavailable())
            return answer
        self._waiting.append(job)
        self._bytes += job.size
        self._wake.set()
        if self._alarm is None:
            self._alarm = loop.call_at(job.deadline, self._on_alarm)
        return answer

    def hear_again(self, answer: asyncio.Future[bool]) -> asyncio.Future[bool]:
        """See ``Database.hear_again``."""
        if answer.cancelled():
            for job in (*self._running, *self._waiting):
                if job.answer is answer:
                    job.answer = asyncio.get_running_loop().create_future()
                    return job.answer
        return answer

    async def _rows(self, statement: Statement, parameters: Row) -> list[tuple[Any, ...]]:
        """What ``statement`` selects; see ``Database.read``."""
        raise NotImplementedError

    def _commit(self, jobs: Sequence[WriteJob]) -> Awaitable[list[bool]]:
        """Write jobs in one transaction; the answers are in their order (False: guard refused).

        Raises Fault when a row is at fault, Unreachable when the database is; either way jobs are
        handed in again.
        """
        raise NotImplementedError

    def _begin(self) -> None:
        """Take jobs from now on."""
        self._started = True
        self.up = not self.down
        self._tasks.spawn(self._write_jobs(), "state writer")

    async def _end(self) -> None:
        """Write what waits, within the deadlines of the jobs; nothing more is taken."""
        self._started = self.up = False
        self._wake.set()
        await self._tasks.wait(self._timeout)
        await self._tasks.close()
        for job in (*self._running, *self._waiting):
            self._fail(job, unavailable())
        self._waiting.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    async def _write_jobs(self) -> None:
        while self._waiting or self._started:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            batch, size = self._running, 0
            while self._waiting and len(batch) < _MAX_BATCH_JOBS:
                size += self._waiting[0].size
                if batch and size > _MAX_BATCH_BYTES:
                    break
                job = self._waiting.popleft()
                self._bytes -= job.size
                batch.append(job)
            await self._settle(batch)
            self._running = []

    async def _settle(self, jobs: list[WriteJob]) -> None:
        """Commit ``jobs``, in halves where one is at fault, until each has its answer."""
        groups = [jobs]
        pause = _FIRST_PAUSE
        while groups:
            group = list(filterfalse(_over, groups.pop()))
            if not group:
                continue
            try:
                answers = await self._commit(group)
            except Unreachable as exc:
                if exc.down:
                    self.lost(str(exc))
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
                self.heard = now = time.monotonic()
                if not self.up:
                    self.answered()
                writes = self._metrics.writes
                writes.ok.inc(len(group))
                for job, held in zip(group, answers, strict=True):
                    job.over = True
                    writes.seconds.observe(now - job.began)
                    if not job.answer.done():
                        job.answer.set_result(held)

    def _refuse(self, job: WriteJob, fault: Fault) -> None:
        statements = [step.statement for step in job.steps]
        _log.error("the database refuses a row", error=str(fault), statements=repr(statements))
        self._fail(job, WriteRefused("The object cannot be stored; the router's log says why."))

    def _fail(self, job: WriteJob, error: Exception) -> None:
        """The job ends with ``error``; it is logged where nobody waits to hear of it."""
        if job.over:
            return
        job.over = True
        self._metrics.writes.failed.inc()
        self._metrics.writes.seconds.observe(time.monotonic() - job.began)
        if job.answer.done() or not job.heard:
            _log.error("state was not written", error=str(error))
        if not job.answer.done():
            job.answer.set_exception(error)
            if not job.heard:
                job.answer.exception()  # so that asyncio does not complain as well

    def _on_alarm(self) -> None:
        """The first deadline has passed: end what is overdue, set the alarm for the next."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._locked:
            self.lost(self._locked)
        for job in self._running:
            if job.deadline <= now:
                self._fail(job, unavailable())
        while self._waiting and self._waiting[0].deadline <= now:
            job = self._waiting.popleft()
            self._bytes -= job.size
            self._fail(job, unavailable())
        left = [job.deadline for job in (*self._running, *self._waiting) if not job.over]
        at = max(min(left), now + _ALARM_SECONDS) if left else None
        self._alarm = loop.call_at(at, self._on_alarm) if at is not None else None
