"""A client that leaves: the endpoint notices at once, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.support.client import Client, Leaving
from tests.support.router import Router, endpoint, routing
from tests.support.speech import Speech
from tests.support.upstream import Script, Upstream, paced, silent, streamed
from tests.support.waiting import until


@pytest.fixture(params=["own", "foreign"])
def mounted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run by ourselves, or in an application whose server does not cancel handlers."""
    if request.param == "own":
        return {}
    monkeypatch.setattr("router.http.dispatcher._SWEEP_SECONDS", 0.05)
    return {"foreign": True, "handler_cancellation": False}


@pytest.fixture(params=["close", "reset"])
def leave(request: pytest.FixtureRequest) -> Leaving:
    """How the client leaves."""
    value: Leaving = request.param
    return value


@contextlib.asynccontextmanager
async def scene(
    script: Script, dialect: Dialect, mounted: dict[str, Any], **sections: Any
) -> AsyncIterator[tuple[Router, Upstream]]:
    """A router before one upstream that is patient."""
    patient = {"first_byte": 30, "idle": 30, "total": 30}
    async with Upstream(script) as upstream:
        one = endpoint(upstream, dialect, timeouts=patient)
        async with routing(one, **mounted, **sections) as router:
            yield router, upstream


async def gone(upstream: Upstream) -> None:
    """Wait until the endpoint notices that nobody wants its answer any more."""
    await until(lambda: upstream.requests)
    async with asyncio.timeout(60):
        await upstream.requests[0].wire.gone.wait()


async def test_before_the_head(
    dialect: Dialect, stream: bool, mounted: dict[str, Any], leave: Leaving
) -> None:
    async with scene(silent, dialect, mounted) as (router, upstream):
        client = await Client.open(router.url)
        client.ask(stream=stream)
        await until(lambda: upstream.requests)
        client.leave(leave)
        await gone(upstream)
        await router.idle()
        assert await router.metric("pointsman_requests_total", outcome="cancelled") == [1.0]


async def test_in_mid_stream(
    dialect: Dialect, speech: Speech, mounted: dict[str, Any], leave: Leaving
) -> None:
    script = streamed(speech.opening, speech.words[0], kind=speech.kind, then=silent)
    async with scene(script, dialect, mounted) as (router, upstream):
        client = await Client.open(router.url)
        client.ask(stream=True)
        await client.until(b"Hello")
        client.leave(leave)
        await gone(upstream)
        await router.idle()
        assert await router.metric("pointsman_requests_total", outcome="cancelled") == [1.0]


async def test_while_the_stream_goes_on(
    dialect: Dialect, speech: Speech, mounted: dict[str, Any], leave: Leaving
) -> None:
    words = speech.words[1:3] * 2000
    script = streamed(speech.opening, speech.words[0], *words, kind=speech.kind, pause=0.001)
    async with scene(script, dialect, mounted) as (router, upstream):
        client = await Client.open(router.url)
        client.ask(stream=True)
        await client.until(b"Hello")
        client.leave(leave)
        await gone(upstream)
        await router.idle()


async def test_in_the_silence_after_an_early_head(
    dialect: Dialect, mounted: dict[str, Any], leave: Leaving
) -> None:
    early = {"open_after": 0.02, "keepalive_interval": 0.02}
    async with scene(silent, dialect, mounted, server=early) as (router, upstream):
        client = await Client.open(router.url)
        client.ask(stream=True)
        await client.until(b": keep-alive")
        client.leave(leave)
        await gone(upstream)
        await router.idle()


async def test_while_it_does_not_read(
    dialect: Dialect, speech: Speech, mounted: dict[str, Any], leave: Leaving
) -> None:
    flood = [speech.words[1] * 500] * 2000
    script = streamed(speech.opening, speech.words[0], *flood, kind=speech.kind)
    async with scene(script, dialect, mounted) as (router, upstream):
        client = await Client.open(router.url)
        client.ask(stream=True)
        await client.until(b"Hello")
        client.pause()
        await until(lambda: not all(wire.writable.is_set() for wire in upstream.wires))
        client.leave(leave)
        await gone(upstream)
        await router.idle()


async def test_in_the_queue(dialect: Dialect, mounted: dict[str, Any], leave: Leaving) -> None:
    async with Upstream(default=silent) as upstream:
        one = endpoint(
            upstream, dialect, max_in_flight=1, timeouts={"first_byte": 30, "idle": 30, "total": 30}
        )
        async with routing(one, **mounted) as router:
            clients = [await Client.open(router.url) for _ in range(3)]
            for client in clients:
                client.ask(stream=True)
            await until(lambda: router.waiting == 2 and len(upstream.requests) == 1)
            clients[1].leave(leave)
            clients[2].leave(leave)
            await until(lambda: router.waiting == 0)
            assert len(upstream.requests) == 1
            clients[0].leave(leave)
            await gone(upstream)
            await router.idle()


async def test_while_sending_its_body(mounted: dict[str, Any], leave: Leaving) -> None:
    async with scene(silent, "chat", mounted) as (router, upstream):
        client = await Client.open(router.url)
        client.send(
            b'POST %b/v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"mod'
            % client.prefix
        )
        await asyncio.sleep(0.05)
        client.leave(leave)
        await asyncio.sleep(0.05)
        await router.idle()
        assert upstream.requests == []


async def test_right_after_asking(dialect: Dialect, stream: bool, mounted: dict[str, Any]) -> None:
    """Clients that leave at any moment, many times."""
    async with Upstream(default=paced(silent, 0)) as upstream:
        one = endpoint(upstream, dialect, max_in_flight=1000)
        async with routing(one, **mounted) as router:
            for turns in range(30):
                client = await Client.open(router.url)
                client.ask(stream=stream)
                for _ in range(turns):
                    await asyncio.sleep(0)
                client.leave("reset" if turns % 2 else "close")
            await until(lambda: not router.running)
            await until(lambda: all(r.wire.gone.is_set() for r in upstream.requests))


async def test_one_that_leaves_does_not_disturb_another(
    dialect: Dialect, speech: Speech, mounted: dict[str, Any]
) -> None:
    slow = streamed(*speech.pieces, kind=speech.kind, pause=0.01)
    async with (
        Upstream(default=slow) as upstream,
        routing(endpoint(upstream, dialect), **mounted) as router,
    ):
        leaver = await Client.open(router.url)
        leaver.ask(stream=True)
        stays = asyncio.create_task(router.ask(stream=True))
        await leaver.until(b"Hello")
        leaver.leave("reset")
        reply = await stays
        assert reply.events[-1].type == "response.completed"


async def test_after_the_answer(dialect: Dialect, speech: Speech, mounted: dict[str, Any]) -> None:
    """Leaving with the last byte is no failure, even when the endpoint's own end is late."""

    async def late(wire: Any) -> None:
        await asyncio.sleep(0.05)
        wire.end()

    script = streamed(*speech.pieces, kind=speech.kind, then=late)
    async with scene(script, dialect, mounted) as (router, upstream):
        client = await Client.open(router.url)
        client.ask(stream=True)
        await client.until(b"0\r\n\r\n")
        client.leave("close")
        await router.idle()
        assert await router.metric("pointsman_requests_total", outcome="ok") == [1.0]
        if not mounted:  # else the sweep may find the client gone first
            assert upstream.open_wires, "the connection was kept"
