"""What decoding keeps of a chat beside the Responses request, and what it knows of the chat."""

from __future__ import annotations

from typing import Any

import pytest

from router.dialects.chat.decode_request import decode_chat
from tests.dialects.chat.test_decode_request import CONVERSATION, USER, WEATHER, call


@pytest.mark.parametrize(
    ("chat", "kept"),
    [
        ({"messages": [*CONVERSATION[:3], *CONVERSATION[4:8]]}, {}),
        ({"messages": [{**USER, "name": "ann"}]}, {"messages[0]": {"name": "ann"}}),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}, 5]}]},
            {"messages[0].content[0]": {"x": 1}, "messages[0].content[1]": 5},
        ),
        ({"messages": [{"role": "assistant"}]}, {"messages[0]": {"content": None}}),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [call("a"), {}]}]},
            {"messages[0]": {"content": ""}, "messages[0].tool_calls[1]": {}},
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom_tool_call"}]}]},
            {"messages[0].tool_calls[0]": {"type": "custom_tool_call"}},
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [call(name)]} for name in "ab"]},
            {"input[1]": True},
        ),
        ({"max_tokens": 5, "max_completion_tokens": 6}, {"max_tokens": 5}),
        ({"top_logprobs": 2, "logprobs": 1}, {"logprobs": 1}),
        ({"top_logprobs": 2}, {"top_logprobs": 2}),
        ({"tools": [{**WEATHER, "x": 1}]}, {"tools[0]": {**WEATHER, "x": 1}}),
        ({"tools": {"type": "function"}}, {"tools": {"type": "function"}}),
        ({"functions": [{"name": "f"}]}, {"functions": [{"name": "f"}]}),
        ({"instructions": "x", "reasoning": {}}, {"instructions": "x", "reasoning": {}}),
    ],
)
def test_what_a_responses_request_cannot_say_is_kept_beside_it(
    chat: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert decode_chat({"model": "m", "messages": [USER], **chat}).kept == kept


CITED = {"url": "https://a.example/", "title": "A", "start_index": 0, "end_index": 2}


@pytest.mark.parametrize(
    ("annotations", "cites"),
    [
        ([{"type": "url_citation", "url_citation": CITED}], [{"type": "url_citation", **CITED}]),
        ([{"url_citation": {**CITED, "url": 7}}, {"url_citation": 7}, {}, 7], None),
        ({}, None),
    ],
)
def test_what_a_text_cites_is_said_and_kept(annotations: Any, cites: Any) -> None:
    message = {"role": "assistant", "content": "Hi", "annotations": annotations}
    decoded = decode_chat({"model": "m", "messages": [USER, message, USER]})
    assert decoded.kept == {"messages[1]": {"annotations": annotations}}
    part = {"type": "output_text", "text": "Hi", "annotations": cites}
    assert decoded.body["input"][1]["content"] == ([part] if cites else "Hi")


def test_which_message_has_the_call_of_an_output() -> None:
    called = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        USER,
        called,
        {"role": "tool", "tool_call_id": "b"},
        USER,
        {"role": "tool", "tool_call_id": "a"},
        {"role": "tool", "tool_call_id": "z"},
        old,
        {"role": "function", "name": "f"},
        {"role": "assistant", "content": "!", "tool_calls": []},
    ]
    assert decode_chat({"model": "m", "messages": messages}).calls() == {2: 1, 4: 1, 7: 6}


@pytest.mark.parametrize("kind", ["message", "custom_tool_call", "function_call_output"])
def test_a_call_that_looks_like_another_item_is_no_call_of_an_output(kind: str) -> None:
    messages = [
        {"role": "assistant", "tool_calls": [call("a"), {"type": kind}]},
        {"role": "tool", "tool_call_id": "a", "content": "!"},
    ]
    assert decode_chat({"model": "m", "messages": messages}).calls() == {1: 0}


def test_it_is_known_what_was_decoded() -> None:
    chat = {"model": "m", "messages": [USER]}
    made = decode_chat(chat)
    assert made.is_of(chat)
    assert made.is_of({**chat, "stream": True, "stream_options": {"include_usage": True}})
    assert not made.is_of({**chat, "model": "other"})
    assert not made.is_of({**chat, "seed": 1})
    assert not made.is_of({**chat, "messages": [USER, USER]})
