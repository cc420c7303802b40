"""An exchange that is made from another one for the same request."""

from __future__ import annotations

from router.core.exchange import _OF_THE_ANSWER, _OF_THE_REQUEST, Exchange
from router.core.plugin_chain import PluginChain
from router.core.plugin_set import PluginSet
from tests.support.plugin_chain import an_exchange


async def _core(exchange: object, sink: object) -> None:
    raise NotImplementedError


def test_a_derived_exchange_is_for_the_same_request_and_not_answered_yet() -> None:
    exchange = an_exchange()
    for name in Exchange.__slots__:
        setattr(exchange, name, f"the {name}")
    plugin_set = PluginSet(PluginChain(()), _core)
    derived = exchange.derive({"model": "m"}, plugin_set)
    fresh = an_exchange()
    fresh.body, fresh.plugin_set = {"model": "m"}, plugin_set
    for name in _OF_THE_REQUEST:
        assert getattr(derived, name) == f"the {name}"
    for name in _OF_THE_ANSWER:
        assert getattr(derived, name) == getattr(fresh, name), name


def test_every_field_is_either_inherited_or_fresh() -> None:
    assert not {*_OF_THE_REQUEST} & {*_OF_THE_ANSWER}
    assert sorted(Exchange.__slots__) == sorted([*_OF_THE_REQUEST, *_OF_THE_ANSWER])
