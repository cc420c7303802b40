"""Limits and budgets: what a request may come to is held before it, what it used is counted after.

What is answered by others than endpoints, such as the cache, is counted as well.

A background run is a request when it comes: past a limit or a budget it is refused then, but for
the number of those at once. When it begins it waits until there is room for what it may come to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import uniform
from typing import Final, NamedTuple

from router.plugin import (
    NO_TAGS,
    NO_TOKENS,
    AnswerKind,
    BudgetTooSmall,
    Demand,
    Exchange,
    Gate,
    Key,
    Leave,
    LimitHit,
    LimitKind,
    LimitsUnavailable,
    Operation,
    OverLimit,
    PluginContext,
    QuotaExceeded,
    RateLimiter,
    RateLimitExceeded,
    Reservation,
    RouterError,
    TagBudgets,
    Tasks,
    Tokens,
    answer_count,
    estimate_tokens,
    get_logger,
    is_limited,
    longest_prompt_chars,
    most_tokens,
    prompt_chars,
    prompt_count,
    rules_of,
    tag_budgets,
)

__all__ = ["Price", "RequestLimits", "SpentBy"]

Price = Callable[[str, Tokens], int | None]
"""What these tokens of a model may cost, in nano-USD; None where no price is known."""

SpentBy = Callable[[Exchange], tuple[Tokens, int]]
"""What an exchange used, and what that cost, in nano-USD."""

_log = get_logger("plugins.limits")

_SAID: Final = ("max_output_tokens", "max_completion_tokens", "max_tokens")
_MANIFOLD: Final = frozenset({AnswerKind.CHAT, AnswerKind.COMPLETIONS})
_GUESS: Final = 4096
"""Tokens that an answer may have where nobody says."""

_MOST_KNOWN: Final = 4096
_SETTLE_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 5.0

_ROOM_SECONDS: Final = 600.0
"""So long a run waits for room, or for what counts it: nobody waits for the run."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0


class _Most(NamedTuple):
    """The most that any request of a key can get for a model; ``cost`` is in nano-USD, and None is
    any amount.
    """

    tokens: int | None
    cost: int | None


def _unknown(_: str) -> None:
    return None


def _by_characters(exchange: Exchange) -> tuple[int, int]:
    tokens = estimate_tokens(prompt_chars(exchange.body))
    return tokens, tokens


def _ignored(_: str, __: str) -> None:
    return None


