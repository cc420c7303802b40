"""Connections that are served directly, and how they are handed over to aiohttp."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson
import pytest

from router.app import DIRECT
from tests.support.client import Client
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Script, Upstream, streamed, whole
from tests.support.waiting import until

CHAT: Final = SPEECH["chat"]
BODY: Final = orjson.dumps({"model": "m", "input": "hi"})
POST: Final = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
PLAIN: Final = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


async def answer_to(client: Client) -> tuple[int, bytes]:
    """The status and the body of the next whole answer."""
    head = (await client.until(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(client.received) < size:
        assert await client.take(65536)
    return int(head.split()[1]), client.cut(size)


@asynccontextmanager
async def answering(*scripts: Script, **server: Any) -> AsyncIterator[Router]:
    """A router whose endpoint answers whole, after ``scripts``."""
    async with (
        Upstream(*scripts, default=whole(CHAT.whole)) as upstream,
        routing(endpoint(upstream, "chat"), server=server) as router,
    ):
        yield router


def direct(router: Router) -> int:
    """How many connections are served directly."""
    return len(router.app[DIRECT].connections)


async def test_a_request_cut_anywhere() -> None:
    async with answering() as router:
        client = await Client.open(router.url)
        for cut in range(1, len(PLAIN), 3):
            client.send(PLAIN[:cut])
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            client.send(PLAIN[cut:])
            status, body = await answer_to(client)
            assert (status, orjson.loads(body)["output_text"]) == (200, CHAT.text)
        assert direct(router) == 1
        client.leave()


async def test_bytes_that_come_one_by_one() -> None:
    async with answering() as router:
        client = await Client.open(router.url)
        for byte in PLAIN:
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await answer_to(client))[0] == 200
        client.leave()


OTHERS: Final[dict[str, tuple[bytes, int]]] = {
    "get": (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
    "chunked": (
        POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        200,
    ),
    "unknown path": (
        b"POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
        404,
    ),
    "long head": (PLAIN.replace(b"Host", b"X-Long: %b\r\nHost" % (b"x" * 7000)), 200),
    "too large": (POST + b"Content-Length: 99999999999\r\n\r\n", 413),
    "empty line first": (b"\r\n" + PLAIN, 200),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_what_is_handed_over_is_served(name: str) -> None:
    """In the midst of a connection's life, and what follows, too."""
    sent, expected = OTHERS[name]
    async with answering() as router:
        client = await Client.open(router.url)
        client.send(PLAIN)
        assert (await answer_to(client))[0] == 200
        client.send(sent)
        assert (await answer_to(client))[0] == expected
        if expected == 200:
            client.send(PLAIN)
            assert (await answer_to(client))[0] == 200
        client.leave()


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["two lengths", "a length and chunks"],
)
async def test_what_two_may_read_differently_is_refused(fields: bytes) -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, "chat")) as router:
        client = await Client.open(router.url)
        client.send(POST + fields)
        head = await client.until(b"\r\n\r\n")
        assert b" 400 " in head.split(b"\r\n")[0]
        assert not upstream.requests
        router.forgive("Error handling request from 127.0.0.1")
        router.faults.clear()
        client.leave()


@pytest.mark.parametrize("sent", [PLAIN[:20], PLAIN[:-5]], ids=["head", "body"])
async def test_a_slow_request_is_handed_over(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.http.connection._SLOW_SECONDS", 0.0)
    async with answering(keepalive_interval=0.02) as router:
        client = await Client.open(router.url)
        client.send(sent)
        await until(lambda: not direct(router))
        client.send(PLAIN[len(sent) :])
        assert (await answer_to(client))[0] == 200
        client.leave()


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.http.connection._KEEPALIVE_SECONDS", 0.0)
    async with answering(keepalive_interval=0.02) as router:
        client = await Client.open(router.url)
        client.send(PLAIN)
        assert (await answer_to(client))[0] == 200
        assert await client.rest() == b""


async def test_the_last_answer_closes_its_connection() -> None:
    async with answering() as router:
        client = await Client.open(router.url)
        client.send(PLAIN.replace(b"Host", b"Connection: close\r\nHost"))
        head = await client.until(b"\r\n\r\n")
        assert b"\r\nConnection: close\r\n" in head
        assert orjson.loads(await client.rest())["output_text"] == CHAT.text


async def test_what_comes_early_is_not_taken_without_bound() -> None:
    """A client that sends and sends while its first answer is under way is no longer read."""
    slow = streamed(CHAT.opening, *CHAT.words, CHAT.closing, kind=CHAT.kind, pause=0.02)
    async with answering(slow) as router:
        client = await Client.open(router.url)
        client.ask(stream=True)
        many = 1000
        for _ in range(many):
            client.send(PLAIN)
        await client.until(b"0\r\n\r\n")
        for _ in range(many):
            assert (await answer_to(client))[0] == 200
        assert direct(router) == 1
        client.leave()


async def test_idle_connections_close_when_the_router_stops() -> None:
    async with Upstream(default=whole(CHAT.whole)) as upstream:
        async with routing(endpoint(upstream, "chat")) as router:
            client = await Client.open(router.url)
            client.send(PLAIN)
            assert (await answer_to(client))[0] == 200
        assert await client.rest() == b""


async def test_answers_that_nobody_reads_do_not_fill_the_memory() -> None:
    """Nor where they are errors, which take no key."""
    bad = PLAIN.replace(BODY, b"{" + b" " * (len(BODY) - 1))
    async with answering() as router:
        client = await Client.open(router.url, receive_buffer=4096)
        client.pause()
        for _ in range(3000):
            client.send(bad)
        await until(lambda: any(one.writing_paused for one in router.app[DIRECT].connections))
        await asyncio.sleep(0.2)
        assert router.held < 512 * 1024
        client.leave()


async def test_a_request_that_arrives_while_the_router_stops_is_answered() -> None:
    async with answering() as router:
        client = await Client.open(router.url)
        client.send(PLAIN[:-5])
        await until(lambda: any(one._head for one in router.app[DIRECT].connections))
        router.app[DIRECT].close_idle()
        client.send(PLAIN[-5:])
        head = await client.until(b"\r\n\r\n")
        assert b"\r\nConnection: close\r\n" in head
        assert orjson.loads(await client.rest())["output_text"] == CHAT.text


async def test_a_head_that_trickles_in_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.http.connection._SLOW_SECONDS", 0.1)
    async with answering(keepalive_interval=0.02) as router:
        client = await Client.open(router.url)
        sent = 0
        while direct(router) or not sent:
            client.send(PLAIN[sent : sent + 1])
            sent += 1
            await asyncio.sleep(0.02)
            assert sent < len(POST), "it is still waited for"
        client.send(PLAIN[sent:])
        assert (await answer_to(client))[0] == 200
        client.leave()
