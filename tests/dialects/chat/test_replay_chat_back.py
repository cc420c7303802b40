"""What a chat client was sent, as an answer: what is none, and what is told in another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from router.dialects.chat.replay import answer_of_chat
from tests.support import chat as chats
from tests.support.answers import USAGE, message, reasoning, text, without_ids


def stream_of(*objects: Any) -> list[bytes]:
    return [o if isinstance(o, bytes) else orjson.dumps(o) for o in objects]


HI = {**chats.chat_chunk(content="Hi"), "model": "m"}
STOP = chats.chat_chunk("stop")
CALLED = chats.chat_chunk("tool_calls")
ONE = {"id": "call_1", "index": 0, "type": "function", "function": {"name": "f", "arguments": ""}}


def calling(**changes: Any) -> dict[str, Any]:
    """A chunk with a fragment of a call."""
    call = {"name": "f", "id": "call_1", **changes}
    return {**chats.chat_chunk(**chats.tool(**call)), "model": "m"}


def body(said: dict[str, Any], finish: Any = "stop", **more: Any) -> bytes:
    return chats.completion(said, finish, **{"model": "m", **more})


REFUSED: dict[str, bytes | Sequence[bytes]] = {
    "nothing": [],
    "an empty body": b"",
    "no JSON": b"{",
    "no object": b"[1]",
    "an error": orjson.dumps({"error": {"message": "no"}}),
    "a cut text": body({"content": "Hi"}, "length"),
    "a filtered text": body({"content": "Hi"}, "content_filter"),
    "no finish reason": body({"content": "Hi"}, None),
    "an unknown finish reason": body({"content": "Hi"}, "abort"),
    "a strange finish reason": body({"content": "Hi"}, {"a": 1}),
    "no model": body({"content": "Hi"}, model=None),
    "no message": orjson.dumps({"model": "m", "choices": [{"index": 0, "finish_reason": "stop"}]}),
    "two choices": orjson.dumps(
        {
            "model": "m",
            "choices": [
                {"index": i, "message": {"content": "Hi"}, "finish_reason": "stop"} for i in (0, 1)
            ],
        }
    ),
    "the second choice": stream_of(
        HI, {"choices": [{"index": 1, "delta": {"content": "x"}}]}, STOP, b"[DONE]"
    ),
    "a citation": body({"content": "Hi", "annotations": [{"type": "url_citation"}]}),
    "speech": body({"content": None, "audio": {"data": ""}}),
    "an old call": body({"function_call": {"name": "f", "arguments": "{}"}}, "function_call"),
    "a call without an id": body({"tool_calls": [{**ONE, "id": None}]}, "tool_calls"),
    "a call with a strange id": body({"tool_calls": [{**ONE, "id": [1]}]}, "tool_calls"),
    "a call with broken arguments": body(
        {"tool_calls": [{**ONE, "function": {"name": "f", "arguments": '{"a":'}}]}, "tool_calls"
    ),
    "two calls under one index": stream_of(
        calling(arguments='{"a":1}'), calling(arguments='{"b":1}', id=None), CALLED, b"[DONE]"
    ),
    "two ids under one index": stream_of(
        calling(arguments='{"a":1}'), calling(id="call_2"), CALLED, b"[DONE]"
    ),
    "a fragment without an index": stream_of(
        calling(arguments='{"a":1}'), calling(index=None), CALLED, b"[DONE]"
    ),
    "a call without a name": body({"tool_calls": [{**ONE, "function": {}}]}, "tool_calls"),
    "two calls with one id": body(
        {"tool_calls": [{"id": "a", "custom": {"name": "c", "input": "x"}}] * 2}, "tool_calls"
    ),
    "usage that is too deep": stream_of(
        HI, STOP, b'{"choices":[],"usage":{"prompt_tokens":1,"x":%b}}' % (b"[" * 300 + b"]" * 300)
    ),
    "a strange call": body({"tool_calls": ["f"]}, "tool_calls"),
    "a strange input": body(
        {"tool_calls": [{"id": "a", "custom": {"name": "c", "input": {}}}]}, "tool_calls"
    ),
    "strange calls": body({"tool_calls": 5}, "tool_calls"),
    "a broken stream": stream_of(HI),
    "a stream without a reason": stream_of(HI, b"[DONE]"),
    "a cut stream": stream_of(HI, chats.chat_chunk("length"), b"[DONE]"),
    "a stream that failed": stream_of(HI, {"error": {"message": "no"}}),
    "a stream that failed late": stream_of(HI, STOP, {"error": {"message": "no"}}),
    "a stream with strange choices": stream_of(HI, {"choices": {"a": 1}}, STOP, b"[DONE]"),
    "a stream with strange deltas": stream_of(
        HI, {"choices": [{"index": 0, "delta": "x"}]}, STOP, b"[DONE]"
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_complete_answer(case: str) -> None:
    assert answer_of_chat(REFUSED[case]) is None


def test_usage_that_is_known_otherwise() -> None:
    for sent in (body({"content": "Hi"}), stream_of(HI, STOP, b"[DONE]")):
        back, better = answer_of_chat(sent), answer_of_chat(sent, usage=USAGE)
        assert back is not None
        assert back["usage"]["estimated"] is True
        assert better is not None
        assert better["usage"] == USAGE
    counted = answer_of_chat(body({"content": "Hi"}, usage=chats.USAGE), usage=USAGE)
    assert counted is not None
    assert counted["usage"]["input_tokens"] == 9


def test_reasoning_in_tags_becomes_reasoning() -> None:
    back = answer_of_chat(body({"content": "<think>hm</think>\n\nHi"}))
    assert back is not None
    assert without_ids(back["output"]) == without_ids([reasoning(("hm",)), message(text("Hi"))])


def test_fragments_of_custom_calls_that_alternate() -> None:
    def part(index: int, said: str, **more: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, **more, "custom": {"name": None, "input": said}}]}

    first = {"id": "a", "index": 0, "type": "custom", "custom": {"name": "c", "input": "{}"}}
    second = {"id": "b", "index": 1, "type": "custom", "custom": {"name": "c", "input": ""}}
    deltas: list[dict[str, Any]] = [
        {"tool_calls": [first]},
        {"tool_calls": [second]},
        part(0, " one"),
        part(1, "two"),
        part(0, " three"),
    ]
    body_ = [{**chats.chat_chunk(**delta), "model": "m"} for delta in deltas]
    back = answer_of_chat(stream_of(*body_, chats.chat_chunk("tool_calls"), b"[DONE]"))
    assert back is not None
    assert [item["input"] for item in back["output"]] == ["{} one three", "two"]
