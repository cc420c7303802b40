"""Giving room back: what retention is done with goes now, and the files shrink."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from router.errors import RouterError
from router.settings.schema import StateSettings
from router.state.connect import open_database
from router.state.conversations import ConversationStore
from router.state.database import Database
from router.state.heartbeat import FORGET_DEAD
from router.state.maintenance.access import Access, given_up, is_current, open_access
from router.state.responses import ResponseStore
from router.state.retention import DAY, Retention
from router.state.statement import Statement, StatementStep
from router.state.usage import UsageRows

__all__ = ["REWRITTEN_AT_ONCE", "Freed", "vacuum"]

REWRITTEN_AT_ONCE: Final = 64 * 1024 * 1024
"""So many bytes are rewritten while a router lives: its writes wait for about a second."""

_USAGE_BATCH: Final = 1000

_ROUTERS: Final = Statement("SELECT COUNT(*) FROM routers")
_ALIVE: Final = Statement("SELECT COUNT(*) FROM routers WHERE until > {now}")


@dataclass(slots=True)
class Freed:
    """What went: objects and rows of usage that were old enough, routers that are gone; sizes are
    in bytes.

    ``left`` is what could have been given back too, had no router been running.
    """

    objects: int
    routers: int
    before: int
    after: int
    left: int = 0
    usage: int = 0


async def vacuum(
    settings: StateSettings, *, rewrite: bool, usage_days: float | None = None
) -> Freed | None:
    """Purge, and compact; None where there is nothing yet. ``usage_days`` is how long rows of usage
    are kept, None for ever.

    A large SQLite file is not rewritten beside a running router unless ``rewrite`` says so.
    Raises StateError.
    """
    if not await is_current(settings):
        return None
    access = open_access(settings, writing=True)
    assert access is not None
    try:
        # Also finds out whether another process lets nobody write, before anything is done.
        await access.fold()
        before = await access.size()
        objects, routers, usage = await _purge(settings, usage_days)
        left = 0 if rewrite else await _too_much(access)
        await (access.fold() if left else access.compact())
        return Freed(objects, routers, before, await access.size(), left, usage)
    finally:
        await access.close()


async def _purge(settings: StateSettings, usage_days: float | None) -> tuple[int, int, int]:
    database = open_database(settings)
    await database.start()
    try:
        objects = 0
        days = settings.retention_days
        if days is not None:
            retention = Retention(ResponseStore(database), ConversationStore(database), days)
            objects = await retention.purge(int(time.time() - days * DAY))
        usage = await _purge_usage(database, usage_days) if usage_days is not None else 0
        return objects, await _forget_routers(database), usage
    except RouterError as exc:
        raise given_up(exc) from None
    finally:
        await database.close()


async def _purge_usage(database: Database, days: float) -> int:
    before, rows, total = time.time() - days * DAY, UsageRows(database), 0
    while count := await rows.purge(before, _USAGE_BATCH):
        total += count
    return total


async def _forget_routers(database: Database) -> int:
    ((before,),) = await database.read(_ROUTERS)
    await database.write(StatementStep(FORGET_DEAD, ({},)))
    ((after,),) = await database.read(_ROUTERS)
    return max(0, int(before) - int(after))


async def _too_much(access: Access) -> int:
    """The bytes to leave where they are for now, since a router would wait too long for them."""
    free = await access.reusable()
    ((routers,),) = await access.rows(_ALIVE)
    if not free or not routers:
        return 0
    return free if await access.size() - free > REWRITTEN_AT_ONCE else 0
