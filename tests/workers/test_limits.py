"""Limits of several workers, where those come and go. What all limiters do: ``tests/usage``."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from router.core.key import Budget, KeyLimits
from router.core.usage_record import Tokens
from router.errors import LimitsUnavailable, RateLimitExceeded
from router.workers.children import Child
from router.workers.limits import SharedLimits, WorkerRateLimiter
from router.workers.link import WorkerLink
from tests.support.links import linked
from tests.support.rate_limiters import Ledger, demand, keyed, numbers
from tests.support.waiting import until

KEY = keyed(Budget("total", "tokens", 50))


def join(
    shared: SharedLimits, number: int, ends: tuple[WorkerLink, WorkerLink]
) -> WorkerRateLimiter:
    """Another worker."""
    ours, theirs = ends
    ours.handlers.update(shared.handlers(cast(Child, number)))
    ours.read()
    theirs.read()
    return WorkerRateLimiter(theirs, {}, "fail_closed")


async def test_a_budget_for_50_gives_50_to_500_at_once() -> None:
    shared = SharedLimits(Ledger())
    async with linked(3) as links:
        workers = [join(shared, number, ends) for number, ends in enumerate(links)]
        results = await asyncio.gather(
            *(workers[n % 3].reserve(demand(KEY)) for n in range(500)), return_exceptions=True
        )
        refused = [one for one in results if isinstance(one, RateLimitExceeded)]
        assert len(refused) == 450
        assert all(worker.up for worker in workers)
        await shared.close()


async def test_a_worker_that_dies_gives_back_what_it_held_and_the_ledger_is_asked_again() -> None:
    ledger = Ledger()
    shared = SharedLimits(ledger)
    key = keyed(Budget("total", "tokens", 50), limits=KeyLimits(concurrent=9))
    async with linked(2) as links:
        dying, other = (join(shared, number, ends) for number, ends in enumerate(links))
        for _ in range(3):
            await dying.reserve(demand(key, 10))
        held = await other.reserve(demand(key, 10))
        assert numbers(await other.standing(key)) == [(0, 40)]
        await links[0][1].close()
        shared.forget(cast(Child, 0))
        ledger.known = (7, 0)  # it had recorded this much
        assert numbers(await other.standing(key)) == [(0, 10)]
        await other.settle(held, Tokens(5), 0)
        await until(lambda: not shared.limiter._doubtful)
        ledger.known = (12, 0)
        assert numbers(await other.standing(key)) == [(12, 0)]
        await shared.close()


async def test_what_is_cancelled_while_it_is_reserved_is_given_back() -> None:
    ledger = Ledger()
    ledger.hangs = True
    shared = SharedLimits(ledger)
    async with linked() as [ends]:
        worker = join(shared, 0, ends)
        waiting = asyncio.ensure_future(worker.reserve(demand(KEY, 10)))
        await until(lambda: ledger.asked)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        ledger.hangs = False
        holds = shared._workers[cast(Child, 0)]
        await until(lambda: not holds._holds and not holds._ends)
        await shared.close()


async def test_without_a_supervisor_limited_keys_are_refused_and_others_pass() -> None:
    shared = SharedLimits(Ledger())
    async with linked() as [ends]:
        worker = join(shared, 0, ends)
        held = await worker.reserve(demand(KEY))
        await ends[0].close()
        await until(lambda: not worker.up)
        with pytest.raises(LimitsUnavailable):
            await worker.reserve(demand(KEY))
        with pytest.raises(LimitsUnavailable):
            await worker.standing(KEY)
        await worker.settle(held, Tokens(1), 0)
        await worker.reserve(demand(keyed()))
        assert await worker.standing(keyed()) == []
        await shared.close()
