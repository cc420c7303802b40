"""Deadlines, backpressure and cancellation."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from router.errors import UpstreamFailure, UpstreamTimeout
from router.upstream.answer import HIGH_WATER, HttpAnswer
from router.upstream.http1 import HttpTransport
from tests.support.http1 import bytes_of, everything, post, soon, transport_to
from tests.support.upstream import Upstream, Wire, paced, reset_now, silent, streamed, whole
from tests.support.waiting import until

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = 30.0
SHORT = 0.05


def timeouts(**seconds: float) -> dict[str, float]:
    return {"connect": LONG, "first_byte": LONG, "idle": LONG, "total": LONG, **seconds}


async def test_first_byte_of_a_stream() -> None:
    async with (
        Upstream(default=silent) as upstream,
        transport_to(upstream, timeouts=timeouts(first_byte=SHORT)) as http,
    ):
        with pytest.raises(UpstreamTimeout, match=r"the first byte \(timeouts.first_byte\)"):
            await http.send(post())
        await soon(upstream.wires[0])


async def test_half_a_head_is_no_first_byte() -> None:
    async def script(wire: Wire) -> None:
        wire.raw(b"HTTP/1.1 200 OK\r\nContent-Ty")
        await silent(wire)

    async with (
        Upstream(script) as upstream,
        transport_to(upstream, timeouts=timeouts(first_byte=SHORT)) as http,
    ):
        with pytest.raises(UpstreamTimeout, match="the first byte"):
            await http.send(post())


async def test_an_answer_in_one_piece_may_take_its_time() -> None:
    """Its first byte comes when all of it is there: only ``total`` bounds it."""
    slow = paced(whole(b"ok"), SHORT * 4)
    async with (
        Upstream(slow) as upstream,
        transport_to(upstream, timeouts=timeouts(first_byte=SHORT)) as http,
    ):
        assert await everything(await http.send(post(stream=False))) == b"ok"


@pytest.mark.parametrize("stream", [False, True])
async def test_total_while_waiting_for_the_head(stream: bool) -> None:
    async with (
        Upstream(default=silent) as upstream,
        transport_to(upstream, timeouts=timeouts(total=SHORT)) as http,
    ):
        with pytest.raises(UpstreamTimeout, match=r"the whole answer \(timeouts.total\)"):
            await http.send(post(stream=stream))
        await soon(upstream.wires[0])


@pytest.mark.parametrize("as_body", [False, True])
async def test_idle(as_body: bool) -> None:
    script = streamed(b"data: 1\n\n", then=silent)
    async with (
        Upstream(script) as upstream,
        transport_to(upstream, timeouts=timeouts(idle=SHORT)) as http,
    ):
        answer = await http.send(post())
        with pytest.raises(UpstreamTimeout, match=r"the next piece .* \(timeouts.idle\)"):
            await (answer.body() if as_body else everything(answer))
        await soon(upstream.wires[0])
        with pytest.raises(UpstreamTimeout):
            await answer.read()
        answer.close()


async def test_pieces_keep_an_answer_from_being_idle() -> None:
    script = streamed(*[b"x"] * 8, pause=0.1)
    async with (
        Upstream(script) as upstream,
        transport_to(upstream, timeouts=timeouts(idle=0.4)) as http,
    ):
        assert await everything(await http.send(post())) == b"x" * 8


async def test_time_outside_of_read_does_not_count() -> None:
    go_on = asyncio.Event()

    async def script(wire: Wire) -> None:
        wire.raw(CHUNKED + b"1\r\na\r\n")
        await go_on.wait()
        wire.raw(b"1\r\nb\r\n0\r\n\r\n")

    async with (
        Upstream(script) as upstream,
        transport_to(upstream, timeouts=timeouts(idle=0.5)) as http,
    ):
        answer = await http.send(post())
        assert await answer.read() == b"a"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.read(), 0.01)
        await asyncio.sleep(0.7)
        go_on.set()
        assert await answer.read() == b"b"
        assert await everything(answer) == b""


async def test_total_of_a_stream_that_never_ends() -> None:
    async def script(wire: Wire) -> None:
        wire.raw(CHUNKED)
        while not wire.gone.is_set():
            wire.raw(b"1\r\nx\r\n")
            await asyncio.sleep(0.005)

    async with (
        Upstream(script) as upstream,
        transport_to(upstream, timeouts=timeouts(total=0.1)) as http,
    ):
        answer = await http.send(post())
        with pytest.raises(UpstreamTimeout, match="the whole answer"):
            await everything(answer)
        await soon(upstream.wires[0])


async def test_total_of_a_stream_that_is_read_too_slowly() -> None:
    """There is always something to read, and yet it is over."""

    async def script(wire: Wire) -> None:
        wire.raw(CHUNKED)
        while not wire.gone.is_set():
            wire.raw(b"1000\r\n" + bytes(4096) + b"\r\n")
            await wire.writable.wait()
            await asyncio.sleep(0)

    async with (
        Upstream(script) as upstream,
        transport_to(upstream, timeouts=timeouts(total=0.1)) as http,
    ):
        answer = await http.send(post())

        async def read_slowly() -> None:
            while await answer.read():
                await until(lambda: bool(answer.pieces))

        with pytest.raises(UpstreamTimeout, match="the whole answer"):
            await read_slowly()
        answer.close()
        await soon(upstream.wires[0])


async def test_what_is_complete_is_never_late() -> None:
    async with (
        Upstream(whole(b"ok")) as upstream,
        transport_to(upstream, timeouts=timeouts(total=0.5)) as http,
    ):
        answer = await http.send(post())
        await asyncio.sleep(0.6)
        assert await everything(answer) == b"ok"


async def test_one_timer_for_many_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines move with every read; the timer is set anew only when it fires too early."""
    loop = asyncio.get_running_loop()
    calls = 0
    call_at = loop.call_at

    def counting(*args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        nonlocal calls
        calls += 1
        return call_at(*args, **kwargs)

    async with Upstream(default=streamed(*[b"x"] * 50)) as upstream, transport_to(upstream) as http:
        await everything(await http.send(post()))
        monkeypatch.setattr(loop, "call_at", counting)
        for _ in range(5):
            assert await everything(await http.send(post())) == b"x" * 50
        assert calls <= 5


async def test_a_deadline_after_a_timer_that_fires_early() -> None:
    async with (
        Upstream(default=streamed(b"a", b"b", pause=0.4)) as upstream,
        transport_to(upstream, timeouts=timeouts(first_byte=0.3, idle=1.0)) as http,
    ):
        assert await everything(await http.send(post())) == b"ab"
        upstream.default = streamed(b"a", then=silent)
        with pytest.raises(UpstreamTimeout, match=r"timeouts\.idle"):
            await everything(await http.send(post()))


async def test_get_is_over_in_time() -> None:
    async def mute(decoder: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await decoder.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await decoder.read()
        gone.set()
        writer.close()

    gone = asyncio.Event()
    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with transport_to(f"http://127.0.0.1:{port}", timeouts=timeouts()) as http:
            with pytest.raises(UpstreamTimeout, match=r"did not answer within 0\.05 s"):
                await http.get("/models", 0.05)


async def test_backpressure() -> None:
    """A reader that does not read stops the upstream; what is read is whole."""
    total = 40_000_000
    block = bytes(range(256)) * 256
    sent = hashlib.sha256()

    async def script(wire: Wire) -> None:
        wire.head(framing="length", length=total)
        for at in range(0, total, len(block)):
            data = block[: total - at]
            sent.update(data)
            wire.raw(data)
            await wire.writable.wait()

    async with Upstream(script) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        wire = upstream.wires[0]
        written = -1
        while written != wire.written:
            written = wire.written
            await asyncio.sleep(0.1)
        assert HIGH_WATER < answer.size <= HIGH_WATER * 2
        assert wire.written < total / 2
        received = hashlib.sha256()
        while piece := await answer.read():
            assert len(piece) <= HIGH_WATER * 2
            received.update(piece)
        answer.close()
        assert received.digest() == sent.digest()


async def test_backpressure_of_many_small_chunks() -> None:
    async def script(wire: Wire) -> None:
        wire.head()
        for number in range(60_000):
            wire.piece(b"%06d" % number)
            await wire.writable.wait()
        wire.end()

    async with Upstream(script) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        await until(lambda: answer.size > HIGH_WATER)
        assert await everything(answer) == b"".join(b"%06d" % n for n in range(60_000))


async def test_a_break_while_held_back() -> None:
    async def script(wire: Wire) -> None:
        wire.head(framing="length", length=10_000_000)
        wire.raw(bytes(1_000_000))
        wire.close()

    async with Upstream(script) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        await until(lambda: answer.size > HIGH_WATER)
        size = 0

        async def read_all() -> None:
            nonlocal size
            while piece := await answer.read():
                size += len(piece)

        with pytest.raises(UpstreamFailure, match="broke off"):
            await read_all()
        assert size == 1_000_000
        answer.close()


async def waiting_for_the_head(http: HttpTransport) -> None:
    await http.send(post())


async def waiting_for_the_refusal(http: HttpTransport) -> None:
    await http.send(post())


async def reading(http: HttpTransport) -> None:
    await everything(await http.send(post()))


async def reading_a_body(http: HttpTransport) -> None:
    answer = await http.send(post())
    try:
        await answer.body()
    finally:
        answer.close()


async def settling(http: HttpTransport) -> None:
    answer = await http.send(post())
    try:
        await answer.settle()
    finally:
        answer.close()


PIECE = CHUNKED + b"1\r\na\r\n"


@pytest.mark.parametrize(
    ("said", "client"),
    [
        (b"", waiting_for_the_head),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 2", waiting_for_the_head),
        (PIECE.replace(b"200", b"500"), waiting_for_the_refusal),
        (CHUNKED, reading),
        (PIECE, reading),
        (PIECE, reading_a_body),
        (PIECE, settling),
    ],
)
async def test_cancelled(
    said: bytes, client: Callable[[HttpTransport], Coroutine[Any, Any, None]]
) -> None:
    async def script(wire: Wire) -> None:
        await bytes_of(said)(wire)
        stuck.set()
        await silent(wire)

    stuck = asyncio.Event()
    async with Upstream(script, whole(b"ok")) as upstream, transport_to(upstream) as http:
        task = asyncio.create_task(client(http))
        await stuck.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await soon(upstream.wires[0])
        assert await everything(await http.send(post())) == b"ok"
        assert http._pool is not None
        assert len(http._pool._open) == 1


def only_idle(http: HttpTransport) -> bool:
    assert http._pool is not None
    return len(http._pool._open) == len(http._pool._idle)


async def test_cancelled_in_the_turn_in_which_something_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever comes first, nothing is left behind and nothing is reported as unseen."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
    wake = HttpAnswer.wake
    tasks: list[asyncio.Task[HttpAnswer]] = []

    def woken(answer: HttpAnswer) -> None:
        wake(answer)
        tasks[-1].cancel()

    monkeypatch.setattr(HttpAnswer, "wake", woken)
    stream = streamed(b"x", then=silent)
    for script in (whole(b"ok"), stream, bytes_of(b"garbage\r\n\r\n"), reset_now):
        async with Upstream(paced(script, 0.02)) as upstream, transport_to(upstream) as http:
            tasks.append(asyncio.create_task(http.send(post())))
            with pytest.raises(asyncio.CancelledError):
                await tasks[-1]
            await until(partial(only_idle, http))
    gc.collect()
    assert complaints == []


async def test_a_reader_that_was_away_has_deadlines_again() -> None:
    """The deadline passes while nobody waits, since the client reads slowly: the next wait has one
    of its own, and so has the next request on the connection.
    """

    async def script(wire: Wire) -> None:
        wire.head(200, {"Content-Type": "text/event-stream"})
        wire.piece(b"one")
        await silent(wire)

    async with (
        Upstream(script) as upstream,
        transport_to(upstream, timeouts=timeouts(idle=SHORT)) as http,
    ):
        answer = await http.send(post())
        assert await answer.read() == b"one"
        waiting = asyncio.ensure_future(answer.read())  # the deadline is watched from here on
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(SHORT * 4)
        with pytest.raises(UpstreamTimeout, match=r"timeouts\.idle"):
            async with asyncio.timeout(LONG):
                await answer.read()
        answer.close()
