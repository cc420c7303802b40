"""Limits through the chain: what is held, what is settled, and that nothing passes for free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from plugins.limits import RequestLimits
from router.core.exchange import ClientGone, Exchange, Operation, Sink
from router.core.key import Budget, Key, KeyLimits
from router.core.plugin_chain import PluginChain
from router.core.usage_record import NO_TOKENS, Tokens, tokens_of
from router.errors import (
    InternalError,
    LimitsUnavailable,
    QuotaExceeded,
    RateLimitExceeded,
    UpstreamFailure,
)
from router.pipeline.attempt import answer_headers
from router.usage.memory_limiter import MemoryRateLimiter
from router.usage.rate_limiter import Demand, Reservation
from tests.support.exchanges import an_exchange, put
from tests.support.plugin_chain import HELLO, Page

LIMITED = Key("alice", limits=KeyLimits(requests_per_minute=10))


async def nothing(owner: str, since: float) -> tuple[int, int]:
    return 0, 0


class Listening(MemoryRateLimiter):
    """Keeps what it was asked; like a rate limiter that is elsewhere it may take its time."""

    instant = False

    def __init__(self, **options: Any) -> None:
        super().__init__(nothing, **options)
        self.demands: list[Demand] = []
        self.settled: list[tuple[Tokens, int]] = []
        self.breaks: Exception | None = None
        self.waits = False

    async def reserve(self, demand: Demand) -> Reservation:
        self.demands.append(demand)
        if self.breaks is not None:
            raise self.breaks
        return await super().reserve(demand)

    async def settle(self, hold: Reservation, tokens: Tokens, cost: int) -> None:
        if self.waits:
            await asyncio.sleep(0.05)
        self.settled.append((tokens, cost))
        await super().settle(hold, tokens, cost)


def spent_by(exchange: Exchange) -> tuple[Tokens, int]:
    return tokens_of(exchange.result.usage), exchange.result.attempts


class Core:
    """The end of the chain."""

    def __init__(self, error: BaseException | None = None, *, stream: bool = False) -> None:
        self.calls = 0
        self.headers: dict[str, str] = {}
        self._error = error
        self._stream = stream

    async def __call__(self, exchange: Exchange, sink: Sink) -> None:
        self.calls += 1
        self.headers = answer_headers(exchange, {})
        exchange.result.usage = {"input_tokens": 3, "output_tokens": 4}
        exchange.result.attempts = 2
        if self._error is not None:
            raise self._error
        if self._stream:
            sink.open(self.headers)
            sink.feed([HELLO])
            await asyncio.sleep(0)
            sink.end()
        else:
            sink.finish(200, b"core", self.headers)


def asked(key: Key | None = LIMITED, **body: Any) -> Exchange:
    exchange = an_exchange()
    exchange.context.key = key
    exchange.model = "m"
    exchange.body = body or {"model": "m", "input": "12345678"}
    return exchange


async def run(
    rate_limiter: Listening, exchange: Exchange, core: Core | None = None, **options: Any
) -> list[str]:
    """What the client got."""
    page = Page()
    common: dict[str, Any] = {"price": lambda model, tokens: 2 * tokens.total, "spent_by": spent_by}
    chain = PluginChain([RequestLimits(rate_limiter, **{**common, **options})])
    await chain.start()
    try:
        await chain.run(exchange, page, core or Core())
    finally:
        await chain.stop()
    return page.said


@pytest.mark.parametrize("stream", [False, True])
async def test_what_passes_is_held_and_settled(stream: bool) -> None:
    rate_limiter, core, exchange = Listening(), Core(stream=stream), asked()
    said = await run(rate_limiter, exchange, core)
    assert said == (["open", "hello", "end"] if stream else ["200 core"])
    assert rate_limiter.demands == [Demand("req_1", LIMITED, "m", 2 + 4096, 2 * 4098)]
    assert rate_limiter.settled == [(Tokens(3, 0, 4, 0), 2)]
    assert core.headers["x-ratelimit-limit-requests"] == "10"
    assert core.headers["x-ratelimit-remaining-requests"] == "9"
    assert core.headers["x-ratelimit-reset-requests"] == "6s"


@pytest.mark.parametrize(
    ("operation", "body", "tokens"),
    [
        (Operation.RESPONSES, {"input": "1234", "max_output_tokens": 7}, 8),
        (Operation.RUN, {"input": "1234", "max_output_tokens": 7}, 8),
        (Operation.COMPACT, {"input": "1234"}, 4097),
        (Operation.CHAT, {"messages": [{"role": "user", "content": "1234"}]}, 4097),
        (Operation.CHAT, {"messages": [], "max_tokens": 5}, 5),
        (Operation.CHAT, {"messages": [], "max_completion_tokens": 6, "max_tokens": 5}, 6),
        (Operation.CHAT, {"messages": [], "max_tokens": 5, "n": 3}, 15),
        (Operation.CHAT, {"messages": [], "max_tokens": "many", "n": "x"}, 4096),
        (Operation.CHAT, {"messages": [], "max_tokens": True}, 4096),
        (Operation.CHAT, {"messages": [], "max_tokens": -5}, 4096),
        (Operation.RESPONSES, {"input": "1234", "max_output_tokens": 10**9}, 10_000),
        (Operation.RESPONSES, {"input": 80_000 * "1", "max_output_tokens": 9}, 20_000),
    ],
)
async def test_what_a_request_may_come_to(
    operation: Operation, body: dict[str, Any], tokens: int
) -> None:
    rate_limiter, exchange = Listening(), asked(**body)
    exchange.request = exchange.request._replace(operation=operation)
    await run(rate_limiter, exchange, context=lambda model: 10_000)
    assert [demand.tokens for demand in rate_limiter.demands] == [tokens]


@pytest.mark.parametrize(
    ("key", "body", "tokens"),
    [
        (Key("a", limits=KeyLimits(tokens_per_minute=100)), {}, 100),
        (Key("a", budgets=(Budget("day", "tokens", 50),)), {}, 50),
        (Key("a", limits=KeyLimits(tokens_per_minute=99), tags=("team",)), {}, 60),
        (Key("a", model_limits=(("m*", KeyLimits(tokens_per_minute=9)),)), {}, 9),
    ],
)
async def test_a_guess_is_no_reason_to_refuse(key: Key, body: dict[str, Any], tokens: int) -> None:
    tags = {"team": (Budget("day", "tokens", 60), Budget("day", "usd", 10**9))}
    rate_limiter = Listening(tags=tags)
    assert await run(rate_limiter, asked(key), tags=tags) == ["200 core"]
    assert [demand.tokens for demand in rate_limiter.demands] == [tokens]


@pytest.mark.parametrize(
    "change",
    [
        {"key": None},
        {"key": Key("free", tags=("none",))},
        {"model": None},
        {"operation": Operation.INPUT_TOKENS},
        {"operation": Operation.MODELS},
    ],
)
async def test_who_is_not_limited(change: dict[str, Any]) -> None:
    rate_limiter, exchange, core = Listening(), asked(), Core()
    put(exchange, **change)
    tags = {"team": (Budget("day", "usd", 1),)}
    assert await run(rate_limiter, exchange, core, tags=tags) == ["200 core"]
    assert (rate_limiter.demands, rate_limiter.settled, core.calls) == ([], [], 1)
    assert not any(name.startswith("x-ratelimit") for name in core.headers)


@pytest.mark.parametrize(
    ("key", "error", "which"),
    [
        (Key("alice", limits=KeyLimits(requests_per_minute=1)), RateLimitExceeded, "requests"),
        (Key("alice", limits=KeyLimits(tokens_per_minute=10)), RateLimitExceeded, "tokens"),
        (Key("alice", limits=KeyLimits(concurrent=1)), RateLimitExceeded, "concurrent"),
        (Key("alice", budgets=(Budget("day", "usd", 9000),)), RateLimitExceeded, "budget"),
    ],
)
async def test_what_is_refused(key: Key, error: type[Exception], which: str) -> None:
    rate_limiter, core = Listening(), Core()
    hits: list[tuple[str, str]] = []
    hold = await rate_limiter.reserve(Demand("r", key, "m", 10, 9000))
    with pytest.raises(error) as caught:
        await run(rate_limiter, asked(key), core, limit_hit=lambda *hit: hits.append(hit))
    assert (core.calls, hits) == (0, [("alice", which)])
    assert int(caught.value.headers["Retry-After"]) >= 1  # type: ignore[attr-defined]
    assert rate_limiter.settled == []
    await rate_limiter.settle(hold, NO_TOKENS, 0)


async def test_a_spent_budget_refuses() -> None:
    key = Key("alice", budgets=(Budget("day", "usd", 9000),))
    rate_limiter, core = Listening(), Core()
    hits: list[tuple[str, str]] = []
    await rate_limiter.standing(key)
    await rate_limiter.charge(key, NO_TOKENS, 9000)
    with pytest.raises(QuotaExceeded, match="is spent"):
        await run(rate_limiter, asked(key), core, limit_hit=lambda *hit: hits.append(hit))
    assert (core.calls, hits) == (0, [("alice", "budget")])


async def test_where_nothing_can_be_counted() -> None:
    rate_limiter, core = Listening(), Core()
    rate_limiter.breaks = LimitsUnavailable("away")
    hits: list[tuple[str, str]] = []
    with pytest.raises(LimitsUnavailable):
        await run(rate_limiter, asked(), core, limit_hit=lambda *hit: hits.append(hit))
    assert (core.calls, hits) == (0, [("alice", "unavailable")])


def _fail(*_: object) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize("part", ["rate_limiter", "price", "context", "tags", "limit_hit"])
async def test_whatever_breaks_before_it_does_not_pass(part: str) -> None:
    rate_limiter, core, exchange = Listening(), Core(), asked()
    options: dict[str, Any] = {}
    if part == "rate_limiter":
        rate_limiter.breaks = ZeroDivisionError()
    elif part == "tags":
        exchange.context.key = Key("alice", tags=(["unhashable"],))  # type: ignore[arg-type]
        options = {"tags": {"team": ()}}
    elif part == "limit_hit":
        exchange.context.key = Key("alice", limits=KeyLimits(tokens_per_minute=1))
        options = {"limit_hit": _fail}
    else:
        options = {part: _fail}
    with capture_logs() as log, pytest.raises(InternalError, match="'limits'"):
        await run(rate_limiter, exchange, core, **options)
    assert core.calls == 0
    assert [line["event"] for line in log] == ["gate broke"]


@pytest.mark.parametrize("error", [UpstreamFailure("down"), KeyError("a bug"), ClientGone()])
async def test_what_fails_is_settled(error: Exception) -> None:
    rate_limiter = Listening()
    with pytest.raises(type(error)) as caught:
        await run(rate_limiter, asked(), Core(error))
    assert caught.value is error
    assert rate_limiter.settled == [(Tokens(3, 0, 4, 0), 2)]


async def test_who_does_not_say_what_it_used_used_all_of_it() -> None:
    rate_limiter = Listening()
    with capture_logs() as log:
        said = await run(rate_limiter, asked(), spent_by=_fail)
    assert said == ["200 core"]
    assert rate_limiter.settled == [(Tokens(output=4098), 2 * 4098)]
    assert [line["event"] for line in log] == ["what was used cannot be told"]


async def test_a_meter_that_breaks_afterwards_is_not_felt() -> None:
    class Breaking(Listening):
        async def settle(self, hold: Reservation, tokens: Tokens, cost: int) -> None:
            raise ZeroDivisionError

    exchange = asked()
    with capture_logs() as log:
        assert await run(Breaking(), exchange) == ["200 core"]
    assert exchange.result.outcome is None
    assert [line["event"] for line in log] == ["what was used was not counted"]


@pytest.mark.parametrize("twice", [False, True])
async def test_a_client_that_leaves_settles(twice: bool) -> None:
    key = Key("alice", limits=KeyLimits(concurrent=1), budgets=(Budget("day", "tokens", 5000),))
    rate_limiter, exchange = Listening(), asked(key)
    rate_limiter.waits = True
    begun = asyncio.Event()

    async def core(exchange: Exchange, sink: Sink) -> None:
        exchange.result.usage = {"input_tokens": 3, "output_tokens": 1}
        begun.set()
        await asyncio.sleep(60)

    plugin = RequestLimits(rate_limiter, price=lambda *_: None, spent_by=spent_by)
    task = asyncio.create_task(PluginChain([plugin]).run(exchange, Page(), core))
    await begun.wait()
    with pytest.raises(RateLimitExceeded):
        await rate_limiter.reserve(Demand("r", key, "m", 1, None))
    task.cancel()
    if twice:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    await plugin.stop()
    assert rate_limiter.settled == [(Tokens(3, 0, 1, 0), 0)]
    assert [(one.spent, one.held) for one in await rate_limiter.standing(key)] == [(4, 0)]
    await rate_limiter.reserve(Demand("r", key, "m", 1, None))


async def test_many_at_once_on_one_budget() -> None:
    most = 5000
    key = Key("alice", tags=("team",))
    tags = {"team": (Budget("month", "tokens", most),)}
    rate_limiter = Listening(tags=tags)
    plugin = RequestLimits(rate_limiter, price=lambda *_: 0, spent_by=spent_by, tags=tags)
    chain = PluginChain([plugin])
    make: Callable[[], Exchange] = lambda: asked(key, input="1234", max_output_tokens=99)  # noqa: E731
    results = await asyncio.gather(
        *(chain.run(make(), Page(), Core(stream=True)) for _ in range(500)), return_exceptions=True
    )
    assert results.count(None) == 50
    assert sum(isinstance(result, RateLimitExceeded) for result in results) == 450
    assert [(one.spent, one.held) for one in await rate_limiter.standing(key)] == [(350, 0)]
