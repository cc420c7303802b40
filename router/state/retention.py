"""Deleting what has been kept long enough."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from router.errors import RouterError
from router.state.conversations import ConversationStore
from router.state.responses import ResponseStore
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["DAY", "Retention"]

_log = get_logger("router.state")

DAY: Final = 86_400
_INTERVAL_SECONDS: Final = 60.0
_BATCH: Final = 200
_PAUSE_SECONDS: Final = 0.05
"""Between two batches, so that purging a backlog leaves the database to the requests."""


class Retention:
    """Purges responses and deleted conversations ``days`` old; None keeps everything."""

    def __init__(
        self, responses: ResponseStore, conversations: ConversationStore, days: float | None
    ) -> None:
        self._responses = responses
        self._conversations = conversations
        self._days = days
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin to sweep, now and then."""
        if self._days is not None:
            self._tasks.spawn(self._sweep(self._days), "retention")

    async def stop(self) -> None:
        """Stop between two batches."""
        await self._tasks.close()

    async def _sweep(self, days: float) -> None:
        while True:
            # Jittered: several routers on one database need not do it at the same moment.
            await asyncio.sleep(_INTERVAL_SECONDS * random.uniform(0.5, 1.5))
            try:
                purged = await self.purge(int(time.time() - days * DAY))
            except RouterError as error:
                _log.warning("retention waits for the database", error=error.message)
                continue
            if purged:
                _log.info("purged by retention", objects=purged)

    async def purge(self, before: int) -> int:
        """Delete everything older than ``before`` (unix seconds); how much that was."""
        total = 0
        for purge in (self._responses.purge, self._conversations.purge):
            while count := await purge(before, _BATCH):
                total += count
                await asyncio.sleep(_PAUSE_SECONDS)
        return total
