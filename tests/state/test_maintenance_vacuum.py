"""What ``state vacuum`` takes away, what it leaves, and what it does beside others."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from router.state.conversations import ConversationStore
from router.state.database import Database, StateError
from router.state.maintenance.check import check
from router.state.maintenance.vacuum import vacuum
from router.state.responses import ResponseStore
from router.state.statement import Row, Statement, StatementStep
from tests.support.state import database_url, opened, state_settings
from tests.support.stored import alive, message, stored
from tests.support.usage import recorded, row, stored_ids

__all__ = ["database_url"]

_ROUTERS = Statement("SELECT id FROM routers ORDER BY id")
_GONE = Statement("INSERT INTO routers (id, until) VALUES (:id, {now} - CAST(:ago AS {real}))")
MIB = 1024 * 1024


async def fill(database: Database, prefix: str, created_at: int, count: int = 40) -> None:
    """``count`` responses of 100 kB that do not continue one another."""
    for number in range(count):
        given = [message(f"msg_{prefix}_{number}", "x" * 100_000)]
        row = stored(f"resp_{prefix}_{number}", given=given, created_at=created_at)
        await database.write(*ResponseStore(database).added(row))


async def test_what_is_old_goes_and_the_rest_stays(database_url: str) -> None:
    now = int(time.time())
    async with opened(database_url) as database:
        await fill(database, "old", now - 31 * 86400)
        await fill(database, "new", now - 29 * 86400, 3)
        await ConversationStore(database).create("ann", "conv_a", 1.0, {}, [message("msg_1")])
        await alive(database, "router_alive")
        gone: list[Row] = [
            {"id": "router_lately", "ago": 60.0},
            {"id": "router_gone", "ago": 4000.0},
        ]
        await database.write(StatementStep(_GONE, gone))
    freed = await vacuum(state_settings(database_url), rewrite=False)
    assert freed is not None
    assert (freed.objects, freed.routers, freed.left) == (40, 1, 0)
    report = await check(state_settings(database_url))
    assert report.problems == []
    assert report.counts["responses"] == 3
    assert report.counts["items"] == 1
    assert report.size == freed.after
    if database_url.startswith("sqlite"):
        assert freed.before > 4 * MIB > MIB > freed.after
    async with opened(database_url) as database:
        assert await database.read(_ROUTERS) == [("router_alive",), ("router_lately",)]


async def test_without_retention_nothing_is_deleted(database_url: str) -> None:
    async with opened(database_url) as database:
        await fill(database, "old", 1000, 2)
    settings = state_settings(database_url, retention_days="forever")
    freed = await vacuum(settings, rewrite=False)
    assert freed is not None
    assert freed.objects == 0
    assert (await check(settings)).counts["responses"] == 2


async def test_usage_is_kept_for_a_time_of_its_own(database_url: str) -> None:
    now = time.time()
    async with opened(database_url) as database:
        await recorded(database, *[row(at=now - 11 * 86400) for _ in range(1500)])
        await recorded(database, row("kept", at=now - 9 * 86400))
    settings = state_settings(database_url, retention_days=1)
    freed = await vacuum(settings, rewrite=False)
    assert freed is not None
    assert (freed.usage, (await check(settings)).counts["usage"]) == (0, 1501)
    freed = await vacuum(settings, rewrite=False, usage_days=10.0)
    assert freed is not None
    assert (freed.objects, freed.usage) == (0, 1500)
    async with opened(database_url) as database:
        assert await stored_ids(database) == ["kept"]


async def test_where_nothing_is_yet_nothing_is_made(database_url: str, tmp_path: Path) -> None:
    assert await vacuum(state_settings(database_url), rewrite=False) is None
    assert (await check(state_settings(database_url))).version == 0
    assert os.listdir(tmp_path) == []


async def test_a_large_file_is_not_rewritten_beside_a_router(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.state.maintenance.vacuum.REWRITTEN_AT_ONCE", 1 * MIB)
    settings = state_settings(f"sqlite:///{tmp_path / 'state.db'}")
    async with opened(settings.url.get_secret_value()) as database:
        await fill(database, "old", 1000)
        await fill(database, "new", int(time.time()), 20)
        await alive(database, "router_alive")
        freed = await vacuum(settings, rewrite=False)
        assert freed is not None
        assert freed.objects == 40
        assert freed.left > 3 * MIB
        assert freed.after > 5 * MIB
        assert (tmp_path / "state.db-wal").stat().st_size == 0
        freed = await vacuum(settings, rewrite=True)
        assert freed is not None
        assert freed.left == 0
        assert freed.after < 3 * MIB
        # The router's own connections go on with what is now another file inside.
        await fill(database, "late", int(time.time()), 1)
        assert await ResponseStore(database).get("ann", "resp_new_7") is not None
    report = await check(settings)
    assert (report.counts["responses"], report.problems) == (21, [])


async def test_somebody_who_lets_nobody_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.state.maintenance.sqlite._BUSY_SECONDS", 0.2)
    path = tmp_path / "state.db"
    settings = state_settings(f"sqlite:///{path}")
    async with opened(settings.url.get_secret_value()) as database:
        await fill(database, "old", 1000, 2)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateError, match=r"another process.*try again.*or stop"):
            await vacuum(settings, rewrite=False)
        assert (await check(settings)).counts["responses"] == 2
        holder.execute("ROLLBACK")
    freed = await vacuum(settings, rewrite=False)
    assert freed is not None
    assert freed.objects == 2
