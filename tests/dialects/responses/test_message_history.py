"""Messages as the history of a request."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.history import match
from router.dialects.responses.input_items import is_sound
from router.dialects.responses.message_history import check_messages, with_previous_messages
from router.dialects.responses.response_messages import input_messages
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest
from tests.support.reading import FUZZ
from tests.support.response_messages import (
    CALLED,
    FUNCTION_CALL,
    FUNCTION_OUTPUT,
    IMAGE,
    MCP,
    RETURNED,
    SYSTEM,
    THOUGHT,
    TOOL,
    VALUE,
    WIKI,
    Item,
    call,
    item,
    message,
    said,
    text,
    told,
)


def history(*messages: Item, own: Any = "go on", **body: Any) -> list[Item]:
    """The items before the request's own input."""
    asked = {"model": "m", "input": own, "previous_input_messages": list(messages), **body}
    validate_create(asked)
    before = copy.deepcopy(asked)
    made = with_previous_messages(asked)
    assert asked == before
    assert "previous_input_messages" not in made
    validate_create(made)
    count = 1 if isinstance(own, str) else len(own)
    items: list[Item] = made["input"]
    return items[: len(items) - count]


def user(value: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}


def answered(value: str) -> Item:
    part = {"type": "output_text", "text": value}
    return {"type": "message", "role": "assistant", "content": [part]}


def fn(number: int, arguments: str = "{}", name: str = "f") -> Item:
    call_id = f"call_previous_{number}"
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def fn_output(number: int, output: Any) -> Item:
    return {
        "type": "function_call_output",
        "call_id": f"call_previous_{number}",
        "output": output,
    }


@pytest.mark.parametrize(
    ("messages", "items"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(
            [{"role": "user", "content": "a"}, {"author": {"role": "assistant"}, "content": "b"}],
            [user("a"), answered("b")],
            id="role on top, and in the author",
        ),
        pytest.param(
            [
                message("system", "S"),
                message("developer", "D"),
                message("user", "a"),
                message("system", "later"),
            ],
            [user("a"), {**user("later"), "role": "system"}],
            id="system and developer messages at the beginning are the request's own",
        ),
        pytest.param(
            [
                message("user", "a"),
                message(
                    "developer",
                    [
                        {"type": "developer_content", "instructions": "Do.", "tools": {}},
                        {"type": "text", "text": "More."},
                    ],
                ),
                message("system", [{"type": "system_content", "model_identity": "M"}]),
            ],
            [
                user("a"),
                {
                    "type": "message",
                    "role": "developer",
                    "content": [
                        {"type": "input_text", "text": "Do."},
                        {"type": "input_text", "text": "More."},
                    ],
                },
            ],
            id="what Harmony says of the model and of its tools is not repeated",
        ),
        pytest.param(
            [
                message("assistant", "hm", channel="analysis"),
                message("assistant", "so", channel="x"),
                message("assistant", "wait", channel="commentary"),
                said("y"),
                said(""),
            ],
            [THOUGHT, answered("so"), answered("wait"), answered("y")],
            id="channels",
        ),
        pytest.param(
            [
                call("functions.f", '{"a":1}'),
                {"role": "tool", "name": "functions.f", "content": "42"},
            ],
            [fn(0, '{"a":1}'), fn_output(0, "42")],
            id="a call and its output",
        ),
        pytest.param(
            [
                call("functions.f", "1"),
                call("h", "2"),
                call("functions.f", "3"),
                {"role": "tool", "name": "h", "content": "of 2"},
                {"role": "tool", "name": "f", "content": "of 1"},
                {"author": {"role": "tool"}, "content": "of 3"},
            ],
            [
                fn(0, "1"),
                fn(1, "2", "h"),
                fn(2, "3"),
                fn_output(1, "of 2"),
                fn_output(0, "of 1"),
                fn_output(2, "of 3"),
            ],
            id="by name, and in order",
        ),
        pytest.param(
            [
                call("functions.f", "1", call_id="c1"),
                call("functions.f", "2", call_id="c2"),
                told("functions.f", "of 2", call_id="c2"),
                told("functions.f", "of 1", call_id="c1"),
            ],
            [
                {**fn(0, "1"), "call_id": "c1"},
                {**fn(0, "2"), "call_id": "c2"},
                {**fn_output(0, "of 2"), "call_id": "c2"},
                {**fn_output(0, "of 1"), "call_id": "c1"},
            ],
            id="by the id of the call",
        ),
        pytest.param(
            [message("user", "a"), call("functions.f", "{}"), said("b")],
            [user("a"), answered("b")],
            id="a call that nothing answers",
        ),
        pytest.param(
            [call("functions.g", "go", None), told("functions.g", [*text("x"), IMAGE])],
            [
                {
                    "type": "custom_tool_call",
                    "call_id": "call_previous_0",
                    "name": "g",
                    "input": "go",
                },
                {
                    "type": "custom_tool_call_output",
                    "call_id": "call_previous_0",
                    "output": [{"type": "input_text", "text": "x"}, IMAGE],
                },
            ],
            id="a custom tool, and an output with an image",
        ),
        pytest.param(
            [
                WIKI,
                told("wiki.look_up", "found"),
                call("python", "1+1", None),
                told("python", "2"),
                call("python.run", '{"x":1}'),
            ],
            [
                {k: v for k, v in MCP.items() if k != "id"},
                {
                    "type": "mcp_call",
                    "server_label": "code_interpreter",
                    "name": "python",
                    "arguments": '{"code":"1+1"}',
                    "output": "2",
                    "error": None,
                },
                {
                    "type": "mcp_call",
                    "server_label": "code_interpreter",
                    "name": "run",
                    "arguments": '{"x":1}',
                    "output": None,
                    "error": None,
                },
            ],
            id="tools that were run for the model",
        ),
        pytest.param(
            [call("browser.search", '{"query":"q"}'), told("browser.search", "pages")],
            [fn(0, '{"query":"q"}', "web_search"), fn_output(0, "pages")],
            id="a search",
        ),
    ],
)
def test_messages_as_history(messages: list[Item], items: list[Item]) -> None:
    custom = {"type": "custom", "name": "g"}
    assert history(*messages, tools=[custom, TOOL]) == items


