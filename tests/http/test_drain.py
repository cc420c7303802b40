"""Draining an application that somebody else runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.app import DISPATCHER
from router.errors import ShuttingDown
from router.upstream.answer import HttpAnswer
from tests.support.client import Client
from tests.support.router import endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream, parse_events
from tests.support.upstream import Upstream, Wire, silent, streamed, whole
from tests.support.waiting import until

CHAT = SPEECH["chat"]


async def test_what_was_admitted_before_gets_its_time() -> None:
    """A request whose body was still on its way when the draining began is a running one."""
    go_first, go_on = asyncio.Event(), asyncio.Event()

    async def initial(wire: Wire) -> None:
        await go_first.wait()
        await whole(CHAT.whole)(wire)

    async def last(wire: Wire) -> None:
        await go_on.wait()
        await whole(CHAT.whole)(wire)

    async with (
        Upstream(initial, last) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        first = asyncio.create_task(router.ask())
        await until(lambda: upstream.requests)
        second = await Client.open(router.url)
        body = b'{"model": "m", "input": "hi"}'
        second.send(
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 29\r\n\r\n{"
        )
        await until(lambda: router.app[DISPATCHER]._open == 2)
        draining = asyncio.create_task(router.app[DISPATCHER].drain(60))
        await asyncio.sleep(0)
        second.send(body[1:])
        go_first.set()
        assert (await first).status == 200
        await asyncio.sleep(0.1)
        go_on.set()
        head = await second.until(b"\r\n\r\n")
        second.leave()
        await draining
        assert b" 200 " in head.split(b"\r\n")[0]


async def test_running_ones_are_ended_when_the_time_is_over() -> None:
    stream = streamed(CHAT.opening, CHAT.words[0], kind=CHAT.kind, then=silent)
    patient = {"first_byte": 30, "idle": 30, "total": 30}
    async with (
        Upstream(stream, silent) as upstream,
        routing(endpoint(upstream, "chat", timeouts=patient)) as router,
    ):
        async with router.request(stream=True) as response:
            begun = b""
            while b"Hello" not in begun:
                begun += await response.content.readany()
            asking = asyncio.create_task(router.ask())
            await until(lambda: len(upstream.requests) == 2)
            await router.app[DISPATCHER].drain(0.05)
            events = parse_events(begun + await response.read())
        whole_reply = await asking
        assert events[-1].type == "response.failed"
        assert (whole_reply.status, whole_reply.error["code"]) == (503, "shutting_down")
        assert (await router.ask()).status == 503
        for request in upstream.requests:
            await request.wire.gone.wait()
        assert await router.metric("pointsman_requests_total", outcome="failed", status="503")


async def test_not_while_the_connection_is_tidied_up() -> None:
    """What is complete stays complete, though the endpoint's own end is still to come."""

    ends = asyncio.Event()

    async def late(wire: Wire) -> None:
        await ends.wait()
        wire.end()

    async with (
        Upstream(streamed(*CHAT.pieces, kind=CHAT.kind, then=late)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        reply = await router.ask(stream=True)
        assert router.running == 1
        await router.app[DISPATCHER].drain(0)
        ends.set()
        assert [event.type for event in reply.events][-1] == "response.completed"
        assert await router.metric("pointsman_requests_total", outcome="ok") == [1.0]


@pytest.mark.parametrize("chat", [False, True])
async def test_nor_in_the_moment_in_which_the_end_arrives(
    chat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been read, and who is to pass it on has not had its turn yet."""
    wake = HttpAnswer.wake
    caught: list[asyncio.Task[Any]] = []

    def wake_and_drain(answer: HttpAnswer) -> None:
        reading = answer._each is not None
        wake(answer)
        if reading and answer._each is None:
            for task, exchange in router.app[DISPATCHER]._running.items():
                exchange.abort = ShuttingDown("The router is shutting down.")
                task.cancel()
                caught.append(task)

    async with (
        Upstream(streamed(*CHAT.pieces, kind=CHAT.kind, pause=0.05)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        monkeypatch.setattr(HttpAnswer, "wake", wake_and_drain)
        reply = await router.ask(stream=True, chat=chat)
        assert caught
        if chat:
            assert reply.events[-1].raw == b"[DONE]"
        else:
            ident = check_responses_stream(reply.events)["id"]
            assert reply.events[-1].type == "response.completed"
            async with router.http.get(f"{router.url}/v1/responses/{ident}") as stored:
                assert (await stored.json())["status"] == "completed"
        await router.idle()
        assert [row.outcome for row in router.rows] == ["ok"]