class RequestLimits(Gate):
    """Holds and settles with ``rate_limiter``, for keys with limits or budgets, or tags that have
    some (``tags``).

    ``prompt_tokens`` estimates the prompt of an exchange: by its text alone, and as its model is
    expected to count it. ``context`` is the context of a model in tokens, by the client's name for
    it, where it is known: an answer is never longer than what its input leaves of it.
    """

    name = "limits"

    def __init__(
        self,
        rate_limiter: RateLimiter,
        *,
        price: Price,
        spent_by: SpentBy,
        tags: TagBudgets = NO_TAGS,
        prompt_tokens: Callable[[Exchange], tuple[int, int]] = _by_characters,
        context: Callable[[str], int | None] = _unknown,
        limit_hit: LimitHit = _ignored,
    ) -> None:
        self._rate_limiter = rate_limiter
        self._price = price
        self._spent_by = spent_by
        self._tags = tags
        self._prompt_tokens = prompt_tokens
        self._context = context
        self._limit_hit = limit_hit
        self._tasks = Tasks()
        self._known: dict[tuple[str, str], tuple[Key, _Most]] = {}

    @classmethod
    def from_context(cls, context: PluginContext) -> RequestLimits:
        """The plugin for the limits and budgets of a configuration."""
        accounts = context.services.accounts
        return cls(
            accounts.rate_limiter,
            price=accounts.most,
            spent_by=accounts.spent_by,
            tags=tag_budgets(context.settings.accounts.tags),
            prompt_tokens=accounts.prompt_tokens,
            context=accounts.context,
            limit_hit=accounts.limit_hit,
        )

    async def stop(self) -> None:
        """See ``Plugin.stop``. The rate limiter itself outlives it."""
        await self._tasks.wait(_STOP_SECONDS)
        await self._tasks.close()

    def concerns(self, key: Key | None) -> bool:
        """See ``Gate.concerns``."""
        return key is not None and is_limited(key, self._tags)

    async def enter(self, exchange: Exchange) -> Leave | None:
        """See ``Gate.enter``."""
        key = exchange.context.key
        if key is None or exchange.model is None or not exchange.request.operation.counted:
            return None
        return partial(self._settle, exchange, *await self._reserve(exchange, key, exchange.model))

    async def accept(self, exchange: Exchange) -> None:
        """See ``Gate.accept``: it counts as a request now, and for the rest when it begins."""
        key = exchange.context.key
        if key is None or exchange.model is None:
            return
        spares: LimitKind | None = "concurrent" if exchange.body.get("background") else None
        hold, _ = await self._reserve(exchange, key, exchange.model, spares)
        await self._rate_limiter.settle(hold, NO_TOKENS, 0)

    async def _reserve(
        self, exchange: Exchange, key: Key, model: str, spares: LimitKind | None = None
    ) -> tuple[Reservation, Demand]:
        demand = self._demand(exchange, key, model)
        reserve = self._rate_limiter.reserve
        if exchange.request.operation is Operation.RUN:
            reserve, spares = self._reserve_patiently, "requests"
        if spares is not None:
            demand = replace(demand, spares=spares)
        try:
            hold = await reserve(demand)
        except RouterError as error:
            self._limit_hit(key.name, _which(error))
            exchange.result.limit = error.limit
            raise
        exchange.result.headers.update(hold.headers)
        return hold, demand

    async def _reserve_patiently(self, demand: Demand) -> Reservation:
        """``RateLimiter.hold``, once there is room; raises like it where there will be none in
        time.
        """
        give_up, pause = time.monotonic() + _ROOM_SECONDS, _FIRST_PAUSE
        while True:
            try:
                return await self._rate_limiter.reserve(demand)
            except (RateLimitExceeded, LimitsUnavailable) as error:
                left = give_up - time.monotonic()
                if left <= 0.0 or error.headers.get("x-should-retry") == "false":
                    raise
            await asyncio.sleep(min(left, pause * uniform(0.5, 1.0)))
            pause = min(2.0 * pause, _LONGEST_PAUSE)

    def _demand(self, exchange: Exchange, key: Key, model: str) -> Demand:
        text, inputs = self._prompt_tokens(exchange)
        stated = _stated_output(exchange)
        outputs = self._output(exchange, model, inputs, _GUESS if stated is None else stated)
        total = inputs + outputs
        cost = self._price(model, Tokens(inputs, 0, outputs))
        most = self._most(key, model)
        if not (_above(total, most.tokens) or _above(cost, most.cost)):
            return Demand(exchange.request.id, key, model, total, cost)
        # Neither a guess nor what a model was seen to add is a reason to refuse what may fit.
        least = [
            Tokens(input=count, output=self._output(exchange, model, count, stated or 0))
            for count in {inputs, text}
        ]
        tokens = _capped(total, most.tokens, min(one.total for one in least))
        if cost is not None:
            prices = [self._price(model, one) or 0 for one in least]
            cost = _capped(cost, most.cost, min(prices))
        return Demand(exchange.request.id, key, model, tokens, cost)

    def _output(self, exchange: Exchange, model: str, inputs: int, each: int) -> int:
        """The tokens of all answers, of ``each`` at most; none is longer than what the input leaves
        of the model's context.
        """
        if (context := self._context(model)) is not None:
            longest = inputs
            if each and prompt_count(exchange.body) > 1:
                longest = estimate_tokens(longest_prompt_chars(exchange.body))
            each = min(each, max(0, context - longest))
        return each * _answers(exchange)

    def _most(self, key: Key, model: str) -> _Most:
        """``_most_of``, remembered."""
        known = self._known.get((key.name, model))
        if known is None or known[0] is not key:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[key.name, model] = key, _most_of(key, model, self._tags)
        return known[1]

    async def _settle(self, exchange: Exchange, hold: Reservation, demand: Demand) -> None:
        """Count what was used, also where the client has left; raises nothing of its own."""
        try:
            tokens, cost = self._spent_by(exchange)
        except Exception:
            _log.exception("what was used cannot be told", request_id=exchange.request.id)
            tokens, cost = Tokens(output=demand.tokens), demand.cost or 0
        settled = self._rate_limiter.settle(hold, tokens, cost)
        try:
            if self._rate_limiter.instant:
                await settled
                return
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self._tasks.see_through(settled, f"{exchange.request.id} settle")
        except TimeoutError:
            _log.warning("to count what was used takes long", request_id=exchange.request.id)
        except Exception:
            _log.exception("what was used was not counted", request_id=exchange.request.id)


def _most_of(key: Key, model: str, tags: TagBudgets) -> _Most:
    """The most that the key's limits, its budgets and those of its tags ever allow."""
    budgets = [*key.budgets]
    for tag in key.tags:
        budgets += tags.get(tag, ())
    tokens = [budget.most for budget in budgets if budget.unit == "tokens"]
    if (most := most_tokens(rules_of(key, model))) is not None:
        tokens.append(most)
    costs = (budget.most for budget in budgets if budget.unit == "usd")
    return _Most(min(tokens, default=None), min(costs, default=None))


def _above(amount: int | None, most: int | None) -> bool:
    return amount is not None and most is not None and amount > most


def _capped(amount: int, most: int | None, least: int) -> int:
    """At most ``most``, but no less than ``least``, which is refused with reason."""
    return amount if most is None else min(amount, max(most, least))


def _stated_output(exchange: Exchange) -> int | None:
    """The tokens that each answer may have; None where nobody says."""
    if not exchange.request.operation.generates:
        return 0
    for name in _SAID:
        said = exchange.body.get(name)
        if type(said) is int and said >= 0:
            return said
    return None


def _answers(exchange: Exchange) -> int:
    """How many answers are asked for."""
    return answer_count(exchange.body) if exchange.request.operation.kind in _MANIFOLD else 1


def _which(error: RouterError) -> str:
    if isinstance(error, OverLimit):
        return error.which
    if isinstance(error, QuotaExceeded | BudgetTooSmall):
        return "budget"
    return "unavailable" if isinstance(error, LimitsUnavailable) else "requests"
