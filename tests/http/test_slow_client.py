"""Clients that read slowly, or not at all, or speak an older HTTP."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from router.http.connection import ServerConnection
from router.http.reply import STALLED_CLIENT_SECONDS, HttpReply
from tests.support.client import Client
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream, parse_events, text_of
from tests.support.upstream import Script, Upstream, Wire, paced, silent, streamed, whole
from tests.support.waiting import until

CHAT = SPEECH["chat"]
WORD = "word " * 400
SMALL = 32 * 1024
"""What the kernel holds for a client that reads slowly."""


def delta(text: str) -> bytes:
    """A chunk of a chat stream with this text."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: %b\n\n" % orjson.dumps({"choices": [choice]})


def flood(words: int) -> Script:
    """So many times WORD, as fast as they are taken, then the end."""
    word = delta(WORD)

    async def script(wire: Wire) -> None:
        wire.head(200, {"Content-Type": CHAT.kind})
        for _ in range(words):
            wire.piece(word)
            await asyncio.sleep(0)
            await wire.writable.wait()
            if wire.gone.is_set():
                return
        wire.piece(CHAT.closing)
        wire.end()

    return script


def unchunked(data: bytes) -> bytes:
    """The body of a chunked answer without its head."""
    pieces = []
    at = 0
    while True:
        end = data.index(b"\r\n", at)
        size = int(data[at:end], 16)
        at = end + 2 + size
        pieces.append(data[end + 2 : at])
        assert data[at : at + 2] == b"\r\n"
        at += 2
        if size == 0:
            assert at == len(data), "nothing follows the last chunk"
            return b"".join(pieces)


async def blocked(upstream: Upstream) -> None:
    """Wait until the router takes nothing more from the upstream, and all buffers are full."""
    await until(lambda: not all(wire.writable.is_set() for wire in upstream.wires))
    before, now = -1, 0
    while before != now:
        before = now
        await asyncio.sleep(0.3)
        now = sum(wire.written for wire in upstream.wires)


async def test_memory_is_bounded() -> None:
    """1 KB at a time from an endless stream: what was not read is left at the endpoint."""
    async with (
        Upstream(flood(10**6)) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"idle": 0.2, "total": 60})) as router,
    ):
        tracemalloc.start()
        try:
            client = await Client.open(router.url, receive_buffer=SMALL)
            client.ask(stream=True)
            await blocked(upstream)
            before, _ = tracemalloc.get_traced_memory()
            taken = upstream.requests[0].wire.written
            for _ in range(60):  # three times the idle deadline
                assert len(await client.take(1024)) > 0
                await asyncio.sleep(0.01)
            after, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Some reads' worth; without a bound it would be hundreds of megabytes by now.
        assert peak < 8 * 2**20
        assert after - before < 4 * 2**20
        assert upstream.requests[0].wire.written - taken < 4 * 2**20
        assert not upstream.requests[0].wire.gone.is_set()
        client.leave()


async def test_the_idle_deadline_stands_still() -> None:
    async with (
        Upstream(flood(4000)) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"idle": 0.1, "total": 60})) as router,
    ):
        client = await Client.open(router.url, receive_buffer=SMALL)
        client.ask(stream=True, headers="Connection: close\r\n")
        await blocked(upstream)
        await asyncio.sleep(0.3)
        await client.until(b"\r\n\r\n")
        events = parse_events(unchunked(await client.rest()))
        assert check_responses_stream(events)["status"] == "completed"
        assert text_of(events) == WORD * 4000


async def test_others_do_not_wait() -> None:
    async with (
        Upstream(flood(10**6), default=streamed(*CHAT.pieces, kind=CHAT.kind)) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"total": 60})) as router,
    ):
        client = await Client.open(router.url, receive_buffer=SMALL)
        client.ask(stream=True)
        await blocked(upstream)
        for reply in await asyncio.gather(*(router.ask(stream=True) for _ in range(20))):
            assert reply.events[-1].type == "response.completed"
        client.leave()


async def test_a_client_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.http.reply.STALLED_CLIENT_SECONDS", 0.1)
    async with (
        Upstream(flood(10**6)) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"total": 60})) as router,
    ):
        client = await Client.open(router.url, receive_buffer=SMALL)
        client.ask(stream=True)
        await until(lambda: upstream.requests)
        await upstream.requests[0].wire.gone.wait()
        await router.idle()
        assert await router.metric("pointsman_requests_total", outcome="cancelled") == [1.0]
        client.leave()


