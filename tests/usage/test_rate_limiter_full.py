"""A Redis that is full: it answers, and refuses whatever would need memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from router.core.key import Budget, Key, KeyLimits
from router.core.usage_record import Tokens
from router.errors import LimitsUnavailable, RateLimitExceeded
from router.usage.rate_limiter import Demand
from router.usage.redis_limiter import RedisRateLimiter
from tests.support.redis import RedisServer, redis_server
from tests.support.waiting import until

KEY = Key(
    "alice",
    budgets=(Budget("total", "tokens", 100),),
    limits=KeyLimits(requests_per_minute=1000, concurrent=2),
)
ROOM = 4_000_000


@pytest.fixture
def server() -> Iterator[RedisServer]:
    options = ("--maxmemory", str(ROOM), "--maxmemory-policy", "noeviction")
    with redis_server(*options) as server:
        yield server


async def nothing(owner: str, since: float) -> tuple[int, int]:
    return 0, 0


@asynccontextmanager
async def a_rate_limiter(server: RedisServer, **more: Any) -> AsyncIterator[RedisRateLimiter]:
    rate_limiter = RedisRateLimiter(server.url, nothing, timeout=2.0, **more)
    await rate_limiter.start()
    try:
        yield rate_limiter
    finally:
        await rate_limiter.close()


async def fill(server: RedisServer) -> None:
    script = f"redis.call('SET', KEYS[1], string.rep('x', {ROOM}))"
    await server.command("EVAL", script, "1", "somebody else's")


async def empty(server: RedisServer) -> None:
    await server.command("DEL", "somebody else's")


def demand(tokens: int = 10) -> Demand:
    return Demand("req_1", KEY, "m", tokens, 0)


async def stands(rate_limiter: RedisRateLimiter) -> tuple[int, int]:
    standing = (await rate_limiter.standing(KEY))[0]
    return standing.spent, standing.held


async def test_nothing_is_held_or_refused_where_nothing_can_be_settled(server: RedisServer) -> None:
    async with a_rate_limiter(server) as rate_limiter:
        holds = [await rate_limiter.reserve(demand()) for _ in range(2)]
        with pytest.raises(RateLimitExceeded):
            await rate_limiter.reserve(demand())
        await fill(server)
        with capture_logs() as log:
            await rate_limiter.settle(holds.pop(), Tokens(7), 0)
            assert rate_limiter.untold == 1
            # Redis still has both under way: that is not what refuses.
            for _ in range(50):
                with pytest.raises(LimitsUnavailable):
                    await rate_limiter.reserve(demand())
            assert not rate_limiter.up
            with pytest.raises(LimitsUnavailable):
                await rate_limiter.standing(KEY)
            failures = rate_limiter._link.failures
            await until(
                lambda: rate_limiter._link.failures >= failures + 2
            )  # probes, which find it full
            assert not rate_limiter.up
            await rate_limiter.settle(holds.pop(), Tokens(5), 0)
            assert [line["event"] for line in log] == ["limits cannot be counted"]
            await empty(server)
            await until(lambda: rate_limiter.up and not rate_limiter.untold)
        assert [line["event"] for line in log][1:] == ["limits are counted again"]
        assert await stands(rate_limiter) == (12, 0)
        for hold in [await rate_limiter.reserve(demand()) for _ in range(2)]:
            await rate_limiter.settle(hold, Tokens(1), 0)
        assert await stands(rate_limiter) == (14, 0)


async def test_what_could_not_be_settled_is_held_for_no_longer_than_its_lease(
    server: RedisServer,
) -> None:
    """Its router stops before there is room again."""
    async with a_rate_limiter(server, lease=60.0) as other:
        async with a_rate_limiter(server, lease=0.5) as stopped:
            holds = [await stopped.reserve(demand(50)) for _ in range(2)]
            assert await stands(other) == (0, 100)
            await fill(server)
            for hold in holds:
                await stopped.settle(hold, Tokens(50), 0)
            assert stopped.untold == 2
        await asyncio.sleep(0.5)
        await empty(server)
        assert await stands(other) == (0, 0)
        for hold in [await other.reserve(demand(50)) for _ in range(2)]:
            await other.settle(hold, Tokens(1), 0)


async def test_requests_pass_uncounted_and_are_told_later(server: RedisServer) -> None:
    async with a_rate_limiter(server, on_down="fail_open") as rate_limiter:
        first = await rate_limiter.reserve(demand())
        await fill(server)
        for _ in range(20):
            hold = await rate_limiter.reserve(demand(90))
            assert hold.headers == {}
            await rate_limiter.settle(hold, Tokens(1), 0)
        await rate_limiter.settle(first, Tokens(10), 0)
        assert (rate_limiter.up, rate_limiter.uncounted, rate_limiter.untold) == (False, 20, 21)
        await empty(server)
        await until(lambda: rate_limiter.up and not rate_limiter.untold)
        assert await stands(rate_limiter) == (30, 0)
        assert rate_limiter.uncounted == 20


async def test_one_that_is_full_from_the_start(server: RedisServer) -> None:
    await fill(server)
    with capture_logs() as log:
        async with a_rate_limiter(server) as rate_limiter:
            with pytest.raises(LimitsUnavailable):
                await rate_limiter.reserve(demand())
            await empty(server)
            await until(lambda: rate_limiter.up)
            hold = await rate_limiter.reserve(demand())
            await rate_limiter.settle(hold, Tokens(1), 0)
            assert await stands(rate_limiter) == (1, 0)
    assert log[0]["event"] == "limits cannot be counted yet"
