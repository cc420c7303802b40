"""The life of a translated stream, as one table.

    NEW ──▶ OPENED ──▶ ITEM ◀──▶ BETWEEN ──▶ ENDED
             │           │                     ▲
             └───────────┴─────────────────────┘

NEW      nothing was sent
OPENED   ``response.created`` and ``response.in_progress`` were sent
ITEM     an output item is open: items never overlap
BETWEEN  the last item is done, the next has not begun
ENDED    exactly one of completed, incomplete, failed was sent; nothing follows
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["LEGAL", "IllegalTransition", "StreamState", "advance"]


class StreamState(Enum):
    """Where a stream stands; see the module's table."""

    NEW = "new"
    OPENED = "opened"
    ITEM = "item"
    BETWEEN = "between"
    ENDED = "ended"


LEGAL: Final[dict[StreamState, frozenset[StreamState]]] = {
    StreamState.NEW: frozenset({StreamState.OPENED}),
    StreamState.OPENED: frozenset({StreamState.ITEM, StreamState.ENDED}),
    StreamState.ITEM: frozenset({StreamState.BETWEEN, StreamState.ENDED}),
    StreamState.BETWEEN: frozenset({StreamState.ITEM, StreamState.ENDED}),
    StreamState.ENDED: frozenset(),
}


class IllegalTransition(RuntimeError):
    """The machine was driven where the table has no way: a bug of the router's own."""


def advance(now: StreamState, wanted: StreamState) -> StreamState:
    """Return ``wanted`` when the table allows it from ``now``; raise IllegalTransition."""
    if wanted not in LEGAL[now]:
        raise IllegalTransition(f"{now.value} -> {wanted.value}")
    return wanted
