"""Limits of background runs through the chain: what is counted when, and what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from plugins import limits
from plugins.limits import RequestLimits
from router.core.exchange import Exchange, Operation, Sink
from router.core.key import Budget, Key, KeyLimits
from router.core.plugin_chain import PluginChain
from router.core.plugin_hooks import Gate
from router.core.usage_record import NO_TOKENS, Tokens
from router.errors import (
    InternalError,
    LimitsUnavailable,
    QuotaExceeded,
    RateLimitExceeded,
    RouterError,
)
from router.usage.memory_limiter import MemoryRateLimiter
from router.usage.rate_limiter import Demand, RateLimiter, Reservation
from tests.support.exchanges import an_exchange
from tests.support.plugin_chain import Page

KEY = Key(
    "alice",
    limits=KeyLimits(requests_per_minute=3, tokens_per_minute=6000, concurrent=1),
    budgets=(Budget("total", "tokens", 9000),),
)


async def nothing(owner: str, since: float) -> tuple[int, int]:
    return 0, 0


def chain_of(rate_limiter: RateLimiter, hits: list[str] | None = None) -> PluginChain:
    def hit(_: str, what: str) -> None:
        if hits is not None:
            hits.append(what)

    def spent_by(exchange: Exchange) -> tuple[Tokens, int]:
        return Tokens(10), 0

    plugin = RequestLimits(rate_limiter, price=lambda *_: 0, spent_by=spent_by, limit_hit=hit)
    return PluginChain([plugin])


def asked(operation: Operation, key: Key | None = KEY, most: int = 99, **body: Any) -> Exchange:
    exchange = an_exchange()
    exchange.context.key, exchange.model = key, "m"
    exchange.request = exchange.request._replace(operation=operation)
    exchange.body = {"model": "m", "input": "1234", "max_output_tokens": most, **body}
    return exchange


def background(**fields: Any) -> Exchange:
    return asked(Operation.RESPONSES, background=True, **fields)


@asynccontextmanager
async def under_way(rate_limiter: RateLimiter, tokens: int = 10) -> AsyncIterator[None]:
    """A request that others have begun."""
    hold = await rate_limiter.reserve(Demand("r", KEY, "m", tokens, 0))
    try:
        yield
    finally:
        await rate_limiter.settle(hold, NO_TOKENS, 0)


async def done(exchange: Exchange, sink: Sink) -> None:
    sink.finish(200, b"core", {})


async def test_what_is_accepted_is_a_request_and_holds_nothing() -> None:
    rate_limiter, hits = MemoryRateLimiter(nothing), list[str]()
    chain = chain_of(rate_limiter, hits)
    async with under_way(rate_limiter, 100):  # which is all that may be at once
        for left in "10":
            exchange = background()
            await chain.accept(exchange)
            assert exchange.result.headers["x-ratelimit-remaining-requests"] == left
        with pytest.raises(RateLimitExceeded) as caught:
            await chain.accept(background())
        assert caught.value.limit == "requests_per_minute"
        assert [(one.spent, one.held) for one in await rate_limiter.standing(KEY)] == [(0, 100)]
    for _ in range(5):  # no request more
        await chain.run(asked(Operation.RUN), Page(), done)
    assert [(one.spent, one.held) for one in await rate_limiter.standing(KEY)] == [(50, 0)]
    assert hits == ["requests"]


async def test_what_is_waited_for_counts_as_any_request() -> None:
    rate_limiter, hits = MemoryRateLimiter(nothing), list[str]()
    async with under_way(rate_limiter):
        with pytest.raises(RateLimitExceeded, match="1 under way"):
            await chain_of(rate_limiter, hits).accept(asked(Operation.RESPONSES))
    assert hits == ["concurrent"]


@pytest.mark.parametrize(
    ("spent", "most", "error", "limit"),
    [
        (8950, 99, QuotaExceeded, "budget key total"),
        (0, 8000, RateLimitExceeded, "tokens_per_minute"),
    ],
)
async def test_what_will_not_pass_is_not_accepted(
    spent: int, most: int, error: type[RouterError], limit: str
) -> None:
    rate_limiter = MemoryRateLimiter(nothing)
    await rate_limiter.standing(KEY)
    await rate_limiter.charge(KEY, Tokens(spent), 0)
    with pytest.raises(error) as caught:
        await chain_of(rate_limiter).accept(background(most=most))
    assert caught.value.limit == limit


async def test_who_is_not_limited_is_accepted() -> None:
    rate_limiter = MemoryRateLimiter(nothing)
    for key in (None, Key("free")):
        exchange = background(key=key)
        await chain_of(rate_limiter).accept(exchange)
        assert exchange.result.headers == {}
    assert len(rate_limiter) == 0


async def test_it_waits_for_room() -> None:
    rate_limiter, hits, page = MemoryRateLimiter(nothing), list[str](), Page()
    chain = chain_of(rate_limiter, hits)
    async with under_way(rate_limiter):
        running = asyncio.create_task(chain.run(asked(Operation.RUN), page, done))
        await asyncio.sleep(0.2)
        assert page.said == []
    await asyncio.wait_for(running, 60)
    assert (page.said, hits) == (["200 core"], [])


async def test_one_that_leaves_while_it_waits_holds_nothing() -> None:
    rate_limiter = MemoryRateLimiter(nothing)
    chain = chain_of(rate_limiter)
    async with under_way(rate_limiter):
        running = asyncio.create_task(chain.run(asked(Operation.RUN), Page(), done))
        await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.wait({running})
    assert running.cancelled()
    assert [(one.spent, one.held) for one in await rate_limiter.standing(KEY)] == [(0, 0)]


async def test_it_waits_for_what_counts_it() -> None:
    class Away(MemoryRateLimiter):
        asked = 0

        async def reserve(self, demand: Demand) -> Reservation:
            self.asked += 1
            if self.asked < 4:
                raise LimitsUnavailable("away")
            return await super().reserve(demand)

    page = Page()
    await chain_of(Away(nothing)).run(asked(Operation.RUN), page, done)
    assert page.said == ["200 core"]


@pytest.mark.parametrize("what", ["never", "spent", "late"])
async def test_what_it_does_not_wait_for(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """What would never pass, what passes in another period, and room that does not come."""
    rate_limiter, hits = MemoryRateLimiter(nothing), list[str]()
    await rate_limiter.standing(KEY)
    exchange, hit = asked(Operation.RUN), "concurrent"
    if what == "never":
        exchange, hit = asked(Operation.RUN, most=8000), "tokens"
    elif what == "spent":
        await rate_limiter.charge(KEY, Tokens(9000), 0)
        hit = "budget"
    else:
        monkeypatch.setattr(limits, "_ROOM_SECONDS", 0.2)
    async with asyncio.timeout(60), under_way(rate_limiter, 0):
        with pytest.raises(RouterError) as caught:
            await chain_of(rate_limiter, hits).run(exchange, Page(), done)
    assert hits == [hit]
    code = "insufficient_quota" if what == "spent" else "rate_limit_exceeded"
    assert caught.value.response_error()["code"] == code


async def test_every_gate_is_asked_and_one_that_breaks_refuses() -> None:
    heard: list[str] = []

    class Silent(Gate):
        pass

    class Loud(Gate):
        async def accept(self, exchange: Exchange) -> None:
            heard.append(exchange.request.id)
            raise ZeroDivisionError

    with capture_logs() as log, pytest.raises(InternalError, match="'Loud'"):
        await PluginChain([Silent(), Loud()]).accept(background())
    assert heard == ["req_1"]
    assert [line["event"] for line in log] == ["gate broke"]
