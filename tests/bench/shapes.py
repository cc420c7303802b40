"""What the mock upstream answers, by model name, in each dialect. Pure.

A model is called ``mock-n64-d20-v1``: 64 deltas, 20 ms between them, variant 1 of the text.
Variants make a mix-up of two streams visible. The frames up to the first delta are one write,
so that the time to the first event does not depend on when a proxy sends its headers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

__all__ = [
    "INPUT_TOKENS",
    "MOCK_RESPONSE_ID",
    "VARIANTS",
    "Shape",
    "chat_body",
    "chat_writes",
    "ollama_body",
    "ollama_writes",
    "response_events",
    "responses_body",
    "responses_writes",
    "writes",
]

MOCK_RESPONSE_ID: Final = "resp_mock0001"
VARIANTS: Final = 4
INPUT_TOKENS: Final = 20

_NAME = re.compile(r"mock-n([1-9]\d{0,3})-d(\d{1,4})-v([0-3])")
_CREATED = 1_700_000_000
_ITEM_ID = "msg_mock0001"


@dataclass(frozen=True, slots=True)
class Shape:
    """An answer of ``deltas`` pieces, ``delay_ms`` apart, with the text of ``variant``."""

    deltas: int
    delay_ms: int
    variant: int = 0

    @classmethod
    def parse(cls, name: str) -> Shape:
        """The shape that a model name stands for; ValueError for any other name."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"not a model of the mock: {name[:80]!r}")
        deltas, delay_ms, variant = map(int, match.groups())
        return cls(deltas, delay_ms, variant)

    @property
    def model(self) -> str:
        return f"mock-n{self.deltas}-d{self.delay_ms}-v{self.variant}"

    @property
    def pieces(self) -> list[str]:
        """The text of each delta; some need escapes or several bytes per character."""
        letter = "abcd"[self.variant]
        return [
            f'"{letter}é{i:03d}"\n' if i % 16 == 7 else f"{letter}{i:03d} "
            for i in range(self.deltas)
        ]

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def events(self) -> int:
        """Events of the whole stream: four before the deltas, four after them."""
        return self.deltas + 8


def _usage(shape: Shape) -> dict[str, Any]:
    return {
        "input_tokens": INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": shape.deltas,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": INPUT_TOKENS + shape.deltas,
    }


def _item(shape: Shape, done: bool) -> dict[str, Any]:
    return {
        "id": _ITEM_ID,
        "type": "message",
        "status": "completed" if done else "in_progress",
        "role": "assistant",
        "content": [_part(shape.text)] if done else [],
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _response(shape: Shape, done: bool) -> dict[str, Any]:
    return {
        "id": MOCK_RESPONSE_ID,
        "object": "response",
        "created_at": _CREATED,
        "status": "completed" if done else "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": shape.model,
        "output": [_item(shape, True)] if done else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
        "metadata": {},
        "usage": _usage(shape) if done else None,
    }


def response_events(shape: Shape) -> list[dict[str, Any]]:
    """The events of the stream, in order and numbered."""
    place = {"item_id": _ITEM_ID, "output_index": 0, "content_index": 0}
    deltas: list[dict[str, Any]] = [
        {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
        for piece in shape.pieces
    ]
    whole = {**place, "text": shape.text, "logprobs": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response(shape, False)},
        {"type": "response.in_progress", "response": _response(shape, False)},
        {"type": "response.output_item.added", "output_index": 0, "item": _item(shape, False)},
        {"type": "response.content_part.added", **place, "part": _part("")},
        *deltas,
        {"type": "response.output_text.done", **whole},
        {"type": "response.content_part.done", **place, "part": _part(shape.text)},
        {"type": "response.output_item.done", "output_index": 0, "item": _item(shape, True)},
        {"type": "response.completed", "response": _response(shape, True)},
    ]
    return [
        {"type": event.pop("type"), "sequence_number": number, **event}
        for number, event in enumerate(events)
    ]


def writes(frames: list[bytes], lead: int, tail: int) -> list[bytes]:
    """A stream as it is written: its first ``lead`` frames joined, its last ``tail`` too."""
    middle = frames[lead : len(frames) - tail]
    return [b"".join(frames[:lead]), *middle, b"".join(frames[len(frames) - tail :])]


def responses_body(shape: Shape) -> bytes:
    return orjson.dumps(_response(shape, True))


def responses_writes(shape: Shape) -> list[bytes]:
    """The stream as the mock writes it: the lead with the first delta, each delta, the end."""
    frames = [
        b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(event))
        for event in response_events(shape)
    ]
    return writes(frames, lead=5, tail=4)


def _chat_usage(shape: Shape) -> dict[str, Any]:
    return {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": shape.deltas,
        "total_tokens": INPUT_TOKENS + shape.deltas,
    }


def chat_body(shape: Shape) -> bytes:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": shape.text,
        "refusal": None,
        "annotations": [],
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return orjson.dumps(
        {
            "id": "chatcmpl-mock0001",
            "object": "chat.completion",
            "created": _CREATED,
            "model": shape.model,
            "choices": [choice],
            "usage": _chat_usage(shape),
            "system_fingerprint": "fp_mock",
        }
    )


def chat_writes(shape: Shape, usage: bool) -> list[bytes]:
    """As responses_writes; the frame with the token counts is sent when ``usage`` asks for it."""
    base: dict[str, Any] = {
        "id": "chatcmpl-mock0001",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": shape.model,
        "system_fingerprint": "fp_mock",
    }

    def frame(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return b"data: %s\n\n" % orjson.dumps({**base, "choices": [choice]})

    frames = [frame({"role": "assistant", "content": ""})]
    frames += [frame({"content": piece}) for piece in shape.pieces]
    end = [frame({}, "stop")]
    if usage:
        counts = {**base, "choices": [], "usage": _chat_usage(shape)}
        end.append(b"data: %s\n\n" % orjson.dumps(counts))
    end.append(b"data: [DONE]\n\n")
    return writes(frames + end, lead=2, tail=len(end))


def _ollama_line(shape: Shape, text: str, done: bool) -> bytes:
    line: dict[str, Any] = {
        "model": shape.model,
        "created_at": "2026-01-01T00:00:00.000000Z",
        "message": {"role": "assistant", "content": text},
        "done": done,
    }
    if done:
        line |= {
            "done_reason": "stop",
            "total_duration": 5_000_000,
            "load_duration": 1_000_000,
            "prompt_eval_count": INPUT_TOKENS,
            "prompt_eval_duration": 1_000_000,
            "eval_count": shape.deltas,
            "eval_duration": 3_000_000,
        }
    return orjson.dumps(line)


def ollama_body(shape: Shape) -> bytes:
    return _ollama_line(shape, shape.text, True)


def ollama_writes(shape: Shape) -> list[bytes]:
    """As responses_writes, in lines of JSON."""
    lines = [_ollama_line(shape, piece, False) + b"\n" for piece in shape.pieces]
    lines.append(_ollama_line(shape, "", True) + b"\n")
    return writes(lines, lead=1, tail=1)
