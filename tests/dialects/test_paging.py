"""Pages of a list, and the queries that ask for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import MultiDict

from router.dialects.paging import Page, listing, page_of, parse_include, parse_page
from router.errors import InvalidRequest


def items(count: int) -> list[dict[str, Any]]:
    return [{"id": f"msg_{i}", "n": i} for i in range(count)]


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ({}, Page(20, True, None)),
        ({"limit": "1"}, Page(1, True, None)),
        ({"limit": "100", "order": "asc"}, Page(100, False, None)),
        ({"order": "desc", "after": "msg_1"}, Page(20, True, "msg_1")),
        ({"after": ""}, Page(20, True, None)),
        ({"before": "msg_1", "include": "x"}, Page(20, True, None)),
    ],
)
def test_queries(query: dict[str, str], page: Page) -> None:
    assert parse_page(query) == page


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ({"limit": "0"}, "integer_below_min_value", "limit"),
        ({"limit": "-1"}, "integer_below_min_value", "limit"),
        ({"limit": "101"}, "integer_above_max_value", "limit"),
        ({"limit": "9" * 10_000}, "integer_above_max_value", "limit"),
        ({"limit": "ten"}, "invalid_type", "limit"),
        ({"limit": "1.0"}, "invalid_type", "limit"),
        ({"limit": ""}, "invalid_type", "limit"),
        ({"order": "up"}, "invalid_value", "order"),
        ({"order": "ASC"}, "invalid_value", "order"),
        ({"order": ""}, "invalid_value", "order"),
        ({"limit": "0", "order": "up"}, "integer_below_min_value", "limit"),
    ],
)
def test_bad_queries(query: dict[str, str], code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_page(query)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert len(caught.value.message) < 200


def test_the_message_is_openais() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_page({"limit": "1000"})
    assert caught.value.message == (
        "Invalid 'limit': integer above maximum value. Expected a value <= 100, but got 1000 "
        "instead."
    )


@pytest.mark.parametrize(
    ("pairs", "names"),
    [
        ([], set()),
        ([("include", "a")], {"a"}),
        ([("include[]", "a"), ("include[]", "b")], {"a", "b"}),
        ([("include", "a, b,,a"), ("include[]", "c")], {"a", "b", "c"}),
        ([("include", ""), ("limit", "5"), ("included", "a")], set()),
    ],
)
def test_includes(pairs: list[tuple[str, str]], names: set[str]) -> None:
    assert parse_include(MultiDict(pairs)) == names


def test_an_empty_list_keeps_its_keys() -> None:
    assert listing([], False) == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


def test_a_list_names_its_ends() -> None:
    page = listing(items(3), True)
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("msg_0", "msg_2", True)


@pytest.mark.parametrize("descending", [False, True])
def test_an_unknown_beginning_is_refused(descending: bool) -> None:
    with pytest.raises(InvalidRequest) as caught:
        page_of(items(3), Page(20, descending, "msg_" + "9" * 1000))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "after")
    assert len(caught.value.message) < 200


@given(st.integers(0, 12), st.integers(1, 5), st.booleans())
def test_pages_in_sequence_are_the_whole_list(count: int, limit: int, descending: bool) -> None:
    whole = items(count)
    walked: list[dict[str, Any]] = []
    after: str | None = None
    more = True
    while more:
        data, more = page_of(whole, Page(limit, descending, after))
        assert len(data) == limit if more else len(data) <= limit
        assert data or not count  # "more" was a promise
        walked += data
        after = data[-1]["id"] if data else after
    assert walked == (whole[::-1] if descending else whole)


@given(st.integers(1, 8), st.data())
def test_after_the_last_there_is_nothing(count: int, data: st.DataObject) -> None:
    descending = data.draw(st.booleans())
    last = "msg_0" if descending else f"msg_{count - 1}"
    assert page_of(items(count), Page(20, descending, last)) == ([], False)
