"""What ``pointsman check`` says of prices."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from router.cli.terminal import printable

if TYPE_CHECKING:
    from router.settings.schema import EndpointSettings, Settings

__all__ = ["costs"]

_SHOWN: Final = 8


def costs(settings: Settings, endpoint: EndpointSettings, served: Sequence[str]) -> Iterator[str]:
    """What models of an endpoint cost, some of them, and which have no price that is known."""
    from router.endpoints.catalogue import Catalogue
    from router.usage.recorder import Prices

    prices, now = Prices(settings.accounts), time.time()
    catalogue = Catalogue(endpoint)
    catalogue.update(served)
    known, unknown = [], []
    for name in dict.fromkeys(catalogue.resolve(one) or one for one in catalogue.public_names()):
        price = prices.explain(endpoint.name, endpoint.url, name, now)
        if price is None:
            unknown.append(printable(name))
        else:
            known.append(f"  costs      {printable(name)}: {printable(price)}")
    yield from known[:_SHOWN]
    if unknown:
        more = len(unknown) - _SHOWN
        yield f"  NO PRICE   {', '.join(unknown[:_SHOWN])}{f' and {more} more' if more > 0 else ''}"
