"""Connections that are refused, reset, or silent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from router.settings.schema import Dialect
from tests.support.router import endpoint, routing
from tests.support.speech import Speech
from tests.support.sse import check_responses_stream, text_of
from tests.support.upstream import (
    Upstream,
    Wire,
    paced,
    refused_port,
    reset_now,
    silent,
    streamed,
    whole,
)
from tests.support.waiting import until


@contextlib.asynccontextmanager
async def full_backlog() -> AsyncIterator[str]:
    """An address that does not answer to a connection attempt: its queue of them is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def close_now(wire: Wire) -> None:
    """A proper end of the connection."""
    wire.close()


async def test_refused(dialect: Dialect, stream: bool) -> None:
    async with refused_port() as address, routing(endpoint(address, dialect)) as router:
        reply = await router.ask(stream=stream)
        assert (reply.status, reply.error["code"]) == (503, "upstream_unavailable")
        assert "'one'" in reply.error["message"]
        assert "refused" in reply.error["message"].lower()
        assert "127.0.0.1" not in reply.error["message"], "where it is is not the client's business"
        assert reply.headers["X-Pointsman-Attempts"] == "2", "the only one is tried once more"


async def test_connecting_takes_too_long(stream: bool) -> None:
    async with full_backlog() as address:
        one = endpoint(address, "chat", timeouts={"connect": 0.1, "first_byte": 5})
        async with routing(one) as router:
            reply = await router.ask(stream=stream)
            assert (reply.status, reply.error["code"]) == (503, "upstream_unavailable")
            assert "0.1 s" in reply.error["message"]


async def test_an_unknown_host() -> None:
    async with routing(endpoint("http://nowhere.invalid", "chat")) as router:
        reply = await router.ask()
        assert (reply.status, reply.error["code"]) == (503, "upstream_unavailable")
        assert "host name" in reply.error["message"]


@pytest.mark.parametrize("how", [reset_now, close_now])
async def test_broken_before_the_head(dialect: Dialect, stream: bool, how: type) -> None:
    async with (
        Upstream(default=how) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=stream)
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert reply.headers["X-Pointsman-Attempts"] == "2"
        assert len(upstream.requests) == 2


async def test_the_only_one_is_tried_once_more(
    dialect: Dialect, stream: bool, speech: Speech
) -> None:
    good = streamed(*speech.pieces, kind=speech.kind) if stream else whole(speech.whole)
    async with (
        Upstream(streamed(speech.opening, kind=speech.kind, then=reset_now), good) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=stream)
        assert reply.status == 200
        assert reply.headers["X-Pointsman-Attempts"] == "2"
        assert len(upstream.requests) == 2
        if stream:
            check_responses_stream(reply.events)
            assert text_of(reply.events) == speech.text
        else:
            assert reply.json["output_text"] == speech.text


@pytest.mark.parametrize("how", [reset_now, close_now])
async def test_broken_in_mid_stream(dialect: Dialect, speech: Speech, how: type) -> None:
    said = (speech.opening, *speech.words[:2])
    async with (
        Upstream(streamed(*said, kind=speech.kind, pause=0.01, then=how)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=True)
        assert reply.status == 200
        final = check_responses_stream(reply.events)
        assert final["status"] == "failed"
        assert final["error"]["code"] == "server_error"
        assert text_of(reply.events) == "Hello, "
        assert final["output_text"] == "Hello, "
        assert len(upstream.requests) == 1, "nothing is retried after output"
        assert await router.metric("pointsman_requests_total", outcome="failed") == [1.0]


async def test_broken_in_the_middle_of_a_body(dialect: Dialect, speech: Speech) -> None:
    async def half(wire: Wire) -> None:
        wire.head(200, {"Content-Type": "application/json"}, framing="length", length=10_000)
        wire.raw(speech.whole[:20])
        await reset_now(wire)

    async with (
        Upstream(default=half) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask()
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert len(upstream.requests) == 2


async def test_silence_before_the_head(dialect: Dialect) -> None:
    async with (
        Upstream(default=silent) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"first_byte": 0.05})) as router,
    ):
        reply = await router.ask(stream=True)
        assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")
        assert "first byte" in reply.error["message"]
        assert len(upstream.requests) == 1, "silence is not asked twice"
        await upstream.requests[0].wire.gone.wait()


