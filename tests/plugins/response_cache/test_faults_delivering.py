"""What went wrong once with answers that are told again, and with the cache's own life."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from router.app import DISPATCHER
from tests.plugins.response_cache.conftest import ALWAYS, caching, streams, wholes
from tests.support.redis import redis_server
from tests.support.reloading import plugin_sets, reload
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, paced, streamed, whole, whole_or_streamed
from tests.support.waiting import until

SPEECH_OF_IT = SPEECH["responses"]


@pytest.mark.parametrize("leader", [False, True], ids=["whole", "stream"])
async def test_incomplete_answers_are_not_asked_for_by_each(leader: bool) -> None:
    """The twenty that wait for an answer which is cut off do not all make a call."""
    speech = SPEECH["chat"]
    cut = b'"finish_reason":"length"'
    body = speech.whole.replace(b'"finish_reason":"stop"', cut)
    pieces = [piece.replace(b'"finish_reason":"stop"', cut) for piece in speech.pieces]
    either = whole_or_streamed(whole(body), streamed(*pieces, kind=speech.kind))
    upstream = Upstream(default=paced(either, 0.3))
    timeouts = {"first_byte": 9.0, "idle": 9.0}
    async with (
        upstream,
        routing(endpoint(upstream, "chat", timeouts=timeouts), cache=ALWAYS) as router,
    ):
        tasks = [asyncio.create_task(router.ask(stream=leader))]
        await until(lambda: upstream.requests)
        tasks += [
            asyncio.create_task(router.ask(stream=stream, chat=chat))
            for stream in (False, True)
            for chat in (False, True)
            for _ in range(5)
        ]
        replies = await asyncio.gather(*tasks)
        assert {reply.status for reply in replies} == {200}
        assert len(upstream.requests) <= 4


async def test_a_hit_repeats_its_own_request_only() -> None:
    """A system message and ``instructions`` have the same key; each response repeats its own."""
    given: dict[str, Any] = {"instructions": "be kind", "user": "a", "metadata": {"of": "a"}}
    echoed = orjson.dumps({**orjson.loads(SPEECH_OF_IT.whole), **given})
    message = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    async with Upstream(default=whole(echoed)) as upstream, caching(upstream) as router:
        first = await router.ask(**given)
        second = await router.ask(input=message)
        assert second.headers["X-Cache"] == "HIT"
    names = ("instructions", "user", "metadata")
    assert {name: first.json[name] for name in names} == given
    assert [second.json[name] for name in names] == [None, None, {}]


async def test_a_paced_replay_ends_as_a_stream_when_the_router_stops() -> None:
    cache = {"mode": "always", "replay_rate": 3}
    async with streams(SPEECH_OF_IT) as upstream, caching(upstream, cache=cache) as router:
        await router.ask(stream=True)
        hit = asyncio.create_task(router.ask(stream=True))
        await until(lambda: router.running == 1)
        await asyncio.sleep(0.2)
        await router.app[DISPATCHER].drain(0.05)
        check_responses_stream((await hit).events)


async def _off_and_on(router: Router, upstream: Upstream, store: str) -> None:
    one = endpoint(upstream, "responses")
    await reload(router, one, cache={"mode": "off", "store": store})
    await until(lambda: len(plugin_sets(router)) == 1)
    assert "X-Cache" not in (await router.ask(store=False)).headers
    await reload(router, one, cache={"mode": "always", "store": store})


@pytest.mark.parametrize("kind", ["memory", "disk", "redis"])
async def test_it_may_be_switched_off_and_on(kind: str, tmp_path: Path) -> None:
    with redis_server() as server:
        store = {"memory": "memory://", "disk": f"disk://{tmp_path}/c", "redis": server.url}[kind]
        cache = {"mode": "always", "store": store}
        async with wholes(SPEECH_OF_IT) as upstream, caching(upstream, cache=cache) as router:
            await router.ask(store=False)
            await _off_and_on(router, upstream, store)
            for _ in range(2):
                reply = await router.ask(store=False)
            assert reply.headers["X-Cache"] == "HIT"


async def test_it_may_be_switched_off_while_its_store_is_away() -> None:
    with redis_server() as server:
        cache = {"mode": "always", "store": server.url}
        async with wholes(SPEECH_OF_IT) as upstream, caching(upstream, cache=cache) as router:
            await router.ask(store=False)
            server.kill()
            for _ in range(4):
                await router.ask(store=False)
            server.start()
            await _off_and_on(router, upstream, server.url)
            states = []
            for _ in range(100):
                states.append((await router.ask(store=False)).headers["X-Cache"])
                if states[-1] == "HIT":
                    break
                await asyncio.sleep(0.1)
            assert states[-1] == "HIT"
