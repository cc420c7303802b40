"""Input items as chat messages."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from router.dialects.chat.messages import to_messages
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest

GIF = "data:image/gif;base64,R0lGODlh"
PNG = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "input_image", "image_url": PNG}
OTHER_IMAGE = {"type": "input_image", "image_url": GIF}
CHAT_OTHER_IMAGE = {"type": "image_url", "image_url": {"url": GIF}}
CHAT_IMAGE = {"type": "image_url", "image_url": {"url": PNG}}


def text(value: str) -> dict[str, Any]:
    return {"type": "input_text", "text": value}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def system(content: Any) -> dict[str, Any]:
    return {"role": "system", "content": content}


def said(content: str) -> dict[str, Any]:
    """An assistant message as OpenAI's SDK sends its own output back."""
    part = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
    return {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def call(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def result(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def thought(value: str) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": value}],
    }


def assistant(content: str | None, *call_ids: str, **extra: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content, **extra}
    if call_ids:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}}
            for i in call_ids
        ]
    return message


def tool(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def convert(given_input: Any, **options: Any) -> list[dict[str, Any]]:
    body = {"model": "m", "input": given_input, **options.pop("body", {})}
    validate_create(body)
    before = copy.deepcopy(body)
    messages = to_messages(body, **options)
    assert body == before
    return messages


@pytest.mark.parametrize(
    ("given_input", "messages"),
    [
        ("Hello", [user("Hello")]),
        (
            [
                {"role": "system", "content": "s"},
                user("u"),
                {"role": "assistant", "content": "a"},
                {"type": "message", "role": "developer", "content": [text("d")]},
            ],
            [system("s\n\nd"), user("u"), assistant("a")],
        ),
        ([user([text("one")])], [user("one")]),
        ([user([])], [user("")]),
        (
            [user([text("a"), text("b")])],
            [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
        ),
        (
            [user([text("look"), {**IMAGE, "detail": "low"}])],
            [
                user(
                    [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                    ]
                )
            ],
        ),
        ([user([IMAGE])], [user([CHAT_IMAGE])]),
        (
            [user([{"type": "input_file", "file_data": "data:,x", "filename": "a.txt"}])],
            [user([{"type": "file", "file": {"file_data": "data:,x", "filename": "a.txt"}}])],
        ),
        (
            [user([{"type": "input_file", "file_id": "file_1"}])],
            [user([{"type": "file", "file": {"file_id": "file_1"}}])],
        ),
        (
            [user([{"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}])],
            [user([{"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}])],
        ),
        (
            [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "output_text", "text": "I "},
                        {"type": "refusal", "refusal": "cannot"},
                    ],
                }
            ],
            [assistant("I cannot")],
        ),
    ],
)
def test_messages(given_input: Any, messages: list[dict[str, Any]]) -> None:
    assert convert(given_input) == messages


@pytest.mark.parametrize(
    ("instructions", "first"),
    [
        ("Be brief.", [{"role": "system", "content": "Be brief."}]),
        ("", []),
        (
            [{"role": "developer", "content": "d"}, user("u")],
            [{"role": "system", "content": "d"}, user("u")],
        ),
    ],
)
def test_instructions_come_first(instructions: Any, first: list[dict[str, Any]]) -> None:
    assert convert("x", body={"instructions": instructions}) == [*first, user("x")]


HISTORIES = [
    pytest.param(
        [user("u"), call("a"), call("b"), result("a", "1"), result("b", "2"), user("v")],
        [user("u"), assistant(None, "a", "b"), tool("a", "1"), tool("b", "2"), user("v")],
        id="parallel calls are one message",
    ),
    pytest.param(
        [said("Let me look."), call("a"), result("a", "1")],
        [assistant("Let me look.", "a"), tool("a", "1")],
        id="calls join the text before them",
    ),
    pytest.param(
        [said(""), call("a"), result("a", "1")],
        [assistant(None, "a"), tool("a", "1")],
        id="no text is null",
    ),
    pytest.param(
        [call("a"), result("a", "1"), call("b"), result("b", "2"), said("done")],
        [
            assistant(None, "a"),
            tool("a", "1"),
            assistant(None, "b"),
            tool("b", "2"),
            assistant("done"),
        ],
        id="a result ends the turn",
    ),
    pytest.param(
        [call("a"), said("Wait."), user("u"), result("a", "1")],
        [assistant(None, "a"), tool("a", "1"), assistant("Wait."), user("u")],
        id="results go where their calls are",
    ),
    pytest.param(
        [call("a"), call("b"), result("b", "2"), result("a", "1")],
        [assistant(None, "a", "b"), tool("a", "1"), tool("b", "2")],
        id="results in the order of the calls",
    ),
    pytest.param(
        [result("a", "1"), call("a"), user("u")],
        [assistant(None, "a"), tool("a", "1"), user("u")],
        id="a result before its call",
    ),
    pytest.param(
        [user("u"), result("lost", "1"), user("v")],
        [user("u"), tool("lost", "1"), user("v")],
        id="a result without a call stays",
    ),
    pytest.param(
        [call("a"), result("a", "1"), result("a", "again")],
        [assistant(None, "a"), tool("a", "1"), tool("a", "again")],
        id="a second result joins the first",
    ),
    pytest.param(
        [call("a"), result("a", "1"), user("u"), call("a"), result("a", "2")],
        [assistant(None, "a"), tool("a", "1"), user("u"), assistant(None, "a"), tool("a", "2")],
        id="ids that start anew in every turn",
    ),
    pytest.param(
        [
            call("a"),
            {"type": "image_generation_call", "id": "ig_1"},
            thought("hm"),
            call("b"),
            result("a", "1"),
            result("b", "2"),
        ],
        [assistant(None, "a", "b"), tool("a", "1"), tool("b", "2")],
        id="reasoning, and what a chat has no words for, do not part a turn",
    ),
    pytest.param(
        [call("a"), result("a", [text("x"), text("y")])],
        [assistant(None, "a"), tool("a", "x\ny")],
        id="texts of a result are joined",
    ),
    pytest.param(
        [call("a"), call("b"), result("a", [text("x"), IMAGE]), result("b", "2")],
        [
            assistant(None, "a", "b"),
            tool("a", "x"),
            tool("b", "2"),
            user([CHAT_IMAGE]),
        ],
        id="images of results follow all of them",
    ),
    pytest.param(
        [call("a"), call("b"), result("b", [OTHER_IMAGE]), result("a", [IMAGE])],
        [
            assistant(None, "a", "b"),
            tool("a", ""),
            tool("b", ""),
            user([CHAT_IMAGE, CHAT_OTHER_IMAGE]),
        ],
        id="images follow in the order of the calls",
    ),
    pytest.param(
        [result("lost", [IMAGE])],
        [tool("lost", ""), user([CHAT_IMAGE])],
        id="images of a result without a call",
    ),
    pytest.param(
        [user("u"), thought("hm"), said("a"), thought("never said")],
        [user("u"), assistant("a")],
        id="reasoning is not sent to a chat",
    ),
]


@pytest.mark.parametrize(("given_input", "messages"), HISTORIES)
def test_histories(given_input: Any, messages: list[dict[str, Any]]) -> None:
    assert convert(given_input) == messages


def test_custom_tools_are_functions_with_one_string() -> None:
    messages = convert(
        [
            {"type": "custom_tool_call", "call_id": "a", "name": "sh", "input": 'echo "ü"'},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "ü"},
        ]
    )
    assert messages[0]["tool_calls"][0]["function"] == {
        "name": "sh",
        "arguments": '{"input":"echo \\"ü\\""}',
    }
    assert messages[1] == tool("a", "ü")


def test_a_call_without_arguments_has_an_empty_object() -> None:
    message = convert([call("a", arguments="")])[0]
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("given_input", "messages"),
    [
        ([thought("a"), thought("b"), said("x")], [assistant("x", reasoning="a\n\nb")]),
        (
            [thought("a"), call("c"), thought("b"), call("d")],
            [assistant(None, "c", "d", reasoning="a\n\nb")],
        ),
        ([thought("lost"), user("u"), said("x")], [user("u"), assistant("x")]),
        (
            [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}, said("x")],
            [assistant("x", reasoning="s")],
        ),
        (
            [{"type": "reasoning", "summary": [], "encrypted_content": "…"}, said("x")],
            [assistant("x")],
        ),
        (
            [{"type": "reasoning", "summary": 5, "content": [5, {"text": 5}]}, said("x")],
            [assistant("x")],
        ),
    ],
)
def test_reasoning_is_kept_for_the_message_after_it(
    given_input: Any, messages: list[dict[str, Any]]
) -> None:
    assert convert(given_input, reasoning=True) == messages


@pytest.mark.parametrize(
    ("given_input", "param", "says"),
    [
        ([user("u"), {"type": "item_reference", "id": "msg_1"}], "input[1]", "Send the item"),
        ([{"id": "msg_1"}], "input[0]", "Send the item"),
        (
            [{"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}],
            "input[0]",
            "Send the history",
        ),
        (
            [user([text("a"), {"type": "input_file", "file_url": "https://example.com/a"}])],
            "input[0].content[1].file_url",
            "'file_data'",
        ),
        (
            [user([{"type": "input_image", "file_id": "file_1"}])],
            "input[0].content[0].file_id",
            "'image_url'",
        ),
        (
            [call("a"), result("a", [{"type": "input_image", "file_id": "file_1"}])],
            "input[1].output[0].file_id",
            "'image_url'",
        ),
    ],
)
def test_what_a_chat_cannot_carry_is_refused(given_input: Any, param: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        convert(given_input)
    assert caught.value.param == param
    assert says in caught.value.message


def test_instructions_are_named_in_errors() -> None:
    with pytest.raises(InvalidRequest) as caught:
        convert("x", body={"instructions": [{"type": "item_reference", "id": "msg_1"}]})
    assert caught.value.param == "instructions[0]"
