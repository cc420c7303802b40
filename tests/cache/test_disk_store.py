"""The disk store: what it survives, and what it does not believe."""

# ruff: noqa: ASYNC240 - nobody else waits for this loop

from __future__ import annotations

import asyncio
import os
import pickle
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cache.entry import EVERYTHING, InvalidationRule
from cache.store import Store, StoreError
from cache.stores.cache_file import NotPlainData, PlainCache
from cache.stores.codec import pack_head
from cache.stores.disk import DiskStore
from tests.support.children import python
from tests.support.stores import an_entry, following, name
from tests.support.waiting import until

_INSERT = (
    "INSERT INTO Cache(key, raw, store_time, access_time, tag, mode, filename, value)"
    " VALUES (?, ?, 0, 0, ?, ?, ?, ?)"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a" / "cache"


async def filled(path: Path, *keys: str) -> None:
    """A store with these entries, closed again."""
    store = DiskStore(path, 1 << 24)
    await store.start()
    for key in keys:
        assert await store.put(an_entry(key))
    await store.close()


async def keys_of(store: Store) -> set[str]:
    with following(store) as follower:
        await until(lambda: follower.complete)
    return follower.alive()


def scramble(path: Path) -> None:
    """Overwrite all but the first page."""
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4096)
        file.write(os.urandom(size - 4096))


class Payload:
    """Whoever unpickles it makes a file."""

    def __init__(self, proof: Path) -> None:
        self._command = f"touch {proof}"

    def __reduce__(self) -> Any:
        return os.system, (self._command,)


async def test_what_was_stored_is_there_after_a_restart(path: Path) -> None:
    await filled(path, "a", "b", "c")
    store = DiskStore(path, 1 << 24)
    await store.start()
    assert (await store.invalidate(InvalidationRule("entry", name("b")))) == 1
    await store.close()
    store = DiskStore(path, 1 << 24)
    await store.start()
    entry = an_entry("a")
    found = (await store.get(entry.key)).entry
    assert found == replace(entry, created=found.created, expires=found.expires) if found else False
    assert await store.epoch() == 1
    assert (await store.get(name("b"))).entry is None
    assert await keys_of(store) == {name("a"), name("c")}
    assert not await store.put(an_entry("b"))
    await store.close()


async def test_what_was_invalidated_stays_so_although_its_row_is_still_there(path: Path) -> None:
    await filled(path, "a", "b")
    with closing(sqlite3.connect(path / "cache.db")) as database:
        rows = database.execute("SELECT key, raw, tag, mode, filename, value FROM Cache").fetchall()
    store = DiskStore(path, 1 << 24)
    await store.start()
    assert await store.invalidate(EVERYTHING) == 2
    await store.close()
    with closing(sqlite3.connect(path / "cache.db")) as database, database:
        database.executemany(_INSERT.replace("INSERT", "INSERT OR REPLACE"), rows)
    store = DiskStore(path, 1 << 24)
    await store.start()
    assert (await store.get(name("a"))).entry is None
    assert await keys_of(store) == set()
    await store.close()


async def test_epochs_go_on_where_an_entry_knows_a_later_one(path: Path) -> None:
    store = DiskStore(path, 1 << 24)
    await store.start()
    await store.invalidate(EVERYTHING)
    await store.put(an_entry(epoch=1))
    await store.close()
    with closing(sqlite3.connect(path / "cache.db")) as database, database:
        database.execute("DELETE FROM Cache WHERE key >= 'r/' AND key < 'r0'")
    store = DiskStore(path, 1 << 24)
    await store.start()
    assert await store.epoch() == 1
    assert await store.invalidate(EVERYTHING) == 1
    assert (await store.get(name("k"))).entry is None
    await store.close()


