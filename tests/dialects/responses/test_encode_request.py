"""Responses requests for endpoints that speak the Responses API themselves."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from router.dialects.responses.encode_request import (
    encode_native_chat_request,
    encode_responses_request,
    encode_token_count_request,
    known_fields,
)
from router.dialects.responses.sealing import seal
from router.errors import InvalidRequest

BODY: dict[str, Any] = {
    "model": "alias",
    "input": "Hello",
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "store": True,
    "background": True,
    "previous_response_id": "resp_1",
    "conversation": {"id": "conv_1"},
    "prompt": {"id": "p"},
    "cache": {"mode": "off"},
    "nomyo": {"tier": 1},
    "metadata": {"a": "b"},
    "temperature": 0,
    "seed": 7,
    "something_new": [1],
    "tools": None,
}


def body(request: dict[str, Any], *, stream: bool = True) -> dict[str, Any]:
    before = copy.deepcopy(request)
    sent, _ = encode_responses_request(request, model="served", stream=stream, account="me")
    assert request == before
    return sent


def items(*given: dict[str, Any]) -> list[dict[str, Any]]:
    sent = body({"input": list(given)})["input"]
    assert isinstance(sent, list)
    return sent


def test_nothing_is_stored_and_the_rest_goes_as_it_came() -> None:
    assert body(BODY) == {
        "model": "served",
        "input": "Hello",
        "stream": True,
        "stream_options": {"include_obfuscation": False},
        "store": False,
        "metadata": {"a": "b"},
        "temperature": 0,
        "seed": 7,
        "something_new": [1],
        "tools": None,
    }


def test_stream_options_go_only_with_a_stream() -> None:
    sent = body(BODY, stream=False)
    assert sent["stream"] is False
    assert "stream_options" not in sent


def test_items_lose_their_ids() -> None:
    text = [{"type": "output_text", "text": "A", "id": "not an item's"}]
    approval = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}"}
    shell = {"type": "local_shell_call_output", "id": "call_2", "output": "x"}
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "Hello"},
        {"id": "msg_1", "role": "assistant", "content": text},
        {"id": "msg_2", "type": "message", "role": "assistant", "content": "x", "status": "done"},
        {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "f", "arguments": ""},
        {"id": None, "type": "function_call_output", "call_id": "call_1", "output": "x"},
        approval,
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        shell,
        {**shell, "id": "lsho_1", "call_id": "call_2"},
    ]
    without = [{k: v for k, v in item.items() if k != "id"} for item in given]
    without[5], without[7] = approval, shell
    for message in without[:2]:
        message["type"] = "message"
    assert items(*given) == without


def test_reasoning_of_this_account_is_unsealed() -> None:
    given = {
        "id": "rs_1",
        "type": "reasoning",
        "status": "completed",
        "summary": [{"type": "summary_text", "text": "x"}],
        "encrypted_content": seal("blob", "me"),
    }
    assert items(given) == [
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "x"}],
            "encrypted_content": "blob",
        }
    ]


@pytest.mark.parametrize("summary", [{}, {"summary": None}])
def test_reasoning_without_a_mark_is_somebodys_own(summary: dict[str, Any]) -> None:
    given = {"type": "reasoning", "id": "rs_1", "encrypted_content": "blob", **summary}
    assert items(given) == [{"type": "reasoning", "summary": [], "encrypted_content": "blob"}]


CONTENT = [{"type": "reasoning_text", "text": "hm"}]


@pytest.mark.parametrize(
    ("given", "sent", "dropped"),
    [
        ({"encrypted_content": seal("blob", "other")}, None, 1),
        ({"encrypted_content": seal("blob", "other"), "content": CONTENT}, {"content": CONTENT}, 1),
        ({"encrypted_content": None, "content": CONTENT}, {"content": CONTENT}, 0),
        ({"summary": [{"type": "summary_text", "text": "x"}]}, None, 0),
        ({"encrypted_content": ""}, None, 0),
    ],
)
def test_reasoning_that_cannot_be_read_is_dropped(
    given: dict[str, Any], sent: dict[str, Any] | None, dropped: int
) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], **given}
    message = {"type": "message", "role": "user", "content": "x"}
    request = {"input": [reasoning, message]}
    made, count = encode_responses_request(request, model="m", stream=False, account="me")
    expected = [] if sent is None else [{"type": "reasoning", "summary": [], **sent}]
    assert made["input"] == [*expected, message]
    assert count == dropped


@pytest.mark.parametrize("kind", [{"type": "item_reference"}, {"type": None}, {}])
def test_a_reference_is_refused(kind: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="Item with id 'msg_1' not found") as refused:
        items({"role": "user", "content": "x"}, {**kind, "id": "msg_1"})
    assert (refused.value.param, refused.value.code) == ("input[1]", "invalid_value")


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, ["reasoning.encrypted_content"]),
        ({"include": None}, ["reasoning.encrypted_content"]),
        ({"include": ["x"]}, ["x", "reasoning.encrypted_content"]),
        ({"include": ["reasoning.encrypted_content"]}, ["reasoning.encrypted_content"]),
    ],
)
def test_encrypted_reasoning_is_asked_for(given: dict[str, Any], sent: list[str]) -> None:
    request = {"input": "x", **given}
    before = copy.deepcopy(request)
    made, _ = encode_responses_request(
        request, model="m", stream=False, account="me", encrypted=True
    )
    assert made["include"] == sent
    assert request == before
    made, _ = encode_responses_request(request, model="m", stream=False, account="me")
    assert made.get("include") == given.get("include")


def test_what_is_sent_to_be_counted() -> None:
    sent = encode_token_count_request(BODY, model="served", account="me")
    assert sent == {
        "model": "served",
        "input": "Hello",
        "temperature": 0,
        "seed": 7,
        "something_new": [1],
        "tools": None,
    }
    reasoning = {"type": "reasoning", "id": "rs_1", "encrypted_content": seal("blob", "me")}
    counted = encode_token_count_request({"input": [reasoning]}, model="served", account="me")
    assert counted["input"][0]["encrypted_content"] == "blob"


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (None, {"include_usage": True}),
        ({"include_usage": False}, {"include_usage": True}),
        ({"other": 1}, {"other": 1, "include_usage": True}),
    ],
)
def test_a_chat_stream_is_asked_for_its_usage(options: Any, sent: dict[str, Any]) -> None:
    request = {"model": "alias", "messages": [], "nomyo": 1, "cache": 1, "x": 2}
    if options is not None:
        request["stream_options"] = options
    before = copy.deepcopy(request)
    made = encode_native_chat_request(request, model="served", stream=True)
    streamed = {"stream": True, "stream_options": sent}
    assert made == {"model": "served", "messages": [], "x": 2, **streamed}
    assert request == before


def test_a_chat_request_goes_as_it_came() -> None:
    request = {"model": "alias", "messages": [], "x": 2}
    assert encode_native_chat_request(request, model="m", stream=False) == {**request, "model": "m"}


def test_what_only_the_routers_own_search_has_is_not_sent() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "input": "x",
        "tools": [
            {"type": "function", "name": "f", "max_uses": 1},
            {
                "type": "web_search",
                "max_uses": 3,
                "filters": {"allowed_domains": ["a.test"], "blocked_domains": ["b.a.test"]},
            },
            {"type": "web_search", "filters": {"blocked_domains": ["b.test"]}},
        ],
    }
    known, dropped = known_fields(body)
    assert known["tools"] == [
        {"type": "function", "name": "f", "max_uses": 1},
        {"type": "web_search", "filters": {"allowed_domains": ["a.test"]}},
        {"type": "web_search"},
    ]
    assert dropped == (
        "tools[1].filters.blocked_domains",
        "tools[1].max_uses",
        "tools[2].filters.blocked_domains",
    )
    assert body["tools"][1]["max_uses"] == 3, "the request itself is left alone"
