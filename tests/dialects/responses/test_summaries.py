"""What is left of a conversation beside its summary, and how a summary is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.responses.context_management import compaction_entry
from router.dialects.responses.summaries import (
    Summary,
    kept_items,
    own_compactions,
    summary_request,
    summary_text,
    window,
    with_summaries,
)

Item = dict[str, Any]


def said(role: str, content: Any) -> Item:
    return {"role": role, "content": content}


SYSTEM, ANN, BOAT, NOTED = (
    said("system", "Be brief."),
    said("user", "I am Ann."),
    said("user", "I want a boat."),
    said("assistant", "Noted."),
)
CALL: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT: Item = {"type": "function_call_output", "call_id": "c", "output": "sea"}
TOOLS: Item = {"type": "additional_tools", "role": "developer", "tools": []}
OURS: Item = {"type": "compaction", "encrypted_content": "pmc1.k.d"}
THEIRS: Item = {"type": "compaction", "encrypted_content": "gAAAA"}
SUMMARY = Summary("Ann wants a boat.")


@pytest.mark.parametrize(
    ("items", "summary", "expected"),
    [
        ([], SUMMARY, [None]),
        ([SYSTEM, ANN, NOTED, CALL, OUTPUT, BOAT], SUMMARY, [SYSTEM, ANN, BOAT, None]),
        ([ANN, TOOLS, NOTED], SUMMARY, [ANN, TOOLS, None]),
        ([ANN, NOTED, BOAT], Summary("x", pending=True), [ANN, None, BOAT]),
        ([ANN, NOTED, ANN, BOAT], Summary("x", 0, pending=True), [None, ANN, BOAT]),
        ([ANN, CALL, OUTPUT], Summary("x", pending=True), [ANN, None]),
        ([SYSTEM, ANN, BOAT], Summary("x", 4), [SYSTEM, BOAT, None]),
        ([SYSTEM, ANN, BOAT], Summary("x", 3), [SYSTEM, None]),
        ([said("user", "long " * 9), ANN, BOAT], Summary("x", 7), [ANN, BOAT, None]),
        ([THEIRS, OURS, ANN], SUMMARY, [ANN, None]),
    ],
    ids=range(10),
)
def test_a_window(items: list[Item], summary: Summary, expected: list[Item | None]) -> None:
    found = window(items, summary)
    assert found == [summary.item() if one is None else one for one in expected]


def test_older_messages_do_not_take_the_place_of_newer_ones() -> None:
    items = [ANN, said("user", "long " * 90), BOAT]
    assert kept_items(items, 9) == [BOAT]


def test_only_the_last_summary_counts() -> None:
    items = [ANN, OURS, NOTED, BOAT, OURS, CALL, OUTPUT]
    assert own_compactions([*items, THEIRS]) == {1: "pmc1.k.d", 4: "pmc1.k.d"}
    told = with_summaries(items, {1: Summary("old"), 4: SUMMARY})
    assert told == [ANN, BOAT, SUMMARY.item(), CALL, OUTPUT]
    assert with_summaries([THEIRS, ANN], {}) == [THEIRS, ANN]


@given(st.builds(Summary, st.text(), st.integers(0, 10**6), st.booleans()))
def test_a_summary_is_what_it_was(summary: Summary) -> None:
    assert Summary.loaded(summary.dumped()) == summary


def test_what_a_summary_is_asked_for_with() -> None:
    tool = {"type": "function", "name": "f", "parameters": {}}
    body = {
        "model": "m",
        "instructions": "Sell boats.",
        "reasoning": {"effort": "high"},
        "prompt_cache_key": "k",
        "tools": [tool, {"type": "web_search"}],
        "tool_choice": "required",
        "max_output_tokens": 5,
        "text": {"format": {"type": "json_object"}},
        "previous_response_id": "resp_1",
        "stream": True,
        "store": True,
    }
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
    asked = summary_request(body, [ANN, search], "m", same_model=True)
    items = asked.pop("input")
    assert [item.get("type") for item in items] == [
        None, "function_call", "function_call_output", "message",
    ]  # fmt: skip
    assert asked == {
        "model": "m",
        "instructions": "Sell boats.",
        "reasoning": {"effort": "high"},
        "prompt_cache_key": "k",
        "tools": [tool],
        "tool_choice": "none",
        "stream": False,
        "store": False,
        "truncation": "auto",
    }
    other = summary_request({**body, "tools": []}, [ANN], "small", same_model=False)
    assert other["model"] == "small"
    assert other.keys() & {"reasoning", "tools", "tool_choice"} == set()


def test_another_model_is_told_of_images_in_words() -> None:
    text = {"type": "input_text", "text": "Look:"}
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    shown = said("user", [text, image])
    output = {**OUTPUT, "output": [image]}
    same = summary_request({}, [shown, CALL, output], "m", same_model=True)
    assert same["input"][:-1] == [shown, CALL, output]
    told = {"type": "input_text", "text": "[image]"}
    other = summary_request({}, [shown, CALL, output, ANN], "small", same_model=False)
    assert other["input"][:-1] == [
        said("user", [text, told]), CALL, {**OUTPUT, "output": [told]}, ANN,
    ]  # fmt: skip


def answer(status: str = "completed", **fields: Any) -> Item:
    part = {"type": "output_text", "text": " said "}
    message = {"type": "message", "content": [part, {"type": "refusal", "refusal": "no"}]}
    return {"status": status, "output": [{"type": "reasoning"}, message], **fields}


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (answer(), "said"),
        (answer(output=[]), ""),
        (answer(output=[CALL]), ""),
        (answer("incomplete", incomplete_details={"reason": "max_output_tokens"}), "said"),
        (answer("incomplete", incomplete_details={"reason": "content_filter"}), ""),
        (answer("failed", incomplete_details=None), ""),
        ({}, ""),
    ],
    ids=range(7),
)
def test_the_text_of_a_summary(response: Item, text: str) -> None:
    assert summary_text(response) == text


@pytest.mark.parametrize(
    ("managed", "threshold", "left"),
    [
        ([{"type": "compaction", "compact_threshold": 1000}], 1000, None),
        ([{"type": "compaction", "compact_threshold": None}], None, None),
        ([{"type": "other"}, {"type": "compaction"}], None, [{"type": "other"}]),
    ],
)
def test_context_management(managed: Any, threshold: int | None, left: Any) -> None:
    body = {"model": "m", "context_management": managed}
    entry = compaction_entry(body)
    assert entry is not None
    assert entry.threshold == threshold
    expected = {"model": "m"} if left is None else {"model": "m", "context_management": left}
    assert entry.without(body) == expected


@pytest.mark.parametrize("managed", [None, [], {"edits": []}, "x", [5], [{"type": "other"}], [{}]])
def test_what_is_not_about_compacting(managed: Any) -> None:
    assert compaction_entry({"context_management": managed}) is None
