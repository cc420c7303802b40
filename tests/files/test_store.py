"""Files are kept with their rows, belong to their key, and stay within its limits."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from router.dialects.paging import Page
from router.errors import InternalError, NotSupported, Overloaded
from router.files.directory import FileWriter, StorageFull
from router.files.store import FileStore, FileTooLarge, StoredFile
from router.settings.files import FilesSettings
from router.state.database import Database
from tests.support.state import english_postgresql_url, opened


async def pieces(*contents: bytes) -> AsyncIterator[bytes]:
    for content in contents:
        yield content


async def keep(store: FileStore, content: bytes = b"text", **more: Any) -> StoredFile:
    named = {"owner": "me", "filename": "a.txt", "purpose": "user_data", **more}
    return await store.create(content=pieces(content), **named)


def kept(store: FileStore) -> list[str]:
    """The names of the files on disk, what is removed meanwhile left out."""
    assert store.settings.path is not None
    return sorted(path.name for path in Path(store.settings.path).rglob("file-*"))


def still_open() -> list[str]:
    """What this process has open of uploaded files."""
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [path for path in links if "/file-" in path]


@pytest_asyncio.fixture
async def store(database: Database, tmp_path: Path) -> AsyncIterator[FileStore]:
    store = FileStore(FilesSettings(path=str(tmp_path / "files"), max_files=5), database)
    yield store
    await store.close()


async def test_what_is_kept_can_be_read(store: FileStore) -> None:
    content = os.urandom(600_000)
    file = await store.create(
        "me", "a.txt", "batch", pieces(content[:100], content[100:]), media_type="text/plain"
    )

    assert await store.find("me", file.id) == file
    assert b"".join([piece async for piece in store.content(file)]) == content
    assert store.path(file).read_bytes() == content
    assert file.as_object() == {
        "id": file.id,
        "object": "file",
        "bytes": 600_000,
        "created_at": file.created_at,
        "filename": "a.txt",
        "purpose": "batch",
        "status": "processed",
    }
    assert oct(store.path(file).stat().st_mode)[-3:] == "600"


async def test_nobody_elses_file_is_there(store: FileStore) -> None:
    file = await keep(store)

    assert await store.find("you", file.id) is None
    assert not await store.delete("you", file.id)
    assert await store.page("you", Page()) == ([], False)
    assert await store.find("me", file.id) == file


async def test_a_deleted_file_is_gone(store: FileStore) -> None:
    file = await keep(store)

    assert await store.delete("me", file.id)
    assert not await store.delete("me", file.id)
    assert await store.find("me", file.id) is None
    assert kept(store) == []


@pytest.mark.parametrize("ident", ["", "file-", "../../etc/passwd", "file-\0", "x" * 500])
async def test_what_is_no_id_is_not_there(store: FileStore, ident: str) -> None:
    assert await store.find("me", ident) is None
    assert not await store.delete("me", ident)


async def test_pages(store: FileStore) -> None:
    files = [await keep(store, purpose=purpose) for purpose in ("batch", "vision", "batch")]
    first, second, third = files

    assert await store.page("me", Page(2)) == ([third, second], True)
    assert await store.page("me", Page(2, after=second.id)) == ([first], False)
    assert await store.page("me", Page(2, descending=False)) == ([first, second], True)
    assert await store.page("me", Page(), "batch") == ([third, first], False)
    await store.delete("me", second.id)
    assert await store.page("me", Page(2, after=second.id)) == ([first], False)


async def test_pages_of_a_database_that_sorts_as_people_do(tmp_path: Path) -> None:
    async with english_postgresql_url() as url, opened(url) as database:
        store = FileStore(FilesSettings(path=str(tmp_path)), database)
        first, second = await keep(store), await keep(store)

        assert await store.page("me", Page()) == ([second, first], False)
        assert await store.page("me", Page(), "user_data") == ([second, first], False)
        await store.close()


async def test_an_expired_file_is_not_there(store: FileStore) -> None:
    file = await keep(store, expires_after=-1)

    assert await store.find("me", file.id) is None
    assert await store.page("me", Page()) == ([], False)


async def test_one_file_is_limited(database: Database, tmp_path: Path) -> None:
    store = FileStore(FilesSettings(path=str(tmp_path), max_mb=0.001), database)
    with pytest.raises(FileTooLarge, match=r"larger than 0\.001 MiB") as caught:
        await keep(store, b"x" * 2000)
    await store.close()

    assert caught.value.code == "file_too_large"
    assert kept(store) == []


async def test_all_files_of_a_key_are_limited(database: Database, tmp_path: Path) -> None:
    store = FileStore(FilesSettings(path=str(tmp_path), max_total_mb=0.001), database)
    file = await keep(store, b"x" * 900)
    with pytest.raises(FileTooLarge, match=r"larger than 0.001 MiB") as caught:
        await keep(store, b"x" * 900)
    await keep(store, b"x" * 900, owner="you")
    await store.delete("me", file.id)
    await keep(store, b"x" * 900)
    await store.close()

    assert caught.value.code == "storage_limit_exceeded"
    assert len(kept(store)) == 2


async def test_uploads_at_once_are_limited_together(database: Database, tmp_path: Path) -> None:
    store = FileStore(FilesSettings(path=str(tmp_path), max_total_mb=0.001), database)
    one, other = await store.begin("me"), await store.begin("me")
    await one.write(b"x" * 600)
    with pytest.raises(FileTooLarge):
        await other.write(b"x" * 600)
    other.discard()
    await one.finish("a.txt", "batch")
    await store.close()


async def test_routers_count_together(database: Database, tmp_path: Path) -> None:
    """What several processes upload at once is summed up when it is added."""
    settings = FilesSettings(path=str(tmp_path), max_total_mb=0.001)
    stores = [FileStore(settings, database) for _ in range(4)]
    uploads = [await store.begin("me") for store in stores]
    for upload in uploads:
        await upload.write(b"x" * 400)
    ended = await asyncio.gather(
        *(upload.finish("a.txt", "batch") for upload in uploads), return_exceptions=True
    )
    for store in stores:
        await store.close()

    assert sum(isinstance(one, StoredFile) for one in ended) == 2
    assert sum(isinstance(one, FileTooLarge) for one in ended) == 2
    assert len(kept(stores[0])) == 2


async def test_the_files_of_a_key_are_counted(store: FileStore) -> None:
    begun = await store.begin("me")
    for _ in range(5):
        await keep(store)
    with pytest.raises(FileTooLarge, match="5 files already"):
        await keep(store)
    with pytest.raises(FileTooLarge, match="5 files already"):
        await begun.finish("a.txt", "batch")


async def test_a_client_that_leaves_leaves_nothing(store: FileStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store.create("me", "a.txt", "batch", broken())
    await store.close()

    assert kept(store) == []
    assert await store.page("me", Page()) == ([], False)


async def test_a_client_that_leaves_at_the_end_leaves_a_whole_file(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def left(file: StoredFile) -> None:
        await add(file)
        raise asyncio.CancelledError

    add = store.add
    monkeypatch.setattr(store, "add", left)
    async with contextlib.aclosing(await store.begin("me")) as upload:
        await upload.write(b"whole")
        with pytest.raises(asyncio.CancelledError):
            await upload.finish("a.txt", "batch")
    await store.close()

    [file], _ = await store.page("me", Page())
    assert store.path(file).read_bytes() == b"whole"


@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_leaves_leaves_no_descriptor(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """It leaves while a thread opens the file that is to be read, or begun."""
    file, opening, go_on = await keep(store), threading.Event(), threading.Event()
    opened = os.open

    def slow(*args: Any) -> int:
        opening.set()
        go_on.wait(10)
        return opened(*args)

    monkeypatch.setattr(os, "open", slow)
    work = anext(store.content(file)) if reads else store.begin("me")
    task = asyncio.ensure_future(work)
    await asyncio.to_thread(opening.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    monkeypatch.undo()
    await store.close()

    assert kept(store) == [file.id]
    assert still_open() == []


async def test_a_full_disk_is_told(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    upload = await store.begin("me")
    monkeypatch.setattr("router.files.directory.os.write", full)
    with pytest.raises(StorageFull, match="no room left") as caught:
        await upload.write(b"x")
    monkeypatch.undo()
    upload.discard()
    await store.close()

    assert caught.value.status == 507
    assert kept(store) == []


async def test_content_that_was_lost_is_told(store: FileStore) -> None:
    file = await keep(store)
    store.path(file).unlink()

    with pytest.raises(InternalError, match="its log says why"):
        [piece async for piece in store.content(file)]
    assert await store.delete("me", file.id)


async def test_only_so_many_uploads_at_once(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.files.store._AT_ONCE", 1)
    await store.begin("me")
    with pytest.raises(Overloaded, match="Too many files"):
        await store.begin("you")


async def test_two_stores_of_a_database_share_a_directory(
    store: FileStore, database: Database
) -> None:
    other = FileStore(store.settings, database)
    file = await keep(store)

    assert b"".join([piece async for piece in other.content(await found(other, file))]) == b"text"
    await other.close()


async def found(store: FileStore, file: StoredFile) -> StoredFile:
    there = await store.find("me", file.id)
    assert there is not None
    return there


async def test_off(database: Database) -> None:
    store = FileStore(FilesSettings(), database)

    assert not store.on
    assert await store.find("me", "file-1") is None
    with pytest.raises(NotSupported, match=r"files\.path"):
        await store.begin("me")
    await store.close()


def test_a_file_is_locked_while_it_is_written(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path / "file-1")
    with pytest.raises(FileExistsError):
        FileWriter(tmp_path / "file-1")
    writer.write(b"a" * 10)
    writer.discard()
    writer.write(b"too late")

    assert list(tmp_path.iterdir()) == []
