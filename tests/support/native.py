"""Native Responses streams, made of the items they end with."""

from __future__ import annotations

from typing import Any

from router.dialects.responses.decode_stream import ResponsesDecoder
from tests.support.reading import make_builder, native

__all__ = [
    "ACCOUNT",
    "REASONING_ID",
    "UNIQUE",
    "USAGE",
    "answer",
    "begun",
    "call",
    "decoder",
    "events",
    "message",
    "reasoning",
    "refusal",
]

ACCOUNT = "acc0"
UNIQUE = "9b1c7e42d05f83a6"
"""What makes an id of these tests one that an endpoint does not repeat."""
REASONING_ID = f"rs_{UNIQUE}"
"""The id of ``reasoning``."""
USAGE = {
    "input_tokens": 5,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 8,
}


def decoder(**request: Any) -> ResponsesDecoder:
    """A decoder on a fresh builder of this request."""
    return ResponsesDecoder(make_builder(**request), ACCOUNT)


def begun(**changes: Any) -> dict[str, Any]:
    """An endpoint's Response object as it begins."""
    return {
        "id": "resp_theirs",
        "object": "response",
        "created_at": 1_750_000_000,
        "status": "in_progress",
        "model": "m",
        "output": [],
        "usage": None,
        "error": None,
        "store": False,
        "metadata": {"theirs": "1"},
        **changes,
    }


def message(*texts: str) -> dict[str, Any]:
    """A message with a part for each text."""
    parts = [
        {"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts
    ]
    return {
        "id": f"msg_{UNIQUE}{'_'.join(texts)}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": parts,
    }


def refusal(text: str) -> dict[str, Any]:
    """A message that refuses."""
    return {**message(text), "content": [{"type": "refusal", "refusal": text}]}


def call(name: str, arguments: str, **changes: Any) -> dict[str, Any]:
    """A function call."""
    return {
        "id": f"fc_{UNIQUE}{name}",
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{name}",
        "name": name,
        "arguments": arguments,
        **changes,
    }


def reasoning(encrypted: str | None = None) -> dict[str, Any]:
    """A silent reasoning item."""
    item = {"id": REASONING_ID, "type": "reasoning", "summary": []}
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def events(
    *items: dict[str, Any], end: str | None = "completed", **final: Any
) -> list[dict[str, Any]]:
    """The events of an answer with these items; ``end`` None leaves the terminal event out."""
    made: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun()},
        {"type": "response.in_progress", "response": begun()},
    ]
    for place, item in enumerate(items):
        made += _item_events(place, item)
    if end is not None:
        response = begun(**{"status": end, "output": list(items), "usage": USAGE, **final})
        made.append({"type": f"response.{end}", "response": response})
    return made


def answer(*items: dict[str, Any], end: str | None = "completed", **final: Any) -> bytes:
    """The stream of an answer with these items."""
    return native(*events(*items, end=end, **final))


def _item_events(place: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": place}
    fresh = dict(item)
    inner: list[dict[str, Any]] = []
    if item["type"] == "message":
        fresh |= {"status": "in_progress", "content": []}
        for index, part in enumerate(item["content"]):
            inner += _part_events({**at, "content_index": index}, part)
    elif item["type"] == "function_call":
        fresh |= {"status": "in_progress", "arguments": ""}
        kind = "response.function_call_arguments"
        inner = [
            *(
                {"type": f"{kind}.delta", **at, "delta": piece}
                for piece in _halves(item["arguments"])
            ),
            {"type": f"{kind}.done", **at, "arguments": item["arguments"], "name": item["name"]},
        ]
    return [
        {"type": "response.output_item.added", "output_index": place, "item": fresh},
        *inner,
        {"type": "response.output_item.done", "output_index": place, "item": item},
    ]


def _part_events(at: dict[str, Any], part: dict[str, Any]) -> list[dict[str, Any]]:
    key = "refusal" if part["type"] == "refusal" else "text"
    kind = "response.refusal" if key == "refusal" else "response.output_text"
    extra: dict[str, Any] = {} if key == "refusal" else {"logprobs": []}
    return [
        {"type": "response.content_part.added", **at, "part": {**part, key: ""}},
        *({"type": f"{kind}.delta", **at, "delta": t, **extra} for t in _halves(part[key])),
        {"type": f"{kind}.done", **at, key: part[key], **extra},
        {"type": "response.content_part.done", **at, "part": part},
    ]


def _halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]
