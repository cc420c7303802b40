"""The headers of an answer that one client is told, whoever else is given the same answer."""

from __future__ import annotations

from collections.abc import Mapping

from router.core.exchange import Exchange
from router.core.upstream import REASONING_DROPPED
from router.dialects.dropped import DROPPED_PARAMETERS, dropped_header

__all__ = ["client_headers"]


def client_headers(exchange: Exchange, response_headers: Mapping[str, str]) -> dict[str, str]:
    """The headers ``response_headers`` of an answer, with those that this exchange's own client is
    told.
    """
    headers = {**exchange.response_headers, **response_headers}
    reasoning_dropped = exchange.response_headers.get(REASONING_DROPPED)
    if reasoning_dropped is not None and REASONING_DROPPED in response_headers:
        headers[REASONING_DROPPED] = str(
            int(reasoning_dropped) + int(response_headers[REASONING_DROPPED])
        )
    if exchange.dropped:
        others = headers.get(DROPPED_PARAMETERS, "")
        headers |= dropped_header([*exchange.dropped, *filter(None, others.split(", "))])
    return headers
