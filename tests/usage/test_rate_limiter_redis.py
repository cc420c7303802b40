"""The rate limiter in Redis, and what may happen to either."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from router.core.key import Budget, Key, KeyLimits
from router.core.usage_record import NO_TOKENS, Tokens
from router.errors import LimitsUnavailable, QuotaExceeded
from router.usage.budgets import BudgetTooSmall
from router.usage.memory_limiter import OnDown
from router.usage.rate_limiter import Demand
from router.usage.redis_limiter import RedisRateLimiter
from router.usage.redis_reservation import RedisReservation, Untold
from tests.support.redis import REDIS_URL, RedisServer, redis_prefix, redis_server
from tests.support.waiting import until

KEY = Key(
    "alice",
    budgets=(Budget("total", "tokens", 100),),
    limits=KeyLimits(tokens_per_minute=10**6, concurrent=3),
)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


class Known:
    """What the usage ledger knows."""

    def __init__(self, tokens: int = 0) -> None:
        self.tokens = tokens

    async def __call__(self, owner: str, since: float) -> tuple[int, int]:
        return self.tokens, 0


@asynccontextmanager
async def a_rate_limiter(
    url: str, known: Known | None = None, **more: Any
) -> AsyncIterator[RedisRateLimiter]:
    rate_limiter = RedisRateLimiter(url, known or Known(), **{"timeout": 2.0, **more})
    await rate_limiter.start()
    try:
        yield rate_limiter
    finally:
        await rate_limiter.close()


def demand(tokens: int = 10, key: Key = KEY) -> Demand:
    return Demand("req_1", key, "m", tokens, 0)


async def stands(rate_limiter: RedisRateLimiter) -> tuple[int, int]:
    """Spent and held."""
    standing = (await rate_limiter.standing(KEY))[0]
    return standing.spent, standing.held


async def stands_at(rate_limiter: RedisRateLimiter, spent: int, held: int) -> None:
    """Returns when it does."""
    async with asyncio.timeout(60):
        while await stands(rate_limiter) != (spent, held):  # noqa: ASYNC110 - nothing to wait on
            await asyncio.sleep(0.02)


async def refused(rate_limiter: RedisRateLimiter) -> None:
    """Have it find out that Redis is away."""
    while rate_limiter.up:
        with pytest.raises(LimitsUnavailable) as caught:
            await rate_limiter.reserve(demand())
        assert caught.value.headers == {"Retry-After": "1"}


def test_a_url_that_is_none() -> None:
    with pytest.raises(ValueError, match="URL"):
        RedisRateLimiter("redis://", Known())


async def test_all_keys_are_of_one_slot_and_end_by_themselves() -> None:
    async with redis_prefix() as prefix, a_rate_limiter(REDIS_URL, prefix=prefix) as rate_limiter:
        hold = await rate_limiter.reserve(demand())
        await rate_limiter.reserve(demand())
        await rate_limiter.settle(hold, Tokens(1), 0)
        async with Redis.from_url(REDIS_URL) as redis:
            names = [name.decode() async for name in redis.scan_iter(f"*{prefix}*")]
            assert sorted(name.removeprefix(f"{{{prefix}}}:").split(" ")[0] for name in names) == [
                "done", "leases", "level", "slots", "sums",
            ]  # fmt: skip
            for name in names:
                assert await redis.pttl(name) > 0


async def test_a_router_that_was_killed_holds_nothing_for_long() -> None:
    async with redis_prefix() as prefix:
        options: dict[str, Any] = {"prefix": prefix, "lease": 0.3}
        killed = RedisRateLimiter(REDIS_URL, Known(), timeout=2.0, **options)
        for _ in range(3):
            await killed.reserve(demand(30))
        async with a_rate_limiter(REDIS_URL, **options) as rate_limiter:
            await stands_at(rate_limiter, 0, 0)
            hold = await rate_limiter.reserve(demand(100))
            await rate_limiter.settle(hold, Tokens(60), 0)
            assert await stands(rate_limiter) == (60, 0)
        await killed.close()


async def test_what_runs_long_keeps_what_it_holds() -> None:
    async with (
        redis_prefix() as prefix,
        a_rate_limiter(REDIS_URL, prefix=prefix, lease=1.5) as rate_limiter,
        Redis.from_url(REDIS_URL) as redis,
    ):
        holds = [await rate_limiter.reserve(demand(20)) for _ in range(3)]
        places = {
            f"{{{prefix}}}:slots concurrent:alice": holds[0].id,  # type: ignore[attr-defined]
            f"{{{prefix}}}:leases alice total 0": holds[0].member,  # type: ignore[attr-defined]
        }
        for name, member in places.items():
            ends = await redis.zscore(name, member)
            async with asyncio.timeout(60):
                while await redis.zscore(name, member) == ends:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.02)
        for hold in holds:
            await rate_limiter.settle(hold, Tokens(10), 0)
        assert await stands(rate_limiter) == (30, 0)


async def test_a_held_request_that_was_forgotten_is_counted_all_the_same() -> None:
    async with redis_prefix() as prefix:
        slow = RedisRateLimiter(REDIS_URL, Known(), prefix=prefix, timeout=2.0, lease=0.2)
        hold = await slow.reserve(demand(50))
        async with a_rate_limiter(REDIS_URL, prefix=prefix) as rate_limiter:
            await stands_at(rate_limiter, 0, 0)
            await slow.settle(hold, Tokens(40), 0)
            await slow.settle(hold, Tokens(40), 0)
            assert await stands(rate_limiter) == (40, 0)
        await slow.close()


async def test_refused_while_it_is_killed_and_refilled_when_it_is_back(
    server: RedisServer,
) -> None:
    known = Known(5)
    with capture_logs() as log:
        async with a_rate_limiter(server.url, known) as rate_limiter:
            hold = await rate_limiter.reserve(demand(50))
            lost = await rate_limiter.reserve(demand(20))
            assert await stands(rate_limiter) == (5, 70)
            await asyncio.to_thread(server.kill)
            await refused(rate_limiter)
            failures = rate_limiter._link.failures
            for _ in range(1000):
                with pytest.raises(LimitsUnavailable):
                    await rate_limiter.reserve(demand())
            with pytest.raises(LimitsUnavailable):
                await rate_limiter.standing(KEY)
            assert rate_limiter._link.failures <= failures + 2  # nothing but probes
            await rate_limiter.settle(hold, Tokens(50), 0)
            known.tokens += 50  # the ledger was told, too
            await asyncio.sleep(0.002)  # its clock is one of milliseconds
            await asyncio.to_thread(server.start)
            await until(lambda: rate_limiter.up and not rate_limiter.untold)
            # Emptied: the ledger knows what was spent, and that is not counted twice.
            assert await stands(rate_limiter) == (55, 0)
            await rate_limiter.settle(lost, Tokens(7), 0)
            assert await stands(rate_limiter) == (62, 0)
            with pytest.raises(QuotaExceeded):
                await rate_limiter.reserve(demand(39))
            await rate_limiter.reserve(demand(38))
    events = [line["event"] for line in log]
    assert events == ["limits cannot be counted", "limits are counted again"]


async def test_passed_while_it_is_killed(server: RedisServer) -> None:
    known = Known()
    async with a_rate_limiter(server.url, known, on_down="fail_open") as rate_limiter:
        await rate_limiter.reserve(demand(50))
        await asyncio.to_thread(server.kill)
        for _ in range(100):
            hold = await rate_limiter.reserve(demand(90))
            assert hold.headers == {}
            await rate_limiter.settle(hold, Tokens(1), 0)
        assert not rate_limiter.up
        assert rate_limiter.uncounted == 100
        assert rate_limiter.untold >= 100
        running = await rate_limiter.reserve(demand(90))
        known.tokens = 100
        await asyncio.sleep(0.002)
        await asyncio.to_thread(server.start)
        await until(lambda: rate_limiter.up and not rate_limiter.untold)
        assert await stands(rate_limiter) == (100, 0)
        await rate_limiter.settle(running, Tokens(9), 0)
        assert await stands(rate_limiter) == (109, 0)
        with pytest.raises(QuotaExceeded):
            await rate_limiter.reserve(demand(1))


async def test_what_was_used_is_told_to_one_that_kept_everything(server: RedisServer) -> None:
    """It hangs for a while: what it was asked to do meanwhile, it may do later, or have done."""
    async with a_rate_limiter(server.url, timeout=0.15, on_down="fail_open") as rate_limiter:
        holds = [await rate_limiter.reserve(demand(20)) for _ in range(3)]
        assert await stands(rate_limiter) == (0, 60)
        try:
            server.freeze(True)
            for hold in holds:
                await rate_limiter.settle(hold, Tokens(10), 0)
            passed = [await rate_limiter.reserve(demand(20)) for _ in range(5)]
            assert (rate_limiter.up, rate_limiter.uncounted) == (False, 5)
            for hold in passed[:3]:
                await rate_limiter.settle(hold, Tokens(3), 0)
        finally:
            server.freeze(False)
        await until(lambda: rate_limiter.up and not rate_limiter.untold)
        await rate_limiter.settle(passed[3], Tokens(3), 0)
        await rate_limiter.settle(passed[4], Tokens(3), 0)
        await stands_at(rate_limiter, 45, 0)


async def test_what_was_refused_is_not_held_later(server: RedisServer) -> None:
    async with a_rate_limiter(server.url, timeout=0.15) as rate_limiter:
        assert await stands(rate_limiter) == (0, 0)
        try:
            server.freeze(True)
            await refused(rate_limiter)
        finally:
            server.freeze(False)
        await until(lambda: rate_limiter.up and not rate_limiter.untold)
        await stands_at(rate_limiter, 0, 0)
        holds = [await rate_limiter.reserve(demand(20)) for _ in range(3)]
        assert len(holds) == 3


async def test_who_leaves_while_it_waits_holds_nothing(server: RedisServer) -> None:
    async with a_rate_limiter(server.url, timeout=5.0) as rate_limiter:
        await stands(rate_limiter)
        for pause in (0.0, 0.001, 0.05):
            server.freeze(True)
            try:
                waiting = [asyncio.create_task(rate_limiter.reserve(demand(30))) for _ in range(3)]
                await asyncio.sleep(pause)
                for task in waiting:
                    task.cancel()
                await asyncio.wait(waiting)
            finally:
                server.freeze(False)
            await until(lambda: not rate_limiter.untold)
            await stands_at(rate_limiter, 0, 0)


@pytest.mark.parametrize("on_down", ["fail_open", "fail_closed"])
async def test_a_busy_process_is_not_taken_for_a_dead_redis(
    server: RedisServer, on_down: OnDown
) -> None:
    """Its event loop is held up for longer than the deadline, over and over."""
    async with a_rate_limiter(server.url, timeout=0.05, on_down=on_down) as rate_limiter:
        key = Key("alice", budgets=(Budget("total", "tokens", 500),))
        await rate_limiter.standing(key)
        holds = [asyncio.create_task(rate_limiter.reserve(demand(10, key))) for _ in range(500)]
        for _ in range(5):
            await asyncio.sleep(0)
            time.sleep(0.2)  # noqa: ASYNC251 - this is what is tested
        ends = await asyncio.gather(*holds, return_exceptions=True)
        held = [end for end in ends if not isinstance(end, BaseException)]
        assert len(held) == 50
        assert {type(end) for end in ends if isinstance(end, BaseException)} == {BudgetTooSmall}
        assert (rate_limiter.up, rate_limiter.uncounted, rate_limiter.untold) == (True, 0, 0)


async def test_all_who_wait_are_told_when_it_hangs(server: RedisServer) -> None:
    async with a_rate_limiter(server.url, timeout=0.15) as rate_limiter:
        await stands(rate_limiter)
        failures = rate_limiter._link.failures
        try:
            server.freeze(True)
            ends = await asyncio.gather(
                *[rate_limiter.reserve(demand()) for _ in range(500)], return_exceptions=True
            )
        finally:
            server.freeze(False)
        assert {type(end) for end in ends} == {LimitsUnavailable}
        assert not rate_limiter.up
        # The first batch found out; what waited behind it was never sent.
        assert rate_limiter._link.failures - failures < 100


async def test_calls_that_wait_are_bounded(server: RedisServer) -> None:
    async with a_rate_limiter(server.url, timeout=5.0) as rate_limiter:
        await stands(rate_limiter)
        server.freeze(True)
        waiting = [asyncio.create_task(rate_limiter.reserve(demand())) for _ in range(10_100)]
        try:
            await until(lambda: any(task.done() for task in waiting))
            refused = [task for task in waiting if task.done()]
            assert {type(task.exception()) for task in refused} == {LimitsUnavailable}
            assert rate_limiter.up
        finally:
            server.freeze(False)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)


async def test_one_that_answers_nonsense_is_away(server: RedisServer) -> None:
    async with a_rate_limiter(server.url) as rate_limiter:
        await stands(rate_limiter)
        await server.command("SET", "{pointsman:limits}:sums alice total 0", "no hash")
        await refused(rate_limiter)
        await server.command("FLUSHALL")
        await until(lambda: rate_limiter.up)
        assert await stands(rate_limiter) == (0, 0)


async def test_a_lost_part_of_it_keeps_nothing_held(server: RedisServer) -> None:
    async with a_rate_limiter(server.url, Known(5)) as rate_limiter:
        hold = await rate_limiter.reserve(demand(20))
        await server.command("DEL", "{pointsman:limits}:leases alice total 0")
        assert await stands(rate_limiter) == (5, 0)
        await rate_limiter.settle(hold, Tokens(3), 0)
        hold = await rate_limiter.reserve(demand(20))
        await server.command("DEL", "{pointsman:limits}:sums alice total 0")
        assert await stands(rate_limiter) == (5, 20)
        await rate_limiter.settle(hold, Tokens(3), 0)
        assert await stands(rate_limiter) == (8, 0)


def test_what_waits_for_it_is_bounded() -> None:
    untold = Untold(lambda: None)
    hold = RedisReservation((), 1, 1)
    for _ in range(10_005):
        untold.add(hold.settlement(NO_TOKENS, 0, 0.0))
    assert (len(untold), untold.lost) == (10_000, 5)
