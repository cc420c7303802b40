"""Tails: every event of a run from any number on, as it was first sent."""

from __future__ import annotations

import asyncio
import random

import pytest

from router.core.exchange import ClientGone
from router.errors import NotFound
from router.response.frame import Frame
from router.sessions.runs import Runs
from router.state.responses import ResponseStore
from router.state.runs import RunStore
from router.telemetry.tasks import Tasks
from tests.support.runs import Heard, Router, Stage, Unsteady, logged, numbers, over, router, submit
from tests.support.waiting import until

WORDS = ("one", "two", "three", "four", "five")
BIG = "x" * 20_000


def tail(tasks: Tasks, runs: Runs, id: str, after: int = -1, sink: Heard | None = None) -> Heard:
    """Begin to listen."""
    sink = sink or Heard()
    tasks.spawn(runs.tail("ada", id, after, sink), "tail")
    return sink


async def rest(one: Router, id: str, after: int) -> bytes:
    """What a tail from here has to be."""
    frames = Frame.all_of(await logged(one.db, id))
    return b"".join([frame.encode() for frame in frames[after + 1 :]])


@pytest.mark.parametrize("after", [-1, 0, 3, 10, 11, 5000])
async def test_of_a_finished_run(database_url: str, after: int) -> None:
    async with router(database_url, Stage(WORDS)) as one:
        id = await submit(one.runs)
        await until(over, one.db, id)
        heard = Heard()
        await one.runs.tail("ada", id, after, heard)
        assert heard.bytes == await rest(one, id, after)
        assert heard.ended


@pytest.mark.parametrize("at_once", [False, True])
async def test_of_a_live_run(database_url: str, at_once: bool) -> None:
    stage = Stage(WORDS, hold=True)
    tasks = Tasks()
    async with router(database_url, stage) as one:
        id = await submit(one.runs, at_once=at_once)
        sinks = {after: tail(tasks, one.runs, id, after) for after in (-1, 1, 4, 8)}
        for count in range(1, 4):
            stage.let(id, 1)
            await until(lambda count=count: len(sinks[1].frames) >= count)
            assert sinks[1].frames[-1].json()["sequence_number"] <= stage.logs[id].logged
        late = tail(tasks, one.runs, id, 2)
        await until(lambda: late.frames)
        stage.let(id)
        assert await tasks.wait(20)
        for after, heard in {**sinks, 2: late}.items():
            assert heard.bytes == await rest(one, id, after)
            assert heard.ended


async def test_from_another_router(database_url: str) -> None:
    stage = Stage(WORDS, hold=True)
    tasks = Tasks()
    async with router(database_url, stage) as one, router(database_url, Stage(), max_runs=1) as two:
        id = await submit(one.runs, at_once=True)
        heard = tail(tasks, two.runs, id)
        await until(lambda: heard.frames)
        stage.let(id, 2)
        await until(lambda: len(heard.frames) == 5)
        assert not heard.ended
        stage.let(id)
        assert await tasks.wait(20)
        assert heard.bytes == await logged(two.db, id)


async def test_of_a_run_that_still_waits(database_url: str) -> None:
    stage = Stage(WORDS, hold=True)
    tasks = Tasks()
    async with router(database_url, stage, max_runs=1) as one:
        first = await submit(one.runs)
        await until(stage.has_begun, 1)
        id = await submit(one.runs)
        heard = tail(tasks, one.runs, id)
        await until(lambda: len(heard.frames) == 2)
        stage.let(first)
        stage.let(id)
        assert await tasks.wait(20)
        assert heard.bytes == await logged(one.db, id)


async def test_after_a_cancel_it_just_ends(database_url: str) -> None:
    stage = Stage(WORDS, hold=True)
    tasks = Tasks()
    async with router(database_url, stage) as one, router(database_url, stage) as two:
        id = await submit(one.runs, at_once=True)
        stage.let(id, 1)
        here, there = tail(tasks, one.runs, id), tail(tasks, two.runs, id)
        await until(lambda: len(here.frames) == len(there.frames) == 4)
        assert await two.runs.cancel("ada", id)
        assert await tasks.wait(20)
        for heard in (here, there):
            assert heard.ended
            assert heard.bytes == await logged(one.db, id)
        assert here.frames[-1].type == "response.output_text.delta"


