"""The rate limiters under many requests at once, and whatever is done in whatever order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from router.core.key import Budget, Key, KeyLimits
from router.core.usage_record import Tokens
from router.errors import QuotaExceeded, RateLimitExceeded
from router.usage.budgets import BudgetTooSmall
from router.usage.rate_limiter import RateLimiter, Reservation
from tests.support.rate_limiters import World, demand, keyed, numbers, world
from tests.support.redis import REDIS_URL, redis_prefix

__all__ = ["world"]


async def spend(rate_limiter: RateLimiter, key: Key, held: int, used: int, pause: float) -> int:
    """One request: what it used."""
    try:
        hold = await rate_limiter.reserve(demand(key, held, held))
    except (QuotaExceeded, BudgetTooSmall):
        return 0
    await asyncio.sleep(pause)
    await rate_limiter.settle(hold, Tokens(output=used), used)
    return used


async def test_five_hundred_at_once_against_one_budget(world: World) -> None:
    most, held = 10_000, 50
    key = keyed(Budget("month", "usd", most), Budget("month", "tokens", 10**9), tags=("team",))
    chance = random.Random(6)
    async with world.rate_limiters(tags={"team": (Budget("day", "usd", most),)}) as rate_limiters:
        used = [most]
        while any(used):
            used = await asyncio.gather(
                *(
                    spend(
                        rate_limiters[n % len(rate_limiters)],
                        key,
                        held,
                        chance.randint(1, held),
                        0.001,
                    )
                    for n in range(500)
                )
            )
            standings = await rate_limiters[0].standing(key)
            assert all(held == 0 for _, held in numbers(standings))
            spent = standings[0].spent
            assert spent == standings[1].spent == standings[2].spent <= most
            assert spent >= sum(used)
        assert spent > most - held
        # It is spent but for less than one request needs.
        assert await spend(rate_limiters[-1], key, most - spent + 1, 1, 0) == 0


_PLAYS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "settle", "charge", "cancel", "again"]),
        st.integers(0, 60),
        st.integers(0, 80),
    ),
    max_size=60,
)


Crash = Callable[[Any], Awaitable[None]]


class Play:
    """What must be true, whatever is done to a rate limiter in whatever order. ``crash`` has what a
    hold holds given back without the router that has it.
    """

    def __init__(
        self, rate_limiters: list[Any], key: Key, most: int, slots: int, crash: Crash | None
    ) -> None:
        self._crash = crash
        self._meters = rate_limiters
        self._key = key
        self._most = most
        self._slots = slots
        self._running: list[tuple[Reservation, int]] = []
        self._over: list[Reservation] = []
        self._spent = 0

    async def step(self, number: int, what: str, held: int, used: int) -> None:
        rate_limiter = self._meters[number % len(self._meters)]
        if what == "hold":
            fits = self._spent + self._held + held <= self._most or held == 0
            for_long = not fits and self._spent + held > self._most
            if fits and len(self._running) < self._slots:
                self._running.append((await rate_limiter.reserve(demand(self._key, held, 1)), held))
            else:
                with pytest.raises(QuotaExceeded if for_long else RateLimitExceeded) as caught:
                    await rate_limiter.reserve(demand(self._key, held, 1))
                assert isinstance(caught.value, BudgetTooSmall) == (not fits and not for_long)
        elif what == "charge":
            await rate_limiter.charge(self._key, Tokens(used), 0)
            self._spent += used
        elif what in ("settle", "cancel") and self._running:
            hold, _ = self._running.pop(held % len(self._running))
            self._over.append(hold)
            used = used if what == "settle" else 0
            await rate_limiter.settle(hold, Tokens(used), 0)
            self._spent += used
        elif what == "crash" and self._running and self._crash is not None:
            await self._crash(self._running.pop(held % len(self._running))[0])
        elif what == "again" and self._over:
            await rate_limiter.settle(self._over[held % len(self._over)], Tokens(used), 0)
        assert numbers(await rate_limiter.standing(self._key)) == [(self._spent, self._held)]

    @property
    def _held(self) -> int:
        return sum(held for _, held in self._running)


async def play(
    rate_limiters: list[Any],
    name: str,
    steps: list[tuple[str, int, int]],
    crash: Crash | None = None,
) -> None:
    key = Key(name, budgets=(Budget("day", "tokens", 200),), limits=KeyLimits(concurrent=5))
    played = Play(rate_limiters, key, 200, 5, crash)
    await rate_limiters[0].standing(key)
    for number, step in enumerate(steps):
        await played.step(number, *step)


@given(steps=_PLAYS)
@settings(deadline=None, max_examples=60)
def test_any_order_in_memory(steps: list[tuple[str, int, int]]) -> None:
    world = World("memory", "")

    async def run() -> None:
        async with world.rate_limiters() as rate_limiters:
            await play(rate_limiters, "alice", steps)

    asyncio.run(run())


async def test_any_order_in_redis() -> None:
    chance = random.Random(7)
    words = ["hold", "hold", "settle", "charge", "cancel", "crash", "again"]
    async with (
        redis_prefix() as prefix,
        World("redis", prefix).rate_limiters() as rate_limiters,
        Redis.from_url(REDIS_URL) as redis,
    ):

        async def crash(hold: Any) -> None:
            for name, member, _ in hold.leases():
                await redis.zadd(f"{{{prefix}}}:{name}", {member: 1}, xx=True)

        for number in range(15):
            steps = [
                (chance.choice(words), chance.randint(0, 60), chance.randint(0, 30))
                for _ in range(60)
            ]
            await play(rate_limiters, f"k{number}", steps, crash)
