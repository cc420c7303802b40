"""Requests without groups of tools, and what their functions stand for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.chat.encode_request import custom_tool_names, plan_tools
from router.dialects.chat.messages import to_messages
from router.dialects.responses.namespaces import GROUPED_ITEMS, flatten
from router.dialects.responses.schema import validate_create
from router.response.call_items import ToolName
from router.response.output import OutputBuilder
from tests.support.reading import make_builder

Item = dict[str, Any]

CLIENT_SEARCH: Item = {"type": "tool_search", "execution": "client"}


def function(name: str, **more: Any) -> Item:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    return {"type": "function", "name": name, "parameters": parameters, "strict": False, **more}


def namespace(name: str, *tools: Item, description: str = "") -> Item:
    return {"type": "namespace", "name": name, "description": description, "tools": list(tools)}


def request(*tools: Item, **more: Any) -> Item:
    body = {"model": "m", "input": "hi", "tools": list(tools), **more}
    validate_create(body)
    return body


def names(body: Item) -> list[str]:
    return [tool.get("name", tool["type"]) for tool in flatten(body).body.get("tools", [])]


def test_a_namespace_is_its_tools_in_its_place() -> None:
    body = request(
        function("a"),
        namespace("n", function("b"), {"type": "custom", "name": "c"}),
        {"type": "web_search"},
        function("d"),
    )
    before = copy.deepcopy(body)
    flat = flatten(body)
    assert body == before
    assert names(body) == ["a", "n__b", "n__c", "web_search", "d"]
    assert flat.names == {
        "n__b": ToolName("function", "b", "n"),
        "n__c": ToolName("custom", "c", "n"),
    }
    assert custom_tool_names(flat.body) == {"n__c"}


def test_what_is_said_of_a_namespace_is_said_by_its_first_tool() -> None:
    said = namespace("n", function("b", description="B."), function("c"), description="Of n.")
    unsaid = namespace(
        "o", function("b", description="B."), description="Tools in the o namespace."
    )
    tools = flatten(request(said, unsaid)).body["tools"]
    assert [tool.get("description") for tool in tools] == [
        "Of all tools in n: Of n.\n\nB.",
        None,
        "B.",
    ]


def test_a_plain_function_keeps_its_name() -> None:
    body = request(function("n__b"), namespace("n", function("b")))
    plain, grouped = names(body)
    assert plain == "n__b"
    assert grouped.startswith("n__b_")
    assert flatten(body).names == {grouped: ToolName("function", "b", "n")}


def test_tools_come_with_the_input() -> None:
    brought = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [namespace("n", function("b"))],
    }
    question = {"type": "message", "role": "user", "content": "hi"}
    body = request(function("a"), input=[brought, question])
    assert names(body) == ["a", "n__b"]
    assert to_messages(flatten(body).body) == [{"role": "user", "content": "hi"}]
    del body["tools"]
    assert names(body) == ["n__b"]


def test_the_last_definition_of_a_tool_counts() -> None:
    newer = {"type": "additional_tools", "tools": [function("a", description="newer")]}
    body = request(function("a", description="older"), function("b"), input=[newer])
    tools = flatten(body).body["tools"]
    assert [(tool["name"], tool.get("description")) for tool in tools] == [
        ("a", "newer"),
        ("b", None),
    ]


def search_call(call_id: str | None, **more: Any) -> Item:
    arguments = {"query": "b"}
    return {"type": "tool_search_call", "call_id": call_id, "arguments": arguments, **more}


def search_output(call_id: str | None, *tools: Item, **more: Any) -> Item:
    return {"type": "tool_search_output", "call_id": call_id, "tools": list(tools), **more}


def test_deferred_tools_are_offered_once_found() -> None:
    deferred = namespace("n", function("b", defer_loading=True), function("c", defer_loading=True))
    body = request(deferred, function("d", defer_loading=True), CLIENT_SEARCH)
    assert names(body) == ["tool_search"]
    found = namespace("n", function("b", defer_loading=True))
    body["input"] = [search_call("call_1"), search_output("call_1", found)]
    assert names(body) == ["n__b", "tool_search"]
    assert "defer_loading" not in flatten(body).body["tools"][0]


def test_what_a_client_found_need_not_have_been_in_the_request() -> None:
    found = namespace("mcp__depot", function("echo", defer_loading=True, description="Echo\n it."))
    body = request(
        CLIENT_SEARCH | {"description": "Find.", "parameters": {"type": "object"}},
        input=[search_call("call_1"), search_output("call_1", found)],
    )
    flat = flatten(body)
    assert names(body) == ["mcp__depot__echo", "tool_search"]
    assert flat.body["tools"][1] == {
        "type": "function",
        "name": "tool_search",
        "description": "Find.",
        "parameters": {"type": "object"},
        "strict": False,
    }
    assert flat.names["tool_search"] == ToolName("tool_search", "tool_search")
    call, output = flat.body["input"]
    assert call == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "tool_search",
        "arguments": '{"query":"b"}',
    }
    assert output["call_id"] == "call_1"
    assert output["output"].splitlines()[1:] == ["- mcp__depot__echo: Echo it."]


def test_where_nobody_searches_everything_is_on_offer() -> None:
    deferred = namespace("n", function("b", defer_loading=True))
    assert names(request(deferred, {"type": "tool_search"})) == ["n__b"]
    assert names(request(deferred)) == ["n__b"]


def test_a_function_that_is_called_tool_search_keeps_its_name() -> None:
    body = request(function("tool_search"), CLIENT_SEARCH)
    plain, search = names(body)
    assert plain == "tool_search"
    assert flatten(body).names == {search: ToolName("tool_search", "tool_search")}


def test_searches_of_a_server_have_no_ids() -> None:
    items = [
        search_call(None, id="tsc_1"),
        search_output(None, function("b")),
        search_output(None, function("c")),
        search_call(None, id="tsc_2"),
    ]
    flat = flatten(request(input=items))
    call, output, *others = flat.body["input"]
    assert call["call_id"] == output["call_id"]
    assert [item["type"] for item in others] == ["tool_search_output", "tool_search_call"]
    assert [tool["name"] for tool in flat.body["tools"]] == ["b", "c"]
    assert [message["role"] for message in to_messages(flat.body)] == ["assistant", "tool"]


def test_history_has_the_functions_names() -> None:
    items = [
        {"type": "function_call", "call_id": "1", "namespace": "n", "name": "b", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "namespace": "n", "output": "x"},
        {"type": "custom_tool_call", "call_id": "2", "namespace": "gone", "name": "c", "input": ""},
        {"type": "custom_tool_call_output", "call_id": "2", "output": "y"},
    ]
    flat = flatten(request(namespace("n", function("b")), input=items))
    assert [item.get("name") for item in flat.body["input"]] == ["n__b", None, "gone__c", None]
    assert not any("namespace" in item for item in flat.body["input"])
    assert set(flat.names) == {"n__b"}


@pytest.mark.parametrize(
    ("choice", "flat"),
    [
        ("required", "required"),
        ({"type": "function", "name": "a"}, {"type": "function", "name": "a"}),
        ({"type": "function", "name": "b"}, {"type": "function", "name": "n__b"}),
        ({"type": "function", "name": "b", "namespace": "n"}, {"type": "function", "name": "n__b"}),
        ({"type": "custom", "name": "c"}, {"type": "custom", "name": "n__c"}),
        ({"type": "tool_search"}, {"type": "function", "name": "tool_search"}),
        ({"type": "web_search"}, {"type": "web_search"}),
        (
            {"type": "namespace", "name": "n"},
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "n__b"}, {"type": "custom", "name": "n__c"}],
            },
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "namespace", "name": "n"}, {"type": "function", "name": "a"}],
            },
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [
                    {"type": "function", "name": "n__b"},
                    {"type": "custom", "name": "n__c"},
                    {"type": "function", "name": "a"},
                ],
            },
        ),
    ],
)
def test_a_choice_of_tools(choice: Any, flat: Any) -> None:
    grouped = namespace("n", function("b", defer_loading=True), {"type": "custom", "name": "c"})
    body = request(function("a"), grouped, CLIENT_SEARCH, tool_choice=choice)
    given = flatten(body).body
    assert given["tool_choice"] == flat
    assert plan_tools(given).tools


NAME = st.text(alphabet="ab_ é", min_size=1, max_size=40)
CALLABLE = st.builds(
    lambda name, kind, deferred: {"type": kind, "name": name, "defer_loading": deferred},
    NAME,
    st.sampled_from(["function", "custom"]),
    st.booleans(),
)
GROUP = st.builds(lambda name, tools: namespace(name, *tools), NAME, st.lists(CALLABLE, max_size=4))
TOOLS = st.lists(st.one_of(CALLABLE, GROUP, st.just(CLIENT_SEARCH)), max_size=6)


def called(flat: Any, function: str, call_id: str) -> Item:
    """The item that the client gets where a model calls a function."""
    builder = make_builder()
    builder.open()
    output = OutputBuilder(builder, custom_tool_names(flat.body), flat.names)
    output.call(0, call_id, function, '{"input": "x"}')
    output.close("completed")
    return output.items[0]


@given(TOOLS)
def test_there_and_back(tools: list[Item]) -> None:
    """Whatever a model calls, its call names a tool of the client's, and history names the same
    function again; so it does for a router that knows nothing but the next request.
    """
    body = request(*tools)
    flat = flatten(body)
    offered = {tool["name"]: tool["type"] for tool in flat.body.get("tools", [])}
    assert len(offered) == len(flat.body.get("tools", []))
    known = {
        (group.get("name"), tool["name"])
        for group in tools
        if group["type"] == "namespace"
        for tool in group["tools"]
    } | {(None, tool["name"]) for tool in tools if tool["type"] in ("function", "custom")}
    for name in offered:
        item = called(flat, name, "call_1")
        if item["type"] == "tool_search_call":
            output: Item = search_output("call_1")
        else:
            assert (item.get("namespace"), item["name"]) in known
            kind = "custom_tool_call" if item["type"] == "custom_tool_call" else "function_call"
            output = {"type": f"{kind}_output", "call_id": "call_1", "output": "y"}
        again = request(*tools, input=[item, output])
        call, answer = flatten(again).body["input"]
        assert call["name"] == name
        assert call["call_id"] == answer["call_id"]
        assert flatten(again).names == flat.names
        assert not {call["type"], answer["type"]} & GROUPED_ITEMS
