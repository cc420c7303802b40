"""The log of a live run: everything in it once, in order, before anybody sees it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from router.errors import Conflict
from router.response.frame import Frame
from router.sessions.event_log import RunLog, RunLost
from router.state.database import Database, WriteRefused
from router.state.runs import RunStore
from router.state.statement import Statement, StatementStep
from tests.support.runs import Unsteady, event, held_run, logged
from tests.support.waiting import until

ID = "resp_1"
KILO = "x" * 1024
NEVER = StatementStep(
    Statement("UPDATE responses SET status = 'x' WHERE id = :id"), ({"id": ""},), True
)
RENAME = Statement("UPDATE responses SET account = :account WHERE id = :id")


class Lost:
    """Hears why the log was lost."""

    def __init__(self) -> None:
        self.why: list[str] = []

    def __call__(self, why: str) -> None:
        self.why.append(why)


async def a_log(db: Database, lost: Lost | None = None, patience: float = 30.0) -> RunLog:
    await held_run(db.db if isinstance(db, Unsteady) else db, ID)
    return RunLog(db, RunStore(db), ID, 0, 1, gone=lost or Lost(), patience=patience)


def deltas(first: int, count: int, text: str = "word") -> list[Frame]:
    return [event("response.output_text.delta", first + n, delta=text) for n in range(count)]


def encoded(frames: Sequence[Frame]) -> bytes:
    return b"".join([frame.encode() for frame in frames])


LAST = "response.completed"


async def test_what_is_fed_is_logged_as_it_is(database: Database) -> None:
    log = await a_log(database)
    frames = deltas(2, 50)
    for start in (0, 1, 2, 20):
        log.feed(frames[start : {0: 1, 1: 2, 2: 20, 20: 50}[start]])
        await asyncio.sleep(0)
    log.feed([])
    last = event(LAST, 52)
    await log.complete([], last)
    log.feed([last])
    log.feed([])
    await log.close()
    assert (await logged(database, ID)).endswith(encoded([*frames, last]))
    run = await RunStore(database).run(ID)
    assert run is not None
    assert (run.state, run.last_event) == ("over", 52)


async def test_what_comes_during_a_write_is_one_row(database: Database) -> None:
    unsteady = Unsteady(database, lambda: "held")
    log = await a_log(unsteady)
    log.feed(deltas(2, 1))
    await asyncio.sleep(0)
    for number in range(3, 33):
        log.feed(deltas(number, 1))
    unsteady.gate.set()
    await log.flush()
    rows = await RunStore(database).events(ID, 1)
    assert [(row.first, row.last) for row in rows] == [(2, 2), (3, 32)]
    await log.close()


async def test_nobody_sees_what_is_not_logged(database: Database) -> None:
    unsteady = Unsteady(database, lambda: "held")
    log = await a_log(unsteady)
    with log.watched():
        changed = log.changed
        log.feed(deltas(2, 2))
        await asyncio.sleep(0.05)
        assert log.after(1) == []
        assert not changed.is_set()
        unsteady.gate.set()
        await changed.wait()
        rows = log.after(1)
        assert rows is not None
        (row,) = rows
        assert (row.first, row.last, row.data) == (2, 3, encoded(deltas(2, 2)))
        assert log.after(2) == [row]
        assert log.after(0) is None
    await log.close()


async def test_too_much_that_waits_stops_the_endpoint(database: Database) -> None:
    unsteady = Unsteady(database, lambda: "held")
    log = await a_log(unsteady)
    number = 2
    while not log.paused:
        log.feed(deltas(number, 1, KILO))
        number += 1
    assert number < 300
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await log.resumed()
    unsteady.gate.set()
    await log.resumed()
    assert log.logged == number - 1
    await log.close()


async def test_what_is_kept_for_tails_is_bounded(database: Database) -> None:
    log = await a_log(database)
    with log.watched():
        for number in range(2, 902, 3):
            log.feed(deltas(number, 3, KILO))
            await log.flush()
        kept = log.after(880)
        assert kept
        assert log.after(1) is None
        assert sum(len(row.data) for row in log._recent) <= 256 * 1024
    assert not log._recent
    await log.close()


async def test_a_lost_fence(database: Database) -> None:
    lost = Lost()
    log = await a_log(database, lost)
    log.feed(deltas(2, 1))
    await log.flush()
    before = await logged(database, ID)
    store = RunStore(database)
    assert await database.write(*store.taken(ID, 0, "another"))
    log.feed(deltas(3, 1))
    with pytest.raises(RunLost):
        await log.flush()
    assert lost.why == ["the run was taken over"]
    for _ in range(2):
        with pytest.raises(RunLost):
            log.feed(deltas(4, 1))
        with pytest.raises(RunLost):
            await log.resumed()
        with pytest.raises(RunLost):
            await log.complete([], event(LAST, 4))
    await log.close()
    assert await logged(database, ID) == before
    assert len(lost.why) == 1


async def test_an_end_that_comes_too_late(database: Database) -> None:
    lost = Lost()
    log = await a_log(database, lost)
    assert await database.write(*RunStore(database).taken(ID, 0, "another"))
    with pytest.raises(RunLost):
        await log.complete([StatementStep(RENAME, ({"id": ID, "account": "a"},))], event(LAST, 2))
    # Its own task hears of it by the exception, and need not be cancelled in its cleaning up.
    assert lost.why == []
    assert await database.read(Statement("SELECT account FROM responses")) == [(None,)]
    await log.close()


async def test_the_end_and_its_steps_are_one(database: Database) -> None:
    log = await a_log(database)
    with pytest.raises(Conflict):
        await log.complete(
            [StatementStep(RENAME, ({"id": ID, "account": "a"},)), NEVER], event(LAST, 2)
        )
    assert not log.lost
    await log.close()
    assert await database.read(Statement("SELECT account FROM responses")) == [(None,)]
    run = await RunStore(database).run(ID)
    assert run is not None
    assert (run.state, run.last_event) == ("running", 1)


async def test_an_end_that_is_refused_may_be_followed_by_another(database: Database) -> None:
    log = await a_log(database)
    # A status that is NULL is taken by no database.
    bad = StatementStep(
        Statement("UPDATE responses SET status = :no WHERE id = :id"), ({"id": ID, "no": None},)
    )
    with pytest.raises(WriteRefused):
        await log.complete([bad], event(LAST, 2))
    assert not log.lost
    log.feed(deltas(2, 1))
    await log.complete([], event("response.failed", 3))
    await log.close()
    assert (await logged(database, ID)).count(b"event: response.failed") == 1


async def test_an_end_without_an_event(database: Database) -> None:
    log = await a_log(database)
    log.feed(deltas(2, 1))
    await log.complete([], None)
    assert log.over
    await log.close()
    assert len(Frame.all_of(await logged(database, ID))) == 3


@pytest.mark.parametrize("when", ["before", "after"])
async def test_events_out_of_place_are_bugs(database: Database, when: str) -> None:
    log = await a_log(database)
    if when == "after":
        await log.complete([], event(LAST, 2))
        with pytest.raises(RuntimeError):
            log.feed(deltas(3, 1))
        with pytest.raises(RuntimeError):
            await log.complete([], event(LAST, 3))
    else:
        with pytest.raises(RuntimeError):
            log.feed([event(LAST, 2)])
    with pytest.raises(RuntimeError):
        log.finish(200, b"{}", {})
    await log.close()


async def test_a_database_that_stays_away_ends_the_run(database: Database) -> None:
    moods = ["fine"]
    unsteady = Unsteady(database, lambda: moods[-1])
    lost = Lost()
    log = await a_log(unsteady, lost, patience=0.3)
    log.feed(deltas(2, 1))
    await log.flush()
    moods.append("before")
    log.feed(deltas(3, 1))
    await until(lambda: lost.why)
    with pytest.raises(RunLost):
        log.feed(deltas(4, 1))
    await log.close()
    assert len(Frame.all_of(await logged(database, ID))) == 3


async def test_lose_drops_what_waits(database: Database) -> None:
    lost = Lost()
    unsteady = Unsteady(database, lambda: "held")
    log = await a_log(unsteady, lost)
    log.feed(deltas(2, 1))
    await asyncio.sleep(0)
    log.feed(deltas(3, 1))
    log.lose("enough")
    log.lose("enough of it")
    assert lost.why == ["enough"]
    unsteady.gate.set()
    with pytest.raises(RunLost):
        await log.flush()
    await log.close()
    assert b'"sequence_number":3' not in await logged(database, ID)


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_to_the_writes(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that fail, are written twice, or are written although they seemed to fail."""
    monkeypatch.setattr("router.sessions.event_log._AGAIN_SECONDS", 0.0)
    chance = random.Random(seed)
    moods = ("fine", "fine", "twice", "before", "after")
    log = await a_log(Unsteady(database, lambda: chance.choice(moods)))
    frames = deltas(2, 200)
    at = 0
    while at < len(frames):
        step = chance.randint(1, 5)
        log.feed(frames[at : at + step])
        at += step
        for _ in range(chance.randint(0, 3)):
            await asyncio.sleep(0)
        if not chance.randint(0, 20):
            await log.flush()
    last = event(LAST, 202)
    await log.complete([StatementStep(RENAME, ({"id": ID, "account": "a"},))], last)
    await log.close()
    assert (await logged(database, ID)).endswith(encoded([*frames, last]))
    assert await database.read(Statement("SELECT account FROM responses")) == [("a",)]
