"""Moments in which something is cut off: a commit, a cancel, a history, a tail."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from router.app import DISPATCHER
from router.errors import ShuttingDown, StateUnavailable
from router.sessions import tail
from router.sessions.turns import TurnRecord
from router.state import history
from router.state.runs import RunStore
from router.state.sqlite import SqliteDatabase
from router.state.statement import Statement
from tests.support.calling import answering, call, finished
from tests.support.router import PATIENCE, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream, parse_events
from tests.support.upstream import Upstream, Wire, silent, streamed
from tests.support.waiting import until

SPEECH_OF_IT = SPEECH["chat"]
PATIENT = {"first_byte": 60, "idle": 60, "total": 60}
RUNS: list[dict[str, Any]] = [
    {"background": True, "stream": True},
    {"stream": True, "stream_options": {"durable": True}},
]


def resume_comment(why: str, ident: str, after: int | None = None) -> bytes:
    """What a stream ends with whose run goes on."""
    query = "stream=true" if after is None else f"stream=true&starting_after={after}"
    return f": {why}; resume with GET /v1/responses/{ident}?{query}\n\n".encode()


async def begun(response: aiohttp.ClientResponse, word: bytes) -> bytes:
    """The beginning of a stream, up to this word."""
    start = b""
    async with asyncio.timeout(PATIENCE):
        while word not in start:
            start += await response.content.readany()
    return start


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
        draining = asyncio.ensure_future(router.app[DISPATCHER].drain(0.05))
        await asyncio.sleep(0.3)
        gate.open.set()
        reply = await asking
        await draining
        assert reply.status == 200
        answer = check_responses_stream(reply.events) if stream else reply.json
        assert answer["status"] == "completed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_drain_lets_a_large_answer_be_made_ready_for_its_commit(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """Which another thread does."""
    loop, goes_on = asyncio.get_running_loop(), threading.Event()
    steps, calls = TurnRecord._steps, []

    def slowly(record: TurnRecord, *given: Any) -> Any:
        calls.append(threading.current_thread())
        if len(calls) == 1:
            loop.call_soon_threadsafe(drain)
            goes_on.wait(5.0)
        return steps(record, *given)

    def drain() -> None:
        for task, exchange in router.app[DISPATCHER]._running.items():
            exchange.abort = ShuttingDown("The router is shutting down.")
            task.cancel()
        loop.call_soon(goes_on.set)

    async with answering("chat") as upstream, routing(endpoint(upstream, "chat")) as router:
        monkeypatch.setattr(TurnRecord, "_steps", slowly)
        words = [{"role": "user", "content": f"{number:070}"} for number in range(3000)]
        reply = await router.ask(stream=stream, input=words)
        assert threading.main_thread() not in calls
        assert reply.status == 200, reply.body
        answer = check_responses_stream(reply.events) if stream else reply.json
        assert answer["status"] == "completed"
        assert (await finished(router, answer["id"]))["status"] == "completed"


async def test_who_leaves_has_cancelled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "SET state = 'over'")
    speech = SPEECH["chat"]
    script = streamed(*speech.pieces[:3], kind=speech.kind, then=silent)
    async with Upstream(script) as upstream:
        one = endpoint(upstream, "chat", timeouts={"idle": 8.0, "total": 9.0})
        async with routing(one) as router:
            ident = (await router.ask(background=True)).json["id"]
            await until(lambda: upstream.requests)
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
        if statement is history._CHAIN and failures:
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
            await until(lambda: upstream.requests)
            away = True
            query = {"stream": "true"}
            broken = await call(router, "GET", f"/responses/{ident}", params=query)
            assert broken.status == 200
            assert broken.events == []
            assert broken.body.endswith(resume_comment("the database is unavailable", ident))
            away = False
            released.set()
            done = await finished(router, ident)
            whole = await call(router, "GET", f"/responses/{ident}", params=query)
            assert check_responses_stream(whole.events) == done


@pytest.mark.parametrize("fields", RUNS, ids=["background", "durable"])
async def test_a_drain_ends_the_stream_of_a_run_with_its_last_event(
    database_url: str, fields: dict[str, Any]
) -> None:
    script = streamed(*SPEECH_OF_IT.pieces[:2], kind=SPEECH_OF_IT.kind, then=silent)
    async with Upstream(script) as upstream:
        one = endpoint(upstream, "chat", timeouts=PATIENT)
        async with (
            routing(one, state={"url": database_url}) as router,
            router.request(**fields) as response,
        ):
            start = await begun(response, b"Hello")
            await router.app[DISPATCHER].drain(0)
            events = parse_events(start + await response.read())
            final = check_responses_stream(events)
            assert (final["status"], final["error"]["code"]) == ("failed", "server_error")
            kept = await call(router, "GET", f"/responses/{final['id']}")
            assert kept.status == 503, "it is over before the router is"


@pytest.mark.parametrize("fields", RUNS, ids=["background", "durable"])
async def test_a_drain_says_how_to_resume_the_stream_of_a_run_that_is_queued_again(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    state = {"url": f"sqlite:///{tmp_path / 'state.db'}"}
    answer = streamed(*SPEECH_OF_IT.pieces, kind=SPEECH_OF_IT.kind)
    async with Upstream(silent, default=answer) as upstream:
        one = endpoint(upstream, "chat", timeouts=PATIENT)
        async with routing(one, state=state) as router, router.request(**fields) as response:
            start = await begun(response, b"\n\nevent")  # the second event
            await until(lambda: upstream.requests)
            await router.app[DISPATCHER].drain(0)
            start += await response.read()
            events = parse_events(start)
            ident = events[0].response["id"]
            last = events[-1].json["sequence_number"]
            assert start.endswith(resume_comment("the router is shutting down", ident, last))
        async with routing(one, state=state) as router:
            query = {"stream": "true", "starting_after": str(last)}
            rest = await call(router, "GET", f"/responses/{ident}", params=query)
            final = check_responses_stream([*events, *rest.events])
            assert (final["status"], final["output_text"]) == ("completed", SPEECH_OF_IT.text)


async def test_a_drain_says_how_to_resume_the_stream_of_another_routers_run(
    tmp_path: Path,
) -> None:
    state = {"url": f"sqlite:///{tmp_path / 'state.db'}"}
    go_on = asyncio.Event()

    async def rest(wire: Wire) -> None:
        await go_on.wait()
        for piece in SPEECH_OF_IT.pieces[2:]:
            wire.piece(piece)
        wire.end()

    script = streamed(*SPEECH_OF_IT.pieces[:2], kind=SPEECH_OF_IT.kind, then=rest)
    async with Upstream(script) as upstream:
        one = endpoint(upstream, "chat", timeouts=PATIENT)
        async with (
            routing(one, state=state) as runs,
            runs.request(stream=True, stream_options={"durable": True}) as response,
            routing(one, state=state) as stops,
        ):
            start = await begun(response, b"Hello")
            ident = start.partition(b'"id":"')[2].partition(b'"')[0].decode()
            url = f"{stops.url}/v1/responses/{ident}?stream=true"
            async with stops.http.get(url) as other:
                seen = await begun(other, b"Hello")
                await stops.app[DISPATCHER].drain(0)
                seen += await other.read()
            last = parse_events(seen)[-1].json["sequence_number"]
            assert seen.endswith(resume_comment("the router is shutting down", ident, last))
            go_on.set()
            await response.read()


async def test_a_drain_does_not_wait_for_a_database_that_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail, "_LAST_SECONDS", 0.05)
    gate = Gate(monkeypatch, "SET state = 'over'")
    script = streamed(*SPEECH_OF_IT.pieces[:2], kind=SPEECH_OF_IT.kind, then=silent)
    async with Upstream(script) as upstream:
        one = endpoint(upstream, "chat", timeouts=PATIENT)
        async with routing(one) as router, router.request(**RUNS[1]) as response:
            start = await begun(response, b"Hello")
            draining = asyncio.ensure_future(router.app[DISPATCHER].drain(0))
            start += await response.read()
            events = parse_events(start)
            ident, last = events[0].response["id"], events[-1].json["sequence_number"]
            assert start.endswith(resume_comment("the router is shutting down", ident, last))
            gate.open.set()
            await draining
