"""What becomes of runs whose router is gone, or only seemed to be."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest

from router.errors import StateUnavailable
from router.response.frame import Frame
from router.state.responses import ResponseStore
from router.state.runs import RunStore
from router.state.statement import Statement, StatementStep
from router.telemetry.tasks import Tasks
from tests.support.runs import Heard, Router, Stage, Unsteady, logged, over, router, submit
from tests.support.state import opened
from tests.support.waiting import until

WORDS = ("one", "two", "three", "four")
TERMINAL = ("response.completed", "response.failed")


async def public(one: Router, id: str, owner: str = "ada") -> dict[str, Any]:
    stored = await ResponseStore(one.db).get(owner, id)
    assert stored is not None
    shown: dict[str, Any] = orjson.loads(stored.public())
    return shown


async def types(one: Router, id: str) -> list[str]:
    return [frame.type for frame in Frame.all_of(await logged(one.db, id))]


@asynccontextmanager
async def crashed(
    url: str, words: int, *, at_once: bool = False, lease: float | None = None
) -> AsyncIterator[str]:
    """A run whose router said so many words and was killed; with a lease it has to lapse."""
    stage = Stage(WORDS, hold=True)
    async with router(url, stage, lease=lease or 60.0) as one:
        id = await submit(one.runs, at_once=at_once)
        await until(stage.has_begun, 1)
        stage.let(id, words)
        last = (1 if at_once else 2) + words + bool(words) + (words == len(WORDS))
        await until(lambda: stage.logs[id].logged == last)
        await one.die(forget=lease is None)
        yield id


@pytest.mark.parametrize("at_once", [False, True])
async def test_what_was_not_heard_is_run_again(database_url: str, at_once: bool) -> None:
    async with crashed(database_url, 0, at_once=at_once) as id:
        stage = Stage(WORDS)
        async with router(database_url, stage) as two:
            await until(over, two.db, id)
            assert (await public(two, id))["status"] == "completed"
            assert (await types(two, id)).count("response.in_progress") == 1
            assert two.counts == ["requeued"]
            assert [claimed.last_event for claimed in stage.begun] == [1 if at_once else 2]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("words", [1, 4])
async def test_what_was_heard_fails(database_url: str, words: int, at_once: bool) -> None:
    async with crashed(database_url, words, at_once=at_once) as id:
        stage = Stage(WORDS)
        tasks = Tasks()
        async with router(database_url, stage) as two:
            heard = Heard()
            tasks.spawn(two.runs.tail("ada", id, 2, heard), "tail")
            await until(over, two.db, id)
            shown = await public(two, id)
            assert shown["status"] == "failed"
            assert shown["error"]["code"] == "server_error"
            assert len(shown["output"]) == (words == len(WORDS))
            last = Frame.all_of(await logged(two.db, id))[-1]
            assert last.type == "response.failed"
            assert last.json()["response"] == shown
            assert stage.begun == []
            assert two.counts == ["failed"]
            assert await tasks.wait(20)
            assert heard.frames[-1].data == last.data


@pytest.mark.parametrize("words", [0, 1])
async def test_a_lease_that_lapses(database_url: str, words: int) -> None:
    """The router that comes next knows the other one, and waits for it in vain."""
    async with (
        crashed(database_url, words, lease=0.5) as id,
        router(database_url, Stage(WORDS), lease=0.5) as two,
    ):
        await until(over, two.db, id)
        assert (await public(two, id))["status"] == ("failed" if words else "completed")


async def test_a_router_that_lives_keeps_its_runs(database_url: str) -> None:
    stage, other = Stage(WORDS, hold=True), Stage(WORDS)
    async with router(database_url, stage) as one, router(database_url, other) as two:
        id = await submit(one.runs, at_once=True)
        await asyncio.sleep(0.3)
        stage.let(id)
        await until(over, one.db, id)
        assert (await public(one, id))["status"] == "completed"
        assert one.counts == two.counts == []
        assert other.begun == []


async def test_many_find_it_at_once(database_url: str) -> None:
    stage = Stage(WORDS, hold=True)
    async with router(database_url, stage) as one, AsyncExitStack() as stack:
        ids = [await submit(one.runs, at_once=True) for _ in range(12)]
        await until(stage.has_begun, 12)
        for id in ids[::2]:
            stage.let(id, 2)
        await until(lambda: all(stage.logs[id].logged == 4 for id in ids[::2]))
        again = Stage(WORDS)
        others = [
            await stack.enter_async_context(router(database_url, again, poll=0.01))
            for _ in range(3)
        ]
        await one.die()
        for number, id in enumerate(ids):
            await until(over, others[0].db, id)
            kinds = await types(others[0], id)
            assert sum(kind in TERMINAL for kind in kinds) == 1
            assert kinds[-1] == TERMINAL[number % 2 == 0]
        counts = [count for other in others for count in other.counts]
        assert sorted(counts) == ["failed"] * 6 + ["requeued"] * 6
        assert sorted(claimed.id for claimed in again.begun) == sorted(ids[1::2])


async def test_one_that_was_only_stopped_finds_its_writes_refused(database_url: str) -> None:
    stage = Stage(WORDS, hold=True)
    async with router(database_url, stage, poll=60) as one:
        id = await submit(one.runs, at_once=True)
        stage.let(id, 2)
        await until(lambda: id in stage.logs and stage.logs[id].logged == 4)
        # Its lease is over, and it does not know.
        await one.heartbeat._tasks.close()
        gone = Statement("DELETE FROM routers WHERE id = :id")
        await one.db.write(StatementStep(gone, ({"id": one.heartbeat.id},)))
        async with router(database_url, Stage()) as two:
            await until(over, two.db, id)
            before, shown = await logged(two.db, id), await public(two, id)
            stage.let(id)
            await until(lambda: stage.stopped == [id])
            assert await logged(two.db, id) == before
            assert await public(two, id) == shown
            assert shown["status"] == "failed"
        await until(lambda: not one.runs.running)


async def test_one_that_was_stopped_in_silence_notices(database_url: str) -> None:
    stage = Stage(WORDS, hold=True)
    async with router(database_url, stage) as one:
        id = await submit(one.runs, at_once=True)
        await until(stage.has_begun, 1)
        store = RunStore(one.db)
        assert await one.db.write(*store.taken(id, 0, "another"))
        await until(lambda: stage.stopped == [id])


async def test_a_run_that_ends_its_routers_is_given_up(database_url: str) -> None:
    async with crashed(database_url, 0) as id, opened(database_url) as db:
        often = Statement("UPDATE runs SET fence = 10 WHERE id = :id")
        await db.write(StatementStep(often, ({"id": id},)))
        stage = Stage()
        async with router(database_url, stage) as two:
            await until(over, db, id)
            assert (await public(two, id))["status"] == "failed"
            assert stage.begun == []


async def test_an_orphan_can_be_cancelled(database_url: str) -> None:
    async with (
        crashed(database_url, 1, lease=60.0) as id,
        router(database_url, Stage(WORDS)) as two,
    ):
        assert await two.runs.cancel("ada", id)
        assert (await public(two, id))["status"] == "cancelled"
        assert not {*TERMINAL} & {*await types(two, id)}


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_claim_whose_answer_was_lost(database_url: str, at_once: bool) -> None:
    """The run is ours and nobody runs it: that must not last."""
    moods = ["fine"]
    stage = Stage(WORDS)
    async with router(database_url, stage, max_runs=1) as one:
        one.runs._db = Unsteady(one.db, lambda: moods.pop() if moods else "fine")
        moods[:] = ["after"] if at_once else ["after", "fine"]
        if at_once:
            with pytest.raises(StateUnavailable):
                await submit(one.runs, "resp_1", at_once=True)
        else:
            await submit(one.runs, "resp_1")
        await until(over, one.db, "resp_1")
        assert (await public(one, "resp_1"))["status"] == "completed"
        assert len(stage.begun) == 1
        assert one.counts == ["requeued"]


async def test_a_cancel_that_is_half_done(database_url: str) -> None:
    moods: list[str] = []
    stage = Stage(WORDS, hold=True)
    async with router(database_url, stage) as one:
        id = await submit(one.runs)
        await until(stage.has_begun, 1)
        one.runs._endings._db = Unsteady(one.db, lambda: moods.pop() if moods else "fine")
        moods[:] = ["before", "fine"]
        with pytest.raises(StateUnavailable):
            await one.runs.cancel("ada", id)
        await until(over, one.db, id)
        assert (await public(one, id))["status"] == "failed"
        assert len(stage.begun) == 1


@pytest.mark.parametrize("seed", range(5))
async def test_random_lives(database_url: str, seed: int) -> None:
    """Routers come and die, clients submit and cancel: every run ends once, as it was told."""
    chance = random.Random(seed)
    stage = Stage(WORDS, hold=True)
    cancelled, ids = set(), []
    async with AsyncExitStack() as stack:

        async def another() -> Router:
            more = router(database_url, stage, max_runs=3, poll=0.02)
            return await stack.enter_async_context(more)

        alive = [await another(), await another()]
        for _ in range(60):
            one = chance.choice(alive)
            action = chance.random()
            if action < 0.4:
                owner = f"owner {chance.randint(0, 2)}"
                ids.append((await submit(one.runs, owner=owner, at_once=action < 0.1), owner))
            elif action < 0.55 and ids:
                id, owner = chance.choice(ids)
                if await one.runs.cancel(owner, id):
                    cancelled.add(id)
            elif action < 0.65:
                alive.remove(one)
                await one.die()
                alive.append(await another())
            elif ids:
                stage.let(chance.choice(ids)[0], chance.randint(1, 5))
            await asyncio.sleep(chance.choice((0, 0.002, 0.02)))
        stage.hold = False
        for id, _ in ids:
            stage.let(id)
        for id, owner in ids:
            await until(over, alive[0].db, id)
            kinds = await types(alive[0], id)
            status = (await public(alive[0], id, owner))["status"]
            ends = [kind for kind in kinds if kind in TERMINAL]
            assert ends == ([] if status == "cancelled" else [f"response.{status}"])
            assert ends == kinds[len(kinds) - len(ends) :]
            assert kinds.count("response.in_progress") <= 1
            assert (status == "cancelled") == (id in cancelled)
