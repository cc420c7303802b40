"""A stream that is read for an answer in one piece gives what the same answer gives whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.chat.encode_stream import ChatEncoder
from router.dialects.ollama.decode_stream import OllamaDecoder
from router.dialects.responses.decode_stream import ResponsesDecoder
from router.errors import RouterError, UpstreamFailure
from router.response.decoder import StreamDecoder
from router.response.machine import MachineOptions
from tests.support import chat as chats
from tests.support.native import ACCOUNT, USAGE, answer, begun, call, message, reasoning, refusal
from tests.support.reading import NOW, in_bytes, make_builder, ollama, sse

NATIVE: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "text": ([message("A", "B")], {}),
    "nothing": ([], {}),
    "a refusal": ([refusal("No.")], {}),
    "calls": ([reasoning(), call("f", '{"a":1}'), call("g", "{}")], {}),
    "hidden reasoning": ([reasoning("a-secret"), message("A")], {}),
    "cut": ([message("A")], {"end": "incomplete", "incomplete_details": {"reason": "x"}}),
    "its fault": (
        [message("A")],
        {"end": "failed", "error": {"code": "invalid_prompt", "message": "no"}},
    ),
    "other fields": ([message("A")], {"service_tier": "priority", "instructions": "B"}),
}


def native() -> ResponsesDecoder:
    return ResponsesDecoder(make_builder(muted=True), ACCOUNT, hide=True)


def told() -> ChatEncoder:
    return ChatEncoder(native(), wants_usage=False, muted=True)


def assembled(decoder: StreamDecoder, stream: bytes) -> bytes:
    for piece in in_bytes(stream):
        decoder.feed(piece)
    if not decoder.ended:
        decoder.finish()
    assert decoder.error is None
    assert decoder.ended
    return decoder.assembled()


def outcome(read: Callable[[], bytes]) -> Any:
    try:
        return orjson.loads(read())
    except RouterError as error:
        return type(error), error.message


@pytest.mark.parametrize("make", [native, told])
@pytest.mark.parametrize("case", NATIVE)
def test_a_response(case: str, make: Callable[[], StreamDecoder]) -> None:
    items, fields = NATIVE[case]
    final = {"status": fields.get("end", "completed"), "output": items, "usage": USAGE}
    final |= {name: value for name, value in fields.items() if name != "end"}
    body, stream = orjson.dumps(begun(**final)), answer(*items, **fields)
    whole, streamed = make(), make()
    expected = outcome(lambda: whole.whole(body))
    assert outcome(lambda: assembled(streamed, stream)) == expected
    assert (streamed.usage, streamed.encrypted_reasoning) == (
        whole.usage,
        whole.encrypted_reasoning,
    )
    if isinstance(expected, dict):
        assert NOW in (expected.get("created_at"), expected.get("created"))


@pytest.mark.parametrize("make", [native, told])
def test_a_response_that_the_endpoint_failed_is_none(make: Callable[[], StreamDecoder]) -> None:
    error = {"code": "server_error", "message": "on fire"}
    with pytest.raises(UpstreamFailure, match="on fire"):
        assembled(make(), answer(message("A"), end="failed", error=error))


def chat_reader() -> ChatDecoder:
    return ChatDecoder(make_builder(muted=True), MachineOptions(logprobs=True))


@pytest.mark.parametrize("finish", ["stop", "length", "content_filter"])
def test_a_chat(finish: str) -> None:
    said = {"reasoning_content": "hm", "content": "Hé, <b>", "refusal": "No"}
    called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    whole = chats.completion({**said, "tool_calls": [called]}, finish, usage=chats.USAGE)
    deltas = [{name: piece} for name, text in said.items() for piece in text]
    pieces = [chats.tool('{"a"', name="f", id="a"), chats.tool(":1}")]
    chunks = [chats.chat_chunk(**delta) for delta in [*deltas, *pieces]]
    last = {"choices": [], "usage": chats.USAGE}
    stream = sse(*chunks, chats.chat_chunk(finish), last, b"[DONE]")
    expected = orjson.loads(chat_reader().whole(whole))
    assert orjson.loads(assembled(chat_reader(), stream)) == expected


def test_a_chat_of_ollamas() -> None:
    calls = {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}
    said = {"role": "assistant", "content": "Hé", "thinking": "hm", **calls}
    counts = {"prompt_eval_count": 7, "eval_count": 4}
    whole = orjson.dumps({"message": said, "done": True, "done_reason": "length", **counts})
    messages: list[dict[str, Any]] = [
        *({"thinking": piece} for piece in "hm"),
        *({"content": piece} for piece in "Hé"),
        {"content": "", **calls},
    ]
    expected = orjson.loads(OllamaDecoder(make_builder(muted=True)).whole(whole))
    assert expected["output_text"] == "Hé"
    stream = ollama(*messages, reason="length", **counts)
    assert orjson.loads(assembled(OllamaDecoder(make_builder(muted=True)), stream)) == expected
