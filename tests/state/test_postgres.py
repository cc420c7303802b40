"""What only a PostgreSQL server can do wrong."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio
import structlog

from router.errors import StateUnavailable
from router.state.connect import open_database
from router.state.database import StateError, Unreachable
from router.state.link import DatabaseLink, without_password
from router.state.postgres import PostgresDatabase
from router.state.statement import Statement, StatementStep
from tests.support.state import opened, postgresql_url, state_settings
from tests.support.waiting import until

ADD = Statement("INSERT INTO routers (id, until) VALUES (:id, 1.0)")
MOVE = Statement("UPDATE routers SET until = until + 1 WHERE id = :id")
ALL = Statement("SELECT id FROM routers ORDER BY id")
CUT = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def add(id: str) -> StatementStep:
    return StatementStep(ADD, [{"id": id}])


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    async with postgresql_url() as url:
        yield url


@pytest_asyncio.fixture
async def operator(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody with a connection of their own to the same database."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


async def pids(operator: asyncpg.Connection) -> set[int]:
    """The server's side of every connection there is."""
    return {row[0] for row in await operator.fetch("SELECT pid FROM pg_stat_activity")}


def test_without_asyncpg(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("asyncpg", "router.state.postgres", "router.state.link"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StateError, match=r"pip install '\.\[postgres\]'"):
        open_database(state_settings("postgresql://u:s3cret@127.0.0.1/x"))


@pytest.mark.parametrize(
    "rest",
    ["127.0.0.1:1/x", "127.0.0.1:port/x", "127.0.0.1:1/x?sslmode=s3cret", "[::1/x", "no.invalid/x"],
)
async def test_no_password_in_a_message(rest: str) -> None:
    with pytest.raises(StateError) as caught:
        async with asyncio.timeout(60), opened(f"postgresql://user:s3cret@{rest}"):
            pass
    assert str(caught.value).startswith("The PostgreSQL database cannot be used: ")
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_password_is_blotted_out() -> None:
    said = "no entry for\n p%40ss at p@ss"
    assert without_password("postgresql://u:p%40ss@h/d", said) == "no entry for *** at ***"
    assert without_password("postgresql://u@h/d", said) == "no entry for p%40ss at p@ss"


async def test_a_database_that_is_not_there(url: str) -> None:
    elsewhere = urlsplit(url)._replace(path="/pointsman_no_such_database").geturl()
    with pytest.raises(StateError, match='database "pointsman_no_such_database" does not exist'):
        async with opened(elsewhere):
            pass


async def test_connections_that_are_cut_are_no_outage(
    url: str, operator: asyncpg.Connection
) -> None:
    """A failover of the pooler, an administrator: the next connection is made unnoticed."""
    with structlog.testing.capture_logs() as log:
        async with opened(url) as database:
            for n in range(5):
                assert await database.write(
                    add(f"{n}"), StatementStep(MOVE, [{"id": f"{n}"}], guard=True)
                )
                await asyncio.gather(*[database.read(ALL) for _ in range(8)])
                await operator.execute(CUT)
                if n % 2:
                    await asyncio.sleep(0.05)
                assert len(await database.read(ALL)) == n + 1
    assert [line for line in log if line["log_level"] == "error"] in ([], log)


async def test_a_read_only_server_is_down(url: str, operator: asyncpg.Connection) -> None:
    """As a replica is after a failover: nothing was wrong with the row."""
    name = urlsplit(url).path.removeprefix("/")
    async with asyncio.timeout(60), opened(url, timeout=1.0) as database:
        await operator.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await operator.execute(CUT)
        with pytest.raises(StateUnavailable):
            await database.write(add("a"))
        assert not database.up
        await asyncio.sleep(1.5)
        assert not database.up
        await operator.execute("SET default_transaction_read_only = off")
        await operator.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await operator.execute(CUT)
        await until(lambda: database.up)
        assert await database.write(add("b"))
        assert await database.read(ALL) == [("b",)]


async def test_a_lock_ends_in_time(url: str, operator: asyncpg.Connection) -> None:
    async with asyncio.timeout(60), opened(url, timeout=1.0) as database:
        async with operator.transaction():
            await operator.execute("LOCK TABLE routers IN ACCESS EXCLUSIVE MODE")
            work = [database.write(add(f"{n}")) for n in range(3)]
            work += [database.read(ALL) for _ in range(6)]  # type: ignore[misc]
            results = await asyncio.gather(*work, return_exceptions=True)
            assert all(isinstance(result, StateUnavailable) for result in results)
        await until(lambda: database.up)
        assert await database.write(add("after"))


async def test_a_router_that_is_stopped_in_mid_transaction(url: str) -> None:
    """Its locks go to the others while it stands still; it goes on with a fresh connection."""

    async def stand_still(connection: asyncpg.Connection) -> None:
        async with connection.transaction():
            await connection.execute("UPDATE routers SET until = 0 WHERE id = 'a'")
            locked.set()
            await asyncio.sleep(4)

    locked = asyncio.Event()
    async with asyncio.timeout(60), opened(url) as one, opened(url, timeout=10.0) as other:
        assert isinstance(one, PostgresDatabase)
        await one.write(add("a"))
        standing = asyncio.ensure_future(one._link.run(stand_still, 30.0))
        await locked.wait()
        assert await other.write(StatementStep(MOVE, [{"id": "a"}], guard=True))
        with pytest.raises(Unreachable):
            await standing
        assert await one.write(add("b"))
        assert await one.read(Statement("SELECT until FROM routers WHERE id = 'a'")) == [(2.0,)]


async def test_deadlocks_are_tried_again(url: str, operator: asyncpg.Connection) -> None:
    async with asyncio.timeout(60), opened(url, timeout=30.0) as database:
        await database.write(add("a"), add("b"))
        move_a, move_b = (StatementStep(MOVE, [{"id": id}]) for id in "ab")
        with structlog.testing.capture_logs() as log:
            for _ in range(3):
                transaction = operator.transaction()
                await transaction.start()
                await operator.execute("UPDATE routers SET until = 0 WHERE id = 'b'")
                ours = asyncio.ensure_future(database.write(move_a, move_b))
                waiting = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"
                while not await operator.fetchval(waiting):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                try:
                    await operator.execute("UPDATE routers SET until = 0 WHERE id = 'a'")
                    await transaction.commit()
                except asyncpg.DeadlockDetectedError:
                    await transaction.rollback()
                assert await ours
        assert log == []


@pytest.mark.parametrize(("durability", "level"), [("process", "off"), ("power", "on")])
async def test_durability(
    url: str, operator: asyncpg.Connection, durability: str, level: str
) -> None:
    name = urlsplit(url).path.removeprefix("/")
    await operator.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    async with opened(url, durability=durability) as database:
        assert await database.read(Statement("SHOW synchronous_commit")) == [(level,)]


async def test_the_connections_end(url: str, operator: asyncpg.Connection) -> None:
    count = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'pointsman'"
    )
    async with opened(url) as database:
        await asyncio.gather(*[database.read(ALL) for _ in range(50)])
        await asyncio.gather(*[database.write(add(f"{n}")) for n in range(50)])
        assert 2 <= await operator.fetchval(count) <= 5
    async with asyncio.timeout(60):
        while await operator.fetchval(count):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_who_leaves_while_a_connection_is_made(
    url: str, operator: asyncpg.Connection
) -> None:
    """It is made all the same, and nobody's error is left over."""
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

    async def which(connection: Any) -> int:
        return int(await connection.fetchval("SELECT pg_backend_pid()"))

    for steps in range(2, 40):
        link = DatabaseLink(url, {"application_name": f"left after {steps}"}, lambda: None)
        leaving = asyncio.create_task(link.run(which, 5.0))
        for _ in range(steps):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        if steps % 2:
            assert await link.run(which, 5.0) in await pids(operator)
        await link.close()
    gc.collect()
    assert faults == []


async def test_a_slow_read_of_one_is_no_outage_for_all() -> None:
    async with postgresql_url() as url, opened(url, timeout=0.5) as database:
        with pytest.raises(StateUnavailable):
            await database.read(Statement("SELECT 1 FROM pg_sleep(3)"))
        assert database.up
        assert await database.read(Statement("SELECT 1")) == [(1,)]
