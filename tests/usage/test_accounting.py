"""What a request may cost, wherever it goes."""

from __future__ import annotations

from typing import Any

from router.app import ACCOUNTING
from router.core.usage_record import NANO, Tokens
from tests.support.router import endpoint, routing, settings_for
from tests.support.upstream import Upstream

_MILLION = Tokens(input=1_000_000)


def _prices(**each: float) -> dict[str, Any]:
    """In USD per million tokens of the input, by the endpoint's name."""
    prices = {f"{name}/m": {"input": price, "output": 0.0} for name, price in each.items()}
    return {"accounts": {"prices": prices}}


async def test_it_may_cost_what_the_dearest_endpoint_asks() -> None:
    async with Upstream() as upstream:
        ends = [endpoint(upstream, "chat", name) for name in ("one", "two", "three")]
        async with routing(*ends, **_prices(one=1, two=3)) as router:
            accounting = router.app[ACCOUNTING]
            for _ in range(2):  # the second time it is remembered
                assert accounting.most("m", _MILLION) == 3 * NANO
            accounting.configure(settings_for(*ends, **_prices(one=5)))
            assert accounting.most("m", _MILLION) == 5 * NANO
            accounting.configure(settings_for(*ends))
            assert accounting.most("m", _MILLION) is None
            assert accounting.most("another", _MILLION) is None
