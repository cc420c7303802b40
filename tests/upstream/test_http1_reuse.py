"""When a connection is used again, and when it must not be."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest

from router.errors import UpstreamFailure, UpstreamUnavailable
from router.upstream import connection as connection_module
from router.upstream import http1 as pool_module
from router.upstream.answer import HIGH_WATER
from router.upstream.http1 import HttpTransport
from tests.support.http1 import bytes_of, everything, post, soon, transport_to
from tests.support.upstream import Upstream, Wire, reset_now, silent, streamed, whole
from tests.support.waiting import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def ask(http: HttpTransport) -> bytes:
    return await everything(await http.send(post()))


async def test_one_connection_after_another_request() -> None:
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        for _ in range(5):
            assert await ask(http) == b"ok"
            assert (await http.get("/models", 5.0))[0] == 200
        assert len(upstream.wires) == 1


async def test_as_many_connections_as_requests_at_a_time() -> None:
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        answers = await asyncio.gather(*(http.send(post()) for _ in range(5)))
        assert len(upstream.wires) == 5
        assert [await everything(answer) for answer in answers] == [b"ok"] * 5
        for _ in range(5):
            await ask(http)
        assert len(upstream.wires) == 5
        assert len({id(request.wire) for request in upstream.requests[5:]}) == 1


@pytest.mark.parametrize(
    "raw",
    [
        OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
        OK.replace(b"1.1", b"1.0"),
        OK + b"x",
        OK + OK,
        OK + b"HTTP/1.1 200",
        OK + b"\0",
        CHUNKED + b"2\r\nok\r\n0\r\n\r\n" + OK,
    ],
)
async def test_not_kept(raw: bytes) -> None:
    """Not agreed to, or with more than the answer: the next request gets its own answer."""
    async with Upstream(bytes_of(raw), whole(b"next")) as upstream, transport_to(upstream) as http:
        assert await ask(http) == b"ok"
        await soon(upstream.wires[0])
        assert await ask(http) == b"next"
        assert len(upstream.wires) == 2


async def test_kept_by_agreement_with_an_old_server() -> None:
    raw = OK.replace(b"1.1 200 OK\r\n", b"1.0 200 OK\r\nConnection: keep-alive\r\n")
    async with Upstream(default=bytes_of(raw)) as upstream, transport_to(upstream) as http:
        assert [await ask(http), await ask(http)] == [b"ok", b"ok"]
        assert len(upstream.wires) == 1


@pytest.mark.parametrize("more", [OK.replace(b"ok", b"no"), b"\r\n"])
async def test_more_behind_the_end_while_the_answer_is_still_open(more: bytes) -> None:
    script = bytes_of(OK, more)
    async with Upstream(script, whole(b"next")) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        await soon(upstream.wires[0])
        assert await everything(answer) == b"ok"
        assert await ask(http) == b"next"


async def test_unasked_bytes_on_an_idle_connection() -> None:
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        assert await ask(http) == b"ok"
        upstream.wires[0].raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await soon(upstream.wires[0])
        assert await ask(http) == b"ok"
        assert len(upstream.wires) == 2


async def test_a_dropped_connection_is_not_taken_even_before_it_is_closed() -> None:
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        assert await ask(http) == b"ok"
        assert http._pool is not None
        (connection,) = http._pool._idle
        connection.drop()
        assert http._pool.take() is None
        assert await ask(http) == b"ok"
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_closed_by_the_upstream_while_idle(how: str) -> None:
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        for _ in range(3):
            assert await ask(http) == b"ok"
            wire = upstream.wires[-1]
            getattr(wire, how)()
            await soon(wire)
            await asyncio.sleep(0.01)
            assert http._pool is not None
            assert not http._pool._open
        assert len(upstream.requests) == 3


async def test_closed_by_the_upstream_in_the_very_moment() -> None:
    """A kept connection that dies without a byte of an answer: once more, on a fresh one."""
    async with (
        Upstream(default=whole(b"ok"), drops_request=2) as upstream,
        transport_to(upstream) as http,
    ):
        for _ in range(6):
            assert await ask(http) == b"ok"
        assert upstream.dropped >= 2
        assert len(upstream.requests) == 6
        assert len(upstream.wires) == 6


async def test_the_second_try_is_on_a_fresh_connection_and_the_last() -> None:
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        answers = await asyncio.gather(*(http.send(post()) for _ in range(3)))
        assert [await everything(answer) for answer in answers] == [b"ok"] * 3
        upstream.default = reset_now
        with pytest.raises(UpstreamFailure, match="closed the connection, not answering") as caught:
            await ask(http)
        assert caught.value.again
        assert len(upstream.requests) == 5
        assert len(upstream.wires) == 4


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_fresh_connection_that_dies_is_reported(how: str) -> None:
    async def script(wire: Wire) -> None:
        getattr(wire, how)()

    async with Upstream(default=script) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamFailure, match="closed the connection, not answering") as caught:
            await ask(http)
        assert caught.value.again
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("said", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_no_second_try_once_a_byte_has_arrived(said: bytes) -> None:
    async def script(wire: Wire) -> None:
        wire.raw(said)
        wire.close()

    async with Upstream(whole(b"ok"), script) as upstream, transport_to(upstream) as http:
        assert await ask(http) == b"ok"
        with pytest.raises(UpstreamFailure, match="broke off its answer"):
            await ask(http)
        assert len(upstream.requests) == 2


async def test_a_large_body_survives_the_race() -> None:
    body = bytes(5_000_000)
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        await ask(http)
        upstream.drops_request = 2
        assert await everything(await http.send(post(body))) == b"ok"
        assert upstream.requests[-1].body == body


async def test_an_unfinished_answer_is_cut_off() -> None:
    script = streamed(b"data: 1\n\n", then=silent)
    async with Upstream(script, whole(b"ok")) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        assert await answer.read() == b"data: 1\n\n"
        answer.close()
        answer.close()
        await soon(upstream.wires[0])
        with pytest.raises(UpstreamFailure, match="has been closed"):
            await answer.read()
        assert await ask(http) == b"ok"


async def test_an_unread_but_complete_answer_is_none() -> None:
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        for _ in range(3):
            (await http.send(post())).close()
        assert len(upstream.wires) == 1


async def test_a_closed_answer_cannot_touch_the_next() -> None:
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        first = await http.send(post())
        first.close()
        second = await http.send(post())
        first.close()
        assert await first.body() == b"ok"
        await first.settle()
        assert await everything(second) == b"ok"
        assert len(upstream.wires) == 1


async def test_settle_waits_for_the_end() -> None:
    done = asyncio.Event()

    async def script(wire: Wire) -> None:
        wire.raw(CHUNKED + b"6\r\n[DONE]\r\n")
        await done.wait()
        wire.raw(b"1\r\n\n\r\n0\r\n\r\n")

    async with Upstream(script, whole(b"ok")) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        assert await answer.read() == b"[DONE]"
        asyncio.get_running_loop().call_later(0.02, done.set)
        await answer.settle()
        answer.close()
        assert await ask(http) == b"ok"
        assert len(upstream.wires) == 1


async def test_settle_gives_up() -> None:
    async def dripping(wire: Wire) -> None:
        wire.raw(CHUNKED)
        while not wire.gone.is_set():
            wire.raw(b"1\r\nx\r\n")
            await asyncio.sleep(0.001)

    stalls = streamed(b"[DONE]", then=silent)
    breaks = streamed(b"[DONE]", then=reset_now)
    async with Upstream(stalls, dripping, breaks) as upstream, transport_to(upstream) as http:
        for wires in (1, 2, 3):
            answer = await http.send(post())
            assert await answer.read()
            await answer.settle()
            answer.close()
            await soon(upstream.wires[-1])
            assert len(upstream.wires) == wires


async def test_an_answer_before_the_whole_request_was_taken() -> None:
    """What is left of the request would be read as the next one."""
    closed = asyncio.Event()

    async def hurry(decoder: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await decoder.readuntil(b"\r\n\r\n")
        writer.write(OK)
        with contextlib.suppress(ConnectionError):
            while await decoder.read(1 << 20):
                pass
        writer.close()
        closed.set()

    async with await asyncio.start_server(hurry, "127.0.0.1", 0, limit=1024) as server:
        port = server.sockets[0].getsockname()[1]
        async with transport_to(f"http://127.0.0.1:{port}") as http:
            answer = await http.send(post(bytes(30_000_000)))
            assert answer.complete
            answer.close()
            assert http._pool is not None
            assert http._pool.take() is None
        await closed.wait()


async def test_idle_connections_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "IDLE_SECONDS", 0.05)
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        answers = await asyncio.gather(*(http.send(post()) for _ in range(3)))
        for answer in answers:
            answer.close()
        for wire in upstream.wires:
            await soon(wire)
        assert await ask(http) == b"ok"
        assert len(upstream.wires) == 4


async def test_use_keeps_a_connection_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "IDLE_SECONDS", 0.4)
    script = streamed(b"x", b"y", pause=0.25)
    async with Upstream(default=script) as upstream, transport_to(upstream) as http:
        assert [await ask(http), await ask(http)] == [b"xy", b"xy"]
        assert len(upstream.wires) == 1


async def test_idle_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_IDLE", 2)
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        answers = await asyncio.gather(*(http.send(post()) for _ in range(5)))
        for answer in answers:
            answer.close()
        await until(lambda: len(upstream.open_wires) == 2)


async def test_a_connection_that_was_held_back_is_kept_readable() -> None:
    """So much at once that receiving was stopped, and then nobody read it."""
    large = whole(bytes(HIGH_WATER + 1))
    async with Upstream(large, whole(b"ok")) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        await until(lambda: answer.complete)
        answer.close()
        assert await ask(http) == b"ok"
        assert len(upstream.wires) == 1
        upstream.wires[0].close()
        await soon(upstream.wires[0])


async def test_close_cuts_everything_off() -> None:
    stream = streamed(b"data: 1\n\n", then=silent)
    async with Upstream(stream, silent, whole(b"ok")) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        waiting = asyncio.create_task(http.send(post()))
        await until(lambda: len(upstream.requests) == 2)
        assert await ask(http) == b"ok"
        await http.close()
        for wire in upstream.wires:
            await soon(wire)
        assert await answer.read() == b"data: 1\n\n"
        with pytest.raises(UpstreamFailure, match="broke off"):
            await answer.read()
        with pytest.raises(UpstreamFailure, match="closed the connection"):
            await waiting
        answer.close()
        with pytest.raises(UpstreamUnavailable, match="no longer in use"):
            await http.send(post())
        await http.close()


async def test_close_before_use() -> None:
    async with transport_to("http://127.0.0.1:1"):
        pass


async def test_a_connection_is_freed_without_the_garbage_collector() -> None:
    alive: list[weakref.ref[connection_module.Connection]] = []
    async with (
        Upstream(default=bytes_of(OK.replace(b"1.1", b"1.0"))) as upstream,
        transport_to(upstream) as http,
    ):
        gc.disable()
        try:
            for _ in range(3):
                answer = await http.send(post())
                link = answer._link
                assert isinstance(link, connection_module.Connection)
                alive.append(weakref.ref(link))
                assert await everything(answer) == b"ok"
                del answer, link
                await soon(upstream.wires[-1])
            await until(lambda: not any(ref() for ref in alive))
        finally:
            gc.enable()
