"""The schema is brought up to date, by one process at a time, or left as it was."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from router.state import migrate
from router.state.database import Database, StateError
from router.state.schema import SCHEMA_VERSION, VERSIONS
from router.state.statement import Statement, StatementStep
from tests.support.children import python
from tests.support.state import opened

VERSION = Statement("SELECT version FROM pointsman_schema")
NEXT = ("CREATE TABLE extra (n {int})", "INSERT INTO extra (n) VALUES (7)")
EXTRA = Statement("SELECT n FROM extra")

START = """
import asyncio, sys
from router.state.connect import open_database
from tests.support.state import state_settings

async def main():
    database = open_database(state_settings(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    await database.start()
    await database.close()

asyncio.run(main())
"""


def know(monkeypatch: pytest.MonkeyPatch, *more: tuple[str, ...]) -> None:
    monkeypatch.setattr(migrate, "VERSIONS", (*VERSIONS, *more))
    monkeypatch.setattr(migrate, "SCHEMA_VERSION", SCHEMA_VERSION + len(more))


async def test_the_version_is_written_down(database: Database) -> None:
    assert await database.read(VERSION) == [(SCHEMA_VERSION,)]


async def test_an_older_schema_is_brought_up_to_date(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database_url) as database:
        keep = Statement("INSERT INTO routers (id, until) VALUES ('kept', 1.0)")
        await database.write(StatementStep(keep, [{}]))
    know(monkeypatch, NEXT, ("INSERT INTO extra (n) VALUES (8)",))
    for _ in range(2):
        async with opened(database_url) as database:
            assert await database.read(VERSION) == [(SCHEMA_VERSION + 2,)]
            assert await database.read(EXTRA) == [(7,), (8,)]
            assert await database.read(Statement("SELECT id FROM routers")) == [("kept",)]


async def test_each_version_leads_to_the_next(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first release stored is there after the last, and every version was one."""
    keep = StatementStep(Statement("INSERT INTO routers (id, until) VALUES ('kept', 1.0)"), [{}])
    for version in range(1, SCHEMA_VERSION + 1):
        with monkeypatch.context() as older:
            older.setattr(migrate, "VERSIONS", VERSIONS[:version])
            older.setattr(migrate, "SCHEMA_VERSION", version)
            async with opened(database_url) as database:
                assert await database.read(VERSION) == [(version,)]
                if version == 1:
                    await database.write(keep)
                assert await database.read(Statement("SELECT id FROM routers")) == [("kept",)]


async def test_a_newer_schema_is_refused(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        know(newer, NEXT)
        async with opened(database_url):
            pass
    with pytest.raises(StateError) as caught:
        async with opened(database_url):
            pass
    message = str(caught.value)
    assert f"version {SCHEMA_VERSION + 1}" in message
    assert f"up to {SCHEMA_VERSION};" in message
    assert "upgrade Pointsman (nothing was changed)" in message
    know(monkeypatch, NEXT)
    async with opened(database_url) as database:
        assert await database.read(EXTRA) == [(7,)]


async def test_a_half_failed_version_leaves_the_one_before(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        know(broken, NEXT, ("CREATE TABLE other (n {int})", "INSERT INTO nowhere VALUES (1)"))
        with pytest.raises(StateError, match="cannot be used"):
            async with opened(database_url):
                pass
    know(monkeypatch, NEXT, ("CREATE TABLE other (n {int})",))
    async with opened(database_url) as database:
        assert await database.read(VERSION) == [(SCHEMA_VERSION + 2,)]
        assert await database.read(Statement("SELECT n FROM other")) == []


async def test_several_start_at_once_in_one_process(database_url: str) -> None:
    async def start() -> None:
        async with opened(database_url) as database:
            assert await database.read(VERSION) == [(SCHEMA_VERSION,)]

    await asyncio.gather(*[start() for _ in range(5)])


async def test_several_processes_start_at_once(database_url: str) -> None:
    children = [await python(START, database_url) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
    ends = await asyncio.gather(*[child.communicate(b"\n") for child in children])
    assert [(child.returncode, err) for child, (_, err) in zip(children, ends, strict=True)] == [
        (0, b"")
    ] * 3
    async with opened(database_url) as database:
        assert await database.read(VERSION) == [(SCHEMA_VERSION,)]


async def test_others_tables_stay(database_url: str) -> None:
    """A database that is used for something else, too."""
    if database_url.startswith("sqlite"):
        import sqlite3

        connection: Any = sqlite3.connect(database_url.removeprefix("sqlite:///"))
        connection.execute("CREATE TABLE mine (n INTEGER)")
        connection.close()
    else:
        connection = await asyncpg.connect(database_url)
        await connection.execute("CREATE TABLE mine (n INTEGER)")
        await connection.close()
    async with opened(database_url) as database:
        assert await database.read(Statement("SELECT * FROM mine")) == []
