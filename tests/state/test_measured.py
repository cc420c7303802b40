"""Operations of a database are counted, whatever becomes of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import structlog

from router.errors import StateUnavailable
from router.state.connect import open_database
from router.state.database import Database, WriteRefused
from router.state.statement import Statement, StatementStep
from tests.support.state import state_settings

ADD = Statement("INSERT INTO routers (id, until) VALUES (:id, 1.0)")
ALL = Statement("SELECT id FROM routers ORDER BY id")

Counts = Counter[tuple[str, bool]]
Measured = tuple[Database, Counts]


def add(id: str) -> StatementStep:
    return StatementStep(ADD, [{"id": id}])


@pytest.fixture
async def measured(database_url: str) -> AsyncIterator[Measured]:
    """A database, and what was told of its operations."""
    counts = Counts()

    def told(kind: str, seconds: float, *, ok: bool) -> None:
        assert 0 <= seconds < 30
        counts[kind, ok] += 1

    database = open_database(state_settings(database_url), told)
    await database.start()
    yield database, counts
    await database.close()


async def test_reads_and_writes_are_counted(measured: Measured) -> None:
    database, counts = measured
    assert await database.write(add("a"))
    assert await database.submit(add("b"))
    assert await database.read(ALL) == [("a",), ("b",)]
    assert counts == {("write", True): 2, ("read", True): 1}


async def test_what_fails_is_counted_and_raised(measured: Measured) -> None:
    database, counts = measured
    await database.write(add("a"))
    with pytest.raises(WriteRefused):
        await database.write(add("a"))
    with pytest.raises(WriteRefused):
        await database.submit(add("a"))
    assert counts == {("write", True): 1, ("write", False): 2}


async def test_what_is_read_after_the_end_counts_as_failed(measured: Measured) -> None:
    database, counts = measured
    await database.close()
    with pytest.raises(StateUnavailable):
        await database.read(ALL)
    assert counts == {("read", False): 1}


async def test_a_write_whose_caller_left_counts_once_it_is_committed(measured: Measured) -> None:
    database, counts = measured
    leaving = asyncio.ensure_future(database.write(add("a")))
    await asyncio.sleep(0)
    leaving.cancel()
    await database.write(add("b"))
    assert await database.read(ALL) == [("a",), ("b",)]
    assert counts == {("write", True): 2, ("read", True): 1}


async def test_what_nobody_waits_for_is_logged_all_the_same(measured: Measured) -> None:
    database, counts = measured
    await database.write(add("a"))
    with structlog.testing.capture_logs() as log:
        database.submit(add("a"))
        await database.write(add("b"))
    assert "state was not written" in [line["event"] for line in log]
    assert counts == {("write", True): 2, ("write", False): 1}
