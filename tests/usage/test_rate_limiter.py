"""The rate limiters, in memory and in Redis: what is held, refused and settled."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from router.core.key import Budget, Key, KeyLimits
from router.core.usage_record import NO_TOKENS, Tokens
from router.errors import LimitsUnavailable, QuotaExceeded, RateLimitExceeded
from router.usage.rate_limiter import Standing
from tests.support.rate_limiters import World, demand, keyed, numbers, world

__all__ = ["world"]

DAY = 86_400.0


async def test_what_is_held_is_settled_once(world: World) -> None:
    key = keyed(Budget("day", "tokens", 100), Budget("total", "usd", 1000))
    async with world.rate_limiters() as rate_limiters:
        one, two = rate_limiters[0], rate_limiters[-1]
        hold = await one.reserve(demand(key, 60, 700))
        assert numbers(await two.standing(key)) == [(0, 60), (0, 700)]
        for more, text in (((41, 0), "may need 60 tokens"), ((40, 301), "USD")):
            with pytest.raises(RateLimitExceeded, match=text) as caught:
                await two.reserve(demand(key, *more))
            assert caught.value.headers["Retry-After"] == "1"
        assert numbers(await one.standing(key)) == [(0, 60), (0, 700)]
        for _ in range(2):
            await one.settle(hold, Tokens(20, 5, 30, 9), 400)
        standings: list[Standing] = await two.standing(key)
        assert numbers(standings) == [(50, 0), (400, 0)]
        assert standings[0].resets == 1_700_006_400.0
        assert standings[1].resets is None
        await two.charge(key, Tokens(50), 1)
        with pytest.raises(QuotaExceeded, match="is spent: 100 tokens; it resets on") as refused:
            await one.reserve(demand(key))
        assert refused.value.limit == "budget key day"
        assert int(refused.value.headers["Retry-After"]) > 1


async def test_the_ledger_knows_what_was_before(world: World) -> None:
    key = keyed(Budget("day", "tokens", 100), Budget("total", "tokens", 100), tags=("team",))
    world.ledger.known = (95, 0)
    async with world.rate_limiters(tags={"team": (Budget("day", "tokens", 100),)}) as rate_limiters:
        results = await asyncio.gather(
            *(
                rate_limiter.reserve(demand(key))
                for rate_limiter in rate_limiters
                for _ in range(10)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(result, RateLimitExceeded) for result in results) == len(results) - 5
        assert numbers(await rate_limiters[0].standing(key)) == [(95, 5)] * 3
        # Asked once by each of them, whoever waited.
        assert len(world.ledger.asked) <= 3 * len(rate_limiters)
        assert set(world.ledger.asked) == {
            ("alice", 1_699_920_000.0), ("alice", 0.0), ("tag:team", 1_699_920_000.0),
        }  # fmt: skip


async def test_keys_with_a_tag_share_its_budget(world: World) -> None:
    tags = {"team": (Budget("week", "tokens", 10),)}
    async with world.rate_limiters(tags=tags) as rate_limiters:
        holds = [
            await rate_limiters[-1].reserve(demand(Key(name, tags=("team",)), 5)) for name in "ab"
        ]
        with pytest.raises(RateLimitExceeded, match="tag 'team' for this week") as caught:
            await rate_limiters[0].reserve(demand(Key("c", tags=("team",)), 5))
        assert caught.value.limit == "budget tag:team week"
        await rate_limiters[0].reserve(demand(Key("d", tags=("none",)), 5))
        await rate_limiters[-1].settle(holds[0], NO_TOKENS, 0)
        await rate_limiters[0].reserve(demand(Key("c", tags=("team",)), 5))


async def test_another_period(world: World) -> None:
    """What was held in one period is counted there."""
    key = keyed(Budget("day", "tokens", 100))
    async with world.rate_limiters() as rate_limiters:
        hold = await rate_limiters[0].reserve(demand(key, 100))
        world.now += DAY
        later = await rate_limiters[-1].reserve(demand(key, 100))
        await rate_limiters[0].settle(hold, Tokens(99), 0)
        assert numbers(await rate_limiters[-1].standing(key)) == [(0, 100)]
        await rate_limiters[-1].settle(later, Tokens(7), 0)
        assert numbers(await rate_limiters[0].standing(key)) == [(7, 0)]
        world.now -= DAY
        assert numbers(await rate_limiters[0].standing(key)) == [(99, 0)]


async def test_budgets_and_tags_that_change(world: World) -> None:
    async with world.rate_limiters() as rate_limiters:
        hold = await rate_limiters[0].reserve(demand(keyed(Budget("day", "tokens", 100)), 60, 6))
        less = keyed(Budget("day", "tokens", 50), tags=("team",))
        with pytest.raises(RateLimitExceeded):
            await rate_limiters[-1].reserve(demand(less, 1))
        assert numbers(await rate_limiters[0].standing(keyed(Budget("day", "usd", 9)))) == [(0, 6)]
        more = keyed(Budget("day", "tokens", 200), tags=("team",))
        await rate_limiters[-1].reserve(demand(more, 100))
        rate_limiters[-1].tags = {"team": (Budget("day", "tokens", 1),)}
        with pytest.raises(QuotaExceeded, match="tag 'team'"):
            await rate_limiters[-1].reserve(demand(more, 2))
        await rate_limiters[0].settle(hold, NO_TOKENS, 0)


async def test_where_no_price_is_known(world: World) -> None:
    key = keyed(Budget("day", "usd", 10))
    async with world.rate_limiters() as rate_limiters:
        hold = await rate_limiters[0].reserve(demand(key, 5, None))
        await rate_limiters[0].settle(hold, Tokens(5), 0)
        await rate_limiters[0].charge(key, NO_TOKENS, 10)
        with pytest.raises(QuotaExceeded, match="is spent"):
            await rate_limiters[-1].reserve(demand(key, 5, None))
        await rate_limiters[-1].reserve(demand(key, 5, 0))


async def test_requests_per_minute(world: World) -> None:
    key = keyed(limits=KeyLimits(requests_per_minute=3))
    async with world.rate_limiters() as rate_limiters:
        holds = [await rate_limiters[n % len(rate_limiters)].reserve(demand(key)) for n in range(3)]
        assert holds[0].headers["x-ratelimit-limit-requests"] == "3"
        assert [hold.headers["x-ratelimit-remaining-requests"] for hold in holds] == [*"210"]
        for rate_limiter in rate_limiters:
            with pytest.raises(RateLimitExceeded, match="at most 3 per minute") as caught:
                await rate_limiter.reserve(demand(key))
            assert 18 <= int(caught.value.headers["Retry-After"]) <= 20
            assert caught.value.headers["x-ratelimit-remaining-requests"] == "0"
            assert caught.value.limit == "requests_per_minute"
            spared = await rate_limiter.reserve(replace(demand(key), spares="requests"))
            assert not spared.headers
            await rate_limiter.settle(spared, NO_TOKENS, 0)
        for rate_limiter, hold in zip(rate_limiters * 3, holds, strict=False):
            await rate_limiter.settle(hold, NO_TOKENS, 0)  # a request stays a request
        with pytest.raises(RateLimitExceeded):
            await rate_limiters[0].reserve(demand(key))
        await rate_limiters[0].reserve(demand(Key("bob", limits=key.limits)))
        # A limit that was raised holds at once.
        await rate_limiters[0].reserve(demand(keyed(limits=KeyLimits(requests_per_minute=9))))


async def test_tokens_per_minute_of_some_models(world: World) -> None:
    key = keyed(model_limits=(("gpt-*", KeyLimits(tokens_per_minute=6000)),))
    async with world.rate_limiters() as rate_limiters:
        hold = await rate_limiters[0].reserve(demand(key, 5000, model="gpt-a"))
        with pytest.raises(RateLimitExceeded, match="for models 'gpt-\\*'") as caught:
            await rate_limiters[-1].reserve(demand(key, 1500, model="gpt-b"))
        assert caught.value.limit == "tokens_per_minute gpt-*"
        await rate_limiters[-1].reserve(demand(key, 9000, model="llama"))
        await rate_limiters[0].settle(hold, Tokens(100), 0)
        await rate_limiters[-1].reserve(demand(key, 5500, model="gpt-b"))
        with pytest.raises(RateLimitExceeded, match=r"6001 tokens, and .* would never pass"):
            await rate_limiters[0].reserve(demand(key, 6001, model="gpt-b"))
        hold = await rate_limiters[0].reserve(demand(key, 1, model="gpt-c"))
        await rate_limiters[0].settle(hold, Tokens(12000), 0)
        with pytest.raises(RateLimitExceeded) as caught:
            await rate_limiters[0].reserve(demand(key, 600, model="gpt-b"))
        assert 110 <= int(caught.value.headers["Retry-After"]) <= 126


async def test_so_many_at_once(world: World) -> None:
    key = keyed(limits=KeyLimits(concurrent=2, requests_per_minute=5))
    async with world.rate_limiters() as rate_limiters:
        for _ in range(2):
            holds = [
                await rate_limiter.reserve(demand(key))
                for rate_limiter in (rate_limiters[0], rate_limiters[-1])
            ]
            with pytest.raises(RateLimitExceeded, match="at most 2 under way, and 2 are") as caught:
                await rate_limiters[0].reserve(demand(key))
            assert caught.value.limit == "concurrent"
            for hold, rate_limiter in zip(
                holds, (rate_limiters[0], rate_limiters[-1]), strict=True
            ):
                await rate_limiter.settle(hold, NO_TOKENS, 0)
        # Those that were refused did not count: all or nothing.
        hold = await rate_limiters[0].reserve(demand(key))
        assert hold.headers["x-ratelimit-remaining-requests"] == "0"


async def test_who_has_no_limits(world: World) -> None:
    async with world.rate_limiters() as rate_limiters:
        hold = await rate_limiters[0].reserve(demand(Key("free")))
        assert hold.headers == {}
        await rate_limiters[0].settle(hold, Tokens(5), 5)
        await rate_limiters[0].charge(Key("free"), Tokens(5), 5)
        assert await rate_limiters[0].standing(Key("free")) == []
        assert world.ledger.asked == []


@pytest.mark.parametrize("trouble", ["fails", "hangs"])
async def test_a_ledger_that_does_not_answer(world: World, trouble: str) -> None:
    key = keyed(Budget("day", "tokens", 10), limits=KeyLimits(requests_per_minute=5))
    setattr(world.ledger, trouble, True)
    world.patience = 0.2
    async with world.rate_limiters() as rate_limiters:
        results = await asyncio.gather(
            *(rate_limiters[0].reserve(demand(key, 5)) for _ in range(20)), return_exceptions=True
        )
        for result in results:
            assert isinstance(result, LimitsUnavailable)
            assert result.headers["Retry-After"] == "1"
            assert result.limit == "unavailable"
        assert rate_limiters[0].unbudgeted == 0
        assert len(world.ledger.asked) == 1
        with pytest.raises(LimitsUnavailable):
            await rate_limiters[0].standing(key)
    async with world.rate_limiters(on_down="fail_open") as rate_limiters:
        for _ in range(5):
            hold = await rate_limiters[0].reserve(demand(key, 50))
            await rate_limiters[0].settle(hold, Tokens(50), 0)
        with pytest.raises(RateLimitExceeded):  # its limits hold all the same
            await rate_limiters[0].reserve(demand(key, 50))
        assert (rate_limiters[0].unbudgeted, rate_limiters[0].uncounted, rate_limiters[0].up) == (
            5,
            0,
            True,
        )


async def test_one_that_leaves_does_not_spoil_it_for_others(world: World) -> None:
    key = keyed(Budget("day", "tokens", 10))
    async with world.rate_limiters() as rate_limiters:
        first = asyncio.create_task(rate_limiters[0].reserve(demand(key, 5)))
        second = asyncio.create_task(rate_limiters[0].reserve(demand(key, 5)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled() or not first.exception()


async def test_tables_stay_small() -> None:
    world = World("memory", "")
    async with world.rate_limiters() as rate_limiters:
        for number in range(6_000):
            key = Key(
                f"k{number}", (), budgets=(Budget("day", "tokens", 9),), limits=KeyLimits(60, 9, 9)
            )
            hold = await rate_limiters[0].reserve(demand(key))
            await rate_limiters[0].settle(hold, Tokens(1), 0)
            world.now += 10.0
            world.ahead += 10.0
        assert len(rate_limiters[0]) < 3000