async def test_a_client_that_leaves_does_not_stop_the_run(database_url: str) -> None:
    stage = Stage(WORDS, hold=True)

    class Leaves(Heard):
        def feed(self, batch: object) -> None:
            raise ClientGone

    tasks = Tasks()
    async with router(database_url, stage) as one:
        id = await submit(one.runs, at_once=True)
        with pytest.raises(ClientGone):
            await one.runs.tail("ada", id, -1, Leaves())
        tail(tasks, one.runs, id)
        await asyncio.sleep(0.05)
        await tasks.close()
        stage.let(id)
        await until(over, one.db, id)
        assert (await logged(one.db, id)).count(b"event: response.completed") == 1


async def test_a_slow_client_hears_everything(database_url: str) -> None:
    """It is far behind what is kept in memory, and what is kept does not grow for it."""
    stage = Stage([BIG] * 60)
    tasks = Tasks()
    async with router(database_url, stage) as one:
        id = await submit(one.runs)
        slow = tail(tasks, one.runs, id, sink=Heard(slow=True))
        await until(over, one.db, id)
        assert not slow.ended
        while len(tasks):
            slow.taken.set()
            await asyncio.sleep(0)
        assert slow.bytes == await logged(one.db, id)


async def test_whose_run_it_is(database_url: str) -> None:
    async with router(database_url, Stage()) as one:
        id = await submit(one.runs)
        for owner, name in (("bo", id), ("ada", "resp_unknown")):
            heard = Heard()
            with pytest.raises(NotFound):
                await one.runs.tail(owner, name, -1, heard)
            assert not heard.opened


async def test_of_a_run_that_is_deleted(database_url: str) -> None:
    stage = Stage(WORDS, hold=True)
    tasks = Tasks()
    async with router(database_url, stage) as one, router(database_url, stage) as two:
        id = await submit(one.runs, at_once=True)
        sinks = [tail(tasks, where.runs, id) for where in (one, two)]
        await until(lambda: all(heard.frames for heard in sinks))
        assert await ResponseStore(one.db).delete("ada", id)
        assert await tasks.wait(20)
        assert all(heard.ended for heard in sinks)


@pytest.mark.parametrize("seed", range(6))
async def test_cut_and_resumed_at_random(database_url: str, seed: int) -> None:
    """On either router, at any moment: together the pieces are the whole, once."""
    chance = random.Random(seed)
    words = [f"word {number} " * chance.randint(1, 40) for number in range(60)]
    stage = Stage(words, hold=True)
    tasks = Tasks()
    async with router(database_url, stage) as one, router(database_url, stage) as two:
        id = await submit(one.runs, at_once=bool(seed % 2))
        whole = tail(tasks, one.runs, id)
        pieces: list[Frame] = []
        while not pieces or pieces[-1].type != "response.completed":
            cut = Tasks()
            after = pieces[-1].json()["sequence_number"] if pieces else -1
            sink = Heard(slow=chance.random() < 0.3)
            heard = tail(cut, chance.choice((one, two)).runs, id, after, sink)
            for _ in range(chance.randint(1, 12)):
                stage.let(id, chance.randint(0, 3))
                heard.taken.set()
                await asyncio.sleep(chance.choice((0, 0, 0.001, 0.02)))
            await cut.close()
            pieces += heard.frames
        assert await tasks.wait(20)
        assert numbers(pieces) == list(range(len(pieces)))
        assert b"".join([frame.encode() for frame in pieces]) == whole.bytes
        assert whole.bytes == await logged(two.db, id)


async def test_while_the_database_is_away(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.sessions.event_log._AGAIN_SECONDS", 0.01)
    stage = Stage(WORDS, hold=True)
    moods = ["fine"]
    tasks = Tasks()
    async with router(database_url, stage) as one:
        one.runs._db = Unsteady(one.db, lambda: moods[-1])
        id = await submit(one.runs, at_once=True)
        heard = tail(tasks, one.runs, id)
        stage.let(id, 2)
        await until(lambda: len(heard.frames) == 5)
        moods.append("before")
        stage.let(id)
        await asyncio.sleep(0.1)
        assert len(heard.frames) == 5
        run = await RunStore(one.db).run(id)
        assert run is not None
        assert run.last_event == 4
        moods.append("fine")
        assert await tasks.wait(20)
        assert heard.bytes == await logged(one.db, id)
