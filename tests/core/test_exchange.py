"""An exchange, and one that is made from it for the same request."""

from __future__ import annotations

import pytest

from router.core.exchange import Exchange, ExchangeContext, ExchangeResult, Outcome
from router.core.plugin_chain import PluginChain, PluginSet
from router.errors import Overloaded
from tests.support.exchanges import an_exchange

INHERITED = {"_decoded", "files", "images", "large", "model", "stream"}
"""What of an exchange itself is true of every one that is made for the same request."""


async def _core(exchange: object, sink: object) -> None:
    raise NotImplementedError


def test_a_derived_exchange_is_for_the_same_request_and_not_answered_yet() -> None:
    exchange = an_exchange()
    others = set(Exchange.__slots__) - {"request", "context", "result"}
    for name in others:
        setattr(exchange, name, f"the {name}")
    for name in ExchangeContext.__slots__:
        setattr(exchange.context, name, f"the {name}")
    for name in ExchangeResult.__slots__:
        setattr(exchange.result, name, f"the {name}")
    plugin_set = PluginSet(PluginChain(()), _core)
    derived = exchange.derive({"model": "m"}, plugin_set)
    fresh = an_exchange()
    assert derived.request is exchange.request
    for name in set(ExchangeContext.__slots__) - {"plugin_set"}:
        assert getattr(derived.context, name) == f"the {name}"
    assert derived.context.plugin_set is plugin_set
    assert exchange.context.plugin_set != plugin_set
    for name in ExchangeResult.__slots__:
        assert getattr(derived.result, name) == getattr(fresh.result, name), name
    for name in others - {"body"}:
        expected = f"the {name}" if name in INHERITED else getattr(fresh, name)
        assert getattr(derived, name) == expected, name


def test_what_came_in_does_not_change() -> None:
    exchange = an_exchange()
    with pytest.raises(AttributeError):
        exchange.request.route = "/"  # type: ignore[misc]


def test_a_result_is_an_error() -> None:
    result = ExchangeResult()
    result.set_error(Overloaded("full"))
    assert (result.status, result.error_code) == (503, Overloaded("full").code)


@pytest.mark.parametrize("leads", [False, True])
def test_a_result_is_shared(leads: bool) -> None:
    theirs, mine = ExchangeResult(), ExchangeResult()
    theirs.account, theirs.endpoint, theirs.attempts = "acc", "one", 2
    theirs.fail("server_error")
    mine.take_over(theirs, leads=leads)
    assert (mine.account, mine.outcome, mine.error_code) == ("acc", Outcome.FAILED, "server_error")
    assert (mine.endpoint, mine.attempts) == (("one", 2) if leads else (None, 0))


def test_what_a_shared_call_cost_counts_for_who_pays_it() -> None:
    theirs, mine = ExchangeResult(), ExchangeResult()
    theirs.usage, theirs.queue_seconds = {"output_tokens": 3}, 0.5
    mine.take_costs(theirs)
    assert (mine.usage, mine.spent, mine.queue_seconds) == ({"output_tokens": 3}, None, 0.5)
