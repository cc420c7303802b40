"""What tokens cost: as it is configured, else by the list prices of those who sell them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol

from router.core.usage_record import Tokens
from router.settings.accounts import AccountsSettings, PriceSettings
from router.settings.model_names import fits
from router.usage import list_prices
from router.usage.rates import FREE, PriceStep, Rates

__all__ = ["Prices"]

_REMEMBERED: Final = 4096


class _Price(Protocol):
    """Where a model's price is from. ``source`` is in words for people."""

    @property
    def source(self) -> str: ...

    def rates(self, at: float) -> Rates | None: ...


@dataclass(frozen=True, slots=True)
class _Configured:
    source: str
    known: Rates

    def rates(self, at: float) -> Rates:
        return self.known


class Prices:
    """The price of every model at every endpoint; one that is not known is unknown, never zero."""

    def __init__(self, accounts: AccountsSettings) -> None:
        self.configure(accounts)

    def configure(self, accounts: AccountsSettings) -> None:
        """Go on with other settings."""
        # The last one that matches counts: the first that is found, when asked from the end.
        self._configured = [
            (pattern, _configured(pattern, settings))
            for pattern, settings in reversed(accounts.prices.items())
        ]
        self._listed = accounts.list_prices
        # A model at an endpoint is asked for with every attempt, and found by many patterns.
        self._known: dict[tuple[str, str, str], _Price | None] = {}

    def cost(self, endpoint: str, url: str, model: str, tokens: Tokens, at: float) -> int | None:
        """What tokens cost in whole nano-USD, exact until it is rounded once, halves up; None
        where no price is known.

        ``url`` is the endpoint's, ``model`` its own name for the model, ``at`` in Unix time.
        """
        price = self._price(endpoint, url, model)
        rates = None if price is None else price.rates(at)
        return None if rates is None else rates.cost(tokens)

    def explain(self, endpoint: str, url: str, model: str, at: float) -> str | None:
        """The price in words for people, and where it is from; None where none is known."""
        price = self._price(endpoint, url, model)
        rates = None if price is None else price.rates(at)
        if price is None or rates is None:
            return None
        return f"{rates.words()} ({price.source})"

    def _price(self, endpoint: str, url: str, model: str) -> _Price | None:
        key = (endpoint, url, model)
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            found = self._known[key] = self._find(endpoint, url, model)
            return found

    def _find(self, endpoint: str, url: str, model: str) -> _Price | None:
        there = f"{endpoint}/{model}"
        for pattern, price in self._configured:
            if pattern in {model, there} or fits(model, pattern) or fits(there, pattern):
                return price
        return list_prices.find(url, model) if self._listed else None


def _configured(pattern: str, settings: PriceSettings) -> _Configured:
    if settings.gpu_hour is not None:
        hour = f"{_exact(settings.gpu_hour):,.2f} USD per GPU hour"
        return _Configured(f"{hour}, configured as '{pattern}'", FREE)
    step = PriceStep(
        _usd(settings.input), _usd(settings.output), _usd(settings.cached), _usd(settings.reasoning)
    )
    return _Configured(f"configured as '{pattern}'", Rates([step]))


def _usd(price: float | None) -> Decimal | None:
    return None if price is None else _exact(price)


def _exact(price: float) -> Decimal:
    """The number as it was written: 0.1 is a tenth, not the float next to it."""
    return Decimal(repr(price))
