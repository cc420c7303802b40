"""Operations of a database are counted, whatever becomes of them."""

from __future__ import annotations

from collections import Counter

import pytest
import structlog

from router.state.database import Database, WriteRefused
from router.state.health import MeasuredDatabase
from router.state.statement import Statement, StatementStep

ADD = Statement("INSERT INTO routers (id, until) VALUES (:id, 1.0)")
ALL = Statement("SELECT id FROM routers ORDER BY id")


class Told:
    """What was told of operations, and how long they took."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, bool]] = Counter()

    def __call__(self, kind: str, seconds: float, *, ok: bool) -> None:
        assert 0 <= seconds < 30
        self.counts[kind, ok] += 1


def add(id: str) -> StatementStep:
    return StatementStep(ADD, [{"id": id}])


async def test_reads_and_writes_are_counted(database: Database) -> None:
    told = Told()
    measured = MeasuredDatabase(database, told)
    assert (measured.dialect, measured.up) == (database.dialect, True)
    assert await measured.write(add("a"))
    assert await measured.submit(add("b"))
    assert await measured.read(ALL) == [("a",), ("b",)]
    assert told.counts == {("write", True): 2, ("read", True): 1}


async def test_what_fails_is_counted_and_raised(database: Database) -> None:
    told = Told()
    measured = MeasuredDatabase(database, told)
    await measured.write(add("a"))
    with pytest.raises(WriteRefused):
        await measured.write(add("a"))
    with pytest.raises(WriteRefused):
        await measured.submit(add("a"))
    assert told.counts == {("write", True): 1, ("write", False): 2}


async def test_what_nobody_waits_for_is_logged_all_the_same(database: Database) -> None:
    told = Told()
    measured = MeasuredDatabase(database, told)
    await measured.write(add("a"))
    with structlog.testing.capture_logs() as log:
        measured.submit(add("a"))
        await measured.write(add("b"))
    assert "state was not written" in [line["event"] for line in log]
    assert told.counts == {("write", True): 2, ("write", False): 1}
