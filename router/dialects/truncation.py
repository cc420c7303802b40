"""``truncation: auto``: the oldest turns go, so that the rest fits into a model's context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from router.dialects.responses.input_items import item_type
from router.dialects.system_messages import SYSTEM_ROLES

__all__ = ["fit"]

Item = dict[str, Any]


def fit(
    items: list[Item],
    *,
    budget_tokens: int,
    count: Callable[[Item], int],
    calls: Mapping[int, int],
) -> tuple[list[Item], int]:
    """The items of a response, or messages of a chat, without as many of the oldest turns as it
    takes, and how many of them are dropped.

    A turn begins with a user message, or the system and developer messages right before it, and
    goes on until the next one; turns that share a call and its output are one. System and developer
    messages at the beginning stay, and so does the newest turn, whatever its size. ``count`` tells
    the tokens of an item, ``calls`` the place of the call for that of its output
    (``Matches.calls``).
    """
    sizes = [count(item) for item in items]
    total = sum(sizes)
    if total <= budget_tokens:
        return items, 0
    head = _leading_instructions(items)
    cut = head
    for start in _turns(items, head, calls):
        total -= sum(sizes[cut:start])
        cut = start
        if total <= budget_tokens:
            break
    return [*items[:head], *items[cut:]], cut - head


def _leading_instructions(items: Sequence[Item]) -> int:
    """How many system and developer messages stand at the beginning."""
    for place, item in enumerate(items):
        if _role(item) not in SYSTEM_ROLES:
            return place
    return len(items)


def _turns(items: Sequence[Item], head: int, calls: Mapping[int, int]) -> list[int]:
    """Where turns begin, after the first ``head`` items, that share no call with what comes before
    them.
    """
    # Outputs come in their order: the last one of a call stands.
    ends = {call: output for output, call in calls.items()}
    needed = head  # up to here something stays, or belongs to a call that came before
    starts = []
    begun: int | None = None  # where the instructions begin that the next message may follow
    for place in range(head, len(items)):
        role = _role(items[place])
        if role in SYSTEM_ROLES:
            begun = place if begun is None else begun
            continue
        start = place if begun is None else begun
        if start > needed and role == "user":
            starts.append(start)
        begun = None
        needed = max(needed, ends.get(place, 0))
    return starts


def _role(item: Item) -> str | None:
    """The role of a message, which in a chat may be whatever a client sent; None for others."""
    role = item.get("role") if item_type(item) == "message" else None
    return role if isinstance(role, str) else None
