"""Finished answers, made of items, as the cache keeps them."""

from __future__ import annotations

from typing import Any

__all__ = [
    "CITATION",
    "LOGPROBS",
    "USAGE",
    "answer",
    "call",
    "custom",
    "message",
    "reasoning",
    "refusal",
    "text",
    "without_ids",
]

USAGE = {
    "input_tokens": 5,
    "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 8,
}
CITATION = {"type": "url_citation", "url": "https://a.example", "title": "A"}
LOGPROBS = [
    {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []},
    {"token": " you", "logprob": -0.25, "bytes": [32, 121, 111, 117], "top_logprobs": []},
]


def text(value: str, **changes: Any) -> dict[str, Any]:
    """A part of output text."""
    return {"type": "output_text", "text": value, "annotations": [], "logprobs": [], **changes}


def message(*parts: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A message with these parts."""
    return {
        "id": "msg_old",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": list(parts),
        **changes,
    }


def refusal(value: str) -> dict[str, Any]:
    """A part that refuses."""
    return {"type": "refusal", "refusal": value}


def reasoning(
    summary: tuple[str, ...] = (), raw: tuple[str, ...] | None = None, **changes: Any
) -> dict[str, Any]:
    """Reasoning with these summaries and, unless it is None, this raw text."""
    item = {
        "id": "rs_old",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": value} for value in summary],
    }
    if raw is not None:
        item["content"] = [{"type": "reasoning_text", "text": value} for value in raw]
    return {**item, **changes}


def call(arguments: str = '{"a": 1}', **changes: Any) -> dict[str, Any]:
    """A function call."""
    return {
        "id": "fc_old",
        "type": "function_call",
        "status": "completed",
        "arguments": arguments,
        "call_id": "call_1",
        "name": "f",
        **changes,
    }


def custom(value: str = "one two", **changes: Any) -> dict[str, Any]:
    """A custom tool's call."""
    return {
        "id": "ctc_old",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "call_2",
        "name": "c",
        "input": value,
        **changes,
    }


def answer(*output: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An answer with these items."""
    return {
        "model": "m-2026",
        "output": list(output),
        "usage": USAGE,
        "fields": {},
        "hidden": {},
        **changes,
    }


def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items, but for their ids."""
    return [{name: value for name, value in item.items() if name != "id"} for item in items]
