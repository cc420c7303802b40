"""Exchanges of which only some things are known."""

from __future__ import annotations

from typing import Any

from router.core.exchange import (
    ClientRequest,
    Exchange,
    ExchangeContext,
    ExchangeResult,
    Operation,
)

__all__ = ["an_exchange", "put"]


def an_exchange(**fields: Any) -> Exchange:
    """A Responses request that has just come in, with these ``fields`` (see ``put``)."""
    request = ClientRequest(
        id="req_1",
        operation=Operation.RESPONSES,
        route="/",
        method="POST",
        headers={},
        remote=None,
        started=0.0,
    )
    return put(Exchange(request, ExchangeContext()), **fields)


def put(exchange: Exchange, **fields: Any) -> Exchange:
    """The exchange with these fields, wherever they are: in its request, context or result."""
    for name, value in fields.items():
        if name in ClientRequest._fields:
            exchange.request = exchange.request._replace(**{name: value})
        elif name in ExchangeContext.__slots__:
            setattr(exchange.context, name, value)
        elif name in ExchangeResult.__slots__:
            setattr(exchange.result, name, value)
        else:
            setattr(exchange, name, value)
    return exchange
