"""The headers of an answer that one client is told, whoever else is given the same answer."""

from __future__ import annotations

from collections.abc import Mapping

from router.core.exchange import Exchange
from router.core.upstream import REASONING_DROPPED
from router.dialects.dropped import UNSENT, unsent_note

__all__ = ["client_headers"]


def client_headers(exchange: Exchange, notes: Mapping[str, str]) -> dict[str, str]:
    """The headers ``notes`` of an answer, with those that this exchange's own client is told."""
    headers = {**exchange.notes, **notes}
    dropped = exchange.notes.get(REASONING_DROPPED)
    if dropped is not None and REASONING_DROPPED in notes:
        headers[REASONING_DROPPED] = str(int(dropped) + int(notes[REASONING_DROPPED]))
    if exchange.unsent:
        others = headers.get(UNSENT, "")
        headers |= unsent_note([*exchange.unsent, *filter(None, others.split(", "))])
    return headers
