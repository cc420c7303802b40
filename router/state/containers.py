"""Containers: whose they are, until when they live, and which router has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.paging import Page, unknown_after
from router.state.database import Database
from router.state.items import is_id
from router.state.schema import ALIVE
from router.state.statement import Row, Statement, StatementStep

__all__ = ["ContainerStore", "StoredContainer"]

_AFTER_ALL: Final = 1e15
_KEPT_SECONDS: Final = 24 * 3600.0
"""Expired containers are listed for so long."""

_MOST_EXPIRED: Final = 100

# What has not been used for too long, or whose router is gone, has expired, whoever says so first.
_RUNS: Final = (
    "(c.status = 'running' AND c.last_active_at + c.minutes * 60.0 > {now} "
    f"AND (c.holder IS NULL OR {ALIVE.format(holder='c.holder', now='{now}')}))"
)
_COLUMNS: Final = (
    "c.id, c.owner, c.name, c.created_at, c.last_active_at, c.minutes, c.memory, c.holder, "
    f"c.handle, CASE WHEN {_RUNS} THEN 1 ELSE 0 END"
)
_ADD: Final = Statement(
    f"""
    INSERT INTO containers
        (id, owner, name, status, created_at, last_active_at, minutes, memory, holder, handle)
    SELECT :id, :owner, :name, 'running', {{now}}, {{now}}, CAST(:minutes AS INTEGER), :memory,
           CAST(:holder AS TEXT), :handle
    WHERE CAST(:most AS BIGINT) = 0
       OR (SELECT COUNT(*) FROM containers c WHERE c.owner = :owner AND {_RUNS})
          < CAST(:most AS BIGINT)
    ON CONFLICT (id) DO NOTHING
    """
)
# Refuses the job where nothing was added; holds when the job is run again.
_ADDED: Final = Statement("UPDATE containers SET owner = owner WHERE id = :id")
_COUNT: Final = Statement(f"SELECT COUNT(*) FROM containers c WHERE c.owner = :owner AND {_RUNS}")
_GET: Final = Statement(
    f"SELECT {_COLUMNS} FROM containers c WHERE c.id = :id AND c.owner = :owner"
)
_AGE: Final = Statement("SELECT created_at FROM containers WHERE id = :id AND owner = :owner")
_PAGE: Final = f"""
    SELECT {_COLUMNS} FROM containers c
    WHERE c.owner = :owner AND (c.created_at, c.id) {{than}} (:created_at, :id)
      AND (CAST(:name AS TEXT) IS NULL OR c.name = :name)
    ORDER BY c.created_at {{way}}, c.id {{way}} LIMIT :limit
