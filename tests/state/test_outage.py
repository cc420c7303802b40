"""PostgreSQL is killed, frozen, and comes back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
import structlog

from router.errors import StateUnavailable
from router.state.database import Database, StateError
from router.state.statement import Statement, StatementStep
from tests.support.cluster import Cluster, cluster
from tests.support.state import opened
from tests.support.waiting import until

ADD = Statement("INSERT INTO routers (id, until) VALUES (:id, 1.0) ON CONFLICT DO NOTHING")
RENEW = Statement("UPDATE routers SET until = until WHERE id = :id")
ALL = Statement("SELECT id FROM routers")


def add(id: str) -> StatementStep:
    return StatementStep(ADD, [{"id": id}])


@pytest.fixture(scope="module")
def _server() -> Iterator[Cluster]:
    with cluster() as server:
        yield server


@pytest.fixture
def server(_server: Cluster) -> Iterator[Cluster]:
    """A server that runs, however the last test left it."""
    if not _server.runs:
        _server.start()
    yield _server
    if _server.runs:
        _server.thaw()


async def load(database: Database, name: str, ends: Counter[str], stop: asyncio.Event) -> set[str]:
    """Writes until ``stop``; returns what was acknowledged. Guarded jobs take turns with others."""
    written: set[str] = set()
    n = 0
    while not stop.is_set():
        n += 1
        steps = [add(f"{name}-{n}"), add(f"{name}-{n}-too")]
        if n % 3 == 0:
            steps.append(StatementStep(RENEW, [{"id": f"{name}-{n}"}], guard=True))
        try:
            assert await database.write(*steps)
            written |= {f"{name}-{n}", f"{name}-{n}-too"}
            ends["written"] += 1
        except StateUnavailable:
            ends["refused"] += 1
    return written


@pytest.mark.parametrize("down", [0.0, 2.0], ids=["short", "long"])
async def test_killed_under_load(server: Cluster, down: float) -> None:
    """What was acknowledged is there; what was not raised StateUnavailable; nothing hangs."""
    ends: Counter[str] = Counter()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    timeout = 15.0 if down == 0.0 else 1.0
    async with asyncio.timeout(100), opened(server.url, timeout=timeout) as database:
        loads = [
            asyncio.ensure_future(load(database, f"{down}-{k}", ends, stop)) for k in range(16)
        ]
        for _ in range(2):
            before = ends["written"]
            await until(lambda: ends["written"] > before + 100)  # noqa: B023
            await loop.run_in_executor(None, server.kill)
            await asyncio.sleep(down)
            await loop.run_in_executor(None, server.start)
        before = ends["written"]
        await until(lambda: ends["written"] > before + 100)
        stop.set()
        written = set().union(*await asyncio.gather(*loads))
        there = {row[0] for row in await database.read(ALL)}
        assert written <= there
        assert {f"{name}-too" for name in there if not name.endswith("-too")} <= there
        assert database.up
    assert (ends["refused"] > 0) is (down > 0)


async def test_it_notices_by_itself(server: Cluster) -> None:
    """While nobody asks for anything; one line in the log for each change."""
    loop = asyncio.get_running_loop()
    with structlog.testing.capture_logs() as log:
        async with asyncio.timeout(60), opened(server.url, timeout=5.0) as database:
            assert await database.write(add("a"))
            await loop.run_in_executor(None, server.kill)
            await until(lambda: not database.up)
            for _ in range(3):
                with pytest.raises(StateUnavailable) as caught:
                    await database.read(ALL)
                assert caught.value.headers == {"Retry-After": "1"}
            await loop.run_in_executor(None, server.start)
            await until(lambda: database.up)
            assert ("a",) in await database.read(ALL)
    assert [line["event"] for line in log] == [
        "the database does not answer",
        "the database answers again",
    ]


async def test_frozen(server: Cluster) -> None:
    async with asyncio.timeout(60), opened(server.url, timeout=1.0) as database:
        assert await database.write(add("warm"))
        await database.read(ALL)
        server.freeze()
        work = [database.write(add(f"f{n}")) for n in range(20)]
        reads = [database.read(ALL) for _ in range(20)]
        results = await asyncio.gather(*work, *reads, return_exceptions=True)
        assert all(isinstance(result, StateUnavailable) for result in results)
        assert not database.up
        server.thaw()
        await until(lambda: database.up)
        assert await database.write(add("thawed"))
        assert ("thawed",) in await database.read(ALL)


async def test_frozen_while_idle_and_at_the_end(server: Cluster) -> None:
    async with asyncio.timeout(60), opened(server.url, timeout=30.0) as database:
        assert await database.write(add("a"))
        server.freeze()
        await until(lambda: not database.up)


async def test_start_on_a_server_that_does_not_answer(server: Cluster) -> None:
    server.freeze()
    async with asyncio.timeout(60):
        with pytest.raises(StateError, match="cannot be used: TimeoutError"):
            async with opened(server.url):
                pass
    server.thaw()
    server.kill()
    with pytest.raises(StateError, match="cannot be used"):
        async with opened(server.url):
            pass