async def test_a_client_that_never_reads_the_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("router.http.reply.STALLED_CLIENT_SECONDS", 0.1)
    huge = streamed(CHAT.opening, delta("x" * 2**22), CHAT.closing, kind=CHAT.kind)
    async with Upstream(huge) as upstream, routing(endpoint(upstream, "chat")) as router:
        client = await Client.open(router.url, receive_buffer=SMALL)
        client.ask(stream=True)
        client.pause()
        await until(lambda: upstream.requests)
        await router.idle()
        await until(lambda: not connections(router))
        client.leave()


def connections(router: Router) -> int:
    """How many clients are connected, but for the test's own session."""
    server = router.runner.server
    assert server is not None
    return sum(c.transport is not None and c._request_in_progress for c in server.connections)


class Patience:
    """The deadline of a stalled client by the test's own clock: it passes when the test says so,
    however slow the machine is.
    """

    def __init__(self) -> None:
        self.waits = 0
        self._over = asyncio.Semaphore(0)

    def of(self, waiting: Callable[[Any, float], Awaitable[bool]]) -> Callable[..., object]:
        """A method that waits so many seconds for a client, made one that waits for ``passes``."""

        async def waits(of: Any, seconds: float) -> bool:
            assert seconds == STALLED_CLIENT_SECONDS
            self.waits += 1
            await self._over.acquire()
            return await waiting(of, 0)

        return waits

    async def begins(self, times: int) -> None:
        """Wait until the deadline runs for the ``times``-th time."""
        await until(lambda: self.waits >= times, what="a wait for the client")

    def passes(self) -> None:
        self._over.release()


