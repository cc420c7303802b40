"""A message of an endpoint as a response: why it ended, what it used, what came in it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.messages.answer_schema import ANSWER_TOOL
from router.dialects.messages.decode_stream import MessagesDecoder
from router.errors import UpstreamError, UpstreamFailure, UpstreamRateLimited, UpstreamRejected
from tests.support.reading import events_of, make_builder, native, read_all

TEXT = {"type": "text", "text": "Hi"}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
REDACTED = {"type": "redacted_thinking", "data": "blob"}


def whole(*content: Any, reason: Any = "end_turn", hide: bool = False, **usage: int) -> Any:
    decoder = MessagesDecoder(make_builder(), account="acc")
    decoder.hide = hide
    message = {"type": "message", "content": list(content), "stop_reason": reason, "usage": usage}
    return decoder, orjson.loads(decoder.whole(orjson.dumps(message)))


@pytest.mark.parametrize(
    ("reason", "status", "details"),
    [
        ("end_turn", "completed", None),
        ("stop_sequence", "completed", None),
        ("tool_use", "completed", None),
        ("pause_turn", "completed", None),
        ("something_new", "completed", None),
        (None, "completed", None),
        ("max_tokens", "incomplete", {"reason": "max_output_tokens"}),
        ("model_context_window_exceeded", "incomplete", {"reason": "max_output_tokens"}),
        ("refusal", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_why_it_ended(reason: Any, status: str, details: Any) -> None:
    _, response = whole(TEXT, reason=reason, input_tokens=1, output_tokens=1)
    assert (response["status"], response["incomplete_details"]) == (status, details)


def test_what_it_used() -> None:
    counts: Any = {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    _, response = whole(TEXT, input_tokens=3, output_tokens=5, **counts)
    assert response["usage"] == {
        "input_tokens": 123,
        "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 20},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 128,
    }
    _, response = whole(TEXT)
    assert response["usage"]["estimated"] is True


def test_thinking_is_sealed_or_hidden() -> None:
    _, response = whole(THOUGHT, REDACTED, TEXT, output_tokens=1)
    kinds = [(item["type"], item.get("encrypted_content", "")[:8]) for item in response["output"]]
    assert kinds == [("reasoning", "pm1.acc."), ("reasoning", "pm1.acc."), ("message", "")]
    assert response["output"][0]["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert response["output"][1]["summary"] == []
    decoder, hidden = whole(THOUGHT, REDACTED, TEXT, hide=True, output_tokens=1)
    assert "pm1." not in str(hidden)
    assert list(decoder.encrypted_reasoning) == [item["id"] for item in hidden["output"][:2]]


def test_what_anthropic_ran_itself_is_left_out() -> None:
    ran = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    _, response = whole(ran, found, TEXT)
    assert [item["type"] for item in response["output"]] == ["message"]


def test_an_answer_that_a_function_stands_for() -> None:
    call = {"type": "tool_use", "id": "t", "name": ANSWER_TOOL, "input": {"n": 1}}
    _, response = whole(call, reason="tool_use")
    assert response["output_text"] == '{"n":1}'


def test_input_that_comes_with_the_beginning_of_a_call() -> None:
    """As some engines send it, with no piece of it afterwards."""
    begun = {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}}
    stream = native(
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    )
    decoder = MessagesDecoder(make_builder())
    [*_, last] = events_of(decoder, stream)
    [item] = last["response"]["output"]
    assert (item["call_id"], item["arguments"]) == ("t", '{"a":1}')


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", UpstreamFailure),
        ("api_error", UpstreamFailure),
        ("rate_limit_error", UpstreamRateLimited),
        ("invalid_request_error", UpstreamRejected),
    ],
)
def test_an_error_in_a_stream(kind: str, error: type[UpstreamError]) -> None:
    decoder = MessagesDecoder(make_builder())
    read_all(decoder, native({"type": "error", "error": {"type": kind, "message": "no"}}))
    assert type(decoder.error) is error


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"content":[1]}', b'{"type":"error"}'])
def test_what_is_no_message(body: bytes) -> None:
    with pytest.raises(UpstreamError):
        MessagesDecoder(make_builder()).whole(body)
