"""Items of hosted tools as calls of functions and their outputs."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.chat.messages import to_messages
from router.dialects.history import match
from router.dialects.hosted_items import (
    HOSTED_ITEMS,
    MCP_ITEMS,
    approved_requests,
    as_function_items,
    hosted_call_id,
    hosted_function_name,
)
from router.dialects.ollama.encode_request import encode_ollama_request
from router.dialects.responses.encode_request import encode_responses_request
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest
from tests.support.reading import FUZZ

Item = dict[str, Any]


def mcp(ident: str, **fields: Any) -> Item:
    return {
        "type": "mcp_call",
        "id": f"mcp_{ident}",
        "server_label": "wiki",
        "name": "look_up",
        "arguments": '{"word":"tide"}',
        "output": f"out {ident}",
        "error": None,
        **fields,
    }


def search(ident: str, **fields: Any) -> Item:
    action = {"type": "search", "query": "tides"}
    return {"type": "web_search_call", "id": f"ws_{ident}", "action": action, **fields}


def asked(ident: str) -> Item:
    return {
        "type": "mcp_approval_request",
        "id": f"mcpr_{ident}",
        "server_label": "wiki",
        "name": "erase",
        "arguments": '{"page":1}',
    }


def approval(ident: str, approve: Any, **fields: Any) -> Item:
    kind = "mcp_approval_response"
    return {"type": kind, "approval_request_id": f"mcpr_{ident}", "approve": approve, **fields}


def call(ident: str, name: str = "wiki__look_up", arguments: str = '{"word":"tide"}') -> Item:
    given = {"call_id": f"call_{ident}", "name": name, "arguments": arguments}
    return {"type": "function_call", **given}


def output(ident: str, text: str) -> Item:
    return {"type": "function_call_output", "call_id": f"call_{ident}", "output": text}


def denied(ident: str, text: str = "The user did not approve this call.") -> list[Item]:
    erase = call(f"mcpr_{ident}", "wiki__erase", '{"page":1}')
    return [erase, output(f"mcpr_{ident}", text)]


USER: Item = {"type": "message", "role": "user", "content": "Hi"}
SAID: Item = {"type": "message", "role": "assistant", "content": "Hello"}
THOUGHT: Item = {"type": "reasoning", "id": "rs_1", "summary": []}
LISTED: Item = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "wiki", "tools": []}
FUNCTION: Item = call("f", "f", "{}")
FUNCTION_OUTPUT: Item = output("f", "done")
FAILED: Item = {
    "type": "mcp_tool_execution_error",
    "content": [{"type": "text", "text": "no page"}],
}
SOURCES = [{"type": "url", "url": "https://a.example"}, {"url": "https://b", "title": "B"}]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([USER, SAID], [USER, SAID], id="nothing hosted"),
        pytest.param(
            [USER, LISTED, mcp("1"), SAID],
            [USER, call("mcp_1"), output("mcp_1", "out 1"), SAID],
            id="a call, and the list of tools before it",
        ),
        pytest.param(
            [mcp("1"), LISTED, mcp("2"), SAID],
            [
                *(call("mcp_1"), call("mcp_2")),
                *(output("mcp_1", "out 1"), output("mcp_2", "out 2"), SAID),
            ],
            id="calls side by side are one turn",
        ),
        pytest.param(
            [mcp("1"), THOUGHT, mcp("2")],
            [
                *(call("mcp_1"), output("mcp_1", "out 1"), THOUGHT),
                *(call("mcp_2"), output("mcp_2", "out 2")),
            ],
            id="what was thought of an output follows it",
        ),
        pytest.param(
            [FUNCTION, mcp("1"), FUNCTION_OUTPUT, USER],
            [FUNCTION, call("mcp_1"), output("mcp_1", "out 1"), FUNCTION_OUTPUT, USER],
            id="together with a call of the client's function",
        ),
        pytest.param(
            [mcp("1", error="timeout", output=None)],
            [call("mcp_1"), output("mcp_1", "Error: timeout")],
            id="an error",
        ),
        pytest.param(
            [mcp("1", error=FAILED, output="half")],
            [call("mcp_1"), output("mcp_1", "Error: no page")],
            id="an error in parts",
        ),
        pytest.param(
            [mcp("1", error={"type": "http_error", "code": 500, "message": "down"})],
            [call("mcp_1"), output("mcp_1", "Error: down")],
            id="an error with a message",
        ),
        pytest.param(
            [mcp("1", error={"content": [7, {"text": None}]}), mcp("2", error=True)],
            [
                *(call("mcp_1"), call("mcp_2")),
                output("mcp_1", "Error: the call failed"),
                output("mcp_2", "Error: the call failed"),
            ],
            id="an error that says nothing",
        ),
        pytest.param(
            [
                mcp("1", output=None, status="incomplete"),
                mcp("2", output=None),
                mcp("3", output=""),
            ],
            [
                *(call(f"mcp_{n}") for n in "123"),
                *(output("mcp_1", "(not finished)"), output("mcp_2", "(no output)")),
                output("mcp_3", "(no output)"),
            ],
            id="no output",
        ),
        pytest.param(
            [search("1", status="completed")],
            [
                call("ws_1", "web_search", '{"type":"search","query":"tides"}'),
                output("ws_1", "(results not kept)"),
            ],
            id="a search",
        ),
        pytest.param(
            [
                search("1", action={"type": "search", "queries": ["a", "b"], "sources": SOURCES}),
                search("2", action={"type": "find", "url": "https://a", "pattern": "x", "n": {}}),
                search("3", output="Tides are …"),
            ],
            [
                call("ws_1", "web_search", '{"type":"search","queries":["a","b"]}'),
                call("ws_2", "web_search", '{"type":"find","url":"https://a","pattern":"x"}'),
                call("ws_3", "web_search", '{"type":"search","query":"tides"}'),
                output("ws_1", "(results not kept)\nSources:\nhttps://a.example\nB https://b"),
                output("ws_2", "(results not kept)"),
                output("ws_3", "Tides are …"),
            ],
            id="actions, sources and results of searches",
        ),
        pytest.param(
            [search("1", status="failed"), {"type": "web_search_call", "id": "ws_2", "action": 7}],
            [
                call("ws_1", "web_search", '{"type":"search","query":"tides"}'),
                call("ws_2", "web_search", "{}"),
                output("ws_1", "Error: the search failed"),
                output("ws_2", "(results not kept)"),
            ],
            id="a search that failed, and one without an action",
        ),
        pytest.param(
            [asked("1"), approval("1", False), USER], [*denied("1"), USER], id="a denied call"
        ),
        pytest.param(
            [mcp("1"), asked("1"), FUNCTION, FUNCTION_OUTPUT, approval("1", False, reason="No.")],
            [
                *(call("mcp_1"), denied("1")[0], FUNCTION, output("mcp_1", "out 1")),
                denied("1", "The user did not approve this call. No.")[1],
                FUNCTION_OUTPUT,
            ],
            id="a denied call among others",
        ),
        pytest.param(
            [asked("1"), approval("1", True), mcp("1", approval_request_id="mcpr_1"), SAID],
            [call("mcp_1"), output("mcp_1", "out 1"), SAID],
            id="an approved call that was run",
        ),
        pytest.param(
            [asked("1"), approval("1", True), SAID, USER], [SAID, USER], id="the model went on"
        ),
        pytest.param([asked("1"), USER], [USER], id="a request that was never answered"),
        pytest.param(
            [USER, asked("1"), approval("1", True)],
            [USER, asked("1"), approval("1", True)],
            id="an approval to be acted on",
        ),
        pytest.param([approval("1", False)], [approval("1", False)], id="a denial of nothing"),
        pytest.param(
            [asked("1"), approval("1", "no"), SAID],
            [approval("1", "no"), SAID],
            id="neither yes nor no",
        ),
    ],
)
def test_as_functions(items: list[Item], expected: list[Item]) -> None:
    before = copy.deepcopy(items)
    assert as_function_items(items) == expected
    assert items == before


def test_only_what_is_asked_for_becomes_functions() -> None:
    items = [LISTED, mcp("1"), search("1"), USER]
    mcp_only = [call("mcp_1"), output("mcp_1", "out 1"), search("1"), USER]
    assert as_function_items(items, MCP_ITEMS) == mcp_only
    assert as_function_items(items, ()) == items


def test_items_without_ids_find_their_outputs() -> None:
    nameless = mcp("1")
    del nameless["id"]
    made = as_function_items([nameless, {**nameless, "output": "other"}])
    assert made[0]["call_id"] == made[2]["call_id"] != made[1]["call_id"] == made[3]["call_id"]


@pytest.mark.parametrize(
    ("items", "requests"),
    [
        ([asked("1"), approval("1", True)], ["mcpr_1"]),
        ([asked("1"), asked("2"), approval("2", True), approval("1", False)], ["mcpr_2"]),
        ([asked("1"), asked("2"), approval("2", True), USER, approval("1", True)], None),
        ([asked("1"), approval("1", True), mcp("1", approval_request_id="mcpr_1")], []),
        ([asked("1"), approval("1", True), SAID], []),
        ([asked("1"), approval("1", False), approval("1", True)], []),
        ([asked("1"), approval("1", True), approval("1", True)], ["mcpr_1"]),
        ([approval("1", True)], []),
        ([asked("1"), {"type": "mcp_approval_response", "approval_request_id": [1]}], []),
        ([{**asked("1"), "id": ["mcpr_1"]}, approval("1", True)], []),
        ([USER], []),
    ],
)
def test_what_is_to_be_run_now(items: list[Item], requests: list[str] | None) -> None:
    wanted = ["mcpr_2", "mcpr_1"] if requests is None else requests
    assert [item["id"] for item in approved_requests(items)] == wanted


@pytest.mark.parametrize(
    ("label", "tool", "name"),
    [
        ("wiki", "look_up", "wiki__look_up"),
        ("code-1", "_run", "code-1___run"),
        ("wiki_", "look_up", "wiki___look_up_"),
        ("a__b", "c", "a__b__c_"),
        ("my wiki", "look.up", "my_wiki__look_up_"),
        ("wiki", "x" * 90, f"wiki__{'x' * 47}_"),
        ("", "", "__"),
    ],
)
def test_a_functions_name(label: str, tool: str, name: str) -> None:
    made = hosted_function_name(label, tool)
    mark = made.removeprefix(name)
    assert made == name + mark
    assert re.fullmatch("[0-9a-f]{10}" if name != f"{label}__{tool}" else "", mark)


@FUZZ
@given(
    st.lists(st.tuples(st.text("ab_ é", max_size=70), st.text("ab_ é", max_size=70)), max_size=9)
)
def test_different_tools_have_different_names(tools: list[tuple[str, str]]) -> None:
    names = {hosted_function_name(*tool) for tool in tools}
    assert len(names) == len(set(tools))
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in names)


@FUZZ
@given(st.text(max_size=90), st.text(max_size=90))
def test_different_items_have_different_calls(one: str, other: str) -> None:
    assert re.fullmatch("call_[A-Za-z0-9_-]{1,59}", hosted_call_id(one))
    assert (hosted_call_id(one) == hosted_call_id(other)) == (one == other)


STEPS = [USER, SAID, THOUGHT, LISTED, FUNCTION, FUNCTION_OUTPUT, mcp("1"), mcp("2"), search("1")]
APPROVALS = [asked("1"), asked("2"), approval("1", True), approval("1", False)]
FIELDS = ("id", "name", "error", "action", "approve", "approval_request_id")
VALUES: list[Any] = [None, 7, [[]], {"content": [{}], "sources": [7]}]
JUNK = [{"type": kind, **dict.fromkeys(FIELDS, v)} for kind in sorted(HOSTED_ITEMS) for v in VALUES]


@FUZZ
@given(st.lists(st.sampled_from([*STEPS, *APPROVALS, *JUNK]), max_size=14))
def test_nothing_but_hosted_items_changes_its_place(items: list[Item]) -> None:
    made = as_function_items(items)
    given = {id(item) for item in items}
    kept = [item for item in made if id(item) in given]
    others = [item for item in items if item["type"] not in HOSTED_ITEMS]
    assert [item for item in kept if item["type"] not in HOSTED_ITEMS] == others
    assert {item["type"] for item in made} & HOSTED_ITEMS <= {
        *("mcp_approval_request", "mcp_approval_response")
    }


@FUZZ
@given(st.lists(st.sampled_from([*STEPS, *APPROVALS, *JUNK]), max_size=14))
def test_every_hosted_call_has_its_output(items: list[Item]) -> None:
    made = as_function_items(items)
    found = match([item for item in made if item.get("call_id") != "call_f"])
    unsettled = {place for place in found.unanswered if made[place]["type"] in HOSTED_ITEMS}
    assert found.unanswered == unsettled
    calls = [item["call_id"] for item in made if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in made if item["type"] == "function_call_output"]
    assert sorted(i for i in calls if i != "call_f") == sorted(i for i in outputs if i != "call_f")


TURN = [USER, LISTED, mcp("1"), mcp("2", error="gone"), THOUGHT, search("1"), SAID, USER]


def test_a_chat_has_calls_and_their_outputs() -> None:
    body = {"model": "m", "input": TURN}
    validate_create(body)
    made = to_messages(body)
    assert [message["role"] for message in made] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "user")
    ]
    assert [one["function"]["name"] for one in made[1]["tool_calls"]] == ["wiki__look_up"] * 2
    assert made[2:4] == [
        {"role": "tool", "tool_call_id": "call_mcp_1", "content": "out 1"},
        {"role": "tool", "tool_call_id": "call_mcp_2", "content": "Error: gone"},
    ]
    assert made[4]["tool_calls"] == [
        {
            "id": "call_ws_1",
            "type": "function",
            "function": {"name": "web_search", "arguments": '{"type":"search","query":"tides"}'},
        }
    ]
    assert made[5]["content"] == "(results not kept)"


def test_ollama_has_them_by_name() -> None:
    sent, _ = encode_ollama_request(
        {"model": "m", "input": TURN}, model="m", stream=False, num_ctx=None
    )
    tools = [message for message in sent["messages"] if message["role"] == "tool"]
    assert [message["tool_name"] for message in tools] == [
        *("wiki__look_up", "wiki__look_up", "web_search")
    ]
    calls = sent["messages"][1]["tool_calls"]
    assert calls[0]["function"]["arguments"] == {"word": "tide"}


def test_a_responses_endpoint_has_the_items_themselves() -> None:
    body = {"model": "m", "input": [mcp("1"), search("1")]}
    sent, _ = encode_responses_request(body, model="m", stream=False, account="a")
    assert [item["type"] for item in sent["input"]] == ["mcp_call", "web_search_call"]


def test_an_approval_that_nobody_acts_on_is_refused_by_its_place() -> None:
    given = [mcp("1"), mcp("2"), asked("1"), approval("1", True)]
    with pytest.raises(InvalidRequest) as caught:
        to_messages({"model": "m", "input": given})
    assert caught.value.param == "input[3]"
