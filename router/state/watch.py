"""Asks the database, in the background, whether it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from router.state.database import Fault, Unreachable
from router.state.writer import WrittenDatabase
from router.telemetry.tasks import Tasks

__all__ = ["PROBE_DOWN", "PROBE_UP", "DatabaseWatch"]

PROBE_UP: Final = "SELECT version FROM pointsman_schema"
PROBE_DOWN: Final = "UPDATE pointsman_schema SET version = version"
"""A full disk, a lock and a server that only reads show when something is written."""

_IDLE_SECONDS: Final = 2.0
_DOWN_SECONDS: Final = 1.0
_CALM_SECONDS: Final = 0.05


class DatabaseWatch:
    """Probes once a second while the database is down, and when it was not heard of for two.

    ``probe(down)`` raises Unreachable, or Fault.
    """

    def __init__(self, probe: Callable[[bool], Awaitable[None]], database: WrittenDatabase) -> None:
        self._probe = probe
        self._database = database
        self._look = asyncio.Event()
        self._tasks = Tasks()
        self._tasks.spawn(self._run(), "state watch")

    def look(self) -> None:
        """Probe now: something happened to a connection."""
        self._look.set()

    async def close(self) -> None:
        """End it."""
        await self._tasks.close()

    async def _run(self) -> None:
        database = self._database
        while True:
            if not await self._time_to_look():
                continue
            try:
                await self._probe(database.down)
            except (Unreachable, Fault) as exc:
                database.lost(str(exc))
            else:
                database.answered()

    async def _time_to_look(self) -> bool:
        if self._database.down:
            await asyncio.sleep(_DOWN_SECONDS)
            return True
        self._look.clear()
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._look.wait()
        except TimeoutError:
            return time.monotonic() - self._database.heard >= _IDLE_SECONDS or self._database.down
        # Probes lose connections, too: never one after the other without a pause.
        await asyncio.sleep(_CALM_SECONDS)
        return True