"""
_PAGE_UP: Final = Statement(_PAGE.replace("{than}", ">").replace("{way}", "ASC"))
_PAGE_DOWN: Final = Statement(_PAGE.replace("{than}", "<").replace("{way}", "DESC"))
_USE: Final = Statement(
    "UPDATE containers SET last_active_at = {now} WHERE id = :id AND status = 'running'"
)
_EXPIRE: Final = Statement("UPDATE containers SET status = 'expired' WHERE id = :id")
_DELETE: Final = Statement("DELETE FROM containers WHERE id = :id AND owner = :owner")
_DUE: Final = Statement(
    f"""
    SELECT {_COLUMNS} FROM containers c
    WHERE c.status = 'running' AND NOT {_RUNS}
      AND (c.holder IS NULL OR c.holder = :holder
           OR NOT {ALIVE.format(holder="c.holder", now="{now}")})
    LIMIT {_MOST_EXPIRED}
    """
)
_FORGET: Final = Statement(
    f"""
    DELETE FROM containers
    WHERE status = 'expired' AND last_active_at < {{now}} - {_KEPT_SECONDS}
    """
)
_ADD_UPLOAD: Final = Statement(
    """
    INSERT INTO container_uploads (container, path) VALUES (:container, :path)
    ON CONFLICT (container, path) DO NOTHING
    """
)
_DROP_UPLOAD: Final = Statement(
    "DELETE FROM container_uploads WHERE container = :container AND path = :path"
)
_UPLOADS: Final = Statement("SELECT path FROM container_uploads WHERE container = :container")


@dataclass(frozen=True, slots=True)
class StoredContainer:
    """A row. Times are in unix seconds; ``minutes`` is how long it may be unused. ``holder`` is the
    router that has it, None where any router can reach it, by ``handle``. ``running`` is False for
    one that has expired.
    """

    id: str
    owner: str
    name: str
    created_at: float
    last_active_at: float
    minutes: int
    memory: str
    holder: str | None
    handle: str
    running: bool


class ContainerStore:
    """The rows of containers; everything is looked up by owner."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self,
        owner: str,
        ident: str,
        name: str,
        minutes: int,
        memory: str,
        holder: str | None,
        handle: str,
        most: int,
    ) -> bool:
        """Add one; False where this owner has ``most`` that run (0: no limit)."""
        row: Row = {
            "id": ident,
            "owner": owner,
            "name": name,
            "minutes": minutes,
            "memory": memory,
            "holder": holder,
            "handle": handle,
            "most": most,
        }
        return await self._database.write(
            StatementStep(_ADD, (row,)), StatementStep(_ADDED, ({"id": ident},), guard=True)
        )

    async def count(self, owner: str) -> int:
        """How many of this owner's run."""
        rows = await self._database.read(_COUNT, owner=owner)
        return int(rows[0][0])

    async def get(self, owner: str, ident: str) -> StoredContainer | None:
        """This owner's container; None where there is none."""
        if not is_id(ident):
            return None
        rows = await self._database.read(_GET, id=ident, owner=owner)
        return _container(rows[0]) if rows else None

    async def page(
        self, owner: str, page: Page, name: str | None = None
    ) -> tuple[list[StoredContainer], bool]:
        """A page of this owner's by age, of this name only; and whether there is more.

        Raises InvalidRequest for an ``after`` that is not in the list.
        """
        created_at, ident = (_AFTER_ALL if page.descending else 0.0), ""
        if page.after is not None:
            rows = is_id(page.after) and await self._database.read(_AGE, id=page.after, owner=owner)
            if not rows:
                raise unknown_after(page.after)
            created_at, ident = rows[0][0], page.after
        rows = await self._database.read(
            _PAGE_DOWN if page.descending else _PAGE_UP,
            owner=owner,
            created_at=created_at,
            id=ident,
            name=name,
            limit=page.limit + 1,
        )
        return [_container(row) for row in rows[: page.limit]], len(rows) > page.limit

    async def used(self, ident: str) -> None:
        """Its time begins anew."""
        await self._database.write(StatementStep(_USE, ({"id": ident},)))

    async def expire(self, ident: str) -> None:
        """It runs no more."""
        await self._database.write(StatementStep(_EXPIRE, ({"id": ident},)))

    async def delete(self, owner: str, ident: str) -> None:
        """Remove the row."""
        await self._database.write(StatementStep(_DELETE, ({"id": ident, "owner": owner},)))

    async def due(self, holder: str) -> Sequence[StoredContainer]:
        """Some that have run for too long, for this router to end, or whose router is gone."""
        return [_container(row) for row in await self._database.read(_DUE, holder=holder)]

    async def forget(self) -> None:
        """Remove the rows of those that have expired a day ago."""
        await self._database.write(StatementStep(_FORGET, ({},)))

    async def add_upload(self, ident: str, path: str) -> None:
        """A client has put a file there."""
        row: Row = {"container": ident, "path": path}
        await self._database.write(StatementStep(_ADD_UPLOAD, (row,)))

    async def drop_upload(self, ident: str, path: str) -> None:
        """The file is gone."""
        row: Row = {"container": ident, "path": path}
        await self._database.write(StatementStep(_DROP_UPLOAD, (row,)))

    async def uploads(self, ident: str) -> frozenset[str]:
        """The paths of the files that clients have put there."""
        rows = await self._database.read(_UPLOADS, container=ident)
        return frozenset(str(row[0]) for row in rows)


def _container(row: tuple[Any, ...]) -> StoredContainer:
    ident, owner, name, created_at, last_active_at, minutes, memory, holder, handle, runs = row
    return StoredContainer(
        ident, owner, name, created_at, last_active_at, minutes, memory, holder, handle, bool(runs)
    )
