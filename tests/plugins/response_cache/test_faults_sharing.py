"""What went wrong once with calls that several clients share."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import orjson
import pytest

from plugins.response_cache import ResponseCachePlugin
from router.app import DISPATCHER
from router.settings.schema import Dialect
from tests.plugins.response_cache.conftest import ALWAYS
from tests.plugins.response_cache.test_sharing import NO_CACHE, held, said
from tests.support.admin import ADMIN, call_admin
from tests.support.reloading import plugin_sets
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Script, Upstream, Wire, paced, streamed, whole
from tests.support.waiting import until

SPEECH_OF_IT = SPEECH["responses"]
STREAM = streamed(*SPEECH_OF_IT.pieces, kind=SPEECH_OF_IT.kind)


def patient(upstream: Upstream, dialect: Dialect = "responses") -> dict[str, Any]:
    """An endpoint that may take its time."""
    return endpoint(upstream, dialect, timeouts={"first_byte": 9.0, "idle": 9.0, "total": 20.0})


def plugin_of(router: Router) -> ResponseCachePlugin:
    """The plugin that is in use."""
    for plugin in plugin_sets(router).current.chain.plugins:
        if isinstance(plugin, ResponseCachePlugin):
            return plugin
    raise AssertionError("the cache is off")


async def read_until(response: Any, text: bytes) -> bytes:
    """What a stream has sent, once this is in it."""
    read = b""
    async with asyncio.timeout(60):
        while text not in read:
            read += await response.content.readany()
    return read


async def test_one_that_shares_nothing_ends_no_sharing() -> None:
    go = asyncio.Event()
    async with (
        Upstream(default=held(SPEECH_OF_IT, go, before=3)) as upstream,
        routing(patient(upstream), cache=ALWAYS) as router,
        router.request(stream=True) as first,
    ):
        await read_until(first, b"ello")
        body = {"model": "m", "input": "hi", "stream": True}
        url = f"{router.url}/v1/responses"
        async with router.http.post(url, json=body, headers=NO_CACHE) as alone:
            await read_until(alone, b"ello")
            alone.close()
        await until(lambda: router.running == 1)
        await until(lambda: len(plugin_of(router)._tasks) == 1)
        async with router.request(stream=True) as third:
            assert third.headers["X-Cache-Tier"] == "shared"
            go.set()
            await third.read()
        await first.read()
        assert len(upstream.requests) == 2


async def test_who_comes_when_the_last_one_leaves_is_answered() -> None:
    """Both at once: whether it still joins that call or gets one of its own, it is not ended."""
    body = orjson.dumps({"model": "m", "input": "hi", "stream": True})
    head = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = head + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    go = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with (
        Upstream(held(SPEECH_OF_IT, go, before=3), default=STREAM) as upstream,
        routing(patient(upstream), cache=ALWAYS) as router,
    ):
        address = ("127.0.0.1", int(router.url.rsplit(":", 1)[1]))
        with socket.create_connection(address) as second:
            with socket.create_connection(address) as first:
                for sock in (first, second):
                    sock.setblocking(False)
                await loop.sock_sendall(first, request)
                seen = b""
                while b"ello" not in seen:
                    seen += await loop.sock_recv(first, 65536)
            second.send(request)
            loop.call_later(0.2, go.set)
            answer = b""
            async with asyncio.timeout(60):
                while some := await loop.sock_recv(second, 65536):
                    answer += some
        assert b"event: response.completed" in answer
        assert b"response.failed" not in answer


@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
async def test_who_comes_while_the_answer_is_put_away_is_let_go(
    monkeypatch: pytest.MonkeyPatch, chat: bool
) -> None:
    speech = SPEECH["chat"]
    fields = {} if chat else {"store": False}
    stored = asyncio.Event()
    async with (
        Upstream(default=streamed(*speech.pieces, kind=speech.kind)) as upstream,
        routing(patient(upstream, "chat"), cache=ALWAYS) as router,
    ):
        cache = plugin_of(router)._cache
        put = cache.put

        async def slow(*arguments: Any, **options: Any) -> bool:
            await stored.wait()
            return await put(*arguments, **options)

        monkeypatch.setattr(cache, "put", slow)
        first = await router.ask(stream=True, chat=chat, **fields)
        async with asyncio.timeout(60):
            second = await router.ask(stream=True, chat=chat, **fields)
        stored.set()
        assert said(first, chat=chat, stream=True) == said(second, chat=chat, stream=True)


async def test_an_answer_of_before_an_invalidation_is_not_shared_after_it() -> None:
    go = asyncio.Event()
    fresh = whole(SPEECH_OF_IT.whole.replace(b"Hello", b"Fresh"))
    async with (
        Upstream(held(SPEECH_OF_IT, go, before=3), fresh) as upstream,
        routing(patient(upstream), cache=ALWAYS, admin=ADMIN) as router,
        router.request(stream=True) as first,
    ):
        await read_until(first, b"ello")
        assert (await call_admin(router, "POST", "/cache/invalidate", {"all": True})).status == 200
        assert (await router.ask()).json["output_text"].startswith("Fresh")
        go.set()
        await first.read()
        await until(lambda: not len(plugin_of(router)._tasks))
        assert (await router.ask()).json["output_text"].startswith("Fresh")


async def test_who_tried_again_is_not_told_of_as_failed() -> None:
    go = asyncio.Event()

    async def breaks(wire: Wire) -> None:
        wire.head(200, {"Content-Type": SPEECH_OF_IT.kind})
        for piece in SPEECH_OF_IT.pieces[:3]:
            wire.piece(piece)
        await go.wait()
        wire.reset()

    async with (
        Upstream(breaks, whole(SPEECH_OF_IT.whole)) as upstream,
        routing(patient(upstream), cache=ALWAYS) as router,
    ):
        async with router.request(stream=True) as first:
            await read_until(first, b"ello")
            second = asyncio.create_task(router.ask())
            await until(lambda: router.running == 2)
            go.set()
            await first.read()
        assert said(await second, chat=False, stream=False) == SPEECH_OF_IT.text
        await router.idle()
        assert sum(await router.metric("pointsman_requests_total", outcome="failed")) == 1
        assert sum(await router.metric("pointsman_requests_total", outcome="ok")) == 1


async def test_a_stream_opened_early_that_fails_counts_as_failed() -> None:
    bad = paced(whole(b'{"error":{"message":"no"}}', 500), 0.5)
    server = {"open_after": 0.1}
    async with (
        Upstream(default=bad) as upstream,
        routing(patient(upstream), cache=ALWAYS, server=server) as router,
    ):
        first = asyncio.create_task(router.ask())
        await until(lambda: upstream.requests)
        second = await router.ask(stream=True)
        assert check_responses_stream(second.events)["status"] == "failed"
        assert (await first).status == 502
        await router.idle()
        assert sum(await router.metric("pointsman_requests_total", outcome="failed")) == 2


async def test_what_the_router_ends_counts_as_failed() -> None:
    go = asyncio.Event()
    async with (
        Upstream(default=held(SPEECH_OF_IT, go, before=3)) as upstream,
        routing(patient(upstream), cache=ALWAYS) as router,
        router.request(stream=True) as first,
        router.request(stream=True) as second,
    ):
        for one in (first, second):
            await read_until(one, b"ello")
        await router.app[DISPATCHER].drain(0.05)
        for one in (first, second):
            assert b"event: response.failed" in await one.read()
        assert sum(await router.metric("pointsman_requests_total", outcome="failed")) == 2
        assert not plugin_of(router)._shared_calls
        go.set()


async def test_what_was_reported_is_booked_when_the_last_one_leaves() -> None:
    speech = SPEECH["chat"]
    usage = b'"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10},"choices"'
    words = [word.replace(b'"choices"', usage) for word in speech.words]
    hang = asyncio.Event()

    async def stops(wire: Wire) -> None:
        wire.head(200, {"Content-Type": speech.kind})
        for piece in (speech.opening, *words):
            wire.piece(piece)
        await hang.wait()

    async with (
        Upstream(default=stops) as upstream,
        routing(patient(upstream, "chat"), cache=ALWAYS) as router,
    ):
        async with router.request(stream=True) as first, router.request(stream=True) as second:
            for one in (first, second):
                await read_until(one, b"rld")
            first.close()
            await until(lambda: router.running == 1)
            second.close()
        await router.idle()
        assert sum(await router.metric("pointsman_tokens_total", kind="input")) == 7
        assert sum(await router.metric("pointsman_tokens_total", kind="output")) == 3
        hang.set()


def giant(size: int) -> Script:
    """A stream of this many bytes of text that does not end by itself."""
    big = SPEECH_OF_IT.words[1].replace(b", ", b"x" * 65536)

    async def script(wire: Wire) -> None:
        wire.head(200, {"Content-Type": SPEECH_OF_IT.kind})
        wire.piece(SPEECH_OF_IT.opening + SPEECH_OF_IT.words[0])
        for _ in range(size // 65536):
            wire.piece(big)
            await asyncio.sleep(0)
        await wire.gone.wait()

    return script


async def test_what_came_of_a_giant_answer_is_kept_when_the_client_leaves() -> None:
    size = 18 * 1024 * 1024
    async with (
        Upstream(default=giant(size)) as upstream,
        routing(patient(upstream), cache=ALWAYS) as router,
    ):
        async with router.request(stream=True) as response:
            start = await read_until(response, b'"id":"')
            ident = start.split(b'"id":"')[1].split(b'"')[0].decode()
            got = len(start)
            while got < size:
                got += len(await response.content.readany())
            response.close()
        await until(lambda: not router.running)
        kept: dict[str, Any] = {}
        for _ in range(200):
            async with router.http.get(f"{router.url}/v1/responses/{ident}") as stored:
                kept = await stored.json()
            if stored.status == 200:
                break
            await asyncio.sleep(0.01)
        assert kept["status"] == "cancelled"
        assert kept["output_text"].startswith("Helloxxx")
        assert len(kept["output_text"]) > 16 * 1024 * 1024
