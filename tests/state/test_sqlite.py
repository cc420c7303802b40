"""What only a SQLite file can do wrong."""

# ruff: noqa: ASYNC240 - nobody else waits for this loop

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from router.errors import StateUnavailable
from router.state.database import Database, StateError
from router.state.statement import Statement, StatementStep
from tests.support.children import python
from tests.support.state import opened
from tests.support.waiting import until

ADD = Statement("INSERT INTO routers (id, until) VALUES (:id, 1.0)")
ALL = Statement("SELECT id FROM routers ORDER BY id")

LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""

DIE = """
import asyncio, os, sys
from router.state.statement import Statement, StatementStep
from tests.support.state import opened

ADD = Statement("INSERT INTO routers (id, until) VALUES (:id, 1.0)")

async def main():
    async with opened(sys.argv[1]) as database:
        async def work(name):
            for n in range(1000):
                rows = [{"id": f"{name}-{n}"}, {"id": f"{name}-{n}-too"}]
                await database.write(StatementStep(ADD, rows))
                sys.stdout.write(f"{name}-{n}\\n")
                sys.stdout.flush()
        await asyncio.gather(*[work(name) for name in range(8)])

asyncio.run(main())
"""


def add(id: str) -> StatementStep:
    return StatementStep(ADD, [{"id": id}])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest_asyncio.fixture
async def file(path: Path) -> AsyncIterator[Database]:
    async with opened(f"sqlite:///{path}", timeout=2.0) as database:
        yield database


async def refusal(url: str) -> str:
    with pytest.raises(StateError) as caught:
        async with opened(url, timeout=0.3):
            pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_nobody_else_may_read_it(file: Database, path: Path) -> None:
    await file.write(add("a"))
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        assert stat.S_IMODE(path.with_name(name).stat().st_mode) == 0o600


async def test_the_mode_of_a_file_that_is_there_stays(path: Path) -> None:
    path.touch(0o640)
    path.chmod(0o640)
    async with opened(f"sqlite:///{path}"):
        pass
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_a_relative_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    async with opened("sqlite:///with ? and % and #.db"):
        assert path.with_name("with ? and % and #.db").exists()


async def test_a_directory_that_is_missing(path: Path) -> None:
    message = await refusal(f"sqlite:///{path}/x.db")
    assert message == f"The database {path}/x.db cannot be used: No such file or directory."


async def test_a_directory(path: Path) -> None:
    path.mkdir()
    assert "unable to open database file" in await refusal(f"sqlite:///{path}")


async def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_text("a diary, and more than a hundred bytes of it\n" * 10)
    assert "file is not a database" in await refusal(f"sqlite:///{path}")
    assert path.read_text().startswith("a diary")


async def test_a_lock_at_start(path: Path) -> None:
    async with opened(f"sqlite:///{path}"):
        pass
    holder = await python(LOCK, str(path))
    assert holder.stdout is not None
    await holder.stdout.readline()
    assert "database is locked" in await refusal(f"sqlite:///{path}")
    await holder.communicate(b"\n")


@pytest.mark.parametrize("release", ["in time", "too late"])
async def test_a_lock_by_another_process(file: Database, path: Path, release: str) -> None:
    await file.write(add("a"))
    holder = await python(LOCK, str(path))
    assert holder.stdout is not None
    await holder.stdout.readline()
    jobs = [file.submit(add(f"b{n}")) for n in range(5)]
    await asyncio.sleep(0.2)
    assert await file.read(ALL) == [("a",)]
    if release == "too late":
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert all(isinstance(result, StateUnavailable) for result in results)
        assert not file.up
        assert await file.read(ALL) == [("a",)]
    await holder.communicate(b"\n")
    if release == "in time":
        assert all(await asyncio.gather(*jobs))
    assert await file.write(add("c"))
    assert file.up