def test_a_new_output_may_answer_the_last_call() -> None:
    own = [{"type": "function_call_output", "call_id": "c1", "output": "42"}]
    assert history(CALLED, own=own) == [FUNCTION_CALL]


def test_messages_come_back_as_what_they_were() -> None:
    items = [user("x"), THOUGHT, FUNCTION_CALL, FUNCTION_OUTPUT, answered("y")]
    mcp = {k: v for k, v in MCP.items() if k != "id"}
    given = input_messages({"input": [*items, mcp, item("user", "z")], "tools": [TOOL]})
    assert history(*given) == [*items, mcp, user("z")]
    again = {"input": [*history(*given), item("user", "go on")], "tools": [TOOL]}
    assert input_messages(again) == [*given, message("user", "go on")]


P = "previous_input_messages"


@pytest.mark.parametrize("by", ["name", "call_id"])
def test_very_many_calls_take_no_longer_each(by: str) -> None:
    many = 20_000
    named = [f"f{n}" for n in range(many)]
    calls = [
        {"role": "assistant", "recipient": name, "call_id": name, "content": ""} for name in named
    ]
    outputs = [{"role": "tool", by: name, "content": name} for name in reversed(named)]
    begun = time.process_time()
    items = history(*calls, *outputs)
    assert time.process_time() - begun < 10  # one scan for each would take minutes
    assert [item["output"] for item in items[many:]] == named[::-1]
    assert [item["call_id"] for item in items[many:]] == named[::-1]


