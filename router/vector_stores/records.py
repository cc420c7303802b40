"""The tables of vector stores, their files and batches, in the state's database.

A file is ``in_progress`` until it is in the index, and ``removing`` until it is gone from there;
in both somebody has to work on it. Whoever does holds it, as long as its router lives, and every
end of such work is guarded by the file's fence: what a client has changed meanwhile stands.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.core.response_lifecycle import new_id
from router.dialects.paging import unknown_after
from router.errors import InvalidRequest
from router.state.database import Database
from router.state.items import is_id
from router.state.statement import Row, StatementStep
from router.vector_stores import record_sql as sql
from router.vector_stores.chunking import ChunkingStrategy
from router.vector_stores.objects import FileBatch, FileCounts, VectorStore, VectorStoreFile
from router.vector_stores.requests import AddedFile, FilePage, NewVectorStore

__all__ = ["FileEnd", "StoreRecords"]

_ACTIVE_SECONDS: Final = 60
"""How exact ``last_active_at`` is."""
_STORE_PREFIX: Final = "vs_"
_LAST: Final = "g"
"""Sorts after the rest of every id, and after every place, which are hexadecimal, whatever the
collation of the database.
"""


@dataclass(frozen=True, slots=True)
class FileEnd:
    """How the ingestion of a file has ended: with an ``error`` (code and message), or indexed."""

    usage_bytes: int = 0
    embedder: str | None = None
    error: tuple[str, str] | None = None


class StoreRecords:
    """Stores, files and batches of one database. What a client names is looked up by owner."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Stores

    async def create(self, owner: str, new: NewVectorStore, most: int) -> VectorStore:
        """A new store without files. Raises InvalidRequest where the owner has ``most``."""
        now = int(time.time())
        row: Row = {
            "id": new_id(_STORE_PREFIX),
            "owner": owner,
            "name": new.name,
            "description": new.description,
            "created_at": now,
            "last_active_at": now,
            "expires_days": new.expires_days,
            "metadata": orjson.dumps(new.metadata),
            "most": most,
        }
        if not await self._database.write(StatementStep(sql.ADD_STORE, (row,), guard=True)):
            raise InvalidRequest(
                f"There are {most} vector stores already, which is the limit. Delete those that "
                "are no longer needed.",
                code="vector_store_limit_exceeded",
            )
        found = await self.find(owner, str(row["id"]))
        assert found is not None
        return found

    async def find(self, owner: str, ident: str) -> VectorStore | None:
        """This owner's store; None where there is none."""
        if not is_id(ident):
            return None
        rows = await self._database.read(sql.STORE, id=ident, owner=owner)
        return _store(rows[0]) if rows else None

    async def page(self, owner: str, asked: FilePage) -> tuple[list[VectorStore], bool]:
        """A page of this owner's stores by age, and whether there is more."""
        cursor = asked.page.after or asked.before
        if cursor is not None:
            known = is_id(cursor) and await self._database.read(
                sql.STORE_EXISTS, id=cursor, owner=owner
            )
            if not known:
                raise _unknown(cursor, asked)
        up, place = _direction(asked, cursor, _STORE_PREFIX)
        rows = await self._database.read(
            sql.STORES_UP if up else sql.STORES_DOWN,
            owner=owner,
            place=place,
            limit=asked.page.limit + 1,
        )
        return [_store(row) for row in _in_order(rows, asked)], len(rows) > asked.page.limit

    async def update(self, store: VectorStore, changes: Mapping[str, Any]) -> bool:
        """Change ``name``, ``expires_days`` or ``metadata``; False where it is gone."""
        row: Row = {
            "id": store.id,
            "owner": store.owner,
            "name": changes.get("name", store.name),
            "expires_days": changes.get("expires_days", store.expires_days),
            "metadata": orjson.dumps(changes.get("metadata", store.metadata)),
            "now": int(time.time()),
        }
        return await self._database.write(StatementStep(sql.UPDATE_STORE, (row,), guard=True))

    async def touch(self, store: VectorStore) -> None:
        """The store is in use: what expires does so later."""
        now = int(time.time())
        if store.last_active_at < now - _ACTIVE_SECONDS:
            row: Row = {"id": store.id, "now": now, "before": now - _ACTIVE_SECONDS}
            await self._database.write(StatementStep(sql.TOUCH, (row,)))

    async def delete(self, owner: str, ident: str) -> bool:
        """Have a store be gone for its owner; False where there is none."""
        row: Row = {"id": ident, "owner": owner}
        return is_id(ident) and await self._database.write(
            StatementStep(sql.DELETE_STORE, (row,), guard=True),
            StatementStep(sql.REMOVE_FILES, ({"id": ident},)),
        )

    # Files

    async def add(
        self,
        store: VectorStore,
        files: Sequence[AddedFile],
        names: Mapping[str, str],
        batch: str | None = None,
    ) -> bool:
        """Add files, or add them again, to be ingested; False where the store is gone or expired.

        ``names`` are their names by id; ``batch`` is the id of the new batch that they are.
        """
        now, place = int(time.time()), new_id("")
        about: Row = {"store": store.id, "owner": store.owner, "batch": batch, "now": now}
        rows: list[Row] = [
            {
                **about,
                "file": one.file,
                "place": f"{place}{index:04x}",
                "filename": names[one.file],
                "attributes": orjson.dumps(one.attributes),
                "size": one.strategy.size,
                "overlap": one.strategy.overlap,
            }
            for index, one in enumerate(files)
        ]
        steps = [StatementStep(sql.ADMIT, (about,), guard=True)]
        if batch is not None:
            steps.append(StatementStep(sql.ADD_BATCH, (about,)))
        return await self._database.write(*steps, StatementStep(sql.ADD_FILE, rows))

    async def file_count(self, store: str) -> int:
        """So many files are in a store."""
        rows = await self._database.read(sql.FILE_COUNT, store=store)
        count: int = rows[0][0]
        return count

    async def file(self, store: str, file: str) -> VectorStoreFile | None:
        """A file in a store; None where it is not."""
        if not is_id(file):
            return None
        rows = await self._database.read(sql.FILE, store=store, file=file)
        return _file(rows[0]) if rows else None

    async def files(
        self, store: str, asked: FilePage, batch: str | None = None
    ) -> tuple[list[VectorStoreFile], bool]:
        """A page of a store's files, or of a batch's, and whether there is more."""
        cursor, place = asked.page.after or asked.before, None
        if cursor is not None:
            found = await self.file(store, cursor)
            if found is None or (batch is not None and found.batch != batch):
                raise _unknown(cursor, asked)
            place = found.place
        up, place = _direction(asked, place, "")
        about: dict[str, Any] = {"store": store, "status": asked.status, "place": place}
        statement = sql.FILES_UP if up else sql.FILES_DOWN
        if batch is not None:
            about["batch"] = batch
            statement = sql.BATCH_FILES_UP if up else sql.BATCH_FILES_DOWN
        rows = await self._database.read(statement, limit=asked.page.limit + 1, **about)
        return [_file(row) for row in _in_order(rows, asked)], len(rows) > asked.page.limit

    async def names(self, store: str, files: Collection[str]) -> dict[str, str]:
        """The names of those of the ``files`` that are still in the store, by id."""
        found: dict[str, str] = {}
        for file in files:
            for ident, name in await self._database.read(sql.NAME_IN, store=store, file=file):
                found[ident] = name
        return found

    async def set_attributes(self, store: str, file: str, attributes: Mapping[str, Any]) -> bool:
        """Give a file other attributes; False where it is not in the store."""
        row: Row = {"store": store, "file": file, "attributes": orjson.dumps(attributes)}
        return await self._database.write(StatementStep(sql.SET_ATTRIBUTES, (row,), guard=True))

    async def remove(self, store: str, file: str) -> bool:
        """Have a file be gone from a store; False where it is not in there."""
        row: Row = {"store": store, "file": file}
        return is_id(file) and await self._database.write(
            StatementStep(sql.REMOVE_FILE, (row,), guard=True)
        )

    # Batches

    async def batch(self, store: str, ident: str) -> FileBatch | None:
        """A batch of a store; None where there is none."""
        if not is_id(ident):
            return None
        rows = await self._database.read(sql.BATCH, id=ident, store=store)
        if not rows:
            return None
        id, of, created_at, cancelled, *counts = rows[0]
        return FileBatch(id, of, created_at, bool(cancelled), FileCounts(*counts))

    async def cancel(self, batch: FileBatch) -> None:
        """Have those of its files that are not ingested yet stay so."""
        row: Row = {"id": batch.id, "store": batch.store}
        await self._database.write(
            StatementStep(sql.CANCEL_BATCH, (row,)),
            StatementStep(sql.CANCEL_FILES, ({"id": batch.id},)),
        )

    # What is to be done

    async def candidates(self, holder: str, limit: int) -> list[VectorStoreFile]:
        """Files that ``holder`` may claim for ingestion, or has claimed; owners take turns."""
        rows = await self._database.read(sql.CANDIDATES, holder=holder, limit=limit)
        return [_file(row) for row in rows]

    async def waiting(self) -> int:
        """How many files are not ingested yet."""
        [(count,)] = await self._database.read(sql.WAITING)
        return int(count)

    async def removing(self, holder: str, limit: int) -> list[VectorStoreFile]:
        """Files that ``holder`` may claim for removal from the index, or has claimed."""
        rows = await self._database.read(sql.REMOVING, holder=holder, limit=limit)
        return [_file(row) for row in rows]

    async def claim(self, file: VectorStoreFile, holder: str) -> bool:
        """Have ``holder`` work on it, with fence + 1; False where somebody else does, or it has
        changed.
        """
        row: Row = {
            "store": file.store,
            "file": file.file,
            "status": file.status,
            "fence": file.fence,
            "attempts": file.attempts,
            "holder": holder,
        }
        return await self._database.write(StatementStep(sql.CLAIM, (row,), guard=True))

    async def finish(self, file: VectorStoreFile, fence: int, end: FileEnd) -> bool:
        """The ingestion is over; False where the file was changed meanwhile."""
        code, message = end.error or (None, None)
        row: Row = {
            "store": file.store,
            "file": file.file,
            "fence": fence,
            "status": "completed" if end.error is None else "failed",
            "error_code": code,
            "error_message": message,
            "usage_bytes": end.usage_bytes,
            "embedder": end.embedder,
        }
        return await self._database.write(StatementStep(sql.FINISH, (row,), guard=True))

    async def postpone(self, file: VectorStoreFile, fence: int, seconds: float) -> None:
        """Have it tried again, not before so many seconds."""
        row: Row = {"store": file.store, "file": file.file, "fence": fence, "seconds": seconds}
        await self._database.write(StatementStep(sql.POSTPONE, (row,)))

    async def give_back(self, file: VectorStoreFile, fence: int, holder: str) -> None:
        """Nothing was done: another router may do it, as if this had never begun."""
        row: Row = {"store": file.store, "file": file.file, "fence": fence, "holder": holder}
        await self._database.write(StatementStep(sql.GIVE_BACK, (row,)))

    async def release(self, file: VectorStoreFile, holder: str) -> None:
        """``holder`` is done with it, whatever has become of it."""
        row: Row = {"store": file.store, "file": file.file, "holder": holder}
        await self._database.write(StatementStep(sql.RELEASE, (row,)))

    async def drop(self, file: VectorStoreFile, fence: int, holder: str) -> None:
        """It is gone from the index; where it was added again meanwhile it is ingested now."""
        row: Row = {"store": file.store, "file": file.file, "fence": fence}
        await self._database.write(StatementStep(sql.DROP_FILE, (row,)))
        await self.release(file, holder)

    async def again(self, embedder: str) -> None:
        """Have those files ingested again whose vectors another embedder has made."""
        await self._database.write(StatementStep(sql.AGAIN, ({"embedder": embedder},)))

    async def expire(self) -> None:
        """Stores whose time is over lose their files; so do all those that a file was deleted of,
        or has expired.
        """
        await self._database.write(
            StatementStep(sql.EXPIRE, ({},)),
            StatementStep(sql.REMOVE_EXPIRED, ({},)),
            StatementStep(sql.REMOVE_GONE, ({},)),
        )

    async def deleted(self, limit: int) -> list[str]:
        """Deleted stores that nobody is at work on."""
        return [row[0] for row in await self._database.read(sql.DELETED_STORES, limit=limit)]

    async def drop_store(self, ident: str) -> None:
        """A deleted store is gone from the index."""
        await self._database.write(StatementStep(sql.DROP_STORE, ({"id": ident},)))


