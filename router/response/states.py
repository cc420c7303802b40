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

__all__ = ["LEGAL", "IllegalTransition", "State", "advance"]


class State(Enum):
    """Where a stream stands; see the module's table."""

    NEW = "new"
    OPENED = "opened"
    ITEM = "item"
    BETWEEN = "between"
    ENDED = "ended"


LEGAL: Final[dict[State, frozenset[State]]] = {
    State.NEW: frozenset({State.OPENED}),
    State.OPENED: frozenset({State.ITEM, State.ENDED}),
    State.ITEM: frozenset({State.BETWEEN, State.ENDED}),
    State.BETWEEN: frozenset({State.ITEM, State.ENDED}),
    State.ENDED: frozenset(),
}


class IllegalTransition(RuntimeError):
    """The machine was driven where the table has no way: a bug of the router's own."""


def advance(now: State, wanted: State) -> State:
    """Return ``wanted`` when the table allows it from ``now``; raise IllegalTransition."""
    if wanted not in LEGAL[now]:
        raise IllegalTransition(f"{now.value} -> {wanted.value}")
    return wanted
