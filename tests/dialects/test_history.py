"""History as endpoints accept it: every tool call with its output, every output with its call."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.history import consistent, match
from tests.support.reading import FUZZ

Item = dict[str, Any]


def items(text: str) -> list[Item]:
    """Items by their marks: ``u`` user, ``a`` assistant, ``s`` system, ``r`` reasoning, ``w`` a
    web search, ``cX`` a call of the id X, ``oX`` its output.
    """
    return [item(mark) for mark in text.split()]


def item(mark: str) -> Item:
    kind, key = mark[0], mark[1:]
    made: dict[str, Item] = {
        "u": {"role": "user", "content": "x"},
        "a": {"type": "message", "role": "assistant", "content": "x"},
        "s": {"type": "message", "role": "system", "content": "x"},
        "r": {"type": "reasoning", "summary": []},
        "w": {"type": "web_search_call", "status": "completed"},
        "c": {"type": "function_call", "call_id": key, "name": "f", "arguments": "{}"},
        "o": {"type": "function_call_output", "call_id": key, "output": "x"},
    }
    return {**made[kind], "id": f"{mark}"}


def marks(made: Iterable[Item]) -> str:
    return " ".join(item["id"] for item in made)


@pytest.mark.parametrize(
    ("history", "new", "kept"),
    [
        # Nothing to be done.
        ("", "u", ""),
        ("u a", "u", "u a"),
        ("u r c1 o1 a", "u", "u r c1 o1 a"),
        ("u r c1 c2 o2 o1 a", "u", "u r c1 c2 o2 o1 a"),
        ("u c1 u o1 a", "u", "u c1 u o1 a"),
        ("u w a", "u", "u w a"),
        # The last calls may be pending.
        ("u r c1", "o1", "u r c1"),
        ("u r c1 c2", "o2 u o1", "u r c1 c2"),
        ("u r c1 a", "", "u r c1 a"),
        ("u c1 o1 r c2", "", "u c1 o1 r c2"),
        # The turn with the call is gone.
        ("u o1 a", "u", "u a"),
        ("o1 o2", "o3", ""),
        ("u o1 c1", "o1", "u c1"),
        # The turn with the output is gone.
        ("u a c1 u a", "u", "u a u a"),
        ("u a c1", "u", "u a"),
        ("u a c1 u", "", "u a u"),
        ("u c1 c2 o1", "u", "u c1 o1"),
        ("u c1 c2", "o2", "u c2"),
        # Reasoning goes with what it led to, if it led to nothing else.
        ("u r c1 u", "u", "u u"),
        ("u r c1", "u", "u"),
        ("u r r c1 c2 u", "u", "u u"),
        ("u r c1 c2 o2 a", "u", "u r c2 o2 a"),
        ("u r c1 a u", "u", "u r a u"),
        ("u r c1 w u", "u", "u r w u"),
        ("u r c1 r c2 o2", "u", "u r c2 o2"),
        ("u r c2 c1 o2", "u", "u r c2 o2"),
        ("u r u c1 u", "u", "u r u u"),
        ("u a r c1 u", "u", "u a u"),
        ("u r o1 u", "u", "u r u"),
        # An id may occur again.
        ("u c1 o1 u c1 o1 a", "u", "u c1 o1 u c1 o1 a"),
        ("u c1 c1 o1 o1", "u", "u c1 c1 o1 o1"),
        ("u c1 o1 o1", "u", "u c1 o1 o1"),
        ("u c1 u c1", "o1", "u u c1"),
        ("u c1 u c1 o1", "u", "u u c1 o1"),
        ("u c1 u c1 u", "u", "u u u"),
    ],
)
def test_what_stays(history: str, new: str, kept: str) -> None:
    given = items(history)
    before = copy.deepcopy(given)
    made = consistent(given, items(new))
    assert marks(made) == kept
    assert given == before
    assert (made is given) == (history == kept)


def test_the_first_of_two_calls_of_an_id_goes_when_it_was_never_answered() -> None:
    first, second = {**item("c1"), "id": "first"}, {**item("c1"), "id": "second"}
    history = [item("u"), first, item("u"), second, item("o1")]
    assert marks(consistent(history, items("u"))) == "u u second o1"


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ({"type": "custom_tool_call", "call_id": "1"}, {"call_id": "1"}),
        ({"type": "local_shell_call", "call_id": "1"}, {"call_id": "1"}),
        ({"type": "local_shell_call", "call_id": "1"}, {"id": "1"}),
        ({"type": "shell_call", "call_id": "1"}, {"call_id": "1"}),
        ({"type": "computer_call", "call_id": "1"}, {"call_id": "1"}),
        ({"type": "apply_patch_call", "call_id": "1"}, {"call_id": "1"}),
        (
            {"type": "tool_search_call", "call_id": "1"},
            {"type": "tool_search_output", "call_id": "1"},
        ),
        (
            {"type": "mcp_approval_request", "id": "1"},
            {"type": "mcp_approval_response", "approval_request_id": "1"},
        ),
    ],
)
def test_every_kind_of_call(call: Item, output: Item) -> None:
    output = {"type": f"{call['type']}_output", **output}
    user = item("u")
    whole = [user, call, output, user]
    assert consistent(whole, [user]) is whole
    assert consistent([user, call, user], [user]) == [user, user]
    assert consistent([user, output, user], [user]) == [user, user]
    pending = [user, call]
    assert consistent(pending, [output]) is pending


@pytest.mark.parametrize("key", [None, 5, ["1"]])
@pytest.mark.parametrize("kind", ["tool_search_call", "tool_search_output"])
def test_what_names_no_call_stays(kind: str, key: Any) -> None:
    history = [item("u"), {"type": kind, "call_id": key}, item("u")]
    assert consistent(history, items("u")) is history


MARKS = st.sampled_from(["u", "a", "s", "r", "w", "c1", "c2", "c3", "o1", "o2", "o3"])
LISTS = st.lists(MARKS, max_size=14).map(lambda made: [item(mark) for mark in made])


@FUZZ
@given(LISTS, LISTS.filter(bool))
def test_nothing_is_alone(history: list[Item], new: list[Item]) -> None:
    kept = consistent(history, new)
    found = match([*kept, *new])
    assert not [place for place in (found.orphans | found.unanswered) if place < len(kept)]
    assert all(call < output for output, call in found.calls.items())
    assert consistent(kept, new) is kept


@FUZZ
@given(LISTS, LISTS)
def test_nothing_else_is_dropped(history: list[Item], new: list[Item]) -> None:
    """What stays is in order; what was answered, and all that is no call, output or reasoning."""
    kept = consistent(history, new)
    place = {id(item): i for i, item in enumerate(history)}
    places = [place[id(item)] for item in kept]
    assert places == sorted(places)
    found = match([*history, *new])
    gone = set(range(len(history))) - set(places)
    alone = found.orphans | found.unanswered
    for index in gone - alone:
        assert history[index]["type"] == "reasoning"
        rest = [i for i in range(index + 1, len(history)) if history[i].get("type") != "reasoning"]
        assert rest
        assert rest[0] in gone & found.unanswered


@FUZZ
@given(LISTS, LISTS)
def test_reasoning_stays_with_what_it_led_to(history: list[Item], new: list[Item]) -> None:
    """No reasoning loses what came right after it, unless something of the same answer is left."""
    kept = consistent(history, new)
    stayed = {id(item) for item in kept}
    for index, thought in enumerate(history[:-1]):
        after = history[index + 1]
        if thought.get("type") != "reasoning" or after.get("type") != "function_call":
            continue
        if id(thought) in stayed and id(after) not in stayed:
            following = kept[[id(item) for item in kept].index(id(thought)) + 1]
            assert following["id"][0] in "awc"
