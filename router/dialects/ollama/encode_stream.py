"""A response told as Ollama tells it: lines of ``/api/chat`` or ``/api/generate``, or one body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from router.dialects.chat.messages import reasoning_text
from router.dialects.dialect import RequestTimes
from router.dialects.ollama.schema import line
from router.dialects.responses.decode_stream import failure_of
from router.response.frame import Frame

__all__ = ["OllamaEncoder"]

_REASONS: Final = {"max_output_tokens": "length"}
_SAYS: Final[Mapping[str, str]] = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "content",
    "response.reasoning_text.delta": "thinking",
    "response.reasoning_summary_text.delta": "thinking",
}
_TERMINAL: Final = frozenset({"response.completed", "response.incomplete"})


class OllamaEncoder:
    """Implements ``router.dialects.dialect.ResponseEncoder``.

    ``model`` is the client's name for it, which Ollama repeats in every line; that of a fallback
    takes its place. ``chat`` is whether
    the answer is a message, or the text of ``/api/generate``.
    """

    def __init__(self, model: str, watch: RequestTimes, *, chat: bool) -> None:
        self._model = model
        self._watch = watch
        self._chat = chat
        self._begun: int | None = None
        self._said: set[str] = set()
        self._called: set[str] = set()
        self._ended = False

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """See ``ResponseEncoder.frames``."""
        lines: list[Frame] = []
        stamp = self._watch.stamp()
        for frame in batch:
            if self._ended:
                break
            if frame.type in _SAYS:
                lines += self._delta(frame.json(), _SAYS[frame.type], stamp)
            elif frame.type == "response.reasoning_summary_part.added":
                if frame.json().get("summary_index"):
                    lines.append(self._line(stamp, thinking="\n\n"))
            elif frame.type == "response.output_item.done":
                lines += self._calls(_dicts([frame.json().get("item")]), stamp)
            elif frame.type in _TERMINAL:
                lines += self._end(frame.json()["response"], stamp)
            elif frame.type in ("response.failed", "error"):
                self._ended = True
                lines.append(line({"error": _said_of(frame.json())}))
        return lines

    def whole(self, body: bytes) -> bytes:
        """See ``ResponseEncoder.whole``."""
        response = orjson.loads(body)
        if response.get("status") == "failed":
            raise failure_of(response.get("error"))
        message = _message(response)
        entries = _logprobs(
            entry for part in _text_parts(response) for entry in part.get("logprobs") or ()
        )
        said = self._told(message)
        if entries:
            said["logprobs"] = entries
        stamp = self._watch.stamp()
        return orjson.dumps(
            {
                "model": self._watch.replaced() or self._model,
                "created_at": stamp,
                **said,
                **self._closing(response),
            }
        )

    def _delta(self, event: dict[str, Any], field: str, stamp: str) -> list[Frame]:
        text = event.get("delta")
        if not isinstance(text, str) or not text:
            return []
        self._begin()
        self._said.add(field)
        entries = _logprobs(event.get("logprobs") or ())
        return [self._line(stamp, logprobs=entries, **{field: text})]

    def _calls(self, items: Sequence[dict[str, Any]], stamp: str) -> list[Frame]:
        """A line for each call among these items that has not been told: they are told whole."""
        lines = []
        for item in items:
            if item.get("type") != "function_call":
                continue
            ident = str(item.get("id") or item.get("call_id"))
            call = _call(item, len(self._called))
            if ident in self._called or call is None:
                continue
            self._begin()
            self._called.add(ident)
            lines.append(self._line(stamp, tool_calls=[call]))
        return lines

    def _end(self, response: dict[str, Any], stamp: str) -> list[Frame]:
        """What was not told piece by piece, and the last line."""
        self._ended = True
        message = _message(response)
        lines = [
            self._line(stamp, **{field: message[field]})
            for field in ("thinking", "content")
            if message.get(field) and field not in self._said
        ]
        lines += self._calls(_dicts(response.get("output")), stamp)
        last = {
            "model": self._watch.replaced() or self._model,
            "created_at": stamp,
            **self._told({}),
            **self._closing(response),
        }
        return [*lines, line(last)]

    def _begin(self) -> None:
        if self._begun is None:
            self._begun = self._watch.since()

    def _line(
        self, stamp: str, *, logprobs: list[dict[str, Any]] | None = None, **message: Any
    ) -> Frame:
        told = {
            "model": self._watch.replaced() or self._model,
            "created_at": stamp,
            **self._told(message),
            "done": False,
        }
        if logprobs:
            told["logprobs"] = logprobs
        return line(told)

    def _told(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What the model says, in the form of this answer."""
        text = message.get("content", "")
        others = {name: message[name] for name in ("thinking", "tool_calls") if message.get(name)}
        if self._chat:
            return {"message": {"role": "assistant", "content": text, **others}}
        return {"response": text, **others}

    def _closing(self, response: Mapping[str, Any]) -> dict[str, Any]:
        """What the end says: why, how many tokens, how long.

        Of an answer in one piece it is not known how long the prompt took by itself: its time is
        the answer's. What stays unknown is left out, as by Ollama.
        """
        total, waited = self._watch.since(), self._watch.waited()
        reason = (response.get("incomplete_details") or {}).get("reason")
        closing: dict[str, Any] = {
            "done": True,
            "done_reason": _REASONS.get(reason, reason) if reason else "stop",
            "total_duration": total,
            "load_duration": waited,
        }
        usage = response.get("usage")
        if isinstance(usage, dict):
            closing["prompt_eval_count"] = usage.get("input_tokens", 0)
            closing["eval_count"] = usage.get("output_tokens", 0)
        begun = waited
        if self._begun is not None:
            begun = max(self._begun, waited)
            closing["prompt_eval_duration"] = begun - waited
        closing["eval_duration"] = max(total - begun, 1)  # clients divide by it
        return closing


