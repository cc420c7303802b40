"""How a WebSocket ends, and what it may take: slow and silent clients, floods, draining."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import aiohttp
import orjson
import pytest

from router.app import DISPATCHER
from tests.support.router import Router, endpoint, routing
from tests.support.sockets import Socket, connected, is_closed
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, Wire, silent, streamed
from tests.support.waiting import until

CHAT = SPEECH["chat"]
HELLO = streamed(*CHAT.pieces, kind=CHAT.kind)
STUCK = streamed(CHAT.opening, CHAT.words[0], kind=CHAT.kind, then=silent)
PATIENT = {"first_byte": 60, "idle": 60, "total": 60}
WORD = "word " * 400


async def flood(wire: Wire) -> None:
    """Words without end, as fast as they are taken."""
    choice = {"index": 0, "delta": {"content": WORD}, "finish_reason": None}
    word = b"data: %b\n\n" % orjson.dumps({"choices": [choice]})
    wire.head(200, {"Content-Type": CHAT.kind})
    while not wire.gone.is_set():
        wire.piece(word)
        await asyncio.sleep(0)
        await wire.writable.wait()


async def begun(socket: Socket, stream: str | None = None, **fields: Any) -> None:
    """Ask, and wait for the first output."""
    if stream is not None:
        fields["stream_id"] = stream
    await socket.send(**fields)
    await socket.until("response.output_text.delta", stream)


@pytest.mark.parametrize("handler_cancellation", [True, False])
@pytest.mark.parametrize("leaving", ["close", "abort"])
async def test_a_client_that_leaves_cancels_what_runs(
    leaving: str, handler_cancellation: bool
) -> None:
    async with (
        Upstream(default=STUCK) as upstream,
        routing(
            endpoint(upstream, "chat", timeouts=PATIENT),
            handler_cancellation=handler_cancellation,
        ) as router,
    ):
        async with connected(router.url) as socket:
            await begun(socket, "one")
            await begun(socket, "two")
            await socket.send(stream_id="one", input="never asked")
            if leaving == "abort":
                connection = socket.ws._response.connection
                assert connection is not None
                assert connection.transport is not None
                connection.transport.abort()
            else:
                await socket.ws.close()
            await router.idle()
        assert len(upstream.requests) == 2
        for request in upstream.requests:
            await request.wire.gone.wait()
        await router.metric_becomes(0, "pointsman_websockets_open")
        await router.metric_becomes(
            2, "pointsman_requests_total", operation="responses", outcome="cancelled"
        )


async def test_draining_lets_finish_what_runs() -> None:
    go_on = asyncio.Event()

    async def held(wire: Wire) -> None:
        wire.head(200, {"Content-Type": CHAT.kind})
        wire.piece(CHAT.opening + CHAT.words[0])
        await go_on.wait()
        wire.piece(CHAT.closing)
        wire.end()

    async with (
        Upstream(held) as upstream,
        routing(endpoint(upstream, "chat", timeouts=PATIENT)) as router,
        connected(router.url) as idle,
        connected(router.url) as busy,
    ):
        await begun(busy)
        draining = asyncio.create_task(router.app[DISPATCHER].drain(60))
        assert await idle.closed() == aiohttp.WSCloseCode.GOING_AWAY
        error = await busy.refused(stream_id="late")
        assert (error["status"], error["error"]["code"]) == (503, "shutting_down")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with connected(router.url):
                pass
        assert refused.value.status == 503
        go_on.set()
        assert (await busy.events())[-1]["type"] == "response.completed"
        assert await busy.closed() == aiohttp.WSCloseCode.GOING_AWAY
        await draining


async def test_draining_ends_what_does_not_finish() -> None:
    async with (
        Upstream(default=STUCK) as upstream,
        routing(endpoint(upstream, "chat", timeouts=PATIENT)) as router,
        connected(router.url) as socket,
    ):
        await begun(socket)
        await socket.send(input="it waits")
        draining = asyncio.create_task(router.app[DISPATCHER].drain(0.05))
        assert (await socket.events())[-1]["type"] == "response.failed"
        [error] = await socket.events()
        assert error["error"]["code"] == "shutting_down"
        assert await socket.closed() == aiohttp.WSCloseCode.GOING_AWAY
        await draining


async def test_before_it_drains_a_connection_ends_with_its_request() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        router.app[DISPATCHER].stop_soon()
        assert (await socket.ask())["status"] == "completed"
        assert await socket.closed() == aiohttp.WSCloseCode.GOING_AWAY
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with connected(router.url):
                pass
        assert refused.value.status == 503


async def test_its_time_is_limited() -> None:
    async with (
        Upstream(HELLO) as upstream,
        routing(endpoint(upstream, "chat"), server={"websocket_max_age": 0.5}) as router,
        connected(router.url) as socket,
    ):
        assert (await socket.ask())["status"] == "completed"
        event = await socket.event()
        assert (event["type"], event["status"]) == ("error", 400)
        assert event["error"]["code"] == "websocket_connection_limit_reached"
        assert await socket.closed() == aiohttp.WSCloseCode.OK


async def test_what_runs_when_its_time_is_over_ends_well() -> None:
    go_on = asyncio.Event()

    async def held(wire: Wire) -> None:
        wire.head(200, {"Content-Type": CHAT.kind})
        wire.piece(CHAT.opening + CHAT.words[0])
        await go_on.wait()
        wire.piece(CHAT.closing)
        wire.end()

    limits = {"websocket_max_age": 0.3, "keepalive_interval": 0.05}
    async with (
        Upstream(held) as upstream,
        routing(endpoint(upstream, "chat", timeouts=PATIENT), server=limits) as router,
        connected(router.url) as socket,
    ):
        await begun(socket)
        await socket.send(input="it waits")
        await asyncio.sleep(0.4)
        go_on.set()
        assert (await socket.events())[-1]["type"] == "response.completed"
        for _ in range(2):
            [error] = await socket.events()
            assert error["error"]["code"] == "websocket_connection_limit_reached"
        assert await socket.closed() == aiohttp.WSCloseCode.OK
        assert len(upstream.requests) == 1


async def test_silence_ends_it() -> None:
    brief = {"websocket_idle": 0.2, "keepalive_interval": 0.05}
    async with (
        Upstream(HELLO) as upstream,
        routing(endpoint(upstream, "chat"), server=brief) as router,
        connected(router.url) as socket,
    ):
        assert (await socket.ask())["status"] == "completed"
        assert await socket.closed() == aiohttp.WSCloseCode.OK


async def test_signs_of_life() -> None:
    async with (
        Upstream(STUCK) as upstream,
        routing(
            endpoint(upstream, "chat", timeouts=PATIENT),
            server={"keepalive_interval": 0.05, "websocket_idle": 0.2},
        ) as router,
        connected(router.url, autoping=False) as socket,
    ):
        await begun(socket)
        for _ in range(8):  # longer than it may be idle: a request runs
            message = await socket.ws.receive(timeout=60)
            assert message.type is aiohttp.WSMsgType.PING


async def test_a_client_that_does_not_read_holds_up_the_endpoint() -> None:
    """What it did not read is left at the endpoint, and its own messages wait."""
    async with (
        Upstream(default=flood) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"idle": 0.2, "total": 60})) as router,
    ):
        tracemalloc.start()
        try:
            async with connected(router.url) as socket:
                await begun(socket)
                protocol = socket.ws._response.connection
                assert protocol is not None
                assert protocol.transport is not None
                protocol.transport.pause_reading()
                await until(lambda: not upstream.wires[-1].writable.is_set())
                await asyncio.sleep(0.5)
                written = upstream.wires[-1].written
                for _ in range(200):
                    await socket.ws.send_str("{" * 1000)
                _, peak = tracemalloc.get_traced_memory()
                assert peak < 16 * 2**20
                assert upstream.wires[-1].written - written < 4 * 2**20
                assert router.running == 1
                protocol.transport.abort()
                await router.idle()
        finally:
            tracemalloc.stop()


async def test_a_client_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.http.socket_reply.STALLED_CLIENT_SECONDS", 0.1)
    async with (
        Upstream(default=flood) as upstream,
        routing(endpoint(upstream, "chat", timeouts=PATIENT)) as router,
        connected(router.url) as socket,
    ):
        await begun(socket)
        protocol = socket.ws._response.connection
        assert protocol is not None
        assert protocol.transport is not None
        protocol.transport.pause_reading()
        await router.idle()
        await upstream.wires[-1].gone.wait()
        protocol.transport.abort()


async def test_a_message_beyond_the_limit_closes_it() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat"), server={"max_body_mb": 0.1}) as router,
    ):
        for compress in (0, 15):  # a small message may be a large one, compressed
            async with connected(router.url, compress=compress) as socket:
                await socket.send(input="x" * 90_000)
                assert (await socket.events())[-1]["type"] == "response.completed"
                await socket.send(input="x" * 120_000)
                assert await socket.closed() == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        assert len(upstream.requests) == 2


async def test_what_waits_is_bounded() -> None:
    async with (
        Upstream(default=STUCK) as upstream,
        routing(
            endpoint(upstream, "chat", timeouts=PATIENT, max_in_flight=64),
            server={"max_body_mb": 0.1},
        ) as router,
    ):
        async with connected(router.url) as socket:
            await begun(socket)
            await socket.send(input="x" * 60_000)
            await socket.send(input="x" * 60_000)
            error = (await socket.until("error"))["error"]
            assert error["code"] == "websocket_queue_full"
            for _ in range(63):
                await socket.send()
            await socket.send()
            error = (await socket.until("error"))["error"]
            assert error["code"] == "websocket_queue_full"
        await router.idle()
        assert len(upstream.requests) == 1


async def test_sixteen_at_once() -> None:
    async with (
        Upstream(default=STUCK) as upstream,
        routing(endpoint(upstream, "chat", timeouts=PATIENT, max_in_flight=64)) as router,
    ):
        async with connected(router.url) as socket:
            for number in range(20):
                await socket.send(stream_id=f"s{number}")
            await until(lambda: len(upstream.requests) == 16)
            await asyncio.sleep(0.2)
            assert len(upstream.requests) == router.running == 16
        await router.idle()


async def test_bytes_that_are_no_frames() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        for noise in (b"\xff" * 64, b"\x83\x80abcd", b"\x81\xfe"):
            async with connected(router.url) as socket:
                connection = socket.ws._response.connection
                assert connection is not None
                assert connection.transport is not None
                connection.transport.write(noise)
                if noise != b"\x81\xfe":  # the beginning of one, and then nothing
                    assert is_closed(await socket.ws.receive(timeout=60))
                else:
                    connection.transport.abort()
        await router.metric_becomes(0, "pointsman_websockets_open")


@pytest.mark.soak
async def test_two_hundred_sockets() -> None:
    """Each has a conversation, some leave in the midst of an answer, and nothing stays."""
    paced = streamed(*CHAT.pieces, kind=CHAT.kind, pause=0.002)

    async def talk(router: Router, number: int) -> int:
        turns, previous = 0, None
        async with connected(router.url, compress=15 if number % 2 else 0) as socket:
            for turn in range(20):
                if number % 5 == 4 and turn == 10:
                    await begun(socket, previous_response_id=previous)
                    return turns
                response = await socket.ask(previous_response_id=previous, input=f"{number}")
                assert response["output_text"] == CHAT.text
                previous = response["id"]
                turns += 1
        return turns

    async with (
        Upstream(default=paced) as upstream,
        routing(
            endpoint(upstream, "chat", max_in_flight=400), balance={"queue_size": 1000}
        ) as router,
    ):
        async with asyncio.TaskGroup() as group:
            talks = [group.create_task(talk(router, number)) for number in range(200)]
        assert sum(task.result() for task in talks) == 160 * 20 + 40 * 10
        await router.idle()
        await router.metric_becomes(0, "pointsman_websockets_open")
