"""Tools that are deferred, searched for, and found: in requests, and in the items of answers."""

from __future__ import annotations

from typing import Any

import pytest

from router.dialects.messages.decode_request import decode_count_request, decode_messages_request
from router.errors import InvalidRequest
from tests.support.anthropic import SCHEMA, TOOL, asked

REGEX = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
BM25 = {"type": "tool_search_tool_bm25", "name": "tool_search_tool_bm25"}


def later(name: str) -> dict[str, Any]:
    return {"name": name, "description": name, "input_schema": SCHEMA, "defer_loading": True}


def function(name: str, description: str | None = None) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": description or name,
        "parameters": SCHEMA,
        "strict": False,
    }


LOOK = function("look", "Looks")


def reference(name: str) -> dict[str, Any]:
    return {"type": "tool_reference", "tool_name": name}


def searched(*names: str, ident: str = "srvtoolu_1") -> list[Any]:
    """A search that the router has run, as its client sends it back."""
    call = {"type": "server_tool_use", "id": ident, "name": "tool_search_tool_regex"}
    found = {
        "type": "tool_search_tool_search_result",
        "tool_references": [reference(name) for name in names],
    }
    result = {"type": "tool_search_tool_result", "tool_use_id": ident, "content": found}
    return [{**call, "input": {"pattern": "x"}}, result]


def searched_by_client(*names: str) -> list[Any]:
    """As Claude Code does it, with a tool of its own."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "x"}}
    content = [reference(name) for name in names]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def tools_of(tools: list[Any], *messages: Any, **fields: Any) -> list[Any]:
    said = [{"role": "user", "content": "Hi"}, *messages]
    found = decode_messages_request(asked(tools=tools, messages=said, **fields))
    assert found.dropped == ()
    made: list[Any] = found.body.get("tools", [])
    return made


def test_deferred_tools_are_only_searched() -> None:
    assert tools_of([REGEX, TOOL, later("a"), later("b")]) == [
        {
            "type": "tool_search_tool_regex",
            "name": "tool_search_tool_regex",
            "deferred": [function("a"), function("b")],
        },
        LOOK,
    ]


def test_both_searches_search_the_same() -> None:
    one, other = tools_of([REGEX, BM25, later("a")])
    assert (one["type"], other["type"]) == ("tool_search_tool_regex", "tool_search_tool_bm25")
    assert one["deferred"] == other["deferred"] == [function("a")]


def test_found_tools_come_last_in_the_order_in_which_they_were_found() -> None:
    answer = {"role": "assistant", "content": [*searched("c", "gone"), *searched("a")]}
    made = tools_of([REGEX, later("a"), later("b"), later("c"), TOOL], answer)
    assert made[0]["deferred"] == [function("b")]
    assert made[1:] == [LOOK, function("c"), function("a")]


def test_tools_that_the_client_has_found() -> None:
    made = tools_of([TOOL, later("a"), later("b")], *searched_by_client("b"))
    assert made == [LOOK, function("b")]
    assert tools_of([TOOL, later("a")]) == [LOOK]


def test_a_tool_that_has_to_be_called_is_there() -> None:
    choice = {"type": "tool", "name": "a"}
    assert tools_of([TOOL, later("a")], tool_choice=choice) == [LOOK, function("a")]


def test_a_search_that_has_to_be_called() -> None:
    choice = {"type": "tool", "name": "tool_search_tool_bm25"}
    found = decode_messages_request(asked(tools=[BM25, later("a")], tool_choice=choice))
    assert found.body["tool_choice"] == {"type": "tool_search_tool_bm25"}


def test_searches_are_calls_and_outputs() -> None:
    said = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "Wait"}, *searched("a", "b")]},
        *searched_by_client("c"),
    ]
    items = decode_messages_request(asked(messages=said)).body["input"]
    assert items[1:] == [
        {"type": "message", "role": "assistant", "content": "Wait"},
        {
            "type": "function_call",
            "call_id": "srvtoolu_1",
            "name": "tool_search_tool_regex",
            "arguments": '{"pattern":"x"}',
        },
        {
            "type": "function_call_output",
            "call_id": "srvtoolu_1",
            "output": "These tools can be called now: a, b.",
        },
        {
            "type": "function_call",
            "call_id": "toolu_1",
            "name": "ToolSearch",
            "arguments": '{"query":"x"}',
        },
        {
            "type": "function_call_output",
            "call_id": "toolu_1",
            "output": "These tools can be called now: c.",
        },
    ]


def test_a_search_that_failed_and_one_that_was_cut_off() -> None:
    call, result = searched()
    error = {"type": "tool_search_tool_result_error", "error_code": "unavailable"}
    cut = {**call, "id": "srvtoolu_2"}
    said = [{"role": "assistant", "content": [call, {**result, "content": error}, cut]}]
    items = decode_messages_request(asked(messages=said)).body["input"]
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert outputs == ["Error: unavailable", "(not finished)"]


def test_counting_counts_the_function_and_what_was_found() -> None:
    answer = {"role": "assistant", "content": searched("a")}
    body = asked(tools=[REGEX, later("a"), later("b")], messages=[answer], max_tokens=...)
    search, found = decode_count_request(body).body["tools"]
    assert (search["type"], search["name"]) == ("function", "tool_search_tool_regex")
    assert list(search["parameters"]["properties"]) == ["pattern"]
    assert "Not loaded: b." in search["description"]
    assert found == function("a")


NAMELESS = searched_by_client("a")
NAMELESS[1]["content"][0]["content"] = [{"type": "tool_reference"}]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tools": [later("a")]}, "tools"),
        ({"tools": [{**later("a"), "defer_loading": 1}]}, "tools.0.defer_loading"),
        (
            {"messages": [{"role": "assistant", "content": [{**searched()[0], "name": "bash"}]}]},
            "messages.0.content.0.name",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{**searched()[1], "content": {"type": "x"}}]}
                ]
            },
            "messages.0.content.0.content.type",
        ),
        (
            {"messages": NAMELESS},
            "messages.1.content.0.content.0.tool_name",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_messages_request(asked(**fields))
    assert refused.value.param == path
