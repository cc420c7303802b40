"""Checks the events of a streamed response against the contract: numbers, nesting, sums."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson

__all__ = ["TERMINAL", "Event", "OrderError", "check_order", "parse_sse"]

Event = dict[str, Any]

TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}


def _text(name: str) -> dict[str, set[str]]:
    """Deltas, at least one, and their done."""
    return {f"{name}.delta": {f"{name}.delta", f"{name}.done"}}


# Which events may follow which; an item's events stand between its added and its done.
NEXT = {
    "message": {
        "added": {"content_part.added"},
        "content_part.added": {"output_text.delta", "refusal.delta"},
        **_text("output_text"),
        **_text("refusal"),
        "output_text.delta": {
            "output_text.delta",
            "output_text.annotation.added",
            "output_text.done",
        },
        "output_text.annotation.added": {
            "output_text.delta",
            "output_text.annotation.added",
            "output_text.done",
        },
        "output_text.done": {"content_part.done"},
        "refusal.done": {"content_part.done"},
        "content_part.done": {"content_part.added", "done"},
    },
    "reasoning": {
        "added": {"reasoning_summary_part.added", "done"},
        "reasoning_summary_part.added": {"reasoning_summary_text.delta"},
        **_text("reasoning_summary_text"),
        "reasoning_summary_text.done": {"reasoning_summary_part.done"},
        "reasoning_summary_part.done": {"reasoning_summary_part.added", "done"},
    },
    "compaction": {"added": {"done"}},
    "function_call": {
        "added": {"function_call_arguments.delta"},
        **_text("function_call_arguments"),
        "function_call_arguments.done": {"done"},
    },
    "custom_tool_call": {
        "added": {"custom_tool_call_input.delta"},
        **_text("custom_tool_call_input"),
        "custom_tool_call_input.done": {"done"},
    },
    "mcp_list_tools": {
        "added": {"mcp_list_tools.in_progress"},
        "mcp_list_tools.in_progress": {"mcp_list_tools.completed", "mcp_list_tools.failed"},
        "mcp_list_tools.completed": {"done"},
        "mcp_list_tools.failed": {"done"},
    },
    "mcp_call": {
        "added": {"mcp_call.in_progress"},
        "mcp_call.in_progress": {"mcp_call_arguments.delta"},
        **_text("mcp_call_arguments"),
        "mcp_call_arguments.done": {"mcp_call.completed", "mcp_call.failed"},
        "mcp_call.completed": {"done"},
        "mcp_call.failed": {"done"},
    },
    "mcp_approval_request": {"added": {"done"}},
    "tool_search_call": {"added": {"done"}},
    "tool_search_output": {"added": {"done"}},
    "code_interpreter_call": {
        "added": {"code_interpreter_call.in_progress"},
        "code_interpreter_call.in_progress": {"code_interpreter_call_code.delta"},
        **_text("code_interpreter_call_code"),
        "code_interpreter_call_code.done": {"code_interpreter_call.interpreting"},
        "code_interpreter_call.interpreting": {"code_interpreter_call.completed"},
        "code_interpreter_call.completed": {"done"},
    },
    "web_search_call": {
        "added": {"web_search_call.in_progress"},
        "web_search_call.in_progress": {"web_search_call.searching"},
        "web_search_call.searching": {"web_search_call.completed"},
        "web_search_call.completed": {"done"},
    },
}
PREFIX = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "mcp_list_tools": "mcpl_",
    "mcp_call": "mcp_",
    "mcp_approval_request": "mcpr_",
    "tool_search_call": "tsc_",
    "tool_search_output": "tso_",
    "web_search_call": "ws_",
    "code_interpreter_call": "ci_",
    "compaction": "cmp_",
}
EMPTY: dict[str, dict[str, Any]] = {
    "message": {"content": [], "status": "in_progress"},
    "reasoning": {"summary": []},
    "function_call": {"arguments": "", "status": "in_progress"},
    "custom_tool_call": {"input": ""},
    "mcp_list_tools": {},
    "mcp_call": {"arguments": "", "output": None, "error": None, "status": "in_progress"},
    "mcp_approval_request": {},
    "tool_search_call": {"status": "in_progress"},
    "tool_search_output": {"status": "in_progress"},
    "web_search_call": {"status": "in_progress"},
    "code_interpreter_call": {"code": "", "outputs": None, "status": "in_progress"},
    "compaction": {},
}
CONSTANT = (
    "id",
    "object",
    "created_at",
    "background",
    "instructions",
    "metadata",
    "model",
    "previous_response_id",
    "store",
    "text",
    "tools",
)


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
    """The final response of a stream that keeps every rule; raises OrderError for another.

    A failed stream may break off within an item, which then stands at the end of the output with
    what was streamed of it.
    """
    numbers = [event["sequence_number"] for event in events]
    _require(numbers == list(range(len(events))), f"sequence numbers: {numbers}")
    kinds = [event["type"] for event in events]
    _require(kinds[:2] == ["response.created", "response.in_progress"], f"begins with {kinds[:2]}")
    _require(len(kinds) > 2 and kinds[-1] in TERMINAL, f"ends with {kinds[-1]}")
    final: dict[str, Any] = events[-1]["response"]
    _require(final["status"] == TERMINAL[kinds[-1]], "the final status is not the event's")
    for event in events[:2]:
        response = event["response"]
        _require(response["status"] == "in_progress", "a fresh response is not in progress")
        _require(response["output"] == [] and response["usage"] is None, "it is not empty")
        for key in CONSTANT:
            _require(response[key] == final[key], f"{key} changed")
    done, left_open = _items(events[2:-1])
    output = final["output"]
    if final["status"] == "failed" and left_open:
        _broken_off(left_open, output[-1])
        output = output[:-1]
    else:
        _require(not left_open, "an item is left open")
    _require(output == done, "the output is not the list of items done")
    ids = [item["id"] for item in final["output"]]
    _require(len(set(ids)) == len(ids), "an item id occurs twice")
    _final(final)
    return final


def _final(final: dict[str, Any]) -> None:
    status, usage = final["status"], final["usage"]
    reason = (final["incomplete_details"] or {}).get("reason")
    _require((final["error"] is not None) == (status == "failed"), "error and status disagree")
    _require((reason is not None) == (status == "incomplete"), "reason and status disagree")
    if usage is not None:
        total = usage["input_tokens"] + usage["output_tokens"]
        _require(usage["total_tokens"] == total, f"total_tokens is not the sum: {usage}")
        for name in ("input_tokens_details", "output_tokens_details"):
            _require(isinstance(usage[name], dict), f"usage without {name}")
    states = [item["status"] for item in final["output"] if "status" in item]
    cut = [] if status == "completed" else ["incomplete"]
    ran = {"mcp_call", "web_search_call", "code_interpreter_call"}
    if any(item["type"] in ran for item in final["output"]):
        cut.append("failed")  # a tool, which does not end the response
    _require(set(states) <= {"completed", *cut}, f"{status}, but the items are {states}")
    text = "".join(
        part["text"]
        for item in final["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    )
    _require(final.get("output_text", text) == text, "output_text is not the output's text")


def _items(events: list[Event]) -> tuple[list[dict[str, Any]], list[Event]]:
    """The finished items, and the events of one that is not."""
    done: list[dict[str, Any]] = []
    inside: list[Event] = []
    for event in events:
        inside.append(event)
        _require(event["output_index"] == len(done), f"output_index of {event['type']}")
        if event["type"] == "response.output_item.done":
            done.append(_item(inside))
            inside = []
    return done, inside


def _item(events: list[Event]) -> dict[str, Any]:
    _in_order(events)
    first, last = events[0]["item"], events[-1]["item"]
    kind = first["type"]
    _require(last["type"] == kind and last["id"] == first["id"], "type or id of the item changed")
    _CHECKS[kind](first, last, events[1:-1])
    return dict(last)


def _in_order(events: list[Event]) -> None:
    """The events of an item, whole or broken off, as far as they go."""
    _require(events[0]["type"] == "response.output_item.added", "an item begins without added")
    first = events[0]["item"]
    kind = first["type"]
    _require(first["id"].startswith(PREFIX[kind]), f"the id of a {kind} is {first['id']}")
    for name, empty in EMPTY[kind].items():
        _require(first[name] == empty, f"{name} of a fresh {kind} is {first[name]!r}")
    names = [event["type"].removeprefix("response.") for event in events]
    for before, after in pairwise(name.removeprefix("output_item.") for name in names):
        _require(after in NEXT[kind].get(before, set()), f"{after} follows {before} in a {kind}")
    for event in events[1:]:
        if event["type"] != "response.output_item.done":
            _require(event["item_id"] == first["id"], "item_id is not the item's")


def _broken_off(events: list[Event], item: dict[str, Any]) -> None:
    _in_order(events)
    _require(item["id"] == events[0]["item"]["id"], "the output ends with another item")
    _require(item.get("status", "incomplete") == "incomplete", "a broken item is not incomplete")
    deltas = "".join(event["delta"] for event in events if event["type"].endswith(".delta"))
    if item["type"] == "reasoning":
        text = "".join(part["text"] for part in item["summary"])
    elif item["type"] == "message":
        text = "".join(part.get("text", part.get("refusal")) for part in item["content"])
    else:
        text = item["arguments"] if item["type"] == "function_call" else deltas
    _require(text == deltas, "the broken item is not what was streamed")


def _message(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _parts(last["content"], inner, "content")


def _reasoning(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _parts(last["summary"], inner, "summary")


def _parts(parts: list[dict[str, Any]], inner: list[Event], axis: str) -> None:
    for index, part in enumerate(parts):
        events = [event for event in inner if event[f"{axis}_index"] == index]
        key = "refusal" if part["type"] == "refusal" else "text"
        _require(events[0]["part"].items() >= {"type": part["type"], key: ""}.items(), "not empty")
        told = [event["annotation"] for event in events if "annotation" in event]
        _require(told == part.get("annotations", []), "the annotations differ")
        deltas = "".join(event["delta"] for event in events[1:-2] if "delta" in event)
        _require(deltas == part[key], "the deltas are not the part's text")
        _require(events[-2][key] == part[key], "the done text is not the part's")
        _require(events[-1]["part"] == part, "the done part is not the item's")
        if part["type"] == "output_text":
            _logprobs(part, events)
    highest = max((event[f"{axis}_index"] for event in inner), default=-1)
    _require(highest == len(parts) - 1, "events of a part that the item has not")


def _logprobs(part: dict[str, Any], events: list[Event]) -> None:
    for holder in (events[0]["part"], part):
        _require(isinstance(holder["annotations"], list), "lists are missing")
    _require(events[0]["part"]["annotations"] == [] == events[0]["part"]["logprobs"], "not empty")
    _require(isinstance(part["logprobs"], list), "logprobs are missing")
    gathered = [entry for event in events[1:-2] for entry in event.get("logprobs", ())]
    _require(gathered == part["logprobs"] == events[-2]["logprobs"], "the logprobs differ")


def _function_call(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _call(first, last, inner, "arguments")
    _require(first["name"] == inner[-1]["name"], "the name changed")


def _custom_call(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _call(first, last, inner, "input")


def _call(first: dict[str, Any], last: dict[str, Any], inner: list[Event], key: str) -> None:
    _require(first["call_id"] == last["call_id"] != last["id"], "call_id changed, or is the id")
    _require(bool(first["name"]) and first["name"] == last["name"], "the name changed")
    deltas = "".join(event["delta"] for event in inner[:-1])
    _require(deltas == last[key] == inner[-1][key], f"the {key} differ")


def _mcp_call(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    for name in ("server_label", "name"):
        _require(first[name] == last[name], f"the {name} changed")
    deltas = [event["delta"] for event in inner if event["type"].endswith(".delta")]
    _require("".join(deltas) == last["arguments"], "the arguments differ")
    failed = inner[-1]["type"] == "response.mcp_call.failed"
    _require(failed == (last["status"] == "failed"), "event and status disagree")
    _require(failed == (last["error"] is not None), "error and status disagree")


def _searched(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _require(first["action"]["type"] == last["action"]["type"], "the action changed")


def _computed(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _require(first["container_id"] == last["container_id"], "the container changed")
    said = "".join(event["delta"] for event in inner if event["type"].endswith("code.delta"))
    done = [event["code"] for event in inner if event["type"].endswith("code.done")]
    _require([said] == done == [last["code"]], "the code is not its deltas")


def _listed(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _require(first["server_label"] == last["server_label"], "the server changed")


def _of_a_search(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    for name in ("call_id", "execution"):
        _require(first[name] == last[name], f"the {name} changed")


def _compacted(first: dict[str, Any], last: dict[str, Any], inner: list[Event]) -> None:
    _require(bool(last["encrypted_content"]) and first == last, "the compaction changed")


_CHECKS = {
    "tool_search_call": _of_a_search,
    "tool_search_output": _of_a_search,
    "compaction": _compacted,
    "mcp_call": _mcp_call,
    "mcp_list_tools": _listed,
    "mcp_approval_request": _listed,
    "web_search_call": _searched,
    "code_interpreter_call": _computed,
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
}


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise OrderError(otherwise)
