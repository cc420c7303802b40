"""Checks the events of a streamed response against the contract: numbers, nesting, sums."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson

Event = dict[str, Any]

TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
# Which events may follow which; an item's events stand between its added and its done.
NEXT = {
    "message": {
        "added": {"content_part.added"},
        "content_part.added": {"output_text.delta"},
        "output_text.delta": {"output_text.delta", "output_text.done"},
        "output_text.done": {"content_part.done"},
        "content_part.done": {"content_part.added", "done"},
    },
    "reasoning": {
        "added": {"reasoning_summary_part.added", "done"},
        "reasoning_summary_part.added": {"reasoning_summary_text.delta"},
        "reasoning_summary_text.delta": {
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
        },
        "reasoning_summary_text.done": {"reasoning_summary_part.done"},
        "reasoning_summary_part.done": {"reasoning_summary_part.added", "done"},
    },
    "function_call": {
        "added": {"function_call_arguments.delta"},
        "function_call_arguments.delta": {
            "function_call_arguments.delta",
            "function_call_arguments.done",
        },
        "function_call_arguments.done": {"done"},
    },
}
PREFIX = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
CONSTANT = ("id", "created_at", "model", "tools", "instructions", "metadata", "store", "text")


class OrderError(AssertionError):
    """The stream breaks a rule."""


def parse_sse(body: bytes) -> list[Event]:
    """The events of a stream; each must be one event line, one data line and a blank line."""
    _require(body.endswith(b"\n\n"), "the stream ends within a frame")
    events = []
    for frame in body[:-2].split(b"\n\n"):
        lines = frame.split(b"\n")
        _require(len(lines) == 2, f"a frame has {len(lines)} lines: {frame[:80]!r}")
        _require(lines[0].startswith(b"event: "), f"no event line: {frame[:80]!r}")
        _require(lines[1].startswith(b"data: "), f"no data line: {frame[:80]!r}")
        event = orjson.loads(lines[1][6:])
        _require(event["type"] == lines[0][7:].decode(), "the event's name is not its type")
        events.append(event)
    return events


def check_order(events: list[Event]) -> dict[str, Any]:
    """The final response of a stream that keeps every rule; raises OrderError for another."""
    numbers = [event["sequence_number"] for event in events]
    _require(numbers == list(range(len(events))), f"sequence numbers: {numbers}")
    kinds = [event["type"] for event in events]
    _require(kinds[:2] == ["response.created", "response.in_progress"], f"begins with {kinds[:2]}")
    _require(kinds[-1] in TERMINAL, f"ends with {kinds[-1]}")
    for event in events[:2]:
        response = event["response"]
        _require(response["status"] == "in_progress", "a fresh response is not in progress")
        _require(response["output"] == [] and response["usage"] is None, "it is not empty")
    final: dict[str, Any] = events[-1]["response"]
    _require(final["status"] == TERMINAL[kinds[-1]], "the final status is not the event's")
    for key in CONSTANT:
        _require(events[0]["response"][key] == final[key], f"{key} changed")
    done = _items(events[2:-1])
    _require(final["output"] == done, "the output is not the list of items done")
    ids = [item["id"] for item in done]
    _require(len(set(ids)) == len(ids), "an item id occurs twice")
    return final


def _items(events: list[Event]) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = []
    inside: list[Event] = []
    for event in events:
        inside.append(event)
        _require(event["output_index"] == len(done), f"output_index of {event['type']}")
        if event["type"] == "response.output_item.done":
            done.append(_item(inside))
            inside = []
    _require(not inside, "an item is left open")
    return done


def _item(events: list[Event]) -> dict[str, Any]:
    first, last = events[0]["item"], events[-1]["item"]
    kind = first["type"]
    _require(last["type"] == kind and last["id"] == first["id"], "type or id of the item changed")
    _require(first["id"].startswith(PREFIX[kind]), f"the id of a {kind} is {first['id']}")
    names = [event["type"].removeprefix("response.") for event in events]
    for before, after in pairwise(name.removeprefix("output_item.") for name in names):
        _require(after in NEXT[kind].get(before, set()), f"{after} follows {before} in a {kind}")
    for event in events[1:-1]:
        _require(event["item_id"] == first["id"], "item_id is not the item's")
    _CHECKS[kind](first, last, events[1:-1])
    return dict(last)


def _message(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _require(first["content"] == [] and first["status"] == "in_progress", "it begins filled")
    _parts(last["content"], inner, "content")


def _reasoning(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _require(first["summary"] == [], "it begins filled")
    _parts(last["summary"], inner, "summary")


def _parts(parts: list[dict[str, Any]], inner: list[Event], axis: str) -> None:
    for index, part in enumerate(parts):
        events = [event for event in inner if event[f"{axis}_index"] == index]
        _require(events[0]["part"] == {**part, "text": ""}, "the part begins filled")
        deltas = "".join(event["delta"] for event in events[1:-2])
        _require(deltas == part["text"], "the deltas are not the part's text")
        _require(events[-2]["text"] == part["text"], "the done text is not the part's")
        _require(events[-1]["part"] == part, "the done part is not the item's")
        if axis == "content":
            lists = all(isinstance(event["logprobs"], list) for event in events[1:-1])
            _require(lists, "logprobs are missing")
    highest = max((event[f"{axis}_index"] for event in inner), default=-1)
    _require(highest == len(parts) - 1, "events of a part that the item has not")


def _function_call(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _require(first["arguments"] == "" and first["status"] == "in_progress", "it begins filled")
    _require(first["call_id"] == last["call_id"] != last["id"], "call_id changed, or is the id")
    _require(first["name"] == last["name"] == inner[-1]["name"], "the name changed")
    deltas = "".join(event["delta"] for event in inner[:-1])
    _require(deltas == last["arguments"] == inner[-1]["arguments"], "the arguments differ")


_CHECKS = {"message": _message, "reasoning": _reasoning, "function_call": _function_call}


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise OrderError(otherwise)
