"""The sink of a live run: its events are logged first, and seen by others afterwards."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from router.core.exchange import ClientGone
from router.errors import Conflict, RouterError, StateUnavailable
from router.response.frame import TERMINAL, Frame
from router.state.database import Database
from router.state.runs import LogRow, RunStore
from router.state.statement import StatementStep
from router.telemetry.tasks import Tasks

__all__ = ["RunLog", "RunLost"]

_MAX_WAITING: Final = 256 * 1024
"""So many bytes may wait to be logged before the endpoint is made to wait."""

_MAX_RECENT: Final = 256 * 1024
"""So many bytes are kept for the tails in this process; who is further behind reads the log."""

_AGAIN_SECONDS: Final = 0.25


class RunLost(ClientGone):
    """The run is somebody else's by now, or over: nothing more is to be done for it."""


class RunLog:
    """Implements ``router.core.exchange.Sink`` for the run ``id``, held with ``fence``.

    What is fed is written in one row per batch, a batch being whatever came while the row before
    it was written. ``last_event`` is the number of the last event that is logged already; every
    frame has the next one. The terminal event is logged by ``complete`` and by nothing else.

    When a write is refused, when the database has been away for ``patience`` seconds, or when
    ``lose`` says so, the log is lost: ``gone(why)`` is called, and everything raises RunLost.
    """

    def __init__(
        self,
        db: Database,
        store: RunStore,
        id: str,
        fence: int,
        last_event: int,
        *,
        gone: Callable[[str], None],
        patience: float = 30.0,
    ) -> None:
        self.id = id
        self.fence = fence
        self.logged = last_event
        """The number of the last event that is logged."""
        self.over = False
        """Whether the end of the run is logged."""
        self.closed = False
        """Whether nothing more comes from here: the rest, if any, is in the database."""
        self.completing = False
        """Whether the end of the run is being written."""
        self._db = db
        self._store = store
        self._gone = gone
        self._patience = patience
        self._failure: RunLost | None = None
        self._next = last_event + 1
        self._waiting: list[bytes] = []
        self._size = 0
        self._work = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._tasks = Tasks()
        self._recent: deque[LogRow] = deque()
        self._recent_size = 0
        self._watchers = 0
        self._changed = asyncio.Event()

    # The sink

    @property
    def opened(self) -> bool:
        """See ``Sink.opened``: whoever watches a run has had his head of the answer already."""
        return True

    @property
    def paused(self) -> bool:
        """See ``Sink.paused``."""
        return self._size > _MAX_WAITING

    async def resumed(self) -> None:
        """See ``Sink.resumed``; raises RunLost."""
        await self.flush()

    def open(self, headers: Mapping[str, str]) -> None:
        """See ``Sink.open``: there is nobody for whom these headers are."""

    def feed(self, batch: Sequence[Frame]) -> None:
        """See ``Sink.feed``; raises RunLost. The terminal event is welcome once it is logged."""
        if self.over and all(frame.type in TERMINAL for frame in batch):
            return
        self._check()
        if not batch:
            return
        if self.over or batch[-1].type in TERMINAL:
            raise RuntimeError(f"{batch[-1].type} is not logged by feed(), or after the end")
        data = b"".join([frame.encode() for frame in batch])
        self._next += len(batch)
        self._waiting.append(data)
        self._size += len(data)
        self._flushed.clear()
        self._work.set()
        if not self._tasks:
            self._tasks.spawn(self._write_out(), f"log of {self.id}")

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """See ``Sink.finish``: a run has events."""
        raise RuntimeError("a run cannot be answered with a whole body")

    def end(self) -> None:
        """See ``Sink.end``: it is ``complete`` that ends a run."""

    # What its runner does with it

    async def flush(self) -> None:
        """Wait until everything that was fed is logged; raises RunLost."""
        await self._flushed.wait()
        self._check()

    async def complete(self, steps: Sequence[StatementStep], last: Frame | None) -> None:
        """Log ``last``, the terminal event, and run ``steps`` with it in one transaction.

        Everything before it has to be fed already. The pipeline may feed ``last`` afterwards.
        Raises RunLost. Raises Conflict where a guard among ``steps`` does not hold, WriteRefused
        or StateUnavailable: nothing was written, and the caller may try something else.
        """
        await self.flush()
        if self.over:
            raise RuntimeError("the run is over")
        encoded = None if last is None else last.encode()
        end = self._store.finished(self.id, self.fence, self.logged, encoded)
        self.completing = True
        try:
            held = await self._written([*end, *steps])
        finally:
            self.completing = False
        if not held:
            run = await self._store.run(self.id)
            if run is not None and (run.state, run.fence) == ("running", self.fence):
                raise Conflict("The answer could not be stored beside what was stored meanwhile.")
            # Its own task hears of it here, and is not cancelled on top of that.
            self._fail(RunLost("the run was taken over before its end"))
            self._check()
        self.over = self.closed = True
        if encoded is not None:
            number = self.logged + 1
            self._publish(LogRow(number, number, encoded))
        self._wake()

    @property
    def lost(self) -> bool:
        """Whether nothing more can be logged, although the run has not been brought to its end."""
        return self._failure is not None

    def lose(self, why: str) -> None:
        """The run is not to be worked on any more: nothing that waits is written."""
        if self._failure is None and not self.over:
            self._fail(RunLost(why))
            self._gone(why)

    def shut(self) -> None:
        """Send the tails to the database: nothing more comes from here."""
        self.closed = True
        self._wake()

    async def close(self) -> None:
        """Stop; what is not logged by now is forgotten."""
        await self._tasks.close()
        self.shut()

    # What tails see of it

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While somebody watches, recent rows are kept."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._recent.clear()
                self._recent_size = 0

    @property
    def changed(self) -> asyncio.Event:
        """Set when something is logged after this was asked for, or nothing more will be."""
        return self._changed

    def after(self, number: int) -> list[LogRow] | None:
        """The rows with events after this number; None when they are no longer kept here.

        The first row may begin before.
        """
        rows: list[LogRow] = []
        if number >= self.logged:
            return rows
        for row in reversed(self._recent):
            rows.append(row)
            if row.first <= number + 1:
                rows.reverse()
                return rows
        return None

    # How it is written

    async def _write_out(self) -> None:
        """Write whatever waits, for as long as the log is open."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                row = LogRow(self.logged + 1, self._next - 1, b"".join(self._waiting))
                self._waiting.clear()
                try:
                    held = await self._written(self._store.logged(self.id, self.fence, (row,)))
                except RouterError as error:
                    self.lose(f"its events could not be logged: {error.message}")
                    return
                if not held:
                    self.lose("the run was taken over")
                if self._failure is not None:
                    return
                self._size -= len(row.data)
                self._publish(row)
            self._flushed.set()

    async def _written(self, steps: Sequence[StatementStep]) -> bool:
        """Whether the guards held; tries again while the database is away.

        The steps stay the same: an attempt that seemed to fail may have been written.
        """
        give_up = 0.0
        while True:
            try:
                return await self._db.write(*steps)
            except StateUnavailable:
                now = time.monotonic()
                give_up = give_up or now + self._patience
                if now >= give_up or self._failure is not None:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)

    def _publish(self, row: LogRow) -> None:
        self.logged = row.last
        if not self._watchers:
            return
        self._recent.append(row)
        self._recent_size += len(row.data)
        while self._recent_size > _MAX_RECENT:
            self._recent_size -= len(self._recent.popleft().data)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _fail(self, failure: RunLost) -> None:
        self._failure = failure
        self._waiting.clear()
        self._flushed.set()
        self._work.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