def _unknown(cursor: str, asked: FilePage) -> InvalidRequest:
    return unknown_after(cursor, "after" if asked.before is None else "before")


def _direction(asked: FilePage, cursor: str | None, prefix: str) -> tuple[bool, str]:
    """Whether rows are read upwards, and from which place; all begin with ``prefix``."""
    up = asked.page.descending == (asked.before is not None)
    return up, cursor if cursor is not None else ("" if up else prefix + _LAST)


def _in_order(rows: list[tuple[Any, ...]], asked: FilePage) -> list[tuple[Any, ...]]:
    page = rows[: asked.page.limit]
    return page[::-1] if asked.before is not None else page


def _store(row: tuple[Any, ...]) -> VectorStore:
    ident, owner, name, description, created_at, last_active_at, days, expired, held, *rest = row
    *counts, size = rest
    return VectorStore(
        ident,
        owner,
        name,
        description,
        created_at,
        last_active_at,
        days,
        bool(expired),
        orjson.loads(held),
        FileCounts(*counts),
        size,
    )


def _file(row: tuple[Any, ...]) -> VectorStoreFile:
    store, file, owner, place, filename, batch, created_at, status, code, message, *rest = row
    size, held, most, overlap, embedder, fence, attempts = rest
    return VectorStoreFile(
        store,
        file,
        owner,
        place,
        filename,
        batch,
        created_at,
        status,
        code,
        message,
        size,
        orjson.loads(held),
        ChunkingStrategy(most, overlap),
        embedder,
        fence,
        attempts,
    )
