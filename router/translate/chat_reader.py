"""Chat Completions answers, streamed or whole, as events of the Responses API."""

from __future__ import annotations

from typing import Any, Final

import orjson

from router.errors import UpstreamFailure
from router.translate import usage as tokens
from router.translate.machine import ResponseMachine
from router.translate.reader import load_object, upstream_message
from router.wire.frame import Frame
from router.wire.sse import EventTooLarge, SSEDecoder

__all__ = ["ChatReader", "logprob_entries"]

_DONE: Final = b"[DONE]"
_REASONING_KEYS: Final = ("reasoning_content", "reasoning")


class ChatReader(ResponseMachine):
    """Reads ``chat.completion.chunk`` events, or one ``chat.completion``."""

    _decoder: SSEDecoder
    _calls: dict[int, tuple[int, str | None]]
    _next_key: int

    def feed(self, data: bytes) -> list[Frame]:
        """See ``Reader.feed``."""
        if self.error is None and self.final is None:
            try:
                for event in self._decoder.decode(data):
                    self._event(event)
                    if self.ended:
                        break
            except EventTooLarge as exc:
                self.error = UpstreamFailure(f"The endpoint's stream is broken: {exc}.")
            except UpstreamFailure as exc:
                self.error = exc
        return self.take()

    def whole(self, body: bytes) -> bytes:
        """See ``Reader.whole``."""
        completion = load_object(body, "a chat completion")
        if completion.get("error"):
            raise UpstreamFailure(upstream_message(completion["error"]))
        choices = completion.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise UpstreamFailure("The endpoint sent a chat completion without choices.")
        message = choices[0].get("message")
        if not isinstance(message, dict):
            raise UpstreamFailure("The endpoint sent a chat completion without a message.")
        self._delta(message, choices[0].get("logprobs"))
        self._usage(completion.get("usage"))
        self.finished_with(choices[0].get("finish_reason") or "stop")
        return orjson.dumps(self.complete())

    def start(self) -> None:
        """See ``ResponseMachine.start``."""
        self._decoder = SSEDecoder()
        self._calls = {}
        self._next_key = 0

    def _event(self, event: bytes) -> None:
        if event.strip() == _DONE:
            # Some servers leave the finish reason out; their end marker still ends the answer.
            self.finished_with(self.finish_reason or "stop")
            self.complete()
            return
        chunk = load_object(event, "a stream event")
        if chunk.get("error"):
            raise UpstreamFailure(upstream_message(chunk["error"]))
        self._usage(chunk.get("usage"))
        choices = chunk.get("choices")
        if not choices:
            return
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise UpstreamFailure("The endpoint sent a chat chunk whose choices are malformed.")
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._delta(delta, choice.get("logprobs"))
        if choice.get("finish_reason"):
            self.finished_with(str(choice["finish_reason"]))

    def _delta(self, delta: dict[str, Any], logprobs: Any) -> None:
        for key in _REASONING_KEYS:
            text = delta.get(key)
            if isinstance(text, str) and text:
                self.reasoning(text)
                break
        content = delta.get("content")
        if isinstance(content, list):
            content = "".join(p.get("text") or "" for p in content if isinstance(p, dict))
        if isinstance(content, str) and content:
            wanted = self.wants_logprobs and isinstance(logprobs, dict)
            self.text(content, logprob_entries(logprobs.get("content")) if wanted else None)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self.refusal(refusal)
        calls = delta.get("tool_calls")
        if calls:
            self._tool_calls(calls)
        elif isinstance(delta.get("function_call"), dict):
            self._tool_calls([{"index": 0, "function": delta["function_call"]}])

    def _tool_calls(self, calls: Any) -> None:
        if not isinstance(calls, list):
            raise UpstreamFailure("The endpoint sent tool calls that are not a list.")
        for call in calls:
            if not isinstance(call, dict):
                raise UpstreamFailure("The endpoint sent a tool call that is not an object.")
            function = call.get("function") or call.get("custom") or {}
            call_id = call.get("id") or None
            name = function.get("name") or None
            key = self._key(call.get("index"), call_id, name)
            arguments = function.get("arguments", function.get("input"))
            if isinstance(arguments, dict):
                arguments = orjson.dumps(arguments).decode()
            self.call(key, call_id, name, arguments if isinstance(arguments, str) else "")

    def _key(self, index: Any, call_id: str | None, name: str | None) -> int:
        """The number of the call a fragment belongs to.

        Usually that is ``index``; some servers leave it out, or give every parallel call the
        index 0 and tell them apart by their ids.
        """
        if not isinstance(index, int):
            goes_on = call_id is None and name is None and bool(self._calls)
            index = max(self._calls) if goes_on else len(self._calls)
        known = self._calls.get(index)
        if known is None or (call_id and name and known[1] and call_id != known[1]):
            known = (self._next_key, call_id)
            self._next_key += 1
            self._calls[index] = known
        return known[0]

    def _usage(self, usage: Any) -> None:
        # Where every chunk has a usage it is cumulative: the last one counts.
        if isinstance(usage, dict):
            self.usage = tokens.from_chat(usage)


def logprob_entries(content: Any) -> list[dict[str, Any]]:
    """Log probabilities in the form of the Responses API."""
    if not isinstance(content, list):
        return []
    return [_logprob(entry) for entry in content if isinstance(entry, dict)]


def _logprob(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "token": entry.get("token", ""),
        "logprob": entry.get("logprob", 0.0),
        "bytes": entry.get("bytes") or list(str(entry.get("token", "")).encode()),
        "top_logprobs": [
            {
                "token": top.get("token", ""),
                "logprob": top.get("logprob", 0.0),
                "bytes": top.get("bytes") or list(str(top.get("token", "")).encode()),
            }
            for top in entry.get("top_logprobs") or ()
            if isinstance(top, dict)
        ],
    }
