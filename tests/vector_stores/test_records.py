"""Who may work on a file, and what of it stands: claims, fences, batches, expiry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.dialects.paging import Page
from router.state.database import Database
from router.state.heartbeat import Heartbeat
from router.state.statement import Statement, StatementStep
from router.vector_stores.chunking import AUTO
from router.vector_stores.objects import VectorStore, VectorStoreFile
from router.vector_stores.records import FileEnd, StoreRecords
from router.vector_stores.requests import AddedFile, FilePage, NewVectorStore
from tests.support.state import english_postgresql_url, opened

UPLOADED = Statement(
    """
    INSERT INTO files (id, owner, filename, purpose, bytes, created_at)
    VALUES (:id, 'alice', 'a.txt', 'assistants', 1, 1)
    """
)
LONG_AGO = Statement("UPDATE vector_stores SET last_active_at = 1 WHERE id = :id")


@pytest.fixture
def records(database: Database) -> StoreRecords:
    return StoreRecords(database)


async def added(
    database: Database, records: StoreRecords, *idents: str, owner: str = "alice"
) -> VectorStore:
    """A new store that these files are added to, as one batch."""
    new = NewVectorStore("", None, 7, {}, ())
    store = await records.create(owner, new, most=10)
    uploaded = [{"id": ident} for ident in idents]
    await database.write(StatementStep(UPLOADED, uploaded))
    files = [AddedFile(ident, {}, AUTO) for ident in idents]
    assert await records.add(store, files, dict.fromkeys(idents, "a.txt"), "vsfb_1")
    return store


async def taken(records: StoreRecords, holder: str) -> VectorStoreFile:
    [file] = await records.candidates(holder, 10)
    assert await records.claim(file, holder)
    return replace(file, fence=file.fence + 1)


async def test_a_file_is_one_living_routers(database: Database, records: StoreRecords) -> None:
    one, other = Heartbeat(database, 60), Heartbeat(database, 60)
    await one.start()
    await other.start()
    store = await added(database, records, "file-1")
    file = await taken(records, one.id)
    assert not await records.candidates(other.id, 10)
    assert not await records.claim(file, other.id)
    assert [again.file for again in await records.candidates(one.id, 10)] == ["file-1"]
    await one.stop()  # as its lease would end
    late = await taken(records, other.id)
    assert not await records.finish(file, file.fence, FileEnd(1, "e"))
    assert await records.finish(late, late.fence, FileEnd(7, "e"))
    found = await records.find("alice", store.id)
    assert found is not None
    assert (found.counts.completed, found.usage_bytes) == (1, 7)
    await other.stop()


async def test_what_a_client_changes_meanwhile_stands(
    database: Database, records: StoreRecords
) -> None:
    store = await added(database, records, "file-1")
    file = await taken(records, "router_1")
    batch = await records.batch(store.id, "vsfb_1")
    assert batch is not None
    await records.cancel(batch)
    assert not await records.finish(file, file.fence, FileEnd(1, "e"))
    cancelled = await records.batch(store.id, "vsfb_1")
    assert cancelled is not None
    assert (cancelled.cancelled, cancelled.counts.cancelled) == (True, 1)
    assert cancelled.as_object()["status"] == "cancelled"


async def test_owners_take_turns(database: Database, records: StoreRecords) -> None:
    await added(database, records, *(f"file-a{n}" for n in range(5)))
    await added(database, records, "file-b0", "file-b1", owner="bob")
    turns = [file.file for file in await records.candidates("router_1", 4)]
    assert turns == ["file-a0", "file-b0", "file-a1", "file-b1"]


async def test_expired_stores_and_deleted_files_are_removed(
    database: Database, records: StoreRecords
) -> None:
    old = await added(database, records, "file-1")
    kept = await added(database, records, "file-2", "file-3")
    await database.write(StatementStep(LONG_AGO, ({"id": old.id},)))
    await database.write(StatementStep(Statement("DELETE FROM files WHERE id = 'file-3'"), ({},)))
    await records.expire()
    assert [one.file for one in await records.removing("r", 10)] == ["file-1", "file-3"]
    expired = await records.find("alice", old.id)
    assert expired is not None
    assert expired.as_object()["status"] == "expired"
    page, more = await records.files(kept.id, FilePage(Page()))
    assert ([one.file for one in page], more) == (["file-2"], False)


async def test_pages_of_a_database_that_sorts_as_people_do() -> None:
    async with english_postgresql_url() as url, opened(url) as database:
        records = StoreRecords(database)
        store = await added(database, records, "file-1", "file-2")
        stores, _ = await records.page("alice", FilePage(Page()))
        assert [one.id for one in stores] == [store.id]
        page, _ = await records.files(store.id, FilePage(Page()))
        assert [one.file for one in page] == ["file-2", "file-1"]
        page, _ = await records.files(store.id, FilePage(Page()), "vsfb_1")
        assert [one.file for one in page] == ["file-2", "file-1"]


async def test_another_embedder_has_files_ingested_again(
    database: Database, records: StoreRecords
) -> None:
    await added(database, records, "file-1")
    file = await taken(records, "router_1")
    assert await records.finish(file, file.fence, FileEnd(1, "before"))
    await records.again("before")
    assert not await records.candidates("router_1", 10)
    await records.again("now")
    assert len(await records.candidates("router_1", 10)) == 1
