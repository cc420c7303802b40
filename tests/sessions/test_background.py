"""Background runs and durable streams over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.support.calling import answering, call, finished
from tests.support.router import PATIENCE, Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream, parse_events
from tests.support.upstream import Upstream, paced, silent, streamed, whole
from tests.support.waiting import until

DURABLE = {"stream": True, "stream_options": {"durable": True}}


async def resumed(router: Router, ident: str, after: int | None = None) -> Reply:
    query = {"stream": "true"} | ({} if after is None else {"starting_after": after})
    return await call(router, "GET", f"/responses/{ident}", params=query)


async def test_queued_then_completed(router: Router) -> None:
    reply = await router.ask(background=True, metadata={"a": "b"})
    queued = reply.json
    assert (queued["status"], queued["background"]) == ("queued", True)
    assert (queued["output"], queued["usage"]) == ([], None)
    done = await finished(router, queued["id"])
    assert done["status"] == "completed"
    assert done["output_text"] == "Hello, wörld!"
    same = ("id", "created_at", "metadata", "background", "store", "model", "tools")
    assert [done[name] for name in same] == [queued[name] for name in same]
    items = (await call(router, "GET", f"/responses/{done['id']}/input_items")).json["data"]
    assert items[0]["content"][0]["text"] == "hi"


@pytest.mark.parametrize("durable", [False, True])
async def test_every_resumed_stream_equals_the_original(router: Router, durable: bool) -> None:
    fields: dict[str, Any] = dict(DURABLE) if durable else {"stream": True, "background": True}
    reply = await router.ask(**fields)
    events = reply.events
    check_responses_stream(events)
    ident = events[0].response["id"]
    assert events[0].response["background"] is (not durable)
    assert [event.json["sequence_number"] for event in events] == list(range(len(events)))
    assert (await resumed(router, ident)).body == reply.body
    for after in range(-1, len(events) + 1):
        part = await resumed(router, ident, after)
        assert part.events == events[after + 1 :]
    assert (await finished(router, ident)) == events[-1].response


@pytest.mark.parametrize("durable", [False, True])
async def test_a_run_goes_on_when_its_client_leaves(
    database_url: str, dialect: Dialect, durable: bool
) -> None:
    speech = SPEECH[dialect]
    script = streamed(*speech.pieces, kind=speech.kind, pause=0.1)
    fields: dict[str, Any] = dict(DURABLE) if durable else {"stream": True, "background": True}
    async with Upstream(script) as upstream:
        state = {"url": database_url}
        async with routing(endpoint(upstream, dialect), state=state) as router:
            async with router.request(**fields) as response:
                seen = b""
                async with asyncio.timeout(PATIENCE):
                    while b"output_text.delta" not in seen:
                        seen += await response.content.readany()
                response.close()
            events = parse_events(seen[: seen.rindex(b"\n\n") + 2])
            ident = events[0].response["id"]
            rest = await resumed(router, ident, events[-1].json["sequence_number"])
            check_responses_stream([*events, *rest.events])
            assert rest.events[-1].type == "response.completed"
            assert rest.events[-1].response["output_text"] == speech.text


async def test_cancel_stops_the_endpoint_and_is_final(database_url: str, dialect: Dialect) -> None:
    speech = SPEECH[dialect]
    script = streamed(*speech.pieces[:3], kind=speech.kind, then=silent)
    async with Upstream(script) as upstream:
        state = {"url": database_url}
        one = endpoint(upstream, dialect, timeouts={"idle": 8.0, "total": 9.0})
        async with routing(one, state=state) as router:
            ident = (await router.ask(background=True)).json["id"]
            following = asyncio.ensure_future(resumed(router, ident))
            await until(lambda: upstream.requests)
            await asyncio.sleep(0.2)
            for _ in range(2):
                reply = await call(router, "POST", f"/responses/{ident}/cancel")
                assert (reply.status, reply.json["status"]) == (200, "cancelled")
            await until(lambda: not upstream.open_wires)
            events = (await following).events
            assert [event.json["sequence_number"] for event in events] == list(range(len(events)))
            assert events[-1].type == "response.output_text.delta"
            kept = await finished(router, ident)
            assert (kept["status"], kept["error"]) == ("cancelled", None)
            assert kept["output_text"] == "Hello, "


async def test_what_cannot_be_cancelled_or_resumed(router: Router) -> None:
    ident = (await router.ask()).json["id"]
    reply = await call(router, "POST", f"/responses/{ident}/cancel")
    assert (reply.status, reply.error["code"]) == (400, None)
    reply = await resumed(router, ident)
    assert (reply.status, reply.error["param"]) == (400, "stream")
    assert "background=true" in reply.error["message"]
    run = (await router.ask(background=True)).json["id"]
    done = await finished(router, run)
    assert (await call(router, "POST", f"/responses/{run}/cancel")).json == done
    for after in ("x", "-2", "1.5", "9" * 400):
        query = {"stream": "true", "starting_after": after}
        reply = await call(router, "GET", f"/responses/{run}", params=query)
        assert (reply.status, reply.error["param"]) == (400, "starting_after")


@pytest.mark.parametrize("fields", [{"background": True}, DURABLE])
async def test_a_run_has_to_be_stored(
    router: Router, upstream: Upstream, fields: dict[str, Any]
) -> None:
    reply = await router.ask(store=False, **fields)
    assert (reply.status, reply.error["code"]) == (400, "unsupported_parameter")
    assert upstream.requests == []


async def test_a_failure_is_a_status_and_no_http_error(database_url: str, dialect: Dialect) -> None:
    async with Upstream(default=whole(b'{"error": {"message": "bad"}}', 400)) as upstream:
        state = {"url": database_url}
        async with routing(endpoint(upstream, dialect), state=state) as router:
            ident = (await router.ask(background=True)).json["id"]
            failed = await finished(router, ident)
            assert (failed["status"], failed["output"]) == ("failed", [])
            assert failed["error"]["message"]
            events = (await resumed(router, ident)).events
            check_responses_stream(events)
            assert events[-1].response == failed


async def test_chaining_on_a_run_that_is_not_finished(database_url: str, dialect: Dialect) -> None:
    speech = SPEECH[dialect]
    async with answering(dialect) as upstream:
        upstream.scripts.append(paced(streamed(*speech.pieces, kind=speech.kind), 0.3))
        state = {"url": database_url}
        async with routing(endpoint(upstream, dialect), state=state) as router:
            ident = (await router.ask(background=True)).json["id"]
            reply = await router.ask(previous_response_id=ident)
            assert (reply.status, reply.error["param"]) == (400, "previous_response_id")
            assert "wait" in reply.error["message"]
            await finished(router, ident)
            assert (await router.ask(previous_response_id=ident)).status == 200


async def test_deleting_a_run_that_goes_on(database_url: str, dialect: Dialect) -> None:
    speech = SPEECH[dialect]
    script = streamed(*speech.pieces[:3], kind=speech.kind, then=silent)
    async with Upstream(script) as upstream:
        state = {"url": database_url}
        one = endpoint(upstream, dialect, timeouts={"idle": 8.0, "total": 9.0})
        async with routing(one, state=state) as router:
            ident = (await router.ask(background=True)).json["id"]
            await until(lambda: upstream.requests)
            assert (await call(router, "DELETE", f"/responses/{ident}")).json["deleted"] is True
            await until(lambda: not upstream.open_wires)
            assert (await call(router, "GET", f"/responses/{ident}")).status == 404


async def test_a_drain_ends_runs_or_hands_them_on(tmp_path: Any) -> None:
    speech = SPEECH["chat"]
    state = {"url": f"sqlite:///{tmp_path / 'state.db'}"}
    begun = streamed(*speech.pieces[:3], kind=speech.kind, then=silent)
    answer = streamed(*speech.pieces, kind=speech.kind)
    async with Upstream(begun, silent, default=answer) as upstream:
        slow = endpoint(upstream, "chat", timeouts={"first_byte": 8.0, "idle": 8.0, "total": 9.0})
        server = {"drain_timeout": 0.2}
        async with routing(slow, state=state, server=server, idle=False) as router:
            first = (await router.ask(background=True)).json["id"]
            await until(lambda: len(upstream.requests) == 1)
            await asyncio.sleep(0.2)
            second = (await router.ask(background=True)).json["id"]
            await until(lambda: len(upstream.requests) == 2)
        async with routing(slow, state=state, server=server) as router:
            failed = await finished(router, first)
            assert failed["status"] == "failed"
            assert failed["error"]["code"] == "server_error"
            done = await finished(router, second)
            assert done["status"] == "completed"
            check_responses_stream((await resumed(router, first)).events)
            check_responses_stream((await resumed(router, second)).events)
