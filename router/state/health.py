"""Whether the database answers, as writes, reads and probes find out, and how long that takes."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal, Protocol

from router.errors import StateUnavailable
from router.state.database import Database
from router.state.statement import Statement, StatementStep, Value
from router.telemetry.log import get_logger

__all__ = ["Fault", "Health", "MeasuredDatabase", "Operated", "Unreachable", "unavailable"]

_log = get_logger("router.state")


class Unreachable(Exception):
    """The database did not answer, or is not in a state to.

    ``down`` is False where only this transaction suffered (a deadlock): try again at once.
    ``locked``: another process is at work on the database, such as ``pointsman state vacuum``;
    that is no outage, unless it takes longer than a write may wait.
    """

    def __init__(self, reason: str, *, down: bool = True, locked: bool = False) -> None:
        super().__init__(reason)
        self.down = down
        self.locked = locked


class Fault(Exception):
    """A row or a statement is at fault; nothing was written.

    The text says what is wrong without any value of the row.
    """


def unavailable() -> StateUnavailable:
    """The error for the client."""
    return StateUnavailable(
        "The database of the stored state does not answer. Try again soon, or send store: false.",
        headers={"Retry-After": "1"},
    )


class Health:
    """Says once that the database is down, and once that it is back."""

    def __init__(self) -> None:
        self.up = True
        self.heard = time.monotonic()

    def answered(self) -> None:
        """It did what it was asked."""
        self.heard = time.monotonic()
        if not self.up:
            self.up = True
            _log.info("the database answers again")

    def lost(self, reason: str) -> None:
        """It did not; ``reason`` is for the operator."""
        if self.up:
            self.up = False
            _log.error("the database does not answer", error=reason)


class Operated(Protocol):
    """Is told of every read and write, and how many seconds it took."""

    def __call__(self, kind: Literal["read", "write"], seconds: float, *, ok: bool) -> None: ...


class MeasuredDatabase:
    """Implements ``router.state.database.Database`` with another one."""

    def __init__(self, database: Database, operated: Operated) -> None:
        self.dialect = database.dialect
        self._database = database
        self._operated = operated

    @property
    def up(self) -> bool:
        """See ``Database.up``."""
        return self._database.up

    async def start(self) -> None:
        """See ``Database.start``."""
        await self._database.start()

    async def close(self) -> None:
        """See ``Database.close``."""
        await self._database.close()

    async def read(self, statement: Statement, **parameters: Value) -> list[tuple[Any, ...]]:
        """See ``Database.read``."""
        began = time.monotonic()
        ok = False
        try:
            rows = await self._database.read(statement, **parameters)
            ok = True
            return rows
        finally:
            self._operated("read", time.monotonic() - began, ok=ok)

    async def write(self, *steps: StatementStep) -> bool:
        """See ``Database.write``."""
        began = time.monotonic()
        ok = False
        try:
            held = await self._database.write(*steps)
            ok = True
            return held
        finally:
            self._operated("write", time.monotonic() - began, ok=ok)

    def submit(self, *steps: StatementStep) -> asyncio.Future[bool]:
        """See ``Database.submit``."""
        began = time.monotonic()
        answer = self._database.submit(*steps)

        def told(done: asyncio.Future[bool]) -> None:
            ok = not done.cancelled() and done.exception() is None
            self._operated("write", time.monotonic() - began, ok=ok)

        # Not by its own method, which would take us for somebody who waits to hear of errors.
        asyncio.Future.add_done_callback(answer, told)
        return answer
