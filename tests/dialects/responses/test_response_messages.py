"""A response as messages."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.responses.response_messages import input_messages, output_messages
from router.dialects.responses.schema import validate_create
from tests.support.reading import FUZZ
from tests.support.response_messages import (
    ANSWER,
    ASKED,
    CALLED,
    CUSTOM_CALL,
    FUNCTION_CALL,
    FUNCTION_OUTPUT,
    IMAGE,
    MCP,
    RETURNED,
    SEARCH,
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


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({"input": "Hi"}, [SYSTEM, message("user", "Hi")], id="a text"),
        pytest.param(
            {"input": "Hi", "instructions": "Be brief."},
            [message("system", "Be brief."), message("user", "Hi")],
            id="instructions",
        ),
        pytest.param(
            {
                "instructions": "Be brief.",
                "input": [item("system", "Be kind."), item("user", "Hi"), item("system", "Now.")],
            },
            [
                message("system", "Be brief.\n\nBe kind."),
                message("user", "Hi"),
                message("system", "Now."),
            ],
            id="one system message at the beginning",
        ),
        pytest.param(
            {"instructions": [item("system", "A"), item("developer", "B")], "input": "Hi"},
            [message("system", "A"), message("developer", "B"), message("user", "Hi")],
            id="instructions that are items",
        ),
        pytest.param(
            {
                "input": "Hi",
                "tools": [
                    TOOL,
                    {"type": "mcp", "server_label": "wiki"},
                    {"type": "custom", "name": "g", "description": "Goes."},
                ],
            },
            [
                SYSTEM,
                message(
                    "developer",
                    [
                        {
                            "type": "developer_content",
                            "tools": {
                                "functions": {
                                    "name": "functions",
                                    "description": None,
                                    "tools": [
                                        {
                                            "name": "f",
                                            "description": "",
                                            "parameters": TOOL["parameters"],
                                        },
                                        {"name": "g", "description": "Goes.", "parameters": None},
                                    ],
                                }
                            },
                        }
                    ],
                ),
                message("user", "Hi"),
            ],
            id="functions are a developer message",
        ),
        pytest.param(
            {
                "input": [item("user", "x"), {**FUNCTION_CALL, "namespace": "n"}],
                "tools": [{"type": "namespace", "name": "n", "tools": [TOOL]}],
            },
            [
                SYSTEM,
                message(
                    "developer",
                    [
                        {
                            "type": "developer_content",
                            "tools": {
                                "functions": {
                                    "name": "functions",
                                    "description": None,
                                    "tools": [
                                        {
                                            "name": "n__f",
                                            "description": "",
                                            "parameters": TOOL["parameters"],
                                        }
                                    ],
                                }
                            },
                        }
                    ],
                ),
                message("user", "x"),
                {**CALLED, "recipient": f"functions.n__{FUNCTION_CALL['name']}"},
            ],
            id="tools in a namespace are functions of another name",
        ),
        pytest.param(
            {"input": "Hi", "tools": [{"type": "mcp", "server_label": "code_interpreter"}]},
            [SYSTEM, message("user", "Hi")],
            id="tools that are run for the model are none",
        ),
        pytest.param(
            {
                "input": [
                    item("user", "x"),
                    THOUGHT,
                    FUNCTION_CALL,
                    FUNCTION_OUTPUT,
                    item("assistant", "y"),
                    item("user", "z"),
                ]
            },
            [
                SYSTEM,
                message("user", "x"),
                message("assistant", "hm", channel="analysis"),
                CALLED,
                RETURNED,
                said("y"),
                message("user", "z"),
            ],
            id="a history",
        ),
        pytest.param(
            {
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "a"}, IMAGE]},
                    {"type": "function_call_output", "call_id": "c9", "output": "lost"},
                ]
            },
            [SYSTEM, message("user", [*text("a"), IMAGE]), told(None, "lost", call_id="c9")],
            id="what is no text, and an output of nothing",
        ),
    ],
)
def test_what_the_model_is_given(body: Item, expected: list[Item]) -> None:
    asked = {"model": "m", **body}
    validate_create(asked)
    before = copy.deepcopy(asked)
    assert input_messages(asked) == expected
    assert asked == before


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([], []),
        (
            [THOUGHT, item("assistant", "y")],
            [message("assistant", "hm", channel="analysis"), said("y")],
        ),
        (
            [{**item("assistant", "wait"), "phase": "commentary"}],
            [message("assistant", "wait", channel="commentary")],
        ),
        (
            [{**item("assistant", ""), "content": [{"type": "refusal", "refusal": "No."}]}],
            [said("No.")],
        ),
        ([FUNCTION_CALL], [CALLED]),
        ([CUSTOM_CALL], [call("functions.g", "go", None, call_id="c2")]),
        (
            [{"type": "mcp_list_tools", "server_label": "wiki", "tools": []}, MCP],
            [WIKI, told("wiki.look_up", "found")],
        ),
        (
            [{**MCP, "server_label": "code_interpreter", "name": "python", "error": "boom"}],
            [call("python.python", '{"q":"x"}'), told("python.python", "Error: boom")],
        ),
        ([ASKED], [WIKI]),
        (
            [ASKED, {**ANSWER, "approve": True}, {**MCP, "approval_request_id": "mcpr_1"}],
            [WIKI, told("wiki.look_up", "found")],
        ),
        (
            [ASKED, {**ANSWER, "approve": False}],
            [WIKI, told("wiki.look_up", "The user did not approve this call.")],
        ),
        (
            [SEARCH],
            [
                call("browser.search", '{"type":"search","query":"q"}'),
                told("browser.search", "(results not kept)"),
            ],
        ),
        (
            [{**SEARCH, "action": {"type": "open_page", "url": "https://a"}}],
            [
                call("browser.open", '{"type":"open_page","url":"https://a"}'),
                told("browser.open", "(results not kept)"),
            ],
        ),
        (
            [{"type": "code_interpreter_call", "code": "1+1", "outputs": None}],
            [call("python", "1+1", None)],
        ),
        (
            [
                {
                    "type": "code_interpreter_call",
                    "code": "1+1",
                    "outputs": [{"type": "logs", "logs": "2"}, {"type": "image", "url": "u"}],
                }
            ],
            [call("python", "1+1", None), told("python", "2")],
        ),
        (
            [{"type": "file_search_call", "queries": ["q", 7], "results": None}],
            [call("file_search", '{"queries":["q"]}')],
        ),
        (
            [
                {
                    "type": "file_search_call",
                    "queries": ["q"],
                    "results": [{"text": "a"}, {"text": "b"}],
                }
            ],
            [call("file_search", '{"queries":["q"]}'), told("file_search", "a\n\nb")],
        ),
        # An endpoint may send anything.
        (
            [
                "x",
                {},
                {"type": ["message"]},
                {"type": "image_generation_call"},
                {"type": "reasoning"},
            ],
            [],
        ),
        (
            [{"type": "mcp_call", "approval_request_id": ["x"]}],
            [call(".", "{}"), told(".", "(no output)")],
        ),
    ],
)
def test_what_the_model_said(output: list[Any], expected: list[Item]) -> None:
    assert output_messages(output) == expected


ANY_ITEM = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                *(
                    "message",
                    "reasoning",
                    "function_call",
                    "custom_tool_call",
                    "mcp_call",
                    "file_search_call",
                ),
                *("function_call_output", "mcp_approval_request", "mcp_approval_response"),
                *("web_search_call", "code_interpreter_call"),
            ]
        )
    },
    optional=dict.fromkeys(
        (
            "role",
            "content",
            "id",
            "call_id",
            "name",
            "arguments",
            "input",
            "output",
            "action",
            "code",
            "queries",
            "results",
            "outputs",
            "approval_request_id",
            "server_label",
            "approve",
            "error",
        ),
        VALUE,
    ),
)


@FUZZ
@given(st.lists(ANY_ITEM, max_size=5))
def test_an_endpoint_may_send_anything(output: list[Item]) -> None:
    for made in output_messages(output):
        assert set(made) >= {"author", "role", "channel", "recipient", "content", "content_type"}
        assert isinstance(made["content"], list)
