"""What has expired is removed, and what nobody will ever finish."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from router.fetch.guard import FetchGuard
from router.files.cleanup import FileCleanup
from router.files.directory import FileWriter, abandoned, sweeping
from router.files.service import FileService
from router.files.store import FileStore, StoredFile
from router.settings.fetch import FetchSettings
from router.settings.files import FilesSettings
from router.state.database import Database
from tests.support.waiting import until


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


@pytest.fixture
async def store(database: Database, tmp_path: Path) -> AsyncIterator[FileStore]:
    store = FileStore(FilesSettings(path=str(tmp_path / "files")), database)
    yield store
    await store.close()


async def keep(store: FileStore, expires_after: int | None = None) -> StoredFile:
    return await store.create("me", "a", "batch", pieces(b"x"), expires_after=expires_after)


def age(path: Path) -> None:
    """As if nobody had written to it for an hour."""
    os.utime(path, (0, 0))


async def test_expired_files_are_removed(store: FileStore) -> None:
    expired, file = await keep(store, -1), await keep(store, 3600)

    assert await FileCleanup(store).clean() == 1
    assert not store.path(expired).exists()
    assert store.path(file).exists()
    assert await store.find("me", file.id) == file


async def test_what_has_no_row_is_removed(store: FileStore) -> None:
    """More files than are looked at in one go."""
    directory = await store.directory()
    files = [await keep(store) for _ in range(3)]
    for number in range(450):
        garbage = directory / f"file-{number:048x}"
        garbage.write_bytes(b"half")
        age(garbage)
    for file in files:
        age(store.path(file))
    (directory / "README").write_text("not ours")

    assert await FileCleanup(store).clean() == 450
    left = {path.name for path in directory.iterdir()}
    assert left == {"README", "sweep.lock", *(file.id for file in files)}


async def test_what_is_being_written_stays(store: FileStore) -> None:
    upload = await store.begin("me")
    await upload.write(b"x")
    age(upload.writer.path)

    assert await FileCleanup(store).clean() == 0
    file = await upload.finish("a", "batch")
    assert await FileCleanup(store).clean() == 0
    assert store.path(file).read_bytes() == b"x"


async def test_what_was_written_just_now_stays(store: FileStore) -> None:
    """It may be another machine's, where locks are not passed on."""
    directory = await store.directory()
    (directory / "file-1").write_bytes(b"x")

    assert await FileCleanup(store).clean() == 0


async def test_one_process_at_a_time(store: FileStore) -> None:
    await keep(store, -1)
    with sweeping(await store.directory()) as mine:
        assert mine
        assert await FileCleanup(store).clean() == 0
    assert await FileCleanup(store).clean() == 1


async def test_an_upload_of_a_process_that_was_killed(store: FileStore) -> None:
    """The lock of a process ends with it."""
    directory = await store.directory()
    path = directory / "file-killed"
    code = f"""
import os, signal
from pathlib import Path
from router.files.directory import FileWriter
writer = FileWriter(Path({str(path)!r}))
writer.write(b"half")
os.utime({str(path)!r}, (0, 0))
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == -9
    assert path.exists()

    assert await FileCleanup(store).clean() == 1
    assert not path.exists()


async def test_it_is_done_at_the_start(database: Database, tmp_path: Path) -> None:
    guard = FetchGuard(FetchSettings())
    service = FileService(FilesSettings(path=str(tmp_path)), database, guard)
    file = await keep(service.store, -1)
    service.start()
    await until(lambda: not service.store.path(file).exists())
    await service.stop()


async def test_it_goes_on_after_an_error_of_the_disk(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> AbstractContextManager[bool]:
        monkeypatch.setattr("router.files.cleanup.abandoned", abandoned)
        raise OSError(errno.EIO, "Input/output error")

    path = await store.directory() / "file-1"
    path.write_bytes(b"half")
    age(path)
    monkeypatch.setattr("router.files.cleanup.abandoned", broken)
    monkeypatch.setattr("router.files.cleanup._INTERVAL_SECONDS", 0.01)
    cleanup = FileCleanup(store)
    cleanup.start()
    await until(lambda: not path.exists())
    await cleanup.stop()


def test_a_writer_whose_file_is_taken_away_gives_up(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path / "file-1")
    writer.close()
    writer.close()
    assert (tmp_path / "file-1").exists()
