"""``truncation: auto``: the oldest turns go, so that the rest fits into a model's context."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.history import match
from router.dialects.truncation import fit
from tests.support.reading import FUZZ

Item = dict[str, Any]


def items(text: str) -> list[Item]:
    """Items by their marks: ``u`` user, ``a`` assistant, ``s`` system, ``d`` developer, ``r``
    reasoning, ``cX`` a call of the id X, ``oX`` its output. Each is one token, ``aaa`` is three.
    """
    return [item(mark) for mark in text.split()]


def item(mark: str) -> Item:
    kind, key = mark[0], mark[1:]
    made: dict[str, Item] = {
        "u": {"role": "user"},
        "a": {"type": "message", "role": "assistant"},
        "s": {"type": "message", "role": "system"},
        "d": {"role": "developer"},
        "r": {"type": "reasoning"},
        "c": {"type": "function_call", "call_id": key},
        "o": {"type": "function_call_output", "call_id": key},
    }
    return {**made[kind], "content": mark}


def size(item: Item) -> int:
    mark: str = item["content"]
    return len(mark) if mark == mark[0] * len(mark) else 1


def marks(made: list[Item]) -> str:
    return " ".join(item["content"] for item in made)


def fitted(made: list[Item], budget: int) -> tuple[list[Item], int]:
    return fit(made, budget_tokens=budget, count=size, calls=match(made).calls)


@pytest.mark.parametrize(
    ("given", "budget", "kept"),
    [
        ("u a u a u", 5, "u a u a u"),
        ("u a u a u", 4, "u a u"),
        ("u a u a u", 3, "u a u"),
        ("u a u a u", 2, "u"),
        ("u a u a u", 0, "u"),
        ("u a u a u", -5, "u"),
        ("uuuuuu", 1, "uuuuuu"),
        ("", 0, ""),
        ("a a", 0, "a a"),
        # A turn goes whole, also when less would do.
        ("u a a a a u", 5, "u"),
        ("u aaaa u a u", 7, "u a u"),
        ("u a u aaaa u", 7, "u aaaa u"),
        # What is said to begin with stays.
        ("s d u a u", 3, "s d u"),
        ("s d u a u", 0, "s d u"),
        ("s d", 0, "s d"),
        # What is said right before a question goes and stays with it, elsewhere with its turn.
        ("s u a s u", 2, "s s u"),
        ("u a s d u a u", 5, "s d u a u"),
        ("u a s d u a u", 4, "u"),
        ("u s a u a u", 3, "u a u"),
        ("u c1 s u o1 a u", 5, "u"),
        ("s a u a u", 3, "s u"),
        ("s a u", 2, "s u"),
        # Calls stay with their results.
        ("u r c1 o1 a u", 5, "u"),
        ("u c1 u o1 a u", 5, "u"),
        ("u a u c1 u o1 a", 5, "u c1 u o1 a"),
        ("u a u c1 u o1 a", 3, "u c1 u o1 a"),
        ("u c1 u o1", 1, "u c1 u o1"),
        ("u c1 c2 o2 u o1 u", 1, "u"),
        ("u c1 o1 u o1 u a", 2, "u a"),
        ("u c1 o1 u o1 u a", 4, "u a"),
        # The newest turn may have many calls.
        ("u a u c1 o1 c2 o2", 3, "u c1 o1 c2 o2"),
        # Some number their calls anew.
        ("u c1 o1 u c1 o1 u", 4, "u c1 o1 u"),
        ("u c1 u c1 o1 u", 4, "u c1 o1 u"),
        # What is alone holds nothing together.
        ("u c1 u a u", 3, "u a u"),
        ("u o1 u a u", 3, "u a u"),
    ],
)
def test_what_stays(given: str, budget: int, kept: str) -> None:
    all_items = items(given)
    before = copy.deepcopy(all_items)
    made, dropped = fitted(all_items, budget)
    assert marks(made) == kept
    assert dropped == len(all_items) - len(made)
    assert all_items == before


MARKS = st.sampled_from(
    ["u", "uuu", "a", "aaa", "aaaaa", "s", "d", "r", "c1", "c2", "c3", "o1", "o2", "o3"]
)
LISTS = st.lists(MARKS, max_size=20).map(lambda made: [item(mark) for mark in made])


@FUZZ
@given(LISTS, st.integers(-1, 30))
def test_whole_turns_and_no_more_than_needed(given: list[Item], budget: int) -> None:
    kept, dropped = fitted(given, budget)
    head = 0
    while head < len(given) and given[head].get("role") in ("system", "developer"):
        head += 1
    # One piece is gone, right after the leading instructions, up to the beginning of a turn.
    assert kept == [*given[:head], *given[head + dropped :]]
    if dropped:
        assert head + dropped in _cuts(given, head + 1)
    newest = [place for place, item in enumerate(given) if item.get("role") == "user"]
    assert not newest or head + dropped <= newest[-1]
    # No output lost its call.
    for output, call in match(given).calls.items():
        assert (call < head + dropped) == (output < head + dropped)
    if sum(map(size, kept)) > budget:
        assert not list(_cuts(given, head + dropped + 1))
    elif dropped:
        for cut in (head, *_cuts(given, head + 1)):
            if cut < head + dropped:
                assert sum(map(size, given[:head] + given[cut:])) > budget


def _cuts(given: list[Item], start: int) -> list[int]:
    """Where a turn begins that shares no call with what is before it."""
    pairs = match(given).calls.items()
    roles = [item.get("role") for item in given]
    said = [place for place in range(len(given)) if roles[place] not in ("system", "developer")]
    return [
        place
        for place in range(start, len(given))
        if place - 1 in said  # else its instructions began before
        and next((roles[follower] for follower in said if follower >= place), None) == "user"
        and not any(call < place <= output for output, call in pairs)
    ]
