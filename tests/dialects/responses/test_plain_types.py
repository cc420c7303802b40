"""Requests without types that an endpoint refuses, and the answers to them."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.responses.plain_types import (
    PlainTypesDecoder,
    groups_of_types,
    without_types,
)
from router.dialects.responses.schema import validate_create
from router.errors import UpstreamFailure
from router.response.call_items import ToolName
from tests.support.codex import second_turn
from tests.support.native import ACCOUNT, answer, call, message
from tests.support.order import check_order
from tests.support.reading import decoded, make_builder, read_all

Item = dict[str, Any]

FUNCTION: Item = {"type": "function", "name": "f", "parameters": {}, "strict": False}
CUSTOM: Item = {"type": "custom", "name": "c", "description": "Custom."}
SEARCH: Item = {"type": "web_search"}
GROUP: Item = {"type": "namespace", "name": "n", "tools": [FUNCTION, CUSTOM]}


def request(*tools: Item, **more: Any) -> Item:
    body = {"model": "m", "input": "hi", "tools": list(tools), **more}
    validate_create(body)
    return body


def test_types_that_came_together_go_together() -> None:
    assert groups_of_types({"tool_search", "phase", "custom_tool_call", "web_search"}) == {
        "namespace", "custom", "web_search"
    }  # fmt: skip


def test_nothing_of_the_request_is_changed() -> None:
    body = second_turn()
    before = copy.deepcopy(body)
    without_types(body, {"namespace", "custom", "web_search"})
    assert body == before


def test_groups_alone() -> None:
    plain = without_types(request(GROUP, SEARCH), {"namespace"})
    assert [(tool["type"], tool.get("name")) for tool in plain.body["tools"]] == [
        ("function", "n__f"), ("custom", "n__c"), ("web_search", None)
    ]  # fmt: skip
    assert not plain.dropped
    assert plain.names == {
        "n__f": ToolName("function", "f", "n"),
        "n__c": ToolName("custom", "c", "n"),
    }


def test_custom_tools_alone() -> None:
    items = [
        {"type": "custom_tool_call", "call_id": "1", "name": "c", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "y"},
    ]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "c"}]}
    plain = without_types(request(CUSTOM, input=items, tool_choice=choice), {"custom"})
    [tool] = plain.body["tools"]
    assert (tool["type"], tool["description"]) == ("function", "Custom.")
    assert plain.names == {"c": ToolName("custom", "c")}
    call, output = plain.body["input"]
    assert (call["type"], call["arguments"]) == ("function_call", '{"input":"x"}')
    assert output["type"] == "function_call_output"
    assert plain.body["tool_choice"]["tools"] == [{"type": "function", "name": "c"}]


@pytest.mark.parametrize(
    ("tools", "choice", "left"),
    [
        ([SEARCH], "required", None),
        ([SEARCH, FUNCTION], "required", "required"),
        ([SEARCH, FUNCTION], {"type": "web_search"}, None),
        (
            [SEARCH, FUNCTION],
            {"type": "allowed_tools", "mode": "required", "tools": [SEARCH]},
            "none",
        ),
        (
            [SEARCH, FUNCTION],
            {"type": "allowed_tools", "mode": "auto", "tools": [SEARCH, FUNCTION]},
            {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]},
        ),
    ],
)
def test_hosted_tools_are_dropped(tools: list[Item], choice: Any, left: Any) -> None:
    plain = without_types(request(*tools, tool_choice=choice), {"web_search"})
    assert plain.dropped == ("web_search",)
    assert plain.body.get("tools") == (tools[1:] or None)
    assert plain.body.get("tool_choice") == left


NAMES = {
    "n__f": ToolName("function", "f", "n"),
    "c": ToolName("custom", "c"),
    "tool_search": ToolName("tool_search", "tool_search"),
}
STREAM = answer(
    message("Hi"),
    call("n__f", '{"a":1}'),
    call("c", '{"input":"x"}'),
    call("tool_search", '{"query":"q"}'),
    call("other", "{}"),
)


def decoder() -> PlainTypesDecoder:
    return PlainTypesDecoder(NAMES, make_builder(), ACCOUNT, str)


@given(st.lists(st.integers(0, len(STREAM)), max_size=20).map(sorted))
def test_a_stream_cut_anywhere(cuts: list[int]) -> None:
    edges = [0, *cuts, len(STREAM)]
    reads = [STREAM[one:two] for one, two in itertools.pairwise(edges)]
    final = check_order(decoded(read_all(decoder(), reads)))
    assert [item["type"] for item in final["output"]] == [
        "message", "function_call", "custom_tool_call", "tool_search_call", "function_call"
    ]  # fmt: skip
    assert [item.get("namespace") for item in final["output"]] == [None, "n", None, None, None]
    assert len({item["id"] for item in final["output"]}) == 5


@pytest.mark.parametrize("share", range(1, 20))
def test_a_stream_that_breaks_off(share: int) -> None:
    """What has been told stays told, and the order is that of any stream."""
    reading = decoder()
    frames = reading.feed(STREAM[: len(STREAM) * share // 20])
    frames += reading.fail(UpstreamFailure("It broke."))
    final = check_order(decoded(frames))
    assert final["status"] == "failed"
    assert {item["name"] for item in final["output"] if "name" in item} <= {"f", "c", "other"}