async def test_it_notices_that_the_lock_is_gone(file: Database, path: Path) -> None:
    holder = await python(LOCK, str(path))
    assert holder.stdout is not None
    await holder.stdout.readline()
    with pytest.raises(StateUnavailable):
        await file.write(add("a"))
    await holder.communicate(b"\n")
    await until(lambda: file.up)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A place for one MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("does not apply: only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("does not apply: this system lets nobody mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk(small_disk: Path) -> None:
    """What was acknowledged stays; the rest is refused; with room again it goes on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 200_000)
    async with opened(f"sqlite:///{small_disk}/x.db", timeout=1.0) as database:
        written: list[tuple[str]] = []
        try:
            for n in range(1000):
                await database.write(add(f"{n:03}" + "x" * 4000))
                written.append((f"{n:03}",))
        except StateUnavailable:
            assert not database.up
        assert 0 < len(written) < 1000
        ids = Statement("SELECT substr(id, 1, 3) FROM routers ORDER BY id")
        assert await database.read(ids) == written
        ballast.unlink()
        await until(lambda: database.up)
        assert await database.write(add("again"))


async def test_a_disk_that_is_read_only(small_disk: Path) -> None:
    async with opened(f"sqlite:///{small_disk}/x.db"):
        pass
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)  # noqa: ASYNC221
    assert "unable to open" in await refusal(f"sqlite:///{small_disk}/x.db")
    assert "Read-only file system" in await refusal(f"sqlite:///{small_disk}/y.db")


async def test_memory_is_nobody_elses() -> None:
    async with opened("sqlite:///:memory:") as one, opened("sqlite:///:memory:") as other:
        assert await one.write(add("a"))
        assert await one.read(ALL) == [("a",)]
        assert await other.read(ALL) == []


async def test_the_threads_end(path: Path) -> None:
    before = threading.active_count()
    async with opened(f"sqlite:///{path}") as database:
        await database.write(add("a"))
        await asyncio.gather(*[database.read(ALL) for _ in range(10)])
        assert threading.active_count() > before
    await until(lambda: threading.active_count() <= before)
    assert not path.with_name("state.db-wal").exists()


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_durability(path: Path, durability: str) -> None:
    async with opened(f"sqlite:///{path}", durability=durability) as database:
        assert await database.write(add("a"))
        level = [(2 if durability == "power" else 1,)]
        assert await database.read(Statement("PRAGMA synchronous")) == level
        assert await database.read(Statement("PRAGMA journal_mode")) == [("wal",)]


async def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    for attempt in range(3):
        path.unlink(missing_ok=True)
        child = await python(DIE, f"sqlite:///{path}")
        assert child.stdout is not None
        acknowledged = [await child.stdout.readline() for _ in range(50 + 70 * attempt)]
        child.kill()
        rest, _ = await child.communicate()
        acknowledged += rest.splitlines(keepends=True)[:-1]
        async with opened(f"sqlite:///{path}") as database:
            there = {row[0] for row in await database.read(ALL)}
        names = {line.decode().strip() for line in acknowledged}
        assert names | {f"{name}-too" for name in names} <= there
        assert len(there) % 2 == 0


async def test_a_loop_that_never_rests_starves_nobody(file: Database) -> None:
    """Without a moment for the threads a commit takes longer than its deadline."""
    busy = True

    async def spin() -> None:
        while busy:
            end = time.perf_counter() + 0.0003
            while time.perf_counter() < end:
                pass
            await asyncio.sleep(0)

    spinning = asyncio.ensure_future(spin())
    jobs = [file.write(*[add(f"{n:03}-{m}") for m in range(8)]) for n in range(100)]
    assert all(await asyncio.gather(*jobs))
    assert len(await file.read(ALL)) == 800
    busy = False
    await spinning


def test_old_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    message = asyncio.run(refusal("sqlite:///:memory:"))
    assert message == "SQLite 3.34.1 is too old: at least 3.35 is needed"
