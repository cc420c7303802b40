"""Chat Completions in one piece, as answers and as streams."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.chat.decode_stream import ChatDecoder
from router.errors import UpstreamFailure
from tests.support.chat import USAGE, completion, decoder, text
from tests.support.order import check_order
from tests.support.reading import (
    BROKEN,
    decoded,
    make_builder,
    said,
    trace,
    traces,
)

WHOLE: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "text": (text("Hellö"), [("text", "Hellö")]),
    "null": (text(None), []),
    "thought": (text("<think>\nhm</think>\n\nA"), [("reasoning", "hm"), ("text", "A")]),
    "everything": (
        {
            "reasoning_content": "hm",
            "content": "A",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": {}}},
            ],
        },
        [("reasoning", "hm"), ("text", "A"), ("f", '{"a":1}'), ("g", "{}")],
    ),
    "two calls with one id": (
        {
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "a", "type": "function", "function": {"name": "g", "arguments": '{"b":2}'}},
            ],
        },
        [("f", '{"a":1}'), ("g", '{"b":2}')],
    ),
    "a refusal": ({"content": None, "refusal": "No."}, [("refusal", "No.")]),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_whole_answer(case: str) -> None:
    message, expected = WHOLE[case]
    body = completion(message, usage=USAGE)
    subject = ChatDecoder(make_builder(muted=True))
    final = orjson.loads(subject.whole(body))
    assert said(final) == expected
    assert final["usage"] == subject.usage
    events = decoded(decoder().whole_as_stream(body))
    streamed = check_order(events)
    assert said(streamed) == expected
    assert streamed["usage"] == final["usage"]
    calls = [item["call_id"] for item in final["output"] if item["type"] == "function_call"]
    assert len(set(calls)) == len(calls)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "without choices"),
        (b'{"choices": []}', "without choices"),
        (b'{"choices": [1]}', "without choices"),
        (b'{"choices": {"0": 1}}', "without choices"),
        (b'{"choices": [{}]}', "without a message"),
        (b'{"error": {"message": "on fire"}}', "on fire"),
        (b'{"object": "error", "message": "on fire", "code": 500}', "on fire"),
        (completion({"tool_calls": [{"function": {"arguments": "{}"}}]}), "without a name"),
        (completion({}, finish="error"), "finish reason is 'error'"),
        (b'{"choices":[{"message":{"content":' + b"[" * 300 + b"]" * 300 + b"}}]}", "too deeply"),
    ],
)
def test_a_broken_whole_answer(body: bytes, message: str) -> None:
    with pytest.raises(UpstreamFailure, match=message):
        decoder().whole(body)


def test_a_whole_answer_that_breaks_as_a_stream() -> None:
    body = completion({"content": "A", "tool_calls": [{"function": {"arguments": "{}"}}]})
    subject = decoder()
    with pytest.raises(UpstreamFailure, match="without a name"):
        subject.whole_as_stream(body)
    final = check_order(decoded(subject.fail(BROKEN)))
    assert said(final) == [("text", "A")]


@pytest.mark.parametrize("name", traces("ChatCompletions/*/response.json"))
def test_recorded_answers(name: str) -> None:
    body = trace(name)
    recorded = orjson.loads(body)
    message = recorded["choices"][0]["message"]
    expected = [("text", message["content"])] if message.get("content") else []
    for call in message.get("tool_calls") or ():
        expected.append((call["function"]["name"], call["function"]["arguments"]))
    final = orjson.loads(decoder().whole(body))
    assert said(final) == expected
    assert final["usage"]["total_tokens"] == recorded["usage"]["total_tokens"]
