"""What both databases promise, on both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import structlog
from structlog.typing import EventDict

from router.errors import StateUnavailable
from router.state.database import Database, WriteRefused
from router.state.statement import Row, Statement, StatementStep, Value
from tests.support.state import opened

ADD = Statement("INSERT INTO routers (id, until) VALUES (:id, :until)")
ADD_ONCE = Statement("INSERT INTO routers (id, until) VALUES (:id, :until) ON CONFLICT DO NOTHING")
MOVE = Statement("UPDATE routers SET until = :until WHERE id = :id")
RAISE = Statement("UPDATE routers SET until = :until WHERE id = :id AND until = :before")
REMOVE = Statement("DELETE FROM routers WHERE id = :id")
ALL = Statement("SELECT id, until FROM routers ORDER BY id")
ONE = Statement("SELECT until FROM routers WHERE id = :id")


def add(*ids: str, until: float | None = 1.0, once: bool = False) -> StatementStep:
    rows: list[Row] = [{"id": id, "until": until} for id in ids]
    return StatementStep(ADD_ONCE if once else ADD, rows)


def move(*ids: str, until: float = 2.0) -> StatementStep:
    return StatementStep(MOVE, [{"id": id, "until": until} for id in ids], guard=True)


async def ids(database: Database) -> list[str]:
    return [row[0] for row in await database.read(ALL)]


@pytest.fixture
def log() -> Iterator[list[EventDict]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


async def test_steps_of_one_job_follow_one_another(database: Database) -> None:
    move_one = StatementStep(MOVE, [{"id": "a", "until": 5.0}])
    remove_one = StatementStep(REMOVE, [{"id": "b"}])
    assert await database.write(add("a", "b"), move_one, remove_one, add("c"))
    assert await database.read(ALL) == [("a", 5.0), ("c", 1.0)]
    assert await database.read(ONE, id="a") == [(5.0,)]


async def test_jobs_take_effect_in_order(database: Database) -> None:
    before = [
        StatementStep(RAISE, [{"id": "a", "until": n + 1.0, "before": float(n)}]) for n in range(20)
    ]
    waiting = [database.submit(add("a", until=0.0)), *[database.submit(step) for step in before]]
    waiting += [database.submit(StatementStep(REMOVE, [{"id": "b"}])), database.submit(add("b"))]
    assert all(await asyncio.gather(*waiting))
    assert await database.read(ALL) == [("a", 20.0), ("b", 1.0)]


async def test_many_rows(database: Database) -> None:
    names = [f"{n:05}" for n in range(3000)]
    jobs = [database.write(add(*names[n : n + 7])) for n in range(0, 3000, 7)]
    assert all(await asyncio.gather(*jobs))
    assert await ids(database) == names


async def test_values_come_back_as_they_went(database: Database) -> None:
    table = Statement("CREATE TABLE things (number {int}, real {real}, data {blob}, text TEXT)")
    await database.write(StatementStep(table, [{}]))
    write = Statement("INSERT INTO things VALUES (:number, :real, :data, :text)")
    rows: list[tuple[Value, ...]] = [
        (2**63 - 1, 1e300, bytes(range(256)), "naïve \U0001f600 ' \" \\ :name $1 ?1"),
        (-(2**63), 0.1, b"", None),
        (None, -0.5, b'{"a":"\\u0000"}', ""),
    ]
    job = StatementStep(write, [dict(zip(write.names, row, strict=True)) for row in rows])
    assert await database.write(job)
    assert await database.read(Statement("SELECT * FROM things")) == rows


async def test_the_time_is_that_of_the_database(database: Database) -> None:
    [(now,)] = await database.read(Statement("SELECT {now}"))
    assert isinstance(now, float)
    [(later,)] = await database.read(Statement("SELECT {now}"))
    assert now <= later < now + 60


@pytest.mark.parametrize("holds", [True, False])
async def test_a_guard_alone(database: Database, holds: bool) -> None:
    await database.write(add("a"))
    assert await database.write(move("a" if holds else "nobody")) is holds
    assert await database.read(ONE, id="a") == [(2.0 if holds else 1.0,)]


@pytest.mark.parametrize("jobs", [1, 30])
@pytest.mark.parametrize("form", ["first", "many rows", "last", "two"])
async def test_a_refused_guard_takes_its_own_job_along(
    database: Database, form: str, jobs: int
) -> None:
    """Every other job is refused, in every form that a guard can have."""
    names = [f"{n:02}" for n in range(jobs)]
    await database.write(add(*names))

    def steps(n: int, name: str) -> list[StatementStep]:
        other = "nobody" if n % 2 else name
        return {
            "first": [move(other), add(f"{name}-new")],
            "many rows": [move(name, other), add(f"{name}-new")],
            "last": [add(f"{name}-new"), move(other)],
            "two": [move(name), add(f"{name}-new"), move(f"{name}-new"), move(other)],
        }[form]

    writes = [database.write(*steps(n, name)) for n, name in enumerate(names)]
    assert await asyncio.gather(*writes) == [n % 2 == 0 for n in range(jobs)]
    rows = dict(await database.read(ALL))
    assert {n for n in rows if n.endswith("-new")} == {f"{n}-new" for n in names[::2]}
    assert [rows[name] for name in names] == [1.0 if n % 2 else 2.0 for n in range(jobs)]


async def test_a_guard_sees_the_job_before_it(database: Database) -> None:
    """Compare-and-set of one row by many at once: one of them wins."""
    await database.write(add("a", until=0.0))
    row: Row = {"id": "a", "before": 0.0}
    tries = [
        database.write(StatementStep(RAISE, [{**row, "until": n + 1.0}], guard=True), add(f"b{n}"))
        for n in range(20)
    ]
    assert (await asyncio.gather(*tries)).count(True) == 1
    assert len(await ids(database)) == 2


POISON = {
    "NULL": add("p", until=None),
    "twice": add("p", "p"),
    "no such table": StatementStep(
        Statement("INSERT INTO nowhere (id) VALUES (:id)"), [{"id": "p"}]
    ),
    "no parent": StatementStep(
        Statement("INSERT INTO events (response, first, last, data) VALUES (:id, 0, 0, :data)"),
        [{"id": "p", "data": b""}],
    ),
    "parameter missing": StatementStep(ADD, [{"id": "p"}]),
    "number too large": StatementStep(
        Statement("INSERT INTO pointsman_schema VALUES (:version)"), [{"version": 2**63}]
    ),
    "surrogate": add("p\ud800"),
    "not a value": StatementStep(ADD, [{"id": object(), "until": 1.0}]),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("kind", POISON)
async def test_a_poisoned_row_among_fifty(
    database: Database, kind: str, log: list[EventDict]
) -> None:
    """Its job is refused as a whole; each of its neighbours is written. Guarded ones, too."""
    await database.write(add("guard"))
    for prefix, guard in (("a", []), ("b", [move("guard")])):
        names = [f"{prefix}{n:02}" for n in range(50)]
        jobs = [database.submit(*guard, add(name)) for name in names]
        jobs[23:23] = [database.submit(*guard, add("with it"), POISON[kind])]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert isinstance(results.pop(23), WriteRefused)
        assert results == [True] * 50
        assert [name for name in await ids(database) if name[0] == prefix] == names
    assert "with it" not in await ids(database)
    assert database.up
    assert [line["event"] for line in log] == ["the database refuses a row"] * 2


async def test_a_zero_in_a_text(database: Database) -> None:
    """PostgreSQL cannot hold it: refused there, never found there, and harmless to others."""
    results = await asyncio.gather(
        *[database.submit(add(name)) for name in ("a", "with\0zero", "b")], return_exceptions=True
    )
    assert [results[0], results[2]] == [True, True]
    found = await database.read(ONE, id="with\0zero")
    if database.dialect == "postgresql":
        assert isinstance(results[1], WriteRefused)
        assert found == []
    else:
        assert results[1] is True
        assert found == [(1.0,)]


async def test_what_cannot_be_stored_is_not_there(database: Database) -> None:
    by_number = Statement("SELECT * FROM pointsman_schema WHERE version = :number")
    assert await database.read(ONE, id="\ud800") == []
    assert await database.read(by_number, number=2**63) == []
    await database.write(add("a"))
    assert await database.read(ONE, id="a") == [(1.0,)]


async def test_no_value_of_a_row_is_logged(database: Database, log: list[EventDict]) -> None:
    secret = "what the client said"
    for step in (
        add(secret, until=None), add(secret, secret), add(secret + "\ud800"),
        StatementStep(ADD, [{"id": secret, "until": secret}]),
    ):  # fmt: skip
        with pytest.raises(WriteRefused) as caught:
            await database.write(step, add(secret))
        assert secret not in repr(caught.value)
        assert caught.value.__cause__ is None
    assert len(log) == 4
    assert secret not in repr(log)


async def test_a_cancelled_caller_is_written(database: Database) -> None:
    tasks = [asyncio.ensure_future(database.write(add(f"{n}"))) for n in range(5)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    assert await database.write(add("5"))
    assert await ids(database) == ["0", "1", "2", "3", "4", "5"]
    assert all(task.cancelled() for task in tasks)


async def test_nobody_waits(database: Database, log: list[EventDict]) -> None:
    database.submit(add("a"), heard=False)
    database.submit(add("a"), heard=False)
    waited_for = database.submit(add("a"))
    with pytest.raises(WriteRefused):
        await waited_for
    assert await ids(database) == ["a"]
    assert [line["event"] for line in log].count("state was not written") == 1


async def test_close_writes_what_waits(database_url: str) -> None:
    async with opened(database_url) as database:
        waiting = [database.submit(add(f"{n:03}")) for n in range(300)]
    assert all(job.result() for job in waiting)
    with pytest.raises(StateUnavailable):
        await database.write(add("late"))
    with pytest.raises(StateUnavailable):
        await database.read(ALL)
    assert not database.up
    async with opened(database_url) as database:
        assert len(await ids(database)) == 300


async def test_a_client_that_leaves_in_mid_read(database: Database) -> None:
    """The reading connections are fit for use afterwards."""
    await database.write(add("a"))
    for _ in range(10):
        tasks = [asyncio.ensure_future(database.read(ONE, id="a")) for _ in range(8)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[1::2] == [[(1.0,)]] * 4
    assert database.up


async def test_a_broken_read_is_a_bug_of_ours(database: Database) -> None:
    from router.errors import InternalError

    with pytest.raises(InternalError):
        await database.read(Statement("SELECT * FROM nowhere"))
    assert await database.read(ALL) == []
    assert database.up


async def test_start_twice_keeps_what_is_there(database_url: str) -> None:
    async with opened(database_url) as database:
        await database.write(add("a"))
    async with opened(database_url) as database:
        assert await ids(database) == ["a"]


async def test_two_databases_share_one_place(database_url: str) -> None:
    """Several routers write at once: nothing is lost, each sees the other's."""
    async with opened(database_url) as one, opened(database_url) as other:
        jobs = [
            database.write(add(f"{name}-{n:03}"))
            for n in range(200)
            for name, database in (("one", one), ("other", other))
        ]
        assert all(await asyncio.gather(*jobs))
        assert len(await ids(one)) == len(await ids(other)) == 400
