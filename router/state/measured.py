"""A database whose operations are counted and timed."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal, Protocol

from router.state.database import Database
from router.state.statement import Statement, StatementStep, Value

__all__ = ["MeasuredDatabase", "Operated"]


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
