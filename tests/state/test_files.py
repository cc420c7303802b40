"""The files of a SQLite database are deleted, moved or replaced while it is open."""

# ruff: noqa: ASYNC240 - nobody else waits for this loop

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from router.errors import StateUnavailable
from router.state.database import Database
from router.state.statement import Statement, StatementStep
from tests.support.calling import answering
from tests.support.children import python
from tests.support.router import endpoint, routing
from tests.support.state import opened
from tests.support.waiting import until

ADD = Statement("INSERT INTO routers (id, until) VALUES (:id, 1.0) ON CONFLICT DO NOTHING")
ALL = Statement("SELECT id FROM routers ORDER BY id")

LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


def add(id: str) -> StatementStep:
    return StatementStep(ADD, [{"id": id}])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    return place / "state.db"


@pytest_asyncio.fixture
async def file(path: Path) -> AsyncIterator[Database]:
    async with opened(f"sqlite:///{path}", timeout=2.0) as database:
        assert await database.write(add("before"))
        yield database


def delete(path: Path) -> None:
    path.unlink()


def delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def remove_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


LOSSES = [delete, delete_log, move, replace, remove_directory]


@pytest.mark.parametrize("lose", LOSSES)
async def test_nothing_is_acknowledged_that_is_lost(
    file: Database, path: Path, lose: Callable[[Path], None]
) -> None:
    """No write is, not even the first one after it."""
    lose(path)
    with structlog.testing.capture_logs() as log:
        for name in ("a", "b"):
            with pytest.raises(StateUnavailable):
                await file.write(add(name))
    assert not file.up
    [line] = log
    assert line["event"] == "the database does not answer"
    assert "restart the router" in line["error"]


@pytest.mark.parametrize("lose", LOSSES)
async def test_it_is_noticed_while_nobody_writes(
    file: Database, path: Path, lose: Callable[[Path], None]
) -> None:
    lose(path)
    await until(lambda: not file.up)


async def test_nothing_is_made_in_its_place(file: Database, path: Path) -> None:
    """Neither by the writer, nor by a reader that opens the file for the first time."""
    delete(path)
    with pytest.raises(StateUnavailable):
        await file.write(add("a"))
    for _ in range(4):
        with pytest.raises(StateUnavailable):
            await file.read(ALL)
    assert not path.exists()


async def test_it_goes_on_when_the_file_is_back(file: Database, path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    path.rename(elsewhere)
    await until(lambda: not file.up)
    elsewhere.rename(path)
    await until(lambda: file.up)
    assert await file.write(add("later"))
    assert await file.read(ALL) == [("before",), ("later",)]


async def test_a_restart_goes_on_with_what_is_there(path: Path) -> None:
    """Closing the one that had the old file leaves the new one alone."""
    async with opened(f"sqlite:///{path}", timeout=1.0) as old:
        assert await old.write(add("old"))
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink()
        async with opened(f"sqlite:///{path}") as new:
            assert await new.write(add("new"))
            with pytest.raises(StateUnavailable):
                await old.write(add("late"))
            await old.close()
            assert await new.write(add("newer"))
            assert await new.read(ALL) == [("new",), ("newer",)]
    async with opened(f"sqlite:///{path}") as again:
        assert await again.read(ALL) == [("new",), ("newer",)]


@pytest.mark.parametrize("on_down", ["fail", "degrade"])
async def test_a_router_says_so(path: Path, on_down: str) -> None:
    state = {"url": f"sqlite:///{path}", "on_down": on_down}
    async with (
        answering("chat") as upstream,
        routing(endpoint(upstream, "chat"), state=state) as router,
    ):
        assert (await router.ask()).status == 200
        move(path)
        first = await router.ask()  # the one that finds out
        if on_down == "fail":
            assert (first.status, first.error["type"]) == (503, "server_error")
        else:
            assert first.status == 200
        assert await router.metric("pointsman_state_up") == [0]
        async with router.http.get(router.url + "/ready") as answer:
            assert (answer.status, (await answer.json())["state"]) == (200, False)
        asked = len(upstream.requests)
        reply = await router.ask()
        if on_down == "fail":
            assert (reply.status, len(upstream.requests)) == (503, asked)
        else:
            assert (reply.status, reply.json["store"]) == (200, False)
        assert (await router.ask(store=False)).status == 200
        said = [line["event"] for line in router.log if line["log_level"] == "error"]
        assert said[0] == "the database does not answer"
        path.with_name("elsewhere").rename(path)
        await router.metric_becomes(1, "pointsman_state_up")
        assert (await router.ask()).status == 200
        router.log.clear()  # errors in it would fail the test


async def test_a_lock_is_no_outage_while_writes_wait_for_it(path: Path) -> None:
    """A vacuum beside the router holds the file for a while; SQLite's own wait ends before."""
    async with opened(f"sqlite:///{path}", timeout=60.0) as database:
        await database.write(add("a"))
        holder = await python(LOCK, str(path))
        assert holder.stdout is not None
        await holder.stdout.readline()
        with structlog.testing.capture_logs() as log:
            waiting = database.submit(add("b"))
            await until(lambda: database._locked != "")  # type: ignore[attr-defined]
            assert database.up
            await holder.communicate(b"\n")
            assert await asyncio.wait_for(waiting, 60)
        assert database.up
        assert log == []