def _message(response: Mapping[str, Any]) -> dict[str, Any]:
    """The message that a finished response comes to."""
    thinking = []
    calls: list[dict[str, Any]] = []
    for item in _dicts(response.get("output")):
        if item.get("type") == "reasoning":
            thinking.append(reasoning_text(item))
        elif item.get("type") == "function_call" and (call := _call(item, len(calls))):
            calls.append(call)
    text = "".join(part.get("text") or part.get("refusal") or "" for part in _text_parts(response))
    return {
        "content": text,
        "thinking": "\n\n".join(filter(None, thinking)),
        "tool_calls": calls,
    }


def _text_parts(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        part
        for item in _dicts(response.get("output"))
        if item.get("type") == "message"
        for part in _dicts(item.get("content"))
    ]


def _dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; what an endpoint sent may be anything."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _call(item: Mapping[str, Any], index: int) -> dict[str, Any] | None:
    """A tool call; None where the answer was cut within its arguments, so that nobody runs it."""
    text = item.get("arguments") or "{}"
    try:
        whole = isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        whole = False
    if not whole:
        if item.get("status") == "incomplete":
            return None
        text = orjson.dumps({"input": text}).decode()
    # As it stands: what can be read may be nested too deeply to be written again.
    arguments = orjson.Fragment(text)
    function = {"index": index, "name": item.get("name"), "arguments": arguments}
    return {"id": item.get("call_id"), "function": function}


def _logprobs(entries: Any) -> list[dict[str, Any]]:
    return [
        {
            **_entry(entry),
            **({"top_logprobs": tops} if (tops := _tops(entry)) else {}),
        }
        for entry in entries
        if isinstance(entry, dict)
    ]


def _tops(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_entry(top) for top in entry.get("top_logprobs") or () if isinstance(top, dict)]


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: entry[name] for name in ("token", "logprob", "bytes") if entry.get(name) is not None
    }


def _said_of(event: Mapping[str, Any]) -> str:
    """Why a stream ended early: of ``response.failed``, or of an ``error`` event."""
    response = event.get("response")
    error = response.get("error") if isinstance(response, dict) else event
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) and message else "The answer could not be finished."
