"""Well-formed answers in each dialect, cut where tests want to break them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from router.settings.schema import Dialect
from tests.support.upstream import Script, streamed, whole, whole_or_streamed

__all__ = ["DIALECTS", "SPEECH", "Speech"]

DIALECTS: tuple[Dialect, ...] = ("responses", "chat", "ollama", "messages")


@dataclass(frozen=True)
class Speech:
    """One answer: "Hello, wörld!", whole and as a stream.

    ``opening`` holds no output yet; each of ``words`` does; ``closing`` ends the answer. ``error``
    is a frame that says that something went wrong. ``prefix`` precedes the dialect's paths in the
    endpoint's URL.
    """

    path: str
    prefix: str
    kind: str
    whole: bytes
    opening: bytes
    words: tuple[bytes, ...]
    closing: bytes
    error: bytes
    text: str = "Hello, wörld!"

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The whole stream, in its natural pieces."""
        return (self.opening, *self.words, self.closing)

    def script(self, pause: float = 0.0) -> Script:
        """It as an upstream's answer, streamed or in one piece, whichever the request asks for."""
        stream = streamed(*self.pieces, kind=self.kind, pause=pause)
        return whole_or_streamed(whole(self.whole), stream)


_WORDS = ("Hello", ", ", "wörld", "!")
_TEXT = "".join(_WORDS)


def _sse(*events: dict[str, Any]) -> bytes:
    return b"".join(
        (b"event: %b\n" % e["type"].encode() if "type" in e else b"")
        + b"data: %b\n\n" % orjson.dumps(e)
        for e in events
    )


def _chat() -> Speech:
    usage = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
    base = {"id": "chatcmpl-1", "created": 1, "model": "m"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _sse({**base, "object": "chat.completion.chunk", "choices": [choice]})

    message = {"role": "assistant", "content": _TEXT}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    last = {**base, "object": "chat.completion.chunk", "choices": [], "usage": usage}
    return Speech(
        path="/v1/chat/completions",
        prefix="/v1",
        kind="text/event-stream; charset=utf-8",
        whole=orjson.dumps(
            {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
        ),
        opening=chunk({"role": "assistant", "content": ""}),
        words=tuple(chunk({"content": word}) for word in _WORDS),
        closing=chunk({}, "stop") + _sse(last) + b"data: [DONE]\n\n",
        error=_sse({"error": {"message": "the GPU is on fire", "type": "server_error"}}),
    )


def _ollama() -> Speech:
    base = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    counts = {"prompt_eval_count": 7, "eval_count": 4}

    def line(text: str, **more: Any) -> bytes:
        message = {"role": "assistant", "content": text}
        return orjson.dumps({**base, "message": message, "done": False, **more}) + b"\n"

    return Speech(
        path="/api/chat",
        prefix="",
        kind="application/x-ndjson",
        whole=line(_TEXT, done=True, done_reason="stop", **counts),
        opening=line(""),
        words=tuple(map(line, _WORDS)),
        closing=line("", done=True, done_reason="stop", **counts),
        error=b'{"error": "the GPU is on fire"}\n',
    )


def _native() -> Speech:
    number = 0

    def events(*bodies: dict[str, Any]) -> bytes:
        nonlocal number
        numbered = []
        for body in bodies:
            numbered.append({**body, "sequence_number": number})
            number += 1
        return _sse(*numbered)

    usage = {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 11,
    }
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    full = {**part, "text": _TEXT}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress"}
    done = {**item, "status": "completed", "content": [full]}
    begun = {"id": "resp_up", "object": "response", "created_at": 5, "status": "in_progress"}
    begun |= {"model": "m", "output": [], "usage": None, "error": None}
    ended = {**begun, "status": "completed", "output": [done], "usage": usage}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    opening = events(
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    )
    added = events(
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **at, "part": part},
    )
    deltas = [
        events({"type": "response.output_text.delta", **at, "delta": word, "logprobs": []})
        for word in _WORDS
    ]
    closing = events(
        {"type": "response.output_text.done", **at, "text": _TEXT, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": full},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": ended},
    )
    error = {"type": "error", "code": "server_error", "message": "the GPU is on fire"}
    return Speech(
        path="/v1/responses",
        prefix="/v1",
        kind="text/event-stream; charset=utf-8",
        whole=orjson.dumps(ended),
        opening=opening,
        words=(added + deltas[0], *deltas[1:]),
        closing=closing,
        error=_sse({**error, "param": None, "sequence_number": 99}),
    )


def _messages() -> Speech:
    counts = {"input_tokens": 7, "output_tokens": 4}
    message = {"id": "msg_up", "type": "message", "role": "assistant", "model": "m"}
    block = {"type": "text", "text": _TEXT}
    whole = {**message, "content": [block], "stop_reason": "end_turn", "stop_sequence": None}
    begun: dict[str, Any] = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    words = [
        _sse(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": word},
            }
        )
        for word in _WORDS
    ]
    started = {"type": "content_block_start", "index": 0, "content_block": {**block, "text": ""}}
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    return Speech(
        path="/v1/messages",
        prefix="/v1",
        kind="text/event-stream; charset=utf-8",
        whole=orjson.dumps({**whole, "usage": counts}),
        opening=_sse(
            {"type": "message_start", "message": {**begun, "usage": {**counts, "output_tokens": 1}}}
        ),
        words=(_sse(started) + words[0], *words[1:]),
        closing=_sse(
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": delta, "usage": counts},
            {"type": "message_stop"},
        ),
        error=_sse(
            {"type": "error", "error": {"type": "api_error", "message": "the GPU is on fire"}}
        ),
    )


SPEECH: dict[Dialect, Speech] = {
    "responses": _native(),
    "chat": _chat(),
    "ollama": _ollama(),
    "messages": _messages(),
}
