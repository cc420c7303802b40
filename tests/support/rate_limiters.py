"""Meters for tests: one in memory, two that share a part of Redis, or two workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import pytest_asyncio

from router.core.key import Budget, Key, KeyLimits
from router.usage.budgets import TagBudgets
from router.usage.memory_limiter import MemoryRateLimiter, OnDown
from router.usage.opening_balance import Spent
from router.usage.rate_limiter import Demand
from router.usage.redis_limiter import RedisRateLimiter
from router.workers.children import Child
from router.workers.limits import SharedLimits, WorkerRateLimiter
from tests.support.links import linked
from tests.support.redis import REDIS_URL, redis_prefix

__all__ = ["Ledger", "World", "demand", "keyed", "numbers", "world"]


class Ledger:
    """What the usage ledger knows: the same of everybody."""

    def __init__(self, tokens: int = 0, cost: int = 0) -> None:
        self.known = (tokens, cost)
        self.asked: list[tuple[str, float]] = []
        self.fails = False
        self.hangs = False

    async def __call__(self, owner: str, since: float) -> tuple[int, int]:
        self.asked.append((owner, since))
        await asyncio.sleep(60 if self.hangs else 0)
        if self.fails:
            raise OSError("no ledger")
        return self.known


class World:
    """Meters that count together: one in memory, two on one Redis, or two of one supervisor."""

    def __init__(self, kind: str, prefix: str) -> None:
        self.kind = kind
        self.ledger = Ledger()
        self.now = 1_700_000_000.0
        self.ahead = 0.0
        self.patience = 20.0
        self._prefix = prefix

    def make(self, on_down: OnDown = "fail_closed", tags: TagBudgets | None = None) -> Any:
        """Another rate limiter, not started."""
        common: dict[str, Any] = {
            "tags": tags or {}, "on_down": on_down, "clock": lambda: self.now,
        }  # fmt: skip
        if self.kind == "memory":
            return self._in_memory(**common)
        return RedisRateLimiter(
            REDIS_URL,
            self.ledger,
            prefix=self._prefix,
            timeout=9.0,
            ledger_timeout=self.patience,
            **common,
        )

    def _in_memory(self, **common: Any) -> MemoryRateLimiter:
        return MemoryRateLimiter(
            self.ledger,
            timeout=self.patience,
            monotonic=lambda: time.monotonic() + self.ahead,
            **common,
        )

    @asynccontextmanager
    async def rate_limiters(self, **options: Any) -> AsyncIterator[list[Any]]:
        """All that count together."""
        if self.kind == "workers":
            async with self._workers(**options) as made:
                yield made
            return
        made = [self.make(**options) for _ in range(1 if self.kind == "memory" else 2)]
        for rate_limiter in made:
            await rate_limiter.start()
        try:
            yield made
        finally:
            for rate_limiter in made:
                await rate_limiter.close()

    @asynccontextmanager
    async def _workers(
        self, on_down: OnDown = "fail_closed", tags: TagBudgets | None = None
    ) -> AsyncIterator[list[Any]]:
        def counting(spent: Spent, on_down: OnDown) -> MemoryRateLimiter:
            return self._in_memory(on_down=on_down, clock=lambda: self.now)

        shared = SharedLimits(self.ledger, counting)
        async with linked(2) as pairs:
            made = []
            for number, (link, theirs) in enumerate(pairs):
                link.handlers.update(shared.handlers(cast(Child, number)))
                link.read()
                theirs.read()
                made.append(WorkerRateLimiter(theirs, tags or {}, on_down))
            yield made
            await shared.close()


@pytest_asyncio.fixture(params=["memory", "redis", "workers"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Of each kind."""
    if request.param != "redis":
        yield World(request.param, "")
        return
    async with redis_prefix() as prefix:
        yield World("redis", prefix)


def demand(key: Key, tokens: int = 1, cost: int | None = 0, model: str = "m") -> Demand:
    """What a request may come to."""
    return Demand("req_1", key, model, tokens, cost)


def keyed(*budgets: Budget, limits: KeyLimits | None = None, **more: Any) -> Key:
    """A key with budgets and limits."""
    return Key("alice", budgets=budgets, limits=limits or KeyLimits(), **more)


def numbers(standings: Any) -> list[tuple[int, int]]:
    """Spent and held, of each budget."""
    return [(standing.spent, standing.held) for standing in standings]
