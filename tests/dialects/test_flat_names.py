"""Names of functions for tools that are in groups."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.flat_names import flat_names

NAME = st.text(alphabet="ab_é .", max_size=40)
LONG = st.builds(str.__mul__, NAME, st.integers(1, 4))
TOOLS = st.lists(st.tuples(LONG, LONG), max_size=8)
FIT = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.parametrize(
    ("group", "tool", "name"),
    [
        ("crm", "find", "crm__find"),
        ("mcp__depot", "echo_text", "mcp__depot__echo_text"),
        ("a", "b" * 61, "a__" + "b" * 61),
    ],
)
def test_a_plain_name(group: str, tool: str, name: str) -> None:
    assert flat_names([(group, tool)]) == {(group, tool): name}


@pytest.mark.parametrize(
    ("group", "tool", "begins"),
    [
        ("crm", "find it", "crm__find_it_"),
        ("café", "find", "caf___find_"),
        ("a", "b" * 62, "a__" + "b" * 50 + "_"),
    ],
)
def test_a_name_that_cannot_stay_is_marked(group: str, tool: str, begins: str) -> None:
    name = flat_names([(group, tool)])[group, tool]
    assert name.startswith(begins)
    assert FIT.fullmatch(name)


def test_two_that_would_have_one_name_both_change() -> None:
    names = flat_names([("a__b", "c"), ("a", "b__c")])
    assert len(set(names.values())) == 2
    assert "a__b__c" not in names.values()


def test_a_name_that_is_taken_is_left_alone() -> None:
    name = flat_names([("a", "b")], {"a__b"})["a", "b"]
    assert name != "a__b"
    again = flat_names([("a", "b")], {"a__b", name})["a", "b"]
    assert again not in ("a__b", name)


@given(TOOLS, st.sets(LONG, max_size=4))
def test_names_tell_tools_apart(tools: list[tuple[str, str]], taken: set[str]) -> None:
    names = flat_names(tools, taken)
    assert set(names) == set(tools)
    assert len(set(names.values())) == len(names)
    assert taken.isdisjoint(names.values())
    assert all(map(FIT.fullmatch, names.values()))


@given(TOOLS, st.randoms(use_true_random=False))
def test_names_do_not_depend_on_the_order(tools: list[tuple[str, str]], random: object) -> None:
    shuffled = list(tools)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert flat_names(tools) == flat_names(shuffled)
