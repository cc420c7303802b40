"""Compacting a conversation: what goes up, what comes back."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from router.dialects.chat.messages import to_messages
from router.dialects.responses.compaction import compacted
from router.dialects.responses.encode_request import (
    encode_compact_request,
    encode_responses_request,
)
from router.dialects.responses.sealing import seal
from router.errors import InvalidRequest, UpstreamFailure
from tests.support.reading import NOW
from tests.support.schema import faults

USER = {"type": "message", "id": "msg_1", "role": "user", "status": "completed"} | {
    "content": [{"type": "input_text", "text": "Hello"}]
}
SUMMARY = {"type": "compaction", "id": "cmp_1", "encrypted_content": "a-summary"}
ANSWER: dict[str, Any] = {
    "id": "resp_theirs",
    "object": "response.compaction",
    "created_at": 1_764_967_971,
    "output": [USER, SUMMARY],
    "usage": {
        "input_tokens": 139,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 438,
        "output_tokens_details": {"reasoning_tokens": 64},
        "total_tokens": 577,
    },
}


def read(body: Any) -> dict[str, Any]:
    return compacted(
        orjson.dumps(body),
        model="asked",
        account="me",
        new_id=lambda prefix: f"{prefix}ours",
        now=lambda: NOW,
    )


def test_what_comes_back() -> None:
    ours = read(ANSWER)
    sealed = {**SUMMARY, "encrypted_content": seal("a-summary", "me")}
    assert ours == {**ANSWER, "id": "resp_ours", "output": [USER, sealed]}
    assert faults("CompactResource", ours) == []


@pytest.mark.parametrize(
    ("theirs", "ours"), [("/models/m.gguf", "asked"), (7, "asked"), (None, None)]
)
def test_the_model_has_the_name_that_was_asked_for(theirs: Any, ours: Any) -> None:
    assert read({**ANSWER, "model": theirs})["model"] == ours


@pytest.mark.parametrize("gone", ["id", "object", "created_at", "usage"])
def test_what_an_endpoint_leaves_out(gone: str) -> None:
    ours = read({k: v for k, v in ANSWER.items() if k != gone})
    assert faults("CompactResource", ours) == []
    assert ours["created_at"] == (NOW if gone == "created_at" else ANSWER["created_at"])


@pytest.mark.parametrize("odd", [None, True, "2026-01-01", 1.5, -1, 1e30, [1]])
def test_an_odd_date(odd: Any) -> None:
    assert read({**ANSWER, "created_at": odd})["created_at"] == NOW


def test_reasoning_is_sealed_too() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "blob"}
    (item,) = read({**ANSWER, "output": [reasoning]})["output"]
    assert item["encrypted_content"] == seal("blob", "me")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "without output"),
        (b'{"output": "x"}', "without output"),
        (b'{"error": {"message": "on fire"}}', "on fire"),
    ],
)
def test_a_broken_answer(body: bytes, message: str) -> None:
    with pytest.raises(UpstreamFailure, match=message):
        compacted(body, model="asked", account="me", new_id=str, now=lambda: NOW)


def test_what_goes_up() -> None:
    request = {
        "model": "alias",
        "input": [
            USER,
            {"type": "reasoning", "id": "rs_1", "encrypted_content": seal("blob", "me")},
            {"type": "reasoning", "id": "rs_2", "encrypted_content": seal("blob", "other")},
        ],
        "instructions": "Be brief.",
        "prompt_cache_key": "k",
        "something_new": 1,
        "previous_response_id": "resp_1",
        "conversation": "conv_1",
        "background": False,
        "store": True,
        "stream": True,
        "stream_options": {},
        "cache": {},
    }
    before = copy.deepcopy(request)
    sent, dropped = encode_compact_request(request, model="served", account="me")
    assert request == before
    assert dropped == 1
    assert sent == {
        "model": "served",
        "input": [
            {k: v for k, v in USER.items() if k != "id"},
            {"type": "reasoning", "summary": [], "encrypted_content": "blob"},
        ],
        "instructions": "Be brief.",
        "prompt_cache_key": "k",
        "something_new": 1,
    }


@pytest.mark.parametrize(
    ("blob", "sent"),
    [(seal("a-summary", "me"), "a-summary"), ("a-summary", "a-summary"), ("", ""), (None, None)],
)
def test_a_compaction_finds_its_way_back(blob: Any, sent: Any) -> None:
    item = {**SUMMARY, "encrypted_content": blob}
    made, count = encode_responses_request(
        {"input": [item, USER]}, model="m", stream=False, account="me"
    )
    assert count == 0
    assert made["input"][:-1] == [{"type": "compaction", "encrypted_content": sent}]


def test_another_accounts_compaction_is_refused_rather_than_lost() -> None:
    item = {**SUMMARY, "encrypted_content": seal("a-summary", "other")}
    with pytest.raises(InvalidRequest, match="another endpoint") as refused:
        encode_responses_request({"input": [USER, item]}, model="m", stream=False, account="me")
    assert refused.value.param == "input[1]"


def test_what_comes_back_can_go_up_again() -> None:
    items = read(ANSWER)["output"]
    made, dropped = encode_responses_request(
        {"input": items}, model="m", stream=False, account="me"
    )
    assert made["input"][-1] == {"type": "compaction", "encrypted_content": "a-summary"}
    assert dropped == 0


def test_other_dialects_cannot_read_it() -> None:
    with pytest.raises(InvalidRequest, match="'compaction' item") as refused:
        to_messages({"input": [USER, SUMMARY]})
    assert refused.value.param == "input[1]"
