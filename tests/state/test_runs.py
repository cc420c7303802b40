"""Runs in SQL: who may write what, and that nothing is ever written twice."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain
from typing import get_args

import pytest

from router.state import runs as module
from router.state.database import Database
from router.state.responses import ResponseStore
from router.state.runs import LogRow, RunRow, RunState, RunStore
from router.state.schema import VERSIONS
from router.state.statement import Statement, StatementStep
from tests.support.runs import new_response

ID = "resp_1"
_AGE = Statement("UPDATE runs SET queued_at = :at WHERE id = :id")
_ROUTER = Statement("INSERT INTO routers (id, until) VALUES (:id, {now} + CAST(:rest AS {real}))")


async def add(
    db: Database,
    id: str = ID,
    *,
    owner: str = "ada",
    conversation: str | None = None,
    holder: str | None = None,
    at: float | None = None,
) -> RunStore:
    store = RunStore(db)
    added = store.added(id, owner, conversation, b"request", b"opening", 2, holder)
    assert await db.write(*ResponseStore(db).added(new_response(id, owner)), *added)
    if at is not None:
        await db.write(StatementStep(_AGE, ({"id": id, "at": at},)))
    return store


async def row(store: RunStore, id: str = ID) -> RunRow:
    run = await store.run(id)
    assert run is not None
    return run


async def rows(store: RunStore, id: str = ID) -> list[tuple[int, int, bytes]]:
    found = await store.events(id, -1)
    return [(log.first, log.last, log.data) for log in found]


async def test_a_life_in_which_every_job_is_run_twice(database: Database) -> None:
    store = await add(database)

    async def twice(steps: Sequence[StatementStep]) -> RunRow:
        assert await database.write(*steps)
        once = await row(store), await rows(store)
        assert await database.write(*steps)
        assert (await row(store), await rows(store)) == once
        return once[0]

    opening = [(0, 1, b"opening")]
    added = store.added(ID, "ada", None, b"another", b"another", 2)
    assert await twice(added) == RunRow(ID, "ada", "queued", None, 0, 1)
    assert await store.request(ID) == b"request"
    run = await twice(store.claimed(ID, 0, "a"))
    assert run == RunRow(ID, "ada", "running", "a", 1, 1)
    run = await twice(store.requeued(run, "b"))
    assert run == RunRow(ID, "ada", "queued", "b", 2, 1)
    await twice(store.claimed(ID, 2, "a"))
    run = await twice(store.logged(ID, 3, [LogRow(2, 4, b"x"), LogRow(5, 5, b"y")]))
    assert run.last_event == 5
    run = await twice(store.taken(ID, 3, "c"))
    assert run == RunRow(ID, "ada", "ending", "c", 4, 5)
    run = await twice(store.finished(ID, 4, 5, b"last"))
    assert run == RunRow(ID, "ada", "over", "c", 4, 6)
    assert await rows(store) == [*opening, (2, 4, b"x"), (5, 5, b"y"), (6, 6, b"last")]
    assert await store.request(ID) is None


Job = Callable[[RunStore], Sequence[StatementStep]]
QUEUED = RunRow(ID, "ada", "running", "a", 1, 1)

REFUSED: dict[str, tuple[RunState, Job]] = {
    "claim: another was faster": ("running", lambda s: s.claimed(ID, 0, "b")),
    "claim: taken to be ended": ("ending", lambda s: s.claimed(ID, 1, "a")),
    "claim: an older fence": ("queued", lambda s: s.claimed(ID, 4, "a")),
    "claim: over": ("over", lambda s: s.claimed(ID, 1, "a")),
    "take: another fence": ("running", lambda s: s.taken(ID, 0, "b")),
    # What has been claimed by the same router has not been taken by it.
    "take: claimed meanwhile": ("running", lambda s: s.taken(ID, 0, "a")),
    "take: over": ("over", lambda s: s.taken(ID, 1, "a")),
    "log: another fence": ("running", lambda s: s.logged(ID, 0, [LogRow(2, 2, b"")])),
    "log: a gap": ("running", lambda s: s.logged(ID, 1, [LogRow(3, 3, b"")])),
    "log: a repeat": ("running", lambda s: s.logged(ID, 1, [LogRow(1, 2, b"")])),
    "log: taken to be ended": ("ending", lambda s: s.logged(ID, 2, [LogRow(2, 2, b"")])),
    "log: over": ("over", lambda s: s.logged(ID, 1, [LogRow(2, 2, b"")])),
    "finish: another fence": ("running", lambda s: s.finished(ID, 0, 1, b"")),
    "finish: a gap": ("running", lambda s: s.finished(ID, 1, 2, b"")),
    "finish: another end": ("over", lambda s: s.finished(ID, 1, 2, b"")),
    "finish: queued": ("queued", lambda s: s.finished(ID, 0, 1, b"")),
    "requeue: has gone on": (
        "running",
        lambda s: s.requeued(RunRow(ID, "ada", "running", "a", 1, 0), "b"),
    ),
    "requeue: taken to be ended": (
        "ending",
        lambda s: s.requeued(RunRow(ID, "ada", "ending", "a", 2, 1), "b"),
    ),
    "requeue: over": ("over", lambda s: s.requeued(QUEUED, "b")),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused(database: Database, case: str) -> None:
    state, job = REFUSED[case]
    store = await add(database)
    if state != "queued":
        assert await database.write(*store.claimed(ID, 0, "a"))
    if state == "ending":
        assert await database.write(*store.taken(ID, 1, "a"))
    if state == "over":
        assert await database.write(*store.finished(ID, 1, 1, None))
    before = await row(store), await rows(store)
    assert before[0].state == state
    assert not await database.write(*job(store))
    assert (await row(store), await rows(store)) == before


@pytest.mark.parametrize("seed", range(10))
async def test_invariants_under_random_jobs(database: Database, seed: int) -> None:
    """Two routers that act on what they once read, however long ago that was."""
    chance = random.Random(seed)
    store = await add(database)
    seen = {"a": await row(store), "b": await row(store)}
    order = get_args(RunState)
    last = await row(store)
    for _ in range(120):
        me = chance.choice("ab")
        if chance.random() < 0.5:
            seen[me] = await row(store)
        run = seen[me]
        mine = run.fence + chance.choice((0, 0, 1))
        jobs: list[Sequence[StatementStep]] = [
            store.claimed(ID, run.fence, me),
            store.requeued(run, me),
            store.logged(ID, mine, [LogRow(run.last_event + 1, run.last_event + 2, b"..")]),
            store.logged(ID, mine, [LogRow(run.last_event + 1, run.last_event + 1, b".")]),
        ]
        if chance.random() < 0.1:
            jobs = [
                store.taken(ID, run.fence, me),
                store.finished(ID, mine, run.last_event, b"."),
            ]
        held = await database.write(*chance.choice(jobs))
        now = await row(store)
        assert now.fence >= last.fence
        assert now.last_event >= last.last_event
        assert last.state != "over" or now == last
        assert last.state != "ending" or now.state in order[2:]
        if not held:
            assert now == last
        after = -1
        for first, until, _ in await all_rows(store):
            assert first == after + 1
            after = until
        assert after == now.last_event
        last = now


async def all_rows(store: RunStore) -> list[tuple[int, int, bytes]]:
    found: list[LogRow] = []
    while page := await store.events(ID, found[-1].last if found else -1):
        found += page
    return [(log.first, log.last, log.data) for log in found]


async def test_events_from_within_a_row(database: Database) -> None:
    store = await add(database, holder="a")
    await database.write(*store.logged(ID, 0, [LogRow(2, 6, b"x"), LogRow(7, 7, b"y")]))
    firsts = {after: [log.first for log in await store.events(ID, after)] for after in range(-1, 8)}
    assert firsts == {
        -1: [0, 2, 7], 0: [0, 2, 7], 1: [2, 7], 2: [2, 7], 3: [2, 7], 4: [2, 7], 5: [2, 7],
        6: [7], 7: [],
    }  # fmt: skip


async def test_progress_is_the_owners(database: Database) -> None:
    store = await add(database)
    assert await store.progress("ada", ID) == ("queued", 1)
    assert await store.progress("bo", ID) is None
    assert await store.progress("ada", "resp_2") is None


async def test_no_more_are_counted_than_asked_for(database: Database) -> None:
    for number in range(5):
        store = await add(database, f"resp_{number}")
    assert [await store.queued(most) for most in (3, 5, 100)] == [3, 5, 5]


async def test_candidates(database: Database) -> None:
    store = await add(database, "g0", owner="greedy", holder="x", at=0)
    for number in range(1, 100):
        await add(database, f"g{number}", owner="greedy", at=number)
    await add(database, "b1", owner="bo", at=500)
    await add(database, "c1", owner="cy", at=400)
    await add(database, "c2", owner="cy", at=401)
    found = await store.candidates(10)
    assert [(run.id, run.owner, run.busy) for run in found] == [
        ("c1", "cy", 0), ("b1", "bo", 0), ("g1", "greedy", 1),
    ]  # fmt: skip
    assert [run.id for run in await store.candidates(2)] == ["c1", "b1"]
    assert [(run.fence, run.last_event) for run in found] == [(0, 1)] * 3


async def test_candidates_of_busy_conversations(database: Database) -> None:
    store = await add(database, "r", conversation="c1", holder="x")
    await add(database, "q1", conversation="c1", at=1)
    assert await store.candidates(10) == []
    assert not await database.write(*store.claimed("q1", 0, "a"))
    await add(database, "q2", conversation="c2", at=2)
    await add(database, "q3", at=3)
    await add(database, "q4", owner="bo", conversation="c1", at=4)  # another's, of that name
    assert [run.id for run in await store.candidates(10)] == ["q4", "q2"]
    assert await database.write(*store.finished("r", 0, 1, None))
    assert [run.id for run in await store.candidates(10)] == ["q1", "q4"]


async def test_held(database: Database) -> None:
    for id, rest in (("me", 60.0), ("alive", 60.0), ("lapsed", -1.0)):
        await database.write(StatementStep(_ROUTER, ({"id": id, "rest": rest},)))
    for holder in ("me", "alive", "lapsed", "unknown"):
        store = await add(database, f"run of {holder}", holder=holder)
    await add(database, "queued")
    await add(database, "ending", holder="alive")
    assert await database.write(*store.taken("ending", 0, "lapsed"))
    await add(database, "over", holder="unknown")
    assert await database.write(*store.finished("over", 0, 1, None))
    found = {run.id: known for run, known in await store.held("me")}
    assert found == {
        "run of me": True, "run of lapsed": True, "run of unknown": False, "ending": True,
    }  # fmt: skip


async def test_the_response_says_whether_it_waits(database: Database) -> None:
    store = await add(database)
    steps: list[tuple[Sequence[StatementStep], str]] = [
        (store.claimed(ID, 0, "a"), "in_progress"),
        (store.requeued(QUEUED, "a"), "queued"),
    ]
    for job, status in steps:
        assert await database.write(*job)
        stored = await ResponseStore(database).get("ada", ID)
        assert stored is not None
        assert stored.status == status


async def test_deleting_takes_everything_along(database: Database) -> None:
    store = await add(database, holder="a")
    assert await ResponseStore(database).delete("ada", ID)
    assert await store.run(ID) is None
    assert await store.request(ID) is None
    assert await store.events(ID, -1) == []
    assert not await database.write(*store.logged(ID, 0, [LogRow(2, 2, b"")]))


def test_nothing_goes_through_all_the_runs() -> None:
    """Most runs are over: each statement finds its rows by an index (asked of SQLite)."""
    connection = sqlite3.connect(":memory:")
    for table in chain.from_iterable(VERSIONS):
        connection.execute(Statement(table).sqlite)
    checked = 0
    for statement in vars(module).values():
        if isinstance(statement, Statement):
            nothing = statement.sqlite_values(dict.fromkeys(statement.names))
            plan = connection.execute("EXPLAIN QUERY PLAN " + statement.sqlite, nothing)
            lines = [line[3] for line in plan]
            assert not [line for line in lines if line.startswith("SCAN runs")], lines
            checked += 1
    connection.close()
    assert checked > 10
