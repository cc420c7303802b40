"""What limits and budgets reserve where it has to be guessed, and that a guess refuses nothing."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plugins.limits import RequestLimits
from router.core.exchange import Operation
from router.core.key import Budget, Key, KeyLimits
from router.core.usage_record import NO_TOKENS, Tokens
from router.errors import QuotaExceeded, RateLimitExceeded
from router.usage.memory_limiter import MemoryRateLimiter
from router.usage.rate_limiter import Demand, Reservation
from tests.support.exchanges import an_exchange


async def _nothing(owner: str, since: float) -> tuple[int, int]:
    return 0, 0


class Listening(MemoryRateLimiter):
    """Keeps what it was asked for."""

    def __init__(self) -> None:
        super().__init__(_nothing)
        self.demands: list[Demand] = []

    async def reserve(self, demand: Demand) -> Reservation:
        self.demands.append(demand)
        return await super().reserve(demand)


async def _reserved(key: Key, body: dict[str, Any], **options: Any) -> Demand:
    """What is reserved for a request to Chat Completions; raises what refuses it."""
    exchange = an_exchange()
    exchange.request = exchange.request._replace(operation=Operation.CHAT)
    exchange.context.key, exchange.model, exchange.body = key, "m", body
    rate_limiter = Listening()
    plugin = RequestLimits(rate_limiter, spent_by=lambda _: (NO_TOKENS, 0), **options)
    try:
        leave = await plugin.enter(exchange)
        assert leave is not None
        await leave()
    finally:
        await plugin.stop()
    (demand,) = rate_limiter.demands
    return demand


def _price(model: str, tokens: Tokens) -> int:
    return tokens.input + 4 * tokens.output


def _unpriced(model: str, tokens: Tokens) -> None:
    return None


@pytest.mark.parametrize(
    ("expected", "said", "tokens"),
    [
        (30, 20, 50),  # what the model adds is reserved
        (500, 20, 100),  # as far as the key's limit goes
        (5, 20, 25),  # a model may make fewer tokens of it
        (500, None, 100),
        (500, 95, None),  # it would have been refused by its text alone, too
    ],
)
async def test_what_a_model_adds_is_reserved_as_far_as_the_limit_goes(
    expected: int, said: int | None, tokens: int | None
) -> None:
    key = Key("tight", limits=KeyLimits(tokens_per_minute=100))
    body: dict[str, Any] = {"messages": [], "max_tokens": said}
    with pytest.raises(RateLimitExceeded) if tokens is None else nullcontext():
        demand = await _reserved(key, body, prompt_tokens=lambda _: (10, expected), price=_unpriced)
        assert demand.tokens == tokens


async def test_a_budget_in_money_is_capped_alike() -> None:
    key = Key("tight", budgets=(Budget("day", "usd", 200),))
    given = {"prompt_tokens": lambda _: (10, 500), "price": _price}
    assert (await _reserved(key, {"max_tokens": 20}, **given)).cost == 200
    assert (await _reserved(key, {}, **given)).cost == 200
    with pytest.raises(QuotaExceeded, match="never pass"):
        await _reserved(key, {"max_tokens": 48}, **given)


_COUNTS = st.integers(0, 5000)


@given(
    tokens_a_minute=st.none() | st.integers(1, 5000),
    usd=st.none() | st.integers(1, 20_000),
    context=st.none() | st.integers(1, 5000),
    text=_COUNTS,
    expected=_COUNTS,
    answers=st.integers(1, 5),
    said=st.none() | _COUNTS,
)
@example(1500, None, 1100, 1269, 643, 4, 1110)
@example(None, 3000, 1100, 1269, 643, 4, 1110)
async def test_no_estimate_refuses_what_would_fit_by_its_text(
    tokens_a_minute: int | None,
    usd: int | None,
    context: int | None,
    text: int,
    expected: int,
    answers: int,
    said: int | None,
) -> None:
    def least(inputs: int) -> Tokens:
        """What a request comes to by such an input, with what it says itself of its answers."""
        room = 10**9 if context is None else max(0, context - inputs)
        return Tokens(input=inputs, output=answers * min(said or 0, room))

    budgets = (Budget("day", "usd", usd),) if usd is not None else ()
    key = Key(
        "tight",
        budgets=(*budgets, Budget("total", "tokens", 10**9)),
        limits=KeyLimits(tokens_per_minute=tokens_a_minute),
    )
    by_text, by_model = least(text), least(expected)
    body = {"n": answers, "max_tokens": said}
    fits = (tokens_a_minute is None or by_text.total <= tokens_a_minute) and (
        usd is None or _price("m", by_text) <= usd
    )
    try:
        demand = await _reserved(
            key,
            body,
            prompt_tokens=lambda _: (text, expected),
            context=lambda _: context,
            price=_price,
        )
    except (RateLimitExceeded, QuotaExceeded):
        assert not fits
    else:
        assert demand.cost is not None
        lowest = min(by_text.total, by_model.total)
        assert demand.tokens >= lowest or demand.tokens == tokens_a_minute
        assert demand.cost >= min(map(_price, "mm", (by_text, by_model))) or demand.cost == usd


async def test_a_prompt_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def prompt_tokens(_: object) -> tuple[int, int]:
        measured.append("prompt_tokens")
        return 5, 50

    def chars(_: object) -> int:
        measured.append("chars")
        return 0

    for name in ("prompt_chars", "longest_prompt_chars"):
        monkeypatch.setattr(f"plugins.limits.{name}", chars)
    key = Key("tight", limits=KeyLimits(tokens_per_minute=10))
    demand = await _reserved(key, {}, prompt_tokens=prompt_tokens, price=_price)
    assert (demand.tokens, measured) == (10, ["prompt_tokens"])
