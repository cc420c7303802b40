"""Output items, each written from its beginning to its end."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from router.response.builder import ResponseBuilder, StreamState
from router.response.call_items import CallItem, CustomCallItem, SearchCallItem, search_arguments
from router.response.frame import Frame
from router.response.items import ItemWriter, ReasoningItem, RefusalItem, TextItem
from tests.support.order import Event, OrderError, check_order
from tests.support.reading import decoded, make_builder

Make = Callable[[ResponseBuilder, int, list[Frame]], ItemWriter]
LOGPROB = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}


def call(builder: ResponseBuilder, index: int, out: list[Frame]) -> ItemWriter:
    return CallItem(builder, index, out, "call_1", "f")


def custom(builder: ResponseBuilder, index: int, out: list[Frame]) -> ItemWriter:
    return CustomCallItem(builder, index, out, "call_1", "c")


def namespaced(builder: ResponseBuilder, index: int, out: list[Frame]) -> ItemWriter:
    return CallItem(builder, index, out, "call_1", "f", "n")


def namespaced_custom(builder: ResponseBuilder, index: int, out: list[Frame]) -> ItemWriter:
    return CustomCallItem(builder, index, out, "call_1", "c", "n")


def search(builder: ResponseBuilder, index: int, out: list[Frame]) -> ItemWriter:
    return SearchCallItem(builder, index, out, "call_1", "tool_search")


def stream(make: Make, pieces: list[str], status: str = "completed") -> list[Event]:
    """The whole stream of an answer with one item."""
    builder = make_builder()
    out = builder.open()
    builder.advance(StreamState.ITEM)
    item = make(builder, 0, out)
    item.open()
    for piece in pieces:
        item.delta(piece)
    done = item.close(status)
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    out.append(builder.end(builder.snapshot(status, [done], None, incomplete_details=details)))
    return decoded(out)


CASES: dict[str, tuple[Make, list[str], list[str], dict[str, Any]]] = {
    "text": (
        TextItem,
        ["Hel", "lö"],
        ["Hel", "lö"],
        {
            "id": "msg_0002",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "Hellö", "annotations": [], "logprobs": []}
            ],
        },
    ),
    "refusal": (
        RefusalItem,
        ["No", "."],
        ["No", "."],
        {
            "id": "msg_0002",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "No."}],
        },
    ),
    "reasoning": (
        ReasoningItem,
        ["why", "?"],
        ["why", "?"],
        {
            "id": "rs_0002",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "why?"}],
        },
    ),
    "call": (
        call,
        ['{"a"', ":1}"],
        ['{"a"', ":1}"],
        {
            "id": "fc_0002",
            "type": "function_call",
            "status": "completed",
            "arguments": '{"a":1}',
            "call_id": "call_1",
            "name": "f",
        },
    ),
    "custom call": (
        custom,
        ['{"inp', 'ut":"x\\n', 'y"}'],
        ["x\ny"],
        {
            "id": "ctc_0002",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "call_1",
            "name": "c",
            "input": "x\ny",
        },
    ),
    "call in a namespace": (
        namespaced,
        ["{}"],
        ["{}"],
        {
            "id": "fc_0002",
            "type": "function_call",
            "status": "completed",
            "arguments": "{}",
            "call_id": "call_1",
            "name": "f",
            "namespace": "n",
        },
    ),
    "custom call in a namespace": (
        namespaced_custom,
        ['{"input":"x"}'],
        ["x"],
        {
            "id": "ctc_0002",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "call_1",
            "name": "c",
            "namespace": "n",
            "input": "x",
        },
    ),
    "search": (
        search,
        ['{"query"', ':"q"}'],
        [],
        {
            "id": "tsc_0002",
            "type": "tool_search_call",
            "status": "completed",
            "call_id": "call_1",
            "execution": "client",
            "arguments": {"query": "q"},
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_item_is_written_in_order(case: str) -> None:
    make, pieces, deltas, item = CASES[case]
    events = stream(make, pieces)
    check_order(events)
    assert [event["delta"] for event in events if "delta" in event] == deltas
    assert events[-2]["item"] == item


@pytest.mark.parametrize("case", CASES)
def test_a_cut_item_is_incomplete(case: str) -> None:
    make, pieces, _, item = CASES[case]
    final = check_order(stream(make, pieces, "incomplete"))
    status = {"status": "incomplete"} if "status" in item else {}
    assert final["output"] == [{**item, **status}]


@pytest.mark.parametrize("pieces", [[], [""], [" ", "\n"]])
def test_no_arguments_are_an_empty_object(pieces: list[str]) -> None:
    final = check_order(stream(call, pieces))
    assert final["output"][0]["arguments"].strip() == "{}"


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ("", ""),
        ('{"input": ""}', ""),
        ('{"input": "a", "more": 1}', "a"),
        ('{"input": {"a": 1}}', '{"input": {"a": 1}}'),
        ("plain text", "plain text"),
        ("null", "null"),
        ('{"input": "a"', "a"),
        ('{"input": "one tw', "one tw"),
        ('{"input": "', ""),
        ('{"input": "a\\', "a"),
        ('{"input": "a\\u00', "a"),
        ('{"input": "a\\ud83d\\ude0', "a"),
        ('{"input": "a\\n', "a\n"),
    ],
)
def test_the_input_of_a_custom_call(arguments: str, written: str) -> None:
    for pieces in ([arguments], list(arguments)):
        final = check_order(stream(custom, pieces, "incomplete"))
        assert final["output"][0]["input"] == written


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ("", {}),
        (" ", {}),
        ('{"query": "a", "limit": 2}', {"query": "a", "limit": 2}),
        ('{"query": "one tw', {"query": "one tw"}),
        ("plain text", {"query": "plain text"}),
        ('"quoted"', {"query": "quoted"}),
        ("[1]", {"query": "[1]"}),
    ],
)
def test_what_a_search_is_made_with_is_an_object(arguments: str, read: dict[str, Any]) -> None:
    assert search_arguments(arguments) == read


def test_log_probabilities_are_gathered() -> None:
    builder = make_builder()
    out = builder.open()
    builder.advance(StreamState.ITEM)
    item = TextItem(builder, 0, out)
    item.open()
    item.delta_with_logprobs("a", [LOGPROB])
    item.delta("b")
    item.delta_with_logprobs("c", [LOGPROB, LOGPROB])
    done = item.close("completed")
    out.append(builder.end(builder.snapshot("completed", [done], None)))
    final = check_order(decoded(out))
    assert final["output"][0]["content"][0]["logprobs"] == [LOGPROB] * 3


def test_an_open_item_can_be_shown_without_writing() -> None:
    for make, pieces, _, item in CASES.values():
        builder = make_builder()
        out: list[Frame] = []
        writer = make(builder, 0, out)
        writer.open()
        for piece in pieces:
            writer.delta(piece)
        before = len(out)
        shown = writer.finished("incomplete")
        assert len(out) == before
        assert shown.get("status", "incomplete") == "incomplete"
        assert {**shown, "id": 0, "status": 0} == {**item, "id": 0, "status": 0}


@pytest.mark.parametrize("case", CASES)
def test_the_checker_misses_no_event(case: str) -> None:
    """Whatever event is lost, doubled or swapped: the order check would notice."""
    make, pieces, _, _ = CASES[case]
    good = stream(make, pieces)
    for at in range(len(good)):
        assert_noticed([*good[:at], *good[at + 1 :]])
        assert_noticed([*good[: at + 1], *good[at:]])
        if at:
            assert_noticed([*good[: at - 1], good[at], good[at - 1], *good[at + 1 :]])


def assert_noticed(events: list[Event]) -> None:
    events = copy.deepcopy(events)
    for number, event in enumerate(events):
        event["sequence_number"] = number
    with pytest.raises((OrderError, KeyError)):
        check_order(events)
