"""Runs that are submitted, claimed, executed and cancelled."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from router.errors import NotFound, Overloaded, ShuttingDown
from router.response.frame import Frame
from router.sessions.event_log import RunLog
from router.sessions.runs import Claimed
from router.state.responses import ResponseStore
from router.state.runs import RunStore
from tests.support.runs import Router, Stage, event, logged, over, router, submit
from tests.support.waiting import until


async def status_of(one: Router, id: str, owner: str = "ada") -> str:
    stored = await ResponseStore(one.db).get(owner, id)
    assert stored is not None
    return stored.status


async def types(one: Router, id: str) -> list[str]:
    return [frame.type for frame in Frame.all_of(await logged(one.db, id))]


async def test_a_run_from_its_submission_to_its_end(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage) as one:
        id = await submit(one.runs, request=b'{"model": "m"}')
        await until(lambda: stage.begun)
        assert await status_of(one, id) == "in_progress"
        (claimed,) = stage.begun
        assert (claimed.id, claimed.owner, claimed.last_event, claimed.request) == (
            id, "ada", 1, b'{"model": "m"}',
        )  # fmt: skip
        stage.let(id)
        await until(over, one.db, id)
        assert await status_of(one, id) == "completed"
        assert (await types(one, id))[-1] == "response.completed"
        await until(lambda: not one.runs.running)
        assert await RunStore(one.db).request(id) is None
        assert one.counts == []


async def test_one_that_starts_at_once_needs_no_place(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage, max_runs=1) as one:
        first = await submit(one.runs)
        await until(lambda: stage.begun)
        waiting = await submit(one.runs)
        at_once = await submit(one.runs, at_once=True)
        await until(stage.has_begun, 2)
        assert [claimed.id for claimed in stage.begun] == [first, at_once]
        for id in (first, at_once, waiting):
            stage.let(id)
        await until(over, one.db, waiting)
        for id in (first, at_once, waiting):
            await until(over, one.db, id)
            assert (await types(one, id)).count("response.in_progress") == 1


async def test_no_more_run_and_no_more_wait_than_allowed(database_url: str) -> None:
    stage = Stage(hold=True)
    # Between two looks at the database the count is its own.
    async with router(database_url, stage, max_runs=2, max_queued_runs=3, poll=60) as one:
        await asyncio.sleep(0.1)
        ids = [await submit(one.runs) for _ in range(2)]
        await until(stage.has_begun, 2)
        await until(lambda: one.runs.queued == 0)
        ids += [await submit(one.runs) for _ in range(3)]
        with pytest.raises(Overloaded) as caught:
            await submit(one.runs)
        assert "Retry-After" in caught.value.headers
        await asyncio.sleep(0.2)
        assert len(stage.begun) == one.runs.running == 2
        assert one.runs.queued == 3
        most = 0
        for id in ids:
            stage.let(id)
        while not all([await over(one.db, id) for id in ids]):
            most = max(most, one.runs.running)
        assert most <= 2
        assert one.runs.queued == 0


async def test_the_owner_with_the_fewest_goes_first(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage, max_runs=4) as one:
        for _ in range(100):
            await submit(one.runs, owner="greedy")
        await until(stage.has_begun, 4)
        for owner in ("bo", "bo", "cy"):
            await submit(one.runs, owner=owner)
        for number in range(3):
            stage.let(stage.begun[number].id)
            await until(stage.has_begun, 5 + number)
        # When everybody has one, it is greedy's turn: the others were served after him.
        assert [claimed.owner for claimed in stage.begun[4:]] == ["bo", "cy", "greedy"]


async def test_owners_take_turns_for_a_single_place(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage, max_runs=1) as one:
        for owner in ["greedy"] * 20 + ["bo"] * 2 + ["cy"]:
            await submit(one.runs, owner=owner)
        for number in range(6):
            await until(stage.has_begun, 1 + number)
            stage.let(stage.begun[number].id)
        owners = [claimed.owner for claimed in stage.begun[:6]]
        assert owners == ["greedy", "bo", "cy", "greedy", "bo", "greedy"]


async def test_turns_of_a_conversation_do_not_run_side_by_side(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage) as one:
        first = await submit(one.runs, conversation="conv_1")
        await until(lambda: stage.begun)
        second = await submit(one.runs, conversation="conv_1")
        other = await submit(one.runs, conversation="conv_2")
        await until(stage.has_begun, 2)
        await asyncio.sleep(0.2)
        assert [claimed.id for claimed in stage.begun] == [first, other]
        stage.let(first)
        await until(stage.has_begun, 3)
        assert stage.begun[2].id == second


@pytest.mark.parametrize("words", [0, 2])
async def test_cancel_a_live_run(database_url: str, words: int) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage) as one:
        id = await submit(one.runs)
        stage.let(id, words)
        await until(lambda: id in stage.logs and stage.logs[id].logged == 2 + words + bool(words))
        assert await one.runs.cancel("ada", id)
        await until(lambda: stage.stopped == [id])
        assert await status_of(one, id) == "cancelled"
        before = await logged(one.db, id)
        assert not await one.runs.cancel("ada", id)
        await until(lambda: not one.runs.running)
        assert await logged(one.db, id) == before
        assert (await types(one, id))[-1] not in {"response.failed", "response.completed"}
        assert one.counts == ["cancelled"]


async def test_cancel_one_that_waits(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage, max_runs=1) as one:
        await submit(one.runs)
        await until(lambda: stage.begun)
        id = await submit(one.runs)
        assert await one.runs.cancel("ada", id)
        assert await status_of(one, id) == "cancelled"
        assert await types(one, id) == ["response.created", "response.queued"]


async def test_what_is_finished_stays_finished(database_url: str) -> None:
    stage = Stage()
    async with router(database_url, stage) as one:
        id = await submit(one.runs)
        await until(over, one.db, id)
        before = await logged(one.db, id)
        assert not await one.runs.cancel("ada", id)
        assert await status_of(one, id) == "completed"
        assert await logged(one.db, id) == before


async def test_others_runs_do_not_exist(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage) as one:
        id = await submit(one.runs)
        for owner, name in (("bo", id), ("ada", "resp_unknown")):
            with pytest.raises(NotFound):
                await one.runs.cancel(owner, name)
        await until(lambda: stage.begun)
        assert one.runs.running == 1


async def test_the_partial_output_of_a_cancelled_run(database_url: str) -> None:
    async def execute(claimed: Claimed, log: RunLog) -> None:
        log.feed([event("response.in_progress", 2)])
        done = {"id": "msg_0", "type": "message", "status": "completed", "content": []}
        begun = {"id": "msg_1", "type": "message", "status": "in_progress", "content": []}
        log.feed([event("response.output_item.done", 3, output_index=0, item=done)])
        log.feed([event("response.output_item.added", 4, output_index=1, item=begun)])
        log.feed([event("response.output_text.delta", 5, delta="Half a")])
        await asyncio.sleep(3600)

    async with router(database_url, execute) as one:
        id = await submit(one.runs)
        await until(lambda: _last(one, id, 5))
        assert await one.runs.cancel("ada", id)
        stored = await ResponseStore(one.db).get("ada", id)
        assert stored is not None
        shown = stored.public()
        assert b'"status":"cancelled"' in shown
        first, second = orjson.loads(stored.output)
        assert (first["id"], first["status"]) == ("msg_0", "completed")
        assert (second["id"], second["status"]) == ("msg_1", "incomplete")
        assert second["content"][0]["text"] == "Half a"
        assert set(await ResponseStore(one.db).find_items("ada", ["msg_0"])) == {"msg_0"}


async def _last(one: Router, id: str, number: int) -> bool:
    run = await RunStore(one.db).run(id)
    return run is not None and run.last_event == number


async def test_a_run_whose_execution_breaks_is_failed_and_not_run_again(
    database_url: str,
) -> None:
    begun = []

    async def execute(claimed: Claimed, log: RunLog) -> None:
        begun.append(claimed.id)
        raise ZeroDivisionError

    async with router(database_url, execute) as one:
        id = await submit(one.runs)
        await until(over, one.db, id)
        assert await status_of(one, id) == "failed"
        assert (await types(one, id))[2:] == ["response.failed"]
        await until(lambda: not one.runs.running)
        assert begun == [id]
        assert one.counts == ["failed"]


async def test_a_run_that_returns_without_its_end_is_failed(database_url: str) -> None:
    async def execute(claimed: Claimed, log: RunLog) -> None:
        log.feed([event("response.in_progress", 2)])

    async with router(database_url, execute) as one:
        id = await submit(one.runs)
        await until(over, one.db, id)
        assert await status_of(one, id) == "failed"


async def test_deleting_a_response_stops_its_run(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage) as one:
        id = await submit(one.runs)
        await until(lambda: stage.begun)
        assert await ResponseStore(one.db).delete("ada", id)
        await until(lambda: stage.stopped == [id])
        assert await RunStore(one.db).run(id) is None


async def test_drain_waits_then_gives_back_and_ends(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage) as one:
        quick, silent, slow = [await submit(one.runs) for _ in range(3)]
        await until(stage.has_begun, 3)
        stage.let(slow, 1)
        await until(lambda: stage.logs[slow].logged == 4)
        stage.let(quick)
        await one.runs.drain(0.3)
        assert await status_of(one, quick) == "completed"
        assert await status_of(one, silent) == "queued"
        assert await status_of(one, slow) == "failed"
        assert sorted(one.counts) == ["failed", "requeued"]
        with pytest.raises(ShuttingDown):
            await submit(one.runs)
        assert b"shut down" in await logged(one.db, slow)
        async with router(database_url, stage) as two:
            stage.let(silent)
            await until(over, two.db, silent)
            assert (await types(two, silent)).count("response.in_progress") == 1
            assert await status_of(two, silent) == "completed"


async def test_two_routers_share_the_queue(database_url: str) -> None:
    stage = Stage()
    async with (
        router(database_url, stage, max_runs=3) as one,
        router(database_url, stage, max_runs=3) as two,
    ):
        ids = [
            await submit(where.runs, owner=f"owner {number % 5}")
            for number in range(40)
            for where in (one, two)
        ]
        for id in ids:
            await until(over, one.db, id)
            await logged(one.db, id)
        assert sorted(claimed.id for claimed in stage.begun) == sorted(ids)


async def test_cancel_on_another_router(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage) as one, router(database_url, Stage(), poll=60) as two:
        await asyncio.sleep(0.1)  # the other one has looked for work by now
        id = await submit(one.runs)
        await until(lambda: stage.begun)
        assert await two.runs.cancel("ada", id)
        assert await status_of(two, id) == "cancelled"
        await until(lambda: stage.stopped == [id])
        await until(lambda: not one.runs.running)
        assert await status_of(one, id) == "cancelled"


async def test_a_run_that_is_stopped_before_its_first_step(database_url: str) -> None:
    stage = Stage()
    async with router(database_url, stage, poll=60) as one:
        await asyncio.sleep(0.1)
        id = await submit(one.runs, at_once=True)
        log = one.runs._live[id].log
        log.lose("at once")
        await until(lambda: not one.runs.running)
        assert log.closed
        assert stage.begun == []


async def test_many_cancel_at_once(database_url: str) -> None:
    stage = Stage(hold=True)
    async with router(database_url, stage) as one, router(database_url, stage) as two:
        for _ in range(5):
            id = await submit(one.runs)
            both = [where.runs.cancel("ada", id) for where in (one, two, one, two)]
            assert any(await asyncio.gather(*both))
            assert await status_of(one, id) == "cancelled"
            assert await over(one.db, id)
            await logged(one.db, id)