@pytest.mark.parametrize("by", ["router", "aiohttp"])
async def test_only_a_client_that_reads_nothing_is_given_up(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slowly it reads."""
    patience = Patience()
    for of, name in ((ServerConnection, "_drains"), (HttpReply, "_drained")):
        monkeypatch.setattr(of, name, patience.of(getattr(of, name)))
    huge = streamed(CHAT.opening, delta("x" * 2**22), kind=CHAT.kind, then=silent)
    async with Upstream(huge) as upstream:
        one = endpoint(upstream, "chat", timeouts={"idle": 60, "total": 60})
        async with routing(one, foreign=by == "aiohttp") as router:
            client = await Client.open(router.url, receive_buffer=SMALL)
            client.ask(stream=True)
            await client.until(b"response.created")
            for times in range(1, 9):
                await patience.begins(times)
                held = router.held
                while router.held >= held:
                    assert await client.take(4096)
                client.received.clear()
                assert router.held, "the router still waits for the client"
                patience.passes()
            await patience.begins(9)
            assert not upstream.requests[0].wire.gone.is_set()
            client.pause()
            patience.passes()  # what the kernel had asked for may still leave, once
            patience.passes()
            await until(upstream.requests[0].wire.gone.is_set)
            client.leave()


async def test_a_slow_head_does_not_fill_the_memory() -> None:
    """A foreign application may take its time before a response's head."""
    hold = asyncio.Event()

    async def prepare(request: web.Request, response: web.StreamResponse) -> None:
        if request.path.endswith("/responses"):
            await hold.wait()

    outer = web.Application()
    outer.on_response_prepare.append(prepare)
    async with Upstream(flood(4000)) as upstream:
        one = endpoint(upstream, "chat", timeouts={"total": 60})
        async with routing(one, foreign=outer) as router:
            asking = asyncio.create_task(router.ask(stream=True))
            await blocked(upstream)
            hold.set()
            reply = await asking
            assert check_responses_stream(reply.events)["status"] == "completed"
            assert text_of(reply.events) == WORD * 4000


@pytest.mark.parametrize("headers", ["", "Connection: keep-alive\r\n"])
async def test_http_1_0(headers: str) -> None:
    speech = streamed(*CHAT.pieces, kind=CHAT.kind, pause=0.005)
    async with (
        Upstream(speech, whole(CHAT.whole)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        client = await Client.open(router.url)
        client.ask(stream=True, version="1.0", headers=headers)
        head = await client.until(b"\r\n\r\n")
        assert b"200 OK" in head
        assert b"chunked" not in head.lower()
        events = parse_events(await client.rest())
        assert check_responses_stream(events)["status"] == "completed"
        client = await Client.open(router.url)
        client.ask(stream=False, version="1.0")
        await client.until(b"\r\n\r\n")
        assert orjson.loads(await client.rest())["output_text"] == CHAT.text


async def test_a_huge_first_batch() -> None:
    text = "ö" * 1_000_000
    one_piece = b"".join((CHAT.opening, delta(text), CHAT.closing))
    async with (
        Upstream(
            streamed(one_piece, kind=CHAT.kind),
            streamed(one_piece, kind=CHAT.kind),
        ) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        reply = await router.ask(stream=True)
        assert check_responses_stream(reply.events)["output_text"] == text
        client = await Client.open(router.url, receive_buffer=SMALL)
        client.ask(stream=True, headers="Connection: close\r\n")
        await client.until(b"\r\n\r\n")
        events = parse_events(unchunked(await client.rest()))
        assert check_responses_stream(events)["output_text"] == text


async def test_requests_in_a_pipeline() -> None:
    """Answers leave in the order of the requests, whole ones and streams."""
    async with (
        Upstream(
            streamed(*CHAT.pieces, kind=CHAT.kind, pause=0.01),
            whole(CHAT.whole),
            whole(b"{}", 500),
            streamed(*CHAT.pieces, kind=CHAT.kind),
        ) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        client = await Client.open(router.url)
        client.ask(stream=True)
        client.ask(stream=False)
        client.ask(stream=True)
        client.ask(stream=True, headers="Connection: close\r\n")
        for last in (b"0\r\n\r\n", b"}", b"}}", b"0\r\n\r\n"):
            head = await client.until(b"\r\n\r\n")
            assert b"HTTP/1.1 502" in head if last == b"}}" else b"HTTP/1.1 200" in head
            if last == b"0\r\n\r\n":
                events = parse_events(unchunked(await client.until(last)))
                assert check_responses_stream(events)["output_text"] == CHAT.text
            else:
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                while len(client.received) < size:
                    await client.take(size)
                client.cut(size)
        assert await client.rest() == b""


async def test_comments_fill_the_silence_between_events() -> None:
    script = streamed(*CHAT.pieces, kind=CHAT.kind, pause=0.07)
    async with (
        Upstream(script) as upstream,
        routing(endpoint(upstream, "chat"), server={"keepalive_interval": 0.02}) as router,
    ):
        reply = await router.ask(stream=True)
        assert check_responses_stream(reply.events)["output_text"] == CHAT.text
        assert reply.body.count(b": keep-alive\n\n") >= 3
        assert reply.body.startswith(b"event: response.created\n")
        assert reply.body.endswith(b"}\n\n")


async def test_no_comment_where_there_is_no_silence() -> None:
    script = streamed(*CHAT.pieces, *[delta("x")] * 40, CHAT.closing, kind=CHAT.kind, pause=0.005)
    async with (
        Upstream(script) as upstream,
        routing(endpoint(upstream, "chat"), server={"keepalive_interval": 5}) as router,
    ):
        reply = await router.ask(stream=True)
        assert b": keep-alive" not in reply.body


async def test_no_comment_for_a_client_that_does_not_read() -> None:
    """What fills silence must not fill the memory."""
    stalls = streamed(CHAT.opening, delta("x" * 2**22), kind=CHAT.kind, then=silent)
    early = {"open_after": 0.005, "keepalive_interval": 0.005}
    async with Upstream(stalls) as upstream:
        one = endpoint(upstream, "chat", timeouts={"idle": 30, "total": 30})
        async with routing(one, server=early) as router:
            client = await Client.open(router.url, receive_buffer=SMALL)
            client.ask(stream=True)
            await client.until(b"response.created")
            client.pause()
            await until(lambda: router.held)
            held = router.held
            await asyncio.sleep(0.1)
            assert router.held == held
            client.leave()


async def test_an_answer_that_ends_in_the_moment_it_begins() -> None:
    """Open, everything and the end in one read, many at a time, and some after silence."""
    everything = streamed(b"".join(CHAT.pieces), kind=CHAT.kind)
    async with (
        Upstream(default=paced(everything, 0.03)) as upstream,
        routing(
            endpoint(upstream, "chat", max_in_flight=100), server={"open_after": 0.03}
        ) as router,
    ):
        for reply in await asyncio.gather(*(router.ask(stream=True) for _ in range(50))):
            assert check_responses_stream(reply.events)["output_text"] == CHAT.text