async def test_an_answer_in_one_piece_may_take_its_time(dialect: Dialect, speech: Speech) -> None:
    # Its first byte is there when all of it is: only the total bounds it.
    slow = paced(whole(speech.whole), 0.2)
    async with (
        Upstream(slow) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"first_byte": 0.05})) as router,
    ):
        reply = await router.ask()
        assert reply.json["output_text"] == speech.text


async def test_a_slow_body_is_not_idle(dialect: Dialect, speech: Speech) -> None:
    size = len(speech.whole) // 4
    pieces = [speech.whole[i : i + size] for i in range(0, len(speech.whole), size)]
    slow = streamed(*pieces, kind="application/json", framing="length", pause=0.06)
    async with (
        Upstream(slow) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"idle": 0.15})) as router,
    ):
        reply = await router.ask()
        assert reply.json["output_text"] == speech.text


async def test_silence_before_output(dialect: Dialect, speech: Speech) -> None:
    async with (
        Upstream(streamed(speech.opening, kind=speech.kind, then=silent)) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"idle": 0.05})) as router,
    ):
        reply = await router.ask(stream=True)
        assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")
        await upstream.requests[0].wire.gone.wait()


async def test_silence_in_mid_stream(dialect: Dialect, speech: Speech) -> None:
    said = (speech.opening, *speech.words[:2])
    async with (
        Upstream(streamed(*said, kind=speech.kind, then=silent)) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"idle": 0.05})) as router,
    ):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["output_text"]) == ("failed", "Hello, ")
        assert "timed out" in final["error"]["message"]
        await upstream.requests[0].wire.gone.wait()


async def test_the_total_bounds_a_stream_that_never_pauses(
    dialect: Dialect, speech: Speech
) -> None:
    async def endless(wire: Wire) -> None:
        wire.head(200, {"Content-Type": speech.kind})
        wire.piece(speech.opening + speech.words[0])
        while not wire.gone.is_set():
            wire.piece(speech.words[1])
            await asyncio.sleep(0.01)
            await wire.writable.wait()

    async with (
        Upstream(endless) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"total": 0.2})) as router,
    ):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert final["status"] == "failed"
        assert "whole answer" in final["error"]["message"]


async def test_the_total_bounds_an_answer_in_one_piece(dialect: Dialect) -> None:
    async with (
        Upstream(silent) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"total": 0.1})) as router,
    ):
        reply = await router.ask()
        assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")
        await upstream.requests[0].wire.gone.wait()


@pytest.mark.parametrize("status", [400, 429, 500])
@pytest.mark.parametrize("then", [reset_now, close_now, silent])
async def test_a_refusal_whose_body_never_ends(status: int, then: type) -> None:
    async def refuse(wire: Wire) -> None:
        wire.head(status, {"Retry-After": "9"}, framing="length", length=5000)
        wire.raw(b'{"error": {"mess')
        await then(wire)

    async with (
        Upstream(refuse) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"idle": 0.05})) as router,
    ):
        reply = await router.ask()
        assert reply.status == {400: 400, 429: 429, 500: 502}[status]
        assert len(upstream.requests) == 1, "it did answer: with a refusal"
        await until(upstream.requests[0].wire.gone.is_set)


@pytest.mark.parametrize("how", [reset_now, close_now, silent])
async def test_chat_completions_in_mid_stream(how: type) -> None:
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n'
    async with (
        Upstream(streamed(chunk, then=how)) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"idle": 0.05})) as router,
    ):
        reply = await router.ask(stream=True, chat=True)
        assert reply.status == 200
        first, last = reply.events
        assert b'"Hi"' in first.raw
        assert last.data is not None
        assert sorted(last.data["error"]) == ["code", "message", "param", "type"]