async def test_the_directory_is_nobody_elses(path: Path) -> None:
    await filled(path, "a")
    assert path.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o077 == 0 for file in path.iterdir())
    for mode in (0o770, 0o702):
        path.chmod(mode)
        store = DiskStore(path, 1 << 24)
        with pytest.raises(StoreError, match=r"others may write to .*chmod 700"):
            await store.start()
        with pytest.raises(StoreError, match="others may write to"):
            await store.get("k")
        await store.close()


async def test_one_process_at_a_time(path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from cache.stores.disk import DiskStore\n"
        "async def main():\n"
        "    store = DiskStore(sys.argv[1], 1 << 24)\n"
        "    await store.start()\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    child = await python(code, str(path))
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    store = DiskStore(path, 1 << 24)
    with pytest.raises(StoreError, match="in use by another process"):
        await store.start()
    child.kill()
    await child.communicate()
    assert await store.put(an_entry())
    assert (await store.get(name("k"))).entry is not None
    await store.close()


async def test_a_damaged_database_is_said_to_be_one(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True)
    for content in (b"no database at all" * 1000, b"SQLite format 3\0" + os.urandom(8000)):
        (path / "cache.db").write_bytes(content)
        store = DiskStore(path, 1 << 24)
        with pytest.raises(StoreError, match="cannot be used"):
            await store.start()
        await store.close()


async def test_damage_while_it_runs_is_no_crash(path: Path) -> None:
    await filled(path, *map(str, range(200)))
    store = DiskStore(path, 1 << 24)
    await store.start()
    scramble(path / "cache.db")
    for number in range(200):
        with suppress(StoreError):
            found = await store.get(name(str(number)))
            assert found.entry is None or found.entry.key == name(str(number))
            await store.put(an_entry(f"new {number}"))
    await store.close()


@pytest.mark.parametrize("late", [False, True], ids=["before", "while it runs"])
async def test_a_planted_pickle_is_refused_and_removed(path: Path, late: bool) -> None:
    proof = path.parent / "executed"
    poison = pickle.dumps(Payload(proof))
    outside = path.parent / "precious"
    await filled(path, "good", "pickled", "filed")
    outside.write_text("mine")
    store = DiskStore(path, 1 << 24)
    if late:
        await store.start()
    (path / "x.val").write_bytes(poison)
    head = pack_head(an_entry("planted"))
    with closing(sqlite3.connect(path / "cache.db")) as database, database:
        database.execute(_INSERT, (poison, 0, head, 1, None, b"body"))
        database.execute(_INSERT, ("e/" + name("planted"), 1, head, 4, None, poison))
        database.execute(_INSERT, (b"e/bytes", 1, head, 1, None, b"body"))
        database.execute(
            "UPDATE Cache SET mode = 4, value = ? WHERE key = ?", (poison, "e/" + name("pickled"))
        )
        database.execute(
            "UPDATE Cache SET mode = 4, value = NULL, filename = ? WHERE key = ?",
            (str(outside), "e/" + name("filed")),
        )
    with capture_logs() as logs:
        if not late:
            await store.start()
        for key in ("planted", "pickled", "filed"):
            assert (await store.get(name(key))).entry is None
            assert (await store.get(name(key))).entry is None
        assert (await store.get(name("good"))).entry is not None
        assert await keys_of(store) == {name("good")}
    assert sum(log["rows"] for log in logs) == (2 if late else 5)
    await store.close()
    store = DiskStore(path, 1 << 24)
    await store.start()
    assert await keys_of(store) == {name("good")}
    await store.close()
    with closing(sqlite3.connect(path / "cache.db")) as database:
        assert database.execute("SELECT count(*) FROM Cache").fetchone() == (1,)
    assert not proof.exists()
    assert outside.read_text() == "mine"


async def test_planted_settings_are_not_believed(path: Path) -> None:
    await filled(path, "a")
    planted = {
        "disk": "diskcache.Disk",
        "disk_fetch": "x",
        "disk_pickle_protocol": 5,
        "disk_min_file_size": 0,
        "get": "x",
        "eviction_policy": "least-recently-used",
        "cull_limit": 10,
        "size_limit": 1,
        "statistics": 1,
        "sqlite_journal_mode": "off",
        "sqlite_mmap_size": 2**30,
        "sqlite_writable_schema": 1,
    }
    with closing(sqlite3.connect(path / "cache.db")) as database, database:
        database.executemany("INSERT OR REPLACE INTO Settings VALUES (?, ?)", planted.items())
    store = DiskStore(path, 1 << 24)
    await store.start()
    await store.put(an_entry("b", body=bytes(100_000)))
    assert await keys_of(store) == {name("a"), name("b")}
    assert not list(path.glob("**/*.val"))
    await store.close()
    with closing(sqlite3.connect(path / "cache.db")) as database:
        kept = dict(database.execute("SELECT key, value FROM Settings"))
    assert kept.keys().isdisjoint({"disk", "disk_fetch", "get", "sqlite_writable_schema"})
    assert (kept["statistics"], kept["eviction_policy"]) == (0, "none")


def test_nothing_but_plain_values_goes_either_way(tmp_path: Path) -> None:
    cache = PlainCache(str(tmp_path), 1.0)
    for value in (b"x", "x", 1, 1.5):
        cache.set("k", value)
        assert cache.get("k") == value
    refused: list[tuple[Any, Any]] = [
        ("k", None),
        ("k", ("x",)),
        ("k", {}),
        (1, b"x"),
        (("k",), b"x"),
    ]
    for key, value in refused:
        with pytest.raises(NotPlainData):
            cache.set(key, value)
    with open(os.devnull, "rb") as file, pytest.raises(NotPlainData):
        cache.set("k", file, read=True)
    cache.close()


async def test_a_smaller_bound_holds_from_the_start(path: Path) -> None:
    store = DiskStore(path, 1 << 24)
    await store.start()
    for number in range(2000):
        await store.put(an_entry(str(number), body=os.urandom(2000)))
    await store.close()
    assert (path / "cache.db").stat().st_size > 1 << 22
    store = DiskStore(path, 1 << 20)
    await store.start()
    await until(lambda: (path / "cache.db").stat().st_size < 3 << 19)
    stats = await store.stats()
    assert stats.bytes <= 1 << 20
    assert len(await keys_of(store)) == stats.entries > 100
    await store.close()


async def test_an_early_leaver_does_not_undo_what_it_asked_for(path: Path) -> None:
    await filled(path, *map(str, range(300)))
    store = DiskStore(path, 1 << 24)
    for _ in range(5):
        opening = asyncio.create_task(store.epoch())
        await asyncio.sleep(0)
        opening.cancel()
    assert await store.epoch() == 0
    putting = asyncio.create_task(store.put(an_entry("new")))
    await asyncio.sleep(0)
    putting.cancel()
    assert (await store.get(name("new"))).entry is not None
    assert len(await keys_of(store)) == 301
    await store.close()


async def test_a_write_that_fails_leaves_nothing_behind(path: Path) -> None:
    await filled(path, "a", "b")
    store = DiskStore(path, 1 << 24)
    await store.start()
    with closing(sqlite3.connect(path / "cache.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError):
            await store.put(an_entry("a", body=b"newer"))
        with pytest.raises(StoreError):
            await store.delete(name("b"))
        other.execute("ROLLBACK")
    for key in ("a", "b"):
        assert (await store.get(name(key))).entry is None
    await store.put(an_entry("c"))
    await until(lambda: store._maintenance is None and not store._owed)
    await store.close()
    store = DiskStore(path, 1 << 24)
    await store.start()
    assert await keys_of(store) == {name("c")}
    await store.close()


async def test_closed_is_closed(path: Path) -> None:
    store = DiskStore(path, 1 << 24)
    await store.close()
    for call in (store.epoch(), store.get("k"), store.stats()):
        with pytest.raises(StoreError, match="closed"):
            await call
