"""What a number of tokens comes to at given prices: exact, rounded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Final

from router.core.usage_record import NANO, Tokens

__all__ = ["FREE", "PriceStep", "Rates"]

_MILLION: Final = 1_000_000

_MOST: Final = 2**63 - 1
"""What a database's integer can hold."""


@dataclass(frozen=True, slots=True)
class PriceStep:
    """Prices in USD per million tokens that hold for requests of more than ``above`` input tokens;
    ``request`` is in USD per request. None is unknown. Cached input, input that is written to a
    cache, and reasoning that have no price of their own cost as much as other input and other
    output.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cached: Decimal | None = None
    reasoning: Decimal | None = None
    request: Decimal = Decimal(0)
    above: int = 0
    written: Decimal | None = None

    def words(self) -> str:
        """For people: ``2.50 USD per million input tokens, 1.25 cached, 10.00 output``."""
        prices = {
            "input": self.input,
            "cached": self.cached,
            "written to the cache": self.written,
            "output": self.output,
            "reasoning": self.reasoning,
        }
        told = _told(prices)
        if self.request:
            told = f"{told} and " if told else ""
            return f"{told}{_money(self.request)} USD per request"
        return told or "nothing per token"


class Rates:
    """The prices of one model at one time: ``steps`` by context, of which the first is for all."""

    __slots__ = ("_scaled", "steps")

    def __init__(self, steps: Sequence[PriceStep]) -> None:
        self.steps = tuple(steps)
        # The highest step first: the first that a request is above of is its own.
        self._scaled = tuple(_Scaled(step) for step in reversed(self.steps))

    def cost(self, tokens: Tokens, written: int = 0) -> int | None:
        """In whole nano-USD, halves rounded up; None where tokens are of a kind whose price is
        unknown. ``written`` of the input was written to a cache. More cached and written tokens
        than input, or more reasoning than output, are not counted.
        """
        for scaled in self._scaled:
            if tokens.input > scaled.above:
                break
        return scaled.cost(tokens, written)

    def words(self) -> str:
        """For people."""
        first, *others = self.steps
        told = [first.words()]
        told += [f"above {step.above:,} input tokens: {step.words()}" for step in others]
        return "; ".join(told)


class _Scaled:
    """One step in integers: nano-USD, times ``per``."""

    __slots__ = (
        "above",
        "cached",
        "half",
        "input",
        "output",
        "per",
        "reasoning",
        "request",
        "written",
    )

    def __init__(self, step: PriceStep) -> None:
        cached = step.input if step.cached is None else step.cached
        reasoning = step.output if step.reasoning is None else step.reasoning
        written = step.input if step.written is None else step.written
        prices = (step.input, cached, step.output, reasoning, written)
        per_token = [_nano(price) for price in prices]
        request = Fraction(step.request) * NANO
        denominators = [price.denominator for price in per_token if price is not None]
        self.per = lcm(request.denominator, *denominators)
        self.half = self.per // 2
        self.input, self.cached, self.output, self.reasoning, self.written = (
            None if price is None else int(price * self.per) for price in per_token
        )
        self.request = int(request * self.per)
        self.above = step.above

    def cost(self, tokens: Tokens, written: int) -> int | None:
        """See ``Rates.cost``."""
        total = self.request
        if tokens.input > 0:
            if self.input is None or self.cached is None:
                return None
            cached = min(tokens.cached, tokens.input)
            total += (tokens.input - cached) * self.input + cached * self.cached
            if written and self.written is not None:
                total += min(written, tokens.input - cached) * (self.written - self.input)
        if tokens.output > 0:
            if self.output is None or self.reasoning is None:
                return None
            reasoning = min(tokens.reasoning, tokens.output)
            total += (tokens.output - reasoning) * self.output + reasoning * self.reasoning
        return min((total + self.half) // self.per, _MOST)


def _nano(price: Decimal | None) -> Fraction | None:
    """Nano-USD per token."""
    return None if price is None else Fraction(price) * NANO / _MILLION


def _told(prices: Mapping[str, Decimal | None]) -> str:
    known = {name: price for name, price in prices.items() if price is not None}
    if not any(known.values()):
        return ""
    (name, price), *others = known.items()
    told = f"{_money(price)} USD per million {name} tokens"
    return ", ".join([told, *(f"{_money(price)} {name}" for name, price in others)])


def _money(amount: Decimal) -> str:
    """With two decimals, and more where there are more."""
    exponent = amount.normalize().as_tuple().exponent
    return f"{amount:,.{max(2, -int(exponent))}f}"


FREE: Final = Rates([PriceStep(Decimal(0), Decimal(0))])
