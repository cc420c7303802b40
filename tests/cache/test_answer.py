"""What is kept of a response, and what must not be."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.request import CachedAnswer
from tests.support.asking import of_response

JSON = dict[str, Any]

REASONING: JSON = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Hm"}],
}
MESSAGE: JSON = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Paris", "annotations": [], "logprobs": []}],
}
CALL: JSON = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "f",
    "arguments": "{}",
}
CUSTOM: JSON = {"type": "custom_tool_call", "call_id": "call_2", "name": "g", "input": "x"}
REFUSAL: JSON = {**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}
USAGE: JSON = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}


def response(*output: Any, **fields: Any) -> JSON:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "completed_at": 2,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "m",
        "output": list(output) or [REASONING, MESSAGE],
        "output_text": "Paris",
        "usage": USAGE,
        "temperature": 1.0,
        "max_tool_calls": None,
        "store": True,
        "metadata": {"a": "b"},
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "previous_response_id": None,
        "background": False,
        "moderation": None,
        **fields,
    }


def made(answer: CachedAnswer | None) -> CachedAnswer:
    assert answer is not None
    return answer


def test_what_is_kept() -> None:
    answer = made(of_response(response(), {"rs_1": "secret", "rs_0": "of another"}))
    assert answer == CachedAnswer(
        model="m",
        output=[REASONING, MESSAGE],
        usage=USAGE,
        fields={"temperature": 1.0, "max_tool_calls": None},
        encrypted_reasoning={"rs_1": "secret"},
    )
    assert (answer.text, answer.calls) == ("Paris", False)
    assert "Paris" not in repr(answer)
    assert "secret" not in repr(answer)


def test_the_text_is_that_of_all_messages() -> None:
    again = {**MESSAGE, "content": MESSAGE["content"] * 2}
    assert made(of_response(response(again, REFUSAL, MESSAGE), {})).text == "Paris" * 3


@pytest.mark.parametrize("call", [CALL, CUSTOM], ids=["function", "custom"])
def test_calls(call: JSON) -> None:
    assert made(of_response(response(REASONING, call), {})).calls


def test_a_refusal_is_an_answer() -> None:
    assert made(of_response(response(REFUSAL), {})).text == ""


NOT_KEPT: list[JSON] = [
    response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    response(status="failed"),
    response(status="in_progress"),
    response(status=None),
    response(error={"code": "x"}),
    response(incomplete_details={"reason": "x"}),
    response(model=None),
    response(usage="many"),
    response(output=[]),
    response(output=None),
    response(REASONING),
    response({**MESSAGE, "content": []}),
    response({**MESSAGE, "content": [{"type": "output_text", "text": ""}]}),
    response({**MESSAGE, "status": "incomplete"}),
    response({**MESSAGE, "role": "user"}),
    response({**MESSAGE, "content": "Paris"}),
    response({**MESSAGE, "content": [{"type": "output_text", "text": None}]}),
    response({**MESSAGE, "content": [{"type": "output_audio", "data": "x"}]}),
    response(
        {
            **MESSAGE,
            "content": [
                {
                    "type": "output_text",
                    "text": "Paris",
                    "annotations": [{"type": "url_citation", "url": "u"}],
                }
            ],
        }
    ),
    response({**CALL, "status": "in_progress"}),
    response({**CALL, "arguments": None}),
    response(MESSAGE, {**CUSTOM, "call_id": 5}),
    response({"type": "web_search_call", "status": "completed"}, MESSAGE),
    response({"type": "compaction", "encrypted_content": "x"}, MESSAGE),
    response({"type": "tomorrow"}, MESSAGE),
    response({"type": ["message"]}, MESSAGE),
    response({**REASONING, "summary": 5}, MESSAGE),
    response("Paris"),
]


@pytest.mark.parametrize("body", NOT_KEPT, ids=range(len(NOT_KEPT)))
def test_what_is_not_kept(body: JSON) -> None:
    assert of_response(body, {}) is None


SEARCHED: JSON = {"type": "web_search_call", "status": "completed", "action": {"query": "q"}}
CALLED: JSON = {
    "type": "mcp_call",
    "status": "completed",
    "server_label": "s",
    "name": "f",
    "arguments": "{}",
    "error": None,
}
LISTED: JSON = {"type": "mcp_list_tools", "server_label": "s", "tools": [], "error": None}
CITING: JSON = {
    **MESSAGE,
    "content": [{**MESSAGE["content"][0], "annotations": [{"type": "url_citation", "url": "u"}]}],
}


def test_what_hosted_tools_did_is_kept_where_it_may_be() -> None:
    body = response(LISTED, CALLED, SEARCHED, CITING)
    answer = made(of_response(body, {}, hosted=True))
    assert CachedAnswer.decode(answer.encode()) == answer
    assert of_response(body, {}) is None


@pytest.mark.parametrize(
    "item",
    [
        {**SEARCHED, "status": "failed"},
        {**SEARCHED, "action": None},
        {**CALLED, "error": {"type": "tool_execution_error"}},
        {**CALLED, "arguments": None},
        {**LISTED, "error": "no answer"},
        {**LISTED, "tools": None},
        {"type": "mcp_approval_request", "server_label": "s", "name": "f", "arguments": "{}"},
        {"type": "file_search_call", "status": "completed", "queries": []},
    ],
    ids=range(8),
)
def test_what_hosted_tools_failed_to_do_is_not_kept(item: JSON) -> None:
    assert of_response(response(item, MESSAGE), {}, hosted=True) is None


def test_an_answer_needs_more_than_the_items_of_tools() -> None:
    assert of_response(response(LISTED, CALLED), {}, hosted=True) is None


@pytest.mark.parametrize(
    "body",
    [
        response(MESSAGE, temperature=2**70),
        response({**MESSAGE, "content": [{"type": "output_text", "text": "\ud800"}]}),
    ],
    ids=["huge", "surrogate"],
)
def test_what_json_cannot_say(body: JSON) -> None:
    answer = of_response(body, {})
    assert answer is not None
    with pytest.raises(ValueError, match="JSON"):
        answer.encode()


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ITEM = st.one_of(
    st.builds(
        lambda texts: {
            **MESSAGE,
            "content": [{"type": "output_text", "text": text} for text in texts],
        },
        st.lists(TEXT, max_size=3),
    ),
    st.builds(lambda text: {**CALL, "arguments": text}, TEXT),
    st.just(REASONING),
)


@given(st.lists(ITEM), st.dictionaries(TEXT, TEXT), TEXT)
def test_what_is_encoded_is_decoded(
    items: list[JSON], encrypted_reasoning: dict[str, str], model: str
) -> None:
    body = response(output=[*items, MESSAGE], model=model)
    answer = made(of_response(body, {**encrypted_reasoning, "rs_1": "x"}))
    assert CachedAnswer.decode(answer.encode()) == answer


def encoded(**fields: Any) -> bytes:
    whole = {"v": 1, "model": "m", "output": [MESSAGE], "usage": None, "fields": {}, "hidden": {}}
    return orjson.dumps({**whole, **fields})


def test_the_smallest_answer() -> None:
    assert CachedAnswer.decode(encoded()).text == "Paris"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04.",
        b"null",
        b"[]",
        b"{}",
        b"[" * 2000,
        encoded(v=2),
        encoded(v=True),
        encoded(v="1"),
        encoded(model=None),
        encoded(output=[]),
        encoded(output=[{"type": "web_search_call"}]),
        encoded(output={}),
        encoded(usage=[]),
        encoded(fields=None),
        encoded(encrypted_reasoning=[]),
        encoded(encrypted_reasoning={"rs_1": 5}),
        encoded(more=1),
        encoded()[:-1],
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="A stored answer is"):
        CachedAnswer.decode(data)


@given(st.binary())
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with pytest.raises(ValueError, match="A stored answer is"):
        CachedAnswer.decode(data)


def test_what_json_cannot_say_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        CachedAnswer("\ud800", [MESSAGE], None, {}, {}).encode()
