"""The usage ledger: rows are recorded into the journal, and from there go into the database."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from router.errors import RouterError
from router.state.database import Database, WriteRefused
from router.state.retention import DAY
from router.state.rollup import Unit, roll_up
from router.state.usage import UsageRows
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.usage.journal import Journal, JournalBatch

__all__ = ["Figures", "UsageLedger"]

_log = get_logger("router.books")

_INTERVAL_SECONDS: Final = 1.0
_ADOPT_SECONDS: Final = 15.0
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
_START_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 5.0
_SHOWN: Final = 10
_BREATH: Final = 0.005
"""Between two batches of a backlog: the requests write to the database, too."""

_SWEEP_SECONDS: Final = 60.0
_SWEPT: Final = 500
_SWEEP_PAUSE: Final = 0.05
"""Between two batches of what retention deletes: the database is for the requests."""


@dataclass(frozen=True, slots=True)
class Figures:
    """For metrics. ``written`` rows are in the database, ``waiting`` ones of this process will be,
    ``lost`` ones never, by reason (see ``router.usage.journal.Journal``); ``journal_bytes`` is what
    the journal's files hold.
    """

    written: int
    waiting: int
    lost: Mapping[str, int]
    journal_bytes: int


class UsageLedger:
    """Books rows: ``record`` is ``Journal.append``.

    Rows older than ``retention_days`` are deleted; None keeps them. Those older than
    ``hourly_after_days`` and ``daily_after_days`` are rolled up by hour, then by day.
    """

    def __init__(
        self,
        database: Database,
        journal: Journal,
        *,
        retention_days: float | None = None,
        hourly_after_days: float | None = None,
        daily_after_days: float | None = None,
        interval: float = _INTERVAL_SECONDS,
    ) -> None:
        self._rows = UsageRows(database)
        self._journal = journal
        self._database = database
        self._days = retention_days
        self._rolled_up: dict[Unit, float | None] = {1: hourly_after_days, 2: daily_after_days}
        self._interval = interval
        self._tasks = Tasks()
        self._sweeping = Tasks()
        self._wake = asyncio.Event()
        self.record = journal.append
        journal.on_many = self._wake.set  # they do not wait until the interval is over
        self._moved_once = asyncio.Event()
        self._stopping = asyncio.Event()
        self._adopt_at = 0.0
        self._written = 0
        self._flushed: list[asyncio.Future[None]] = []

    def figures(self) -> Figures:
        """How it stands."""
        journal = self._journal
        return Figures(self._written, journal.waiting, dict(journal.lost), journal.size)

    async def flush(self) -> None:
        """Wait until what was recorded so far is in the database, however long that takes."""
        flushed = asyncio.get_running_loop().create_future()
        self._flushed.append(flushed)
        self._wake.set()
        await flushed

    def adopt_soon(self) -> None:
        """A process has ended: look at once for what it left."""
        self._adopt_at = 0.0
        self._wake.set()

    async def start(self) -> None:
        """Begin to write. What dead processes left is in the database when this returns, unless
        the database is away, or it takes more than a few seconds: then it will be.
        """
        self._tasks.spawn(self._run(), "usage ledger")
        if self._days is not None or any(self._rolled_up.values()):
            self._sweeping.spawn(self._sweep(), "usage retention")
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._moved_once.wait()
        except TimeoutError:
            _log.warning("the journal of usage is still being written to the database")

    async def stop(self) -> None:
        """Write what is left, if the database takes it soon; the rest stays in the files."""
        await self._sweeping.close()
        self._stopping.set()
        self._wake.set()
        if not await self._tasks.wait(_STOP_SECONDS):
            await self._tasks.close()
        self._journal.close()

    async def _run(self) -> None:
        pause = 0.0
        while True:
            last = self._stopping.is_set()
            self._journal.fresh = 0
            if not last:
                self._wake.clear()
            waiting, self._flushed = self._flushed, []
            try:
                await self._move()
                pause = 0.0
                for flushed in waiting:
                    if not flushed.done():
                        flushed.set_result(None)
                waiting = []
            except RouterError as error:
                if not pause:
                    _log.warning("usage waits for the database", error=error.message)
                pause = _longer(pause)
            except Exception:
                _log.exception("usage was not written")
                pause = _longer(pause)
            self._flushed += [flushed for flushed in waiting if not flushed.done()]
            self._moved_once.set()
            if last:
                return
            await _set(self._stopping, pause) if pause else await _set(self._wake, self._interval)

    async def _move(self) -> None:
        """Everything that is there, into the database; raises RouterError where it is away.

        What comes meanwhile is for the next time: on a busy router that is many rows at once, which
        cost a fraction of what a few at a time would.
        """
        left = self._journal.waiting
        while True:
            await self._adopt()
            taken = await self._journal.take()
            if taken is None:
                return
            if taken.batch.records:
                await self._write(taken)
            self._journal.done(taken)
            left -= taken.batch.lines
            if self._stopping.is_set():
                continue
            if left <= 0 and time.monotonic() < self._adopt_at:
                return
            await asyncio.sleep(_BREATH)

    async def _adopt(self) -> None:
        now = time.monotonic()
        if now >= self._adopt_at and not await self._journal.adopt():
            self._adopt_at = now + _ADOPT_SECONDS

    async def _write(self, taken: JournalBatch) -> None:
        """Write its rows, but for those that the database takes from nobody."""
        records = taken.batch.records
        try:
            await self._rows.add(records, taken.size)
        except WriteRefused:
            await self._write_one_by_one(taken)
        else:
            self._written += len(records)

    async def _write_one_by_one(self, taken: JournalBatch) -> None:
        """The database's writer shares commits, and finds out which rows are at fault."""
        records = taken.batch.records
        ends = await asyncio.gather(
            *[self._rows.add([one]) for one in records], return_exceptions=True
        )
        for end in ends:
            if end is not None and not isinstance(end, WriteRefused):
                raise end
        refused = [one[0] for one, end in zip(records, ends, strict=True) if end is not None]
        _log.error(
            "usage is lost: the database refuses it", ids=refused[:_SHOWN], records=len(refused)
        )
        self._journal.refused(taken, len(refused))
        self._written += len(records) - len(refused)

    async def _sweep(self) -> None:
        while True:
            # Jittered: several routers on one database need not do it at the same moment.
            await asyncio.sleep(_SWEEP_SECONDS * random.uniform(0.5, 1.5))
            try:
                now, purged = time.time(), 0
                if self._days is not None:
                    purged = await self.purge(now - self._days * DAY)
                for unit, days in self._rolled_up.items():
                    if days is not None:
                        await self.roll_up(unit, now - days * DAY)
            except RouterError as error:
                _log.warning("retention waits for the database", error=error.message)
                continue
            if purged:
                _log.info("usage purged by retention", records=purged)

    async def roll_up(self, unit: Unit, before: float) -> int:
        """Roll up all rows of hours or days that were over ``before`` (Unix time), in batches; how
        many. Raises StateUnavailable.
        """
        total = 0
        while count := await roll_up(self._database, unit, before, _SWEPT):
            total += count
            await asyncio.sleep(_SWEEP_PAUSE)
        if total:
            _log.info("usage rolled up", by="hour" if unit == 1 else "day", records=total)
        return total

    async def purge(self, before: float) -> int:
        """Delete all rows from before ``before`` (Unix time); how many. Raises StateUnavailable."""
        total = 0
        while count := await self._rows.purge(before, _SWEPT):
            total += count
            await asyncio.sleep(_SWEEP_PAUSE)
        return total


def _longer(pause: float) -> float:
    return min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * pause))


async def _set(event: asyncio.Event, timeout: float) -> None:
    """Wait for the event, for ``timeout`` seconds at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await event.wait()
