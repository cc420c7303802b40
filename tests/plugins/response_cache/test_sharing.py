"""Identical requests at the same time are one call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.plugins.response_cache.conftest import caching
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH, Speech
from tests.support.sse import check_responses_stream, text_of
from tests.support.upstream import Script, Upstream, Wire, paced, streamed, whole
from tests.support.waiting import until

NO_CACHE = {"Cache-Control": "no-cache"}


def held(speech: Speech, go: asyncio.Event, *, before: int) -> Script:
    """A stream that stops after so many of its pieces until it may go on."""

    async def script(wire: Wire) -> None:
        wire.head(200, {"Content-Type": speech.kind})
        for index, piece in enumerate(speech.pieces):
            if index == before:
                await go.wait()
            wire.piece(piece)
        wire.end()

    return script


def said(reply: Reply, *, chat: bool, stream: bool) -> str:
    """The text of an answer, whose form is checked."""
    assert reply.status == 200, reply.body
    if stream and not chat:
        return text_of(reply.events) if check_responses_stream(reply.events) else ""
    if stream:
        assert reply.events[-1].raw == b"[DONE]"
        choices = [e.json["choices"][0] for e in reply.events if e.data and e.data["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)
    if chat:
        text: str = reply.json["choices"][0]["message"]["content"]
        return text
    output: str = reply.json["output_text"]
    return output


@pytest.mark.parametrize("first_stream", [False, True], ids=["whole", "stream"])
async def test_a_hundred_at_once_are_one_call(
    dialect: Dialect, speech: Speech, first_stream: bool
) -> None:
    script = paced(
        streamed(*speech.pieces, kind=speech.kind, pause=0.02)
        if first_stream
        else whole(speech.whole),
        0.2,
    )
    async with Upstream(script) as upstream, caching(upstream, dialect) as router:
        forms = [(False, first_stream)]
        forms += [(chat and dialect != "ollama", stream) for chat in (False, True)
                  for stream in (False, True) for _ in range(25)][1:]  # fmt: skip
        tasks = []
        for number, (chat, stream) in enumerate(forms):
            asked = router.ask(chat=chat, stream=stream, user=str(number))
            tasks.append(asyncio.create_task(asked))
            if not number:
                await until(lambda: upstream.requests)
        replies = await asyncio.gather(*tasks)
        assert len(upstream.requests) == 1
        await router.metric_becomes(7, "pointsman_tokens_total", kind="input")
    for reply, (chat, stream) in zip(replies, forms, strict=True):
        assert said(reply, chat=chat, stream=stream) == speech.text
    assert replies[0].headers["X-Cache"] == "MISS"
    assert {r.headers["X-Cache-Tier"] for r in replies[1:]} <= {"shared", "exact"}
    ids = {
        (r.json["id"] if not stream else r.events[0].response["id"])
        for r, (chat, stream) in zip(replies, forms, strict=True)
        if not chat
    }
    assert len(ids) == sum(not chat for chat, _ in forms)


async def test_a_late_one_gets_what_came_and_then_what_comes(
    dialect: Dialect, speech: Speech
) -> None:
    go = asyncio.Event()
    async with (
        Upstream(held(speech, go, before=3)) as upstream,
        caching(upstream, dialect) as router,
        router.request(stream=True) as first,
    ):
        await _until(first, "ello")
        async with router.request(stream=True, metadata={"of": "the second"}) as second:
            assert second.headers["X-Cache-Tier"] == "shared"
            early = await _until(second, "ello")
            go.set()
            rest = await second.read()
        assert len(upstream.requests) == 1
        body = Reply(200, second.headers, early + rest)
        final = check_responses_stream(body.events)
        assert final["metadata"] == {"of": "the second"}
        assert text_of(body.events) == speech.text
        await first.read()


async def test_the_first_may_leave(dialect: Dialect, speech: Speech) -> None:
    go = asyncio.Event()
    async with (
        Upstream(held(speech, go, before=3)) as upstream,
        caching(upstream, dialect) as router,
    ):
        async with router.request(stream=True) as first:
            await _until(first, "ello")
            second = asyncio.create_task(router.ask(stream=True))
            await until(lambda: router.running == 2)
            third = asyncio.create_task(router.ask())
            await until(lambda: router.running == 3)
            created = first.headers["X-Request-Id"]
            first.close()
        await until(lambda: router.running == 2)
        go.set()
        assert said(await second, chat=False, stream=True) == speech.text
        assert said(await third, chat=False, stream=False) == speech.text
        assert created
        assert len(upstream.requests) == 1
        assert sum(await router.metric("pointsman_requests_total", outcome="cancelled")) == 1


async def test_the_last_that_leaves_ends_the_call(dialect: Dialect, speech: Speech) -> None:
    go = asyncio.Event()
    async with (
        Upstream(held(speech, go, before=3)) as upstream,
        caching(upstream, dialect) as router,
    ):
        async with router.request(stream=True) as first, router.request(stream=True) as second:
            await _until(first, "ello")
            await _until(second, "ello")
            [request] = upstream.requests
            first.close()
            await asyncio.sleep(0.05)
            assert not request.wire.gone.is_set()
            second.close()
        async with asyncio.timeout(60):
            await request.wire.gone.wait()
        await until(lambda: not router.taken)
        go.set()


async def test_what_the_first_left_is_stored_as_cancelled() -> None:
    speech = SPEECH["responses"]
    go = asyncio.Event()
    async with (
        Upstream(held(speech, go, before=3)) as upstream,
        caching(upstream) as router,
        router.request(stream=True) as other,
    ):
        async with router.request(stream=True) as first:
            text = await _until(first, "ello")
            ident = text.decode().split('"id":"')[1].split('"')[0]
            first.close()
        await until(lambda: router.running == 1)
        url = f"{router.url}/v1/responses/{ident}"
        kept: dict[str, Any] = {}
        for _ in range(200):
            async with router.http.get(url) as response:
                kept = await response.json()
            if response.status == 200:
                break
            await asyncio.sleep(0.01)
        assert kept["status"] == "cancelled"
        assert kept["output_text"].startswith("Hello")
        go.set()
        await other.read()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_failure_is_the_firsts_and_another_tries(
    dialect: Dialect, speech: Speech, stream: bool
) -> None:
    well = streamed(*speech.pieces, kind=speech.kind) if stream else whole(speech.whole)
    bad = paced(whole(b'{"error":{"message":"no"}}', 500), 0.2)
    async with Upstream(bad, well) as upstream, caching(upstream, dialect) as router:
        first = asyncio.create_task(router.ask(stream=stream))
        await until(lambda: upstream.requests)
        others = [asyncio.create_task(router.ask(stream=stream)) for _ in range(20)]
        assert (await first).status == 502
        replies = await asyncio.gather(*others)
        assert len(upstream.requests) == 2
    assert {said(reply, chat=False, stream=stream) for reply in replies} == {speech.text}


async def test_a_second_failure_is_everybodys(dialect: Dialect) -> None:
    bad = paced(whole(b'{"error":{"message":"no"}}', 500), 0.2)
    async with Upstream(default=bad) as upstream, caching(upstream, dialect) as router:
        first = asyncio.create_task(router.ask())
        await until(lambda: upstream.requests)
        others = [asyncio.create_task(router.ask()) for _ in range(20)]
        replies = await asyncio.gather(first, *others)
        assert {reply.status for reply in replies} == {502}
        assert len(upstream.requests) == 2


async def test_a_stream_that_breaks_ends_for_everybody_who_saw_it(speech: Speech) -> None:
    go = asyncio.Event()

    async def breaks(wire: Wire) -> None:
        wire.head(200, {"Content-Type": speech.kind})
        for piece in speech.pieces[:3]:
            wire.piece(piece)
        await go.wait()
        wire.reset()

    dialect = next(name for name, one in SPEECH.items() if one is speech)
    async with (
        Upstream(breaks, whole(speech.whole)) as upstream,
        caching(upstream, dialect) as router,
        router.request(stream=True) as first,
        router.request(stream=True) as second,
    ):
        early = [await _until(one, "ello") for one in (first, second)]
        third = asyncio.create_task(router.ask())
        await until(lambda: router.running == 3)
        go.set()
        for one, begun in zip((first, second), early, strict=True):
            reply = Reply(200, one.headers, begun + await one.read())
            assert check_responses_stream(reply.events)["status"] == "failed"
        assert said(await third, chat=False, stream=False) == speech.text
        assert len(upstream.requests) == 2


async def test_who_wants_a_fresh_answer_shares_none(dialect: Dialect, speech: Speech) -> None:
    slow = paced(whole(speech.whole), 0.2)
    async with Upstream(default=slow) as upstream, caching(upstream, dialect) as router:
        first = asyncio.create_task(router.ask())
        await until(lambda: upstream.requests)
        async with router.http.post(
            f"{router.url}/v1/responses", json={"model": "m", "input": "hi"}, headers=NO_CACHE
        ) as response:
            assert response.status == 200
        await first
        assert len(upstream.requests) == 2


async def test_without_being_asked_for_nothing_is_shared() -> None:
    speech = SPEECH["responses"]
    slow = paced(whole(speech.whole), 0.1)
    async with (
        Upstream(default=slow) as upstream,
        routing(endpoint(upstream, "responses"), cache={"mode": "on-request"}) as router,
    ):
        await asyncio.gather(*(router.ask(store=False) for _ in range(3)))
        assert len(upstream.requests) == 3
        asked = {"use": True}
        await asyncio.gather(*(router.ask(store=False, cache=asked) for _ in range(3)))
        assert len(upstream.requests) == 4
        assert all("cache" not in request.json for request in upstream.requests)


async def test_a_slow_client_keeps_nobody_waiting() -> None:
    speech = SPEECH["chat"]
    big = speech.words[0].replace(b"Hello", b"x" * 65536)
    pieces = (speech.opening, *([big] * 200), speech.closing)
    script = streamed(*pieces, kind=speech.kind)
    async with (
        Upstream(script) as upstream,
        caching(upstream, "chat") as router,
        router.request(stream=True) as slow,
    ):
        await slow.content.readany()
        quick = await _joined(router)
        assert len(quick.body) > 200 * 65536
        rest = await slow.read()
        assert rest.endswith(b"\n\n")
        assert len(upstream.requests) == 1


async def _joined(router: Router) -> Reply:
    return await router.ask(stream=True)


async def _until(response: Any, text: str) -> bytes:
    """What a stream has sent, once this is in it."""
    read = b""
    async with asyncio.timeout(60):
        while text.encode() not in read:
            read += await response.content.readany()
    return read


@pytest.mark.soak
async def test_who_reads_far_too_slowly_is_let_go_of() -> None:
    speech = SPEECH["chat"]
    big = speech.words[0].replace(b"Hello", b"x" * 262_144)
    pieces = (speech.opening, *([big] * 96), speech.closing)
    async with (
        Upstream(streamed(*pieces, kind=speech.kind, pause=0.002)) as upstream,
        caching(upstream, "chat") as router,
        router.request(stream=True, store=False) as slow,
    ):
        await slow.content.readany()
        async with router.request(stream=True, store=False) as quick:
            size = 0
            async for data in quick.content.iter_any():
                size += len(data)
        assert size > 96 * 262_144
        assert len(upstream.requests) == 1
        rest = await slow.read()
        assert b"response.failed" in rest[-2000:]
        assert b"too slowly" in rest[-2000:]


async def test_nobody_is_given_a_call_that_has_just_been_given_up() -> None:
    speech = SPEECH["responses"]
    go = asyncio.Event()
    async with (
        Upstream(held(speech, go, before=3), default=whole(speech.whole)) as upstream,
        caching(upstream) as router,
    ):
        async with router.request(stream=True) as first:
            await _until(first, "ello")
            first.close()
        reply = await router.ask()
        assert said(reply, chat=False, stream=False) == speech.text
        assert len(upstream.requests) in (1, 2)
        go.set()
