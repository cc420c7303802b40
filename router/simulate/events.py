"""The event sequence of a streamed response, derived from the items it ends with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from router.simulate.dialogue import pieces

__all__ = ["response_events"]

_TERMINAL = {"completed": "response.completed", "incomplete": "response.incomplete"}

Event = dict[str, Any]


def response_events(started: dict[str, Any], finished: dict[str, Any]) -> Iterator[Event]:
    """Every event from ``response.created`` to the terminal one, numbered from 0.

    ``started`` and ``finished`` are the response object before and after the answer.
    """
    numbers = count()
    for event in _events(started, finished):
        yield {"type": event.pop("type"), "sequence_number": next(numbers), **event}


def _events(started: dict[str, Any], finished: dict[str, Any]) -> Iterator[Event]:
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    for place, item in enumerate(finished["output"]):
        yield from _item_events(item, place)
    yield {"type": _TERMINAL[finished["status"]], "response": finished}


def _item_events(item: dict[str, Any], place: int) -> Iterator[Event]:
    at = {"output_index": place}
    yield {"type": "response.output_item.added", **at, "item": _blank(item)}
    inner = {"item_id": item["id"], **at}
    match item["type"]:
        case "message":
            yield from _text_events(item["content"], inner)
        case "reasoning":
            yield from _summary_events(item["summary"], inner)
        case "function_call":
            yield from _argument_events(item, inner)
    yield {"type": "response.output_item.done", **at, "item": item}


def _blank(item: dict[str, Any]) -> dict[str, Any]:
    """The item as it is announced: in progress and empty."""
    match item["type"]:
        case "message":
            return {**item, "status": "in_progress", "content": []}
        case "function_call":
            return {**item, "status": "in_progress", "arguments": ""}
        case _:
            return {"id": item["id"], "type": item["type"], "summary": []}


def _text_events(parts: list[dict[str, Any]], inner: Event) -> Iterator[Event]:
    for index, part in enumerate(parts):
        at = {**inner, "content_index": index}
        yield {"type": "response.content_part.added", **at, "part": _empty(part)}
        sure = part.get("logprobs") or []
        for place, piece in enumerate(pieces(part["text"])):
            told = {"delta": piece, "logprobs": sure[place : place + 1]}
            yield {"type": "response.output_text.delta", **at, **told}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": sure}
        yield {"type": "response.content_part.done", **at, "part": part}


def _empty(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "text": "", "logprobs": []}


def _summary_events(parts: list[dict[str, Any]], inner: Event) -> Iterator[Event]:
    for index, part in enumerate(parts):
        at = {**inner, "summary_index": index}
        yield {
            "type": "response.reasoning_summary_part.added",
            **at,
            "part": {**part, "text": ""},
        }
        for piece in pieces(part["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **at, "part": part}


def _argument_events(item: dict[str, Any], inner: Event) -> Iterator[Event]:
    for piece in pieces(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **inner, "delta": piece}
    yield {
        "type": "response.function_call_arguments.done",
        **inner,
        "arguments": item["arguments"],
        "name": item["name"],
    }
