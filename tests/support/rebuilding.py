"""A client that believes only the deltas: what it puts together from a stream of events."""

from __future__ import annotations

import copy
from typing import Any

from tests.support.order import TERMINAL, Event

__all__ = ["rebuilt"]

_TEXTS = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "text",
    "reasoning_summary_text": "text",
    "function_call_arguments": "arguments",
    "custom_tool_call_input": "input",
    "mcp_call_arguments": "arguments",
    "code_interpreter_call_code": "code",
}
_HOSTED = {
    "web_search_call",
    "code_interpreter_call",
    "file_search_call",
    "mcp_call",
    "mcp_list_tools",
}
_LISTS = {
    "content_part": ("content", "content_index"),
    "reasoning_summary_part": ("summary", "summary_index"),
}


def rebuilt(events: list[Event]) -> dict[str, Any]:
    """The final response of a whole stream, after every event was checked against those before."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] in TERMINAL
    client = _Client()
    for event in events[2:-1]:
        client.take(event)
    assert client.item is None
    final: dict[str, Any] = events[-1]["response"]
    assert final["output"] == client.output
    outcome = {"status", "completed_at", "output", "output_text", "usage"}
    for event in events[:2]:
        opening = event["response"]
        assert opening["output"] == []
        assert opening["usage"] is None
        assert opening["status"] == "in_progress"
        assert {k: v for k, v in opening.items() if k not in outcome} == {
            k: v for k, v in final.items() if k not in outcome
        }
    return final


class _Client:
    def __init__(self) -> None:
        self.output: list[dict[str, Any]] = []
        self.item: dict[str, Any] | None = None
        self.part: dict[str, Any] | None = None
        self.deltas = 0

    def take(self, event: Event) -> None:
        name, _, what = event["type"].removeprefix("response.").rpartition(".")
        assert event["output_index"] == len(self.output)
        if name == "output_item":
            self._item(what, event["item"])
            return
        assert self.item is not None
        assert event["item_id"] == self.item["id"]
        if name in _LISTS:
            self._part(what, event, *_LISTS[name])
        elif name in _TEXTS:
            self._text(what, event, _TEXTS[name])
        elif name in _HOSTED:
            assert self.item["type"] == name
            assert what in ("in_progress", "searching", "completed")
        else:
            assert name == "output_text.annotation"
            assert self.part is not None
            assert event["annotation_index"] == len(self.part["annotations"])
            self.part["annotations"].append(event["annotation"])

    def _item(self, what: str, item: dict[str, Any]) -> None:
        if what == "added":
            assert self.item is None
            self.item = copy.deepcopy(item)
            assert item.get("status", "in_progress") == "in_progress"
            return
        assert self.item is not None
        assert self.part is None
        names = ("status", "encrypted_content", "output")
        late: dict[str, Any] = {k: item[k] for k in names if k in item}
        assert {**self.item, **late} == item
        self.output.append(item)
        self.item = None

    def _part(self, what: str, event: Event, field: str, place: str) -> None:
        assert self.item is not None
        if what == "added":
            assert self.part is None
            assert event[place] == len(self.item[field])
            self.part = copy.deepcopy(event["part"])
            self.item[field].append(self.part)
            self.deltas = 0
        else:
            assert event[place] == len(self.item[field]) - 1
            assert self.part == event["part"]
            self.part = None

    def _text(self, what: str, event: Event, field: str) -> None:
        holder = self.item if self.part is None else self.part
        assert holder is not None
        if what == "delta":
            holder[field] += event["delta"]
            holder.get("logprobs", []).extend(event.get("logprobs", []))
            self.deltas += 1
        else:
            assert what == "done"
            assert self.deltas > 0
            assert event[field] == holder[field]
            assert event.get("logprobs", []) == holder.get("logprobs", [])
            if self.part is None:
                self.deltas = 0
