"""Two routers that share one Redis, which may be sick."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.plugins.response_cache.conftest import caching, wholes
from tests.support.admin import ADMIN, call_admin
from tests.support.redis import RedisServer, redis_server
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, paced, whole
from tests.support.waiting import until

SPEECH_OF_BOTH = SPEECH["responses"]


@contextlib.asynccontextmanager
async def two(upstream: Upstream, server: RedisServer) -> AsyncIterator[tuple[Router, Router]]:
    """Two routers with one cache."""
    cache = {"mode": "always", "store": server.url}
    one = endpoint(upstream, "responses")
    async with (
        routing(one, cache=cache, admin=ADMIN) as first,
        routing(one, cache=cache, admin=ADMIN) as second,
    ):
        yield first, second


async def told(router: Router, text: str = "hi") -> str:
    """What the cache says of a question."""
    reply = await router.ask(input=text, store=False)
    assert reply.status == 200, reply.body
    return reply.headers["X-Cache"]


async def kept(router: Router, count: int) -> None:
    """Wait until there are so many entries: they are kept when their clients have been told."""
    for _ in range(200):
        if (await call_admin(router, "GET", "/cache")).json["store"]["entries"] >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was kept")


async def back(router: Router) -> None:
    """Ask until the store is no longer passed by."""
    for _ in range(200):
        if await told(router) != "BYPASS":
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the store is not used again")


async def test_a_hit_on_one_for_what_the_other_stored() -> None:
    with redis_server() as server:
        async with wholes(SPEECH_OF_BOTH) as upstream, two(upstream, server) as (first, second):
            assert await told(first) == "MISS"
            await kept(first, 1)
            assert await told(second) == "HIT"
            assert len(upstream.requests) == 1


async def test_an_invalidation_holds_at_both_when_it_returns() -> None:
    with redis_server() as server:
        async with wholes(SPEECH_OF_BOTH) as upstream, two(upstream, server) as (first, second):
            for number in range(10):
                await told(first, f"number {number}")
                await kept(first, number + 1)
                assert await told(second, f"number {number}") == "HIT"
            await call_admin(second, "POST", "/cache/invalidate", {"all": True})
            for number in range(10):
                router = (first, second)[number % 2]
                assert await told(router, f"number {number}") == "MISS"


async def test_a_slow_answer_brings_nothing_back() -> None:
    with redis_server() as server:
        slow = paced(whole(SPEECH_OF_BOTH.whole), 0.3)
        async with (
            Upstream(slow, whole(SPEECH_OF_BOTH.whole)) as upstream,
            two(upstream, server) as (first, second),
        ):
            asked = asyncio.create_task(told(first))
            await until(lambda: upstream.requests)
            await call_admin(second, "POST", "/cache/invalidate", {"model": "m"})
            assert await asked == "MISS"
            await asyncio.sleep(0.1)
            assert await told(second) == "MISS"


async def test_without_its_redis_a_router_answers() -> None:
    with redis_server() as server:
        cache = {"mode": "always", "store": server.url}
        async with (
            wholes(SPEECH_OF_BOTH) as upstream,
            caching(upstream, cache=cache) as router,
        ):
            assert await told(router) == "MISS"
            assert await told(router) == "HIT"
            server.kill()
            replies = await asyncio.gather(*(told(router) for _ in range(20)))
            assert set(replies) <= {"BYPASS", "HIT"}  # a hit: of one call that several share
            reply = await router.ask(store=False)
            assert reply.headers["X-Cache-Reason"] == "store"
            assert await router.metric("pointsman_cache_store_up") == [0]
            server.start()
            await back(router)
            assert await told(router) == "HIT"
            assert await router.metric("pointsman_cache_store_up") == [1]


async def test_a_redis_that_hangs_holds_nobody_up() -> None:
    with redis_server() as server:
        cache = {"mode": "always", "store": server.url}
        async with (
            wholes(SPEECH_OF_BOTH) as upstream,
            caching(upstream, cache=cache) as router,
        ):
            assert await told(router) == "MISS"
            server.freeze(True)
            async with asyncio.timeout(60):
                for _ in range(50):
                    assert await told(router) == "BYPASS"
            server.freeze(False)
            await back(router)


async def test_a_router_starts_without_its_redis() -> None:
    with redis_server() as server:
        server.kill()
        cache = {"mode": "always", "store": server.url}
        async with (
            wholes(SPEECH_OF_BOTH) as upstream,
            caching(upstream, cache=cache) as router,
        ):
            for _ in range(5):
                assert await told(router) == "BYPASS"
