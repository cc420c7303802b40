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
from router.response.output_events import OutputEvents

__all__ = ["OllamaEncoder"]

_REASONS: Final = {"max_output_tokens": "length"}


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
        self._thought: tuple[int | str, int] | None = None
        self._called = 0
        self._stamp = ""
        self._lines: list[Frame] = []
        self._events = OutputEvents(self)

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """See ``ResponseEncoder.frames``."""
        self._stamp = self._watch.stamp()
        self._events.feed(batch)
        if not self._events.ended:
            for frame in batch:
                if frame.type == "error":
                    self._events.ended = True
                    self._lines.append(line({"error": _said_of(frame.json())}))
                    break
        lines, self._lines = self._lines, []
        return lines

    def response_opened(self, response: dict[str, Any]) -> None:
        """See ``OutputListener.response_opened``: there is no line for it."""

    def item_added(self, place: int | str, item: dict[str, Any]) -> None:
        """See ``OutputListener.item_added``: nothing is told of it yet."""

    def text(
        self, place: int | str, part: int, kind: str, piece: str, logprobs: Any, *, whole: bool
    ) -> None:
        """See ``OutputListener.text``."""
        entries = _logprobs(logprobs) if isinstance(logprobs, list) else []
        self._say(logprobs=entries, content=piece)

    def reasoning(self, place: int | str, source: str, part: int, piece: str) -> None:
        """See ``OutputListener.reasoning``: its parts stand apart."""
        if self._thought not in (None, (place, part)):
            piece = "\n\n" + piece
        self._thought = (place, part)
        self._say(thinking=piece)

    def call(self, place: int | str, item: dict[str, Any]) -> None:
        """See ``OutputListener.call``: calls are told whole."""

    def arguments(self, place: int | str, piece: str) -> None:
        """See ``OutputListener.arguments``: calls are told whole."""

    def item_done(self, place: int | str, item: dict[str, Any]) -> None:
        """See ``OutputListener.item_done``."""
        if item.get("type") == "function_call" and (call := _call(item, self._called)) is not None:
            self._called += 1
            self._say(tool_calls=[call])

    def response_done(self, response: dict[str, Any]) -> None:
        """See ``OutputListener.response_done``."""
        last = {
            "model": self._watch.replaced() or self._model,
            "created_at": self._stamp,
            **self._told({}),
            **self._closing(response),
        }
        self._lines.append(line(last))

    def response_failed(self, response: dict[str, Any]) -> None:
        """See ``OutputListener.response_failed``."""
        self._lines.append(line({"error": _said_of({"response": response})}))

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

    def _say(self, *, logprobs: list[dict[str, Any]] | None = None, **message: Any) -> None:
        if self._begun is None:
            self._begun = self._watch.since()
        told = {
            "model": self._watch.replaced() or self._model,
            "created_at": self._stamp,
            **self._told(message),
            "done": False,
        }
        if logprobs:
            told["logprobs"] = logprobs
        self._lines.append(line(told))

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
