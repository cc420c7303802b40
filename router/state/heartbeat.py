"""A router's sign of life in the database that it shares with others."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from router.errors import RouterError, StateUnavailable
from router.state.database import Database
from router.state.statement import Row, Statement, StatementStep
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["FORGET_DEAD", "Heartbeat"]

_log = get_logger("router.presence")

_RENEWAL: Final = 1 / 3
_RETRY: Final = 0.1
_COMEBACK: Final = 0.6
"""In leases: how often a sign of life is given, and again when the database took none; and how
long after the database is back everybody who lives has given one.
"""

_RENEW: Final = Statement(
    """
    INSERT INTO routers (id, until) VALUES (:id, {now} + CAST(:lease AS {real}))
    ON CONFLICT (id) DO UPDATE SET until = excluded.until
    """
)
_LEAVE: Final = Statement("DELETE FROM routers WHERE id = :id")
FORGET_DEAD: Final = Statement("DELETE FROM routers WHERE until < {now} - 3600.0")
"""Removes the rows of routers that have been dead for an hour."""


class Heartbeat:
    """Keeps this process's row in ``routers`` alive; one start, one random ``id``.

    ``lease``, in seconds, is how long the others believe in it without hearing from it. What a
    process thinks of itself may be wrong (it may have been stopped for a while): ``alive`` only
    keeps it from beginning what it could not keep, the fences of the runs protect them.
    """

    def __init__(self, db: Database, lease: float, ident: str | None = None) -> None:
        """``ident``: of something that several processes keep alive."""
        self.id = ident or "router_" + os.urandom(12).hex()
        self._db = db
        self._lease = lease
        self._since = 0.0
        self._until = 0.0
        self._tasks = Tasks()

    @property
    def alive(self) -> bool:
        """Whether the others still count this process among the living, as far as it knows."""
        return time.monotonic() < self._until

    @property
    def settled(self) -> bool:
        """Whether it has been alive without a break for longer than others take to come back.

        Before that they may look dead only because the database was away for everybody.
        """
        return self.alive and time.monotonic() >= self._since + self._lease * _COMEBACK

    async def start(self) -> None:
        """Appear, and stay. Where the database does not answer, that is when it does."""
        try:
            await self._renew()
            await self._db.write(StatementStep(FORGET_DEAD, ({},)))
        except StateUnavailable as error:
            _log.warning("no sign of life yet", router=self.id, error=error.message)
        self._tasks.spawn(self._keep(), "presence")

    async def stop(self, *, leave: bool = True) -> None:
        """Leave: what is still held in this process's name may be taken over at once. Without
        ``leave`` it is kept alive by others, or not.

        Works without a ``start`` before it. Raises StateUnavailable.
        """
        await self._tasks.close()
        self._until = 0.0
        if leave:
            await self._db.write(StatementStep(_LEAVE, (self._row(),)))

    async def _keep(self) -> None:
        pause = _RENEWAL
        while True:
            await asyncio.sleep(self._lease * pause)
            try:
                await self._renew()
                pause = _RENEWAL
            except RouterError as error:
                pause = _RETRY
                _log.warning("sign of life failed", router=self.id, error=error.message)

    async def _renew(self) -> None:
        # Counted from before the write: it may have been waiting for its answer ever since.
        began = time.monotonic()
        await self._db.write(StatementStep(_RENEW, (self._row(),)))
        if began >= self._until:
            self._since = began
        self._until = began + self._lease

    def _row(self) -> Row:
        return {"id": self.id, "lease": self._lease}
