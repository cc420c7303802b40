"""Moments in which something is cut off: a commit, a cancel, a history, a tail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.app import FRONT
from router.errors import StateUnavailable
from router.runs import tail
from router.state import chain
from router.state.runs import RunStore
from router.state.sqlite import SqliteDatabase
from router.state.statement import Statement
from tests.support.calling import answering, call, finished
from tests.support.router import PATIENCE, endpoint, eventually, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, silent, streamed


class Gate:
    """Holds up the commit of jobs that have ``which`` in their SQL, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        commit = SqliteDatabase._commit

        async def held(database: SqliteDatabase, jobs: Any) -> list[bool]:
            sql = "".join(step.statement.sqlite for job in jobs for step in job.steps)
            if which in sql:
                self.reached.set()
                await self.open.wait()
            return await commit(database, jobs)

        monkeypatch.setattr(SqliteDatabase, "_commit", held)


async def reached(gate: Gate) -> None:
    """Wait until a job is held up."""
    async with asyncio.timeout(PATIENCE):
        await gate.reached.wait()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_drain_lets_the_commit_of_an_answer_end(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    gate = Gate(monkeypatch, "INSERT INTO responses")
    async with answering("chat") as upstream, routing(endpoint(upstream, "chat")) as router:
        asking = asyncio.ensure_future(router.ask(stream=stream))
        await reached(gate)
        draining = asyncio.ensure_future(router.app[FRONT].drain(0.05))
        await asyncio.sleep(0.3)
        gate.open.set()
        reply = await asking
        await draining
        assert reply.status == 200
        answer = check_responses_stream(reply.events) if stream else reply.json
        assert answer["status"] == "completed"


async def test_who_leaves_has_cancelled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "SET state = 'over'")
    speech = SPEECH["chat"]
    script = streamed(*speech.pieces[:3], kind=speech.kind, then=silent)
    async with Upstream(script) as upstream:
        one = endpoint(upstream, "chat", timeouts={"idle": 8.0, "total": 9.0})
        async with routing(one) as router:
            ident = (await router.ask(background=True)).json["id"]
            await eventually(lambda: upstream.requests)
            cancelling = asyncio.ensure_future(call(router, "POST", f"/responses/{ident}/cancel"))
            await reached(gate)
            cancelling.cancel()
            await asyncio.wait({cancelling})
            await asyncio.sleep(0.1)
            gate.open.set()
            kept = await finished(router, ident)
            assert (kept["status"], kept["error"]) == ("cancelled", None)


async def test_a_run_whose_history_cannot_be_read_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = 2
    read = SqliteDatabase.read

    async def failing(database: SqliteDatabase, statement: Statement, **values: Any) -> Any:
        nonlocal failures
        if statement is chain._CHAIN and failures:
            failures -= 1
            raise StateUnavailable("The database does not answer.")
        return await read(database, statement, **values)

    async with answering("chat") as upstream, routing(endpoint(upstream, "chat")) as router:
        first = (await router.ask()).json["id"]
        monkeypatch.setattr(SqliteDatabase, "read", failing)
        reply = await router.ask(background=True, previous_response_id=first)
        done = await finished(router, reply.json["id"])
        assert done["status"] == "completed", done["error"]
        assert failures == 0
        assert len(upstream.requests) == 2


async def test_a_tail_that_breaks_off_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_PATIENCE_SECONDS", 0.1)
    speech = SPEECH["chat"]
    away = False
    events = RunStore.events

    async def failing(store: RunStore, ident: str, after: int) -> Any:
        if away:
            raise StateUnavailable("The database does not answer.")
        return await events(store, ident, after)

    monkeypatch.setattr(RunStore, "events", failing)
    released = asyncio.Event()

    async def script(wire: Any) -> None:
        await streamed(*speech.pieces[:3], kind=speech.kind, then=hold)(wire)

    async def hold(wire: Any) -> None:
        await released.wait()
        for piece in speech.pieces[3:]:
            wire.piece(piece)
        wire.end()

    async with Upstream(script) as upstream:
        one = endpoint(upstream, "chat", timeouts={"idle": 8.0, "total": 9.0})
        async with routing(one) as router:
            ident = (await router.ask(background=True)).json["id"]
            await eventually(lambda: upstream.requests)
            away = True
            query = {"stream": "true"}
            begun = await call(router, "GET", f"/responses/{ident}", params=query)
            assert (begun.status, begun.body) == (200, b"")
            away = False
            released.set()
            done = await finished(router, ident)
            whole = await call(router, "GET", f"/responses/{ident}", params=query)
            assert check_responses_stream(whole.events) == done
