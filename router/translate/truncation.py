"""``truncation: auto``: the oldest turns go, so that the rest fits into a model's context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from router.translate.history import match
from router.wire.input_items import item_type

__all__ = ["fit"]

Item = dict[str, Any]


def fit(
    items: list[Item], *, budget_tokens: int, count: Callable[[Item], int]
) -> tuple[list[Item], int]:
    """The items without as many of the oldest turns as it takes, and how many items are dropped.

    A turn begins with a user message and goes on until the next one; turns that share a call and
    its output are one. System and developer messages at the beginning stay, and so does the
    newest turn, whatever its size. ``count`` tells the tokens of an item.
    """
    sizes = [count(item) for item in items]
    total = sum(sizes)
    if total <= budget_tokens:
        return items, 0
    head = _leading_instructions(items)
    cut = head
    for start in _turns(items):
        total -= sum(sizes[cut:start])
        cut = start
        if total <= budget_tokens:
            break
    return [*items[:head], *items[cut:]], cut - head


def _leading_instructions(items: Sequence[Item]) -> int:
    """How many system and developer messages stand at the beginning."""
    for place, item in enumerate(items):
        if item_type(item) != "message" or item["role"] not in ("system", "developer"):
            return place
    return len(items)


def _turns(items: Sequence[Item]) -> list[int]:
    """Where turns begin that share no call with what comes before them."""
    # Outputs come in their order: the last one of a call stands.
    ends = {call: output for output, call in match(items).calls.items()}
    needed = 0  # up to here something belongs to a call that came before
    starts = []
    for place, item in enumerate(items):
        if place > needed and _is_question(item):
            starts.append(place)
        needed = max(needed, ends.get(place, 0))
    return starts


def _is_question(item: Item) -> bool:
    return bool(item_type(item) == "message" and item["role"] == "user")
