"""Requests that might have passed to an endpoint as they came, and are translated after all."""

from __future__ import annotations

from router.core.exchange import Exchange
from router.core.native_request import NativeRequest
from router.core.upstream import REASONING_DROPPED
from router.dialects.dropped import refuse_dropped

__all__ = ["translated"]


def translated(
    exchange: Exchange, native: NativeRequest, headers: dict[str, str], *, strict: bool
) -> None:
    """Whoever answers it is asked for what can be translated, and ``headers`` tell what is lost.

    Raises InvalidRequest where that is not enough: nothing can be, or nothing may be lost
    (``strict``).
    """
    if native.refused is not None:
        raise native.refused
    if strict:
        refuse_dropped(exchange.dropped, {})
    if native.dropped_reasoning:
        lost = native.dropped_reasoning + int(headers.get(REASONING_DROPPED, 0))
        headers[REASONING_DROPPED] = str(lost)