@pytest.mark.parametrize(
    ("messages", "param", "code"),
    [
        ("x", P, "invalid_type"),
        ([7], f"{P}[0]", "invalid_type"),
        ([{"content": "x"}], f"{P}[0].role", "missing_required_parameter"),
        (
            [{"author": {}, "role": "user", "content": "x"}],
            f"{P}[0].author.role",
            "missing_required_parameter",
        ),
        ([{"author": "user", "content": "x"}], f"{P}[0].author", "invalid_type"),
        (
            [{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}],
            f"{P}[1].role",
            "invalid_value",
        ),
        ([{"role": ["user"], "content": "x"}], f"{P}[0].role", "invalid_type"),
        ([{"role": "user"}], f"{P}[0].content", "missing_required_parameter"),
        ([{"role": "user", "content": 7}], f"{P}[0].content", "invalid_type"),
        ([{"role": "user", "content": [7]}], f"{P}[0].content[0]", "invalid_type"),
        (
            [{"role": "user", "content": [{"text": "x"}]}],
            f"{P}[0].content[0].type",
            "missing_required_parameter",
        ),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            f"{P}[0].content[0].text",
            "missing_required_parameter",
        ),
        (
            [{"role": "user", "content": [{"type": "developer_content"}]}],
            f"{P}[0].content[0].type",
            "invalid_value",
        ),
        ([{"role": "assistant", "content": [IMAGE]}], f"{P}[0].content[0].type", "invalid_value"),
        (
            [{"role": "developer", "content": [{"type": "developer_content", "instructions": 7}]}],
            f"{P}[0].content[0].instructions",
            "invalid_type",
        ),
        (
            [{"role": "assistant", "content": "x", "recipient": 7}],
            f"{P}[0].recipient",
            "invalid_type",
        ),
        ([{"role": "assistant", "content": "x", "channel": []}], f"{P}[0].channel", "invalid_type"),
        ([{"role": "tool", "name": 7, "content": "x"}], f"{P}[0].name", "invalid_type"),
        ([{"role": "tool", "name": "functions.f", "content": "x"}], f"{P}[0]", "invalid_value"),
        (
            [CALLED, {"role": "tool", "name": "functions.g", "content": "x"}],
            f"{P}[1]",
            "invalid_value",
        ),
        ([CALLED, RETURNED, RETURNED], f"{P}[2]", "invalid_value"),
    ],
)
def test_what_is_wrong_is_named(messages: Any, param: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_create({"model": "m", "input": "x", P: messages})
    assert (caught.value.param, caught.value.code) == (param, code)
    assert param in caught.value.message or "Supported values" in caught.value.message


@pytest.mark.parametrize(
    "other", [{"previous_response_id": "resp_1"}, {"conversation": {"id": "conv_1"}}]
)
def test_there_is_one_history(other: Item) -> None:
    with pytest.raises(InvalidRequest) as caught:
        with_previous_messages({"model": "m", "input": "x", P: [SYSTEM], **other})
    assert (caught.value.param, caught.value.code) == (P, "mutually_exclusive_parameters")


def test_there_is_something_to_answer() -> None:
    body: Item = {"model": "m", P: [SYSTEM]}
    validate_create(body)
    with pytest.raises(InvalidRequest) as caught:
        with_previous_messages(body)
    assert caught.value.param == "input"
    with pytest.raises(InvalidRequest):
        validate_create({"model": "m", P: []})


ROLE: Any = st.sampled_from(["system", "developer", "user", "assistant", "tool", "robot", None, 7])
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": ROLE,
            "author": st.fixed_dictionaries({}, optional={"role": ROLE, "name": VALUE}) | VALUE,
            **dict.fromkeys(("name", "content", "channel", "recipient", "call_id"), VALUE),
        },
    )
    | st.sampled_from([CALLED, RETURNED, WIKI, told("wiki.look_up", "x"), said("y"), SYSTEM]),
    max_size=6,
)


def refused(messages: list[Item]) -> str | None:
    """What is named as wrong in them."""
    try:
        check_messages(messages, P)
    except InvalidRequest as error:
        return str(error.param)
    return None


@FUZZ
@given(MESSAGES)
def test_whatever_is_taken_is_sound_and_whole(messages: list[Item]) -> None:
    if (param := refused(messages)) is not None:
        assert param.startswith(P)
        return
    items = with_previous_messages({"model": "m", "input": "x", P: messages})["input"]
    assert all(map(is_sound, items))
    found = match(items)
    assert not found.unanswered
    assert not found.orphans
