"""The list prices of the package ``genai-prices``, as it was installed.

It comes with its prices and could fetch newer ones: nothing here starts that, nor looks at what
something else fetched. The prices of one installation are always the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final
from urllib.parse import urlsplit

from genai_prices.data import providers
from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

from router.usage.rates import FREE, PriceStep, Rates

__all__ = ["ListPrice", "find"]

_Listed = Decimal | TieredPrices | None

_CUSTOMERS: Final = frozenset({"modal"})
"""Providers whose addresses are those of their customers' own servers as well."""

_NAMES: Final = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "written": "cache_write_mtok",
    "reasoning": "output_reasoning_mtok",
}


class ListPrice:
    """What a provider asks for a model, which may change in time and with the time of the day."""

    __slots__ = ("_known", "_model", "source")

    def __init__(self, provider: Provider, model: ModelInfo) -> None:
        self.source = f"list price of {provider.name}"
        self._model = model
        self._known: dict[int, Rates | None] = {}  # by the identity of what the model keeps

    def rates(self, at: float) -> Rates | None:
        """The prices at this Unix time; None where there are none."""
        prices = self._model.prices
        if not isinstance(prices, ModelPrice):
            prices = self._model.get_prices(datetime.fromtimestamp(at, UTC))
        try:
            return self._known[id(prices)]
        except KeyError:
            rates = self._known[id(prices)] = _rates(self._model, prices)
            return rates


def find(url: str, model: str) -> ListPrice | None:
    """The price of a model at the provider whose API is at ``url``; None where nobody has listed
    one. A host of one's own has none, whatever its models are called.
    """
    provider = _provider(url)
    if provider is None:
        return None
    found = provider.find_model(model, all_providers=providers)
    return None if found is None else ListPrice(provider, found)


def _provider(url: str) -> Provider | None:
    parts = urlsplit(url)
    host = parts.hostname
    if parts.scheme != "https" or not host or parts.port not in {None, 443}:
        return None
    # The patterns are written to find a provider's name at the beginning of a URL. The name of a
    # host that only begins like it, or a path that has it, must not be taken for it.
    plain = f"https://{host}{parts.path.replace('.', '')}"
    end = len("https://") + len(host)
    for provider in providers:
        match = re.match(provider.api_pattern, plain)
        if match is not None and (match.end() >= end or match.group().endswith(".")):
            return None if provider.id in _CUSTOMERS else provider
    return None


def _rates(model: ModelInfo, prices: ModelPrice) -> Rates | None:
    """None where neither input nor output has a price: an empty list means a free model, one that
    is no longer sold, or one whose price nobody wrote down. Only the first is known by its name.
    """
    listed = {name: _price(prices, key) for name, key in _NAMES.items()}
    if listed["input"] is None and listed["output"] is None:
        return FREE if model.id.endswith(":free") else None
    starts = {0}
    for price in listed.values():
        if isinstance(price, TieredPrices):
            starts.update(tier.start for tier in price.tiers)
    request = (_at(_price(prices, "requests_kcount"), 0) or Decimal(0)) / 1000
    return Rates([_step(listed, start, request) for start in sorted(starts)])


def _step(listed: Mapping[str, _Listed], start: int, request: Decimal) -> PriceStep:
    prices = {name: _at(price, start) for name, price in listed.items()}
    return PriceStep(above=start, request=request, **prices)


def _price(prices: ModelPrice, key: str) -> _Listed:
    price: _Listed = getattr(prices, key)
    return price


def _at(price: _Listed, start: int) -> Decimal | None:
    """The price for a request of more than ``start`` input tokens."""
    if not isinstance(price, TieredPrices):
        return price
    found = price.base
    for tier in price.tiers:
        if tier.start <= start:
            found = tier.price
    return found
