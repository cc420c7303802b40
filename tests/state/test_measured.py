"""Operations of a database are counted, whatever becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog
from prometheus_client import CollectorRegistry

from router.errors import StateUnavailable
from router.state.connect import open_database
from router.state.database import Database, WriteRefused
from router.state.statement import Statement, StatementStep
from router.telemetry.account_metrics import StateMetrics
from tests.support.state import state_settings

ADD = Statement("INSERT INTO routers (id, until) VALUES (:id, 1.0)")
ALL = Statement("SELECT id FROM routers ORDER BY id")

Measured = tuple[Database, CollectorRegistry]


def add(id: str) -> StatementStep:
    return StatementStep(ADD, [{"id": id}])


@pytest.fixture
async def measured(database_url: str) -> AsyncIterator[Measured]:
    """A database, and where its operations are counted."""
    registry = CollectorRegistry()
    database = open_database(state_settings(database_url), StateMetrics(registry))
    await database.start()
    yield database, registry
    await database.close()


def counted(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """How many operations were counted, by kind and result; each was timed, too."""
    counts = {}
    for kind in ("read", "write"):
        all_of_it = 0.0
        for result in ("ok", "failed"):
            labels = {"kind": kind, "result": result}
            count = registry.get_sample_value("pointsman_state_operations_total", labels)
            assert count is not None
            all_of_it += count
            counts[kind, result] = count
        seconds = "pointsman_state_operation_seconds"
        assert registry.get_sample_value(f"{seconds}_count", {"kind": kind}) == all_of_it
        assert 0 <= (registry.get_sample_value(f"{seconds}_sum", {"kind": kind}) or 0.0) < 30
    return {what: count for what, count in counts.items() if count}


async def test_reads_and_writes_are_counted(measured: Measured) -> None:
    database, registry = measured
    assert await database.write(add("a"))
    assert await database.submit(add("b"))
    assert await database.read(ALL) == [("a",), ("b",)]
    assert counted(registry) == {("write", "ok"): 2, ("read", "ok"): 1}


async def test_what_fails_is_counted_and_raised(measured: Measured) -> None:
    database, registry = measured
    await database.write(add("a"))
    with pytest.raises(WriteRefused):
        await database.write(add("a"))
    with pytest.raises(WriteRefused):
        await database.submit(add("a"))
    assert counted(registry) == {("write", "ok"): 1, ("write", "failed"): 2}


async def test_what_is_read_after_the_end_counts_as_failed(measured: Measured) -> None:
    database, registry = measured
    await database.close()
    with pytest.raises(StateUnavailable):
        await database.read(ALL)
    assert counted(registry) == {("read", "failed"): 1}


async def test_a_write_whose_caller_left_counts_once_it_is_committed(measured: Measured) -> None:
    database, registry = measured
    leaving = asyncio.ensure_future(database.write(add("a")))
    await asyncio.sleep(0)
    leaving.cancel()
    await database.write(add("b"))
    assert await database.read(ALL) == [("a",), ("b",)]
    assert counted(registry) == {("write", "ok"): 2, ("read", "ok"): 1}


async def test_what_nobody_waits_for_is_logged_all_the_same(measured: Measured) -> None:
    database, registry = measured
    await database.write(add("a"))
    with structlog.testing.capture_logs() as log:
        database.submit(add("a"), heard=False)
        await database.write(add("b"))
    assert "state was not written" in [line["event"] for line in log]
    assert counted(registry) == {("write", "ok"): 2, ("write", "failed"): 1}
