"""Ollama's ``/api/chat`` answers, NDJSON or whole, as events of the Responses API."""

from __future__ import annotations

from typing import Any, Final

import orjson

from router.dialects.chat.decode_stream import logprob_entries, text_or_none
from router.dialects.ndjson import NDJSONDecoder
from router.errors import UpstreamError, UpstreamFailure
from router.response import tokens
from router.response.decoder import arguments_text, reported_failure
from router.response.frame import EventTooLarge, Frame, load_object
from router.response.machine import ResponseMachine

__all__ = ["OllamaDecoder"]

_UNFINISHED: Final = frozenset({"load", "unload"})


class OllamaDecoder(ResponseMachine):
    """Reads the lines of an ``/api/chat`` stream, or its one object."""

    _decoder: NDJSONDecoder | None = None
    _calls = 0

    def feed(self, data: bytes) -> list[Frame]:
        """See ``StreamDecoder.feed``."""
        if self.error is None and self.final is None:
            decoder = self._decoder = self._decoder or NDJSONDecoder()
            try:
                self._lines(decoder.decode(data))
            except EventTooLarge as exc:
                self.error = UpstreamFailure(f"The endpoint's stream is broken: {exc}.")
            except UpstreamError as exc:
                self.error = exc
        return self.take()

    def finish(self) -> list[Frame]:
        """See ``StreamDecoder.finish``; the last line needs no newline."""
        if self.error is None and self.final is None and self._decoder is not None:
            try:
                self._lines(self._decoder.flush())
            except UpstreamError as exc:
                self.error = exc
        return super().finish()

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        line = load_object(body, "an answer")
        if not isinstance(line.get("message"), dict) and not line.get("error"):
            raise UpstreamFailure("The endpoint sent an answer without a message.")
        self._line(line)
        if self.final is None:
            raise UpstreamFailure("The endpoint sent an answer that is not marked as done.")
        return orjson.dumps(self.final)

    def _lines(self, lines: list[bytes]) -> None:
        for data in lines:
            if self.final is not None:
                return
            self._line(load_object(data, "a stream line"))

    def _line(self, line: dict[str, Any]) -> None:
        if line.get("error"):
            raise reported_failure(line)
        message = line.get("message")
        if isinstance(message, dict):
            self._message(message, line.get("logprobs"))
        if line.get("done"):
            self.usage = tokens.from_ollama(line)
            reason = text_or_none(line.get("done_reason")) or "stop"
            if reason in _UNFINISHED:
                raise UpstreamFailure(f"The endpoint gave no answer: it only did a '{reason}'.")
            self.finish_reason = reason
            self.complete()

    def _message(self, message: dict[str, Any], logprobs: Any) -> None:
        thinking = message.get("thinking")
        if isinstance(thinking, str) and thinking:
            self.reasoning(thinking)
        content = message.get("content")
        if isinstance(content, str) and content:
            self.text(content, logprob_entries(logprobs) if self.wants_logprobs else None)
        calls = message.get("tool_calls")
        if not calls:
            return
        if not isinstance(calls, list):
            raise UpstreamFailure("The endpoint sent tool calls that are not a list.")
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                raise UpstreamFailure("The endpoint sent a tool call without a function.")
            call_id, name = text_or_none(call.get("id")), text_or_none(function.get("name"))
            if name is None:
                raise UpstreamFailure("The endpoint sent a tool call without a name.")
            # Ollama sends every call whole; its ``function.index`` repeats between lines.
            arguments = arguments_text(function.get("arguments")) or "{}"
            self.call(self._calls, call_id, name, arguments)
            self._calls += 1
