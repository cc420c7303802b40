"""Answers of Anthropic's Messages, streamed or whole, as events of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.dialects.messages.answer_schema import ANSWER_TOOL
from router.dialects.messages.citations import annotation_of
from router.dialects.messages.sealing import seal_redacted, seal_thinking
from router.errors import UpstreamError, UpstreamFailure
from router.response import tokens
from router.response.builder import ResponseBuilder
from router.response.decoder import reported_failure
from router.response.frame import EventTooLarge, Frame, SSEDecoder, load_object
from router.response.machine import MachineOptions, ResponseMachine

__all__ = ["MessagesDecoder"]

_REASONS: Final[Mapping[str, str]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
}

_MOST_CITED: Final = 256
"""Citations of one block; more are left out."""


class _Block:
    """A content block that is being read: its ``text`` is what has come of a block of thinking, or
    the input of a tool that came at its beginning; ``length`` that of a block of text, which
    ``cites`` others.
    """

    __slots__ = ("cites", "kind", "length", "name", "said", "signature", "text")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = ""
        self.text: list[str] = []
        self.signature = ""
        self.said = False
        self.length = 0
        self.cites: list[dict[str, Any]] = []


class MessagesDecoder(ResponseMachine):
    """Reads the events of a message, or one message. ``account`` is the endpoint's mark, by which
    it is known again who has signed the thinking; ``hide`` keeps that from a client that has not
    asked for it. Blocks of tools that Anthropic runs itself are left out: none are asked for.
    """

    hide = False

    def __init__(
        self, builder: ResponseBuilder, options: MachineOptions | None = None, account: str = ""
    ) -> None:
        super().__init__(builder, options)
        self._account = account
        self._documents = options.documents if options is not None else ()
        self._decoder = SSEDecoder()
        self._blocks: dict[Any, _Block] = {}
        self._counts: dict[str, Any] = {}
        self._calls = 0

    def feed(self, data: bytes) -> list[Frame]:
        """See ``StreamDecoder.feed``."""
        if self.error is None and self.final is None:
            try:
                for event in self._decoder.decode(data):
                    self._event(load_object(event, "a stream event"))
                    if self.ended:
                        break
            except EventTooLarge as exc:
                self.error = UpstreamFailure(f"The endpoint's stream is broken: {exc}.")
            except UpstreamError as exc:
                self.error = exc
        return self.take()

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        message = load_object(body, "a message")
        if message.get("type") == "error":
            raise reported_failure(message)
        content = message.get("content")
        if not isinstance(content, list):
            raise UpstreamFailure("The endpoint sent a message without content.")
        for index, block in enumerate(content):
            self._start(index, block)
            self._stop(index)
        self._count(message.get("usage"))
        self._end(message.get("stop_reason") or "end_turn")
        return orjson.dumps(self.complete())

    def _event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "content_block_delta":
            self._delta(event.get("index"), event.get("delta"))
        elif kind == "content_block_start":
            self._start(event.get("index"), event.get("content_block"))
        elif kind == "content_block_stop":
            self._stop(event.get("index"))
        elif kind == "message_start":
            message = event.get("message")
            self._keep(message.get("usage") if isinstance(message, dict) else None)
        elif kind == "message_delta":
            self._count(event.get("usage"))
            delta = event.get("delta")
            self._end(delta.get("stop_reason") if isinstance(delta, dict) else None)
        elif kind == "message_stop":
            self.complete()
        elif kind == "error" or "error" in event:
            raise reported_failure(event)

    def _start(self, index: Any, given: Any) -> None:
        if not isinstance(given, dict):
            raise UpstreamFailure("The endpoint sent a content block that is not an object.")
        kind = given.get("type")
        block = self._blocks[_hashable(index)] = _Block(kind if isinstance(kind, str) else "")
        if kind == "text":
            self._say_of(block, given.get("text"))
            citations = given.get("citations")
            for citation in citations if isinstance(citations, list) else ():
                self._cite(block, citation)
        elif kind == "thinking":
            self._thought(block, given.get("thinking"))
            block.signature = _string(given.get("signature"))
        elif kind == "redacted_thinking":
            block.signature = _string(given.get("data"))
        elif kind == "tool_use":
            self._call(block, given)

    def _call(self, block: _Block, given: dict[str, Any]) -> None:
        block.name = _string(given.get("name"))
        if not block.name:
            raise UpstreamFailure("The endpoint sent a tool call without a name.")
        if given.get("input"):
            block.text.append(orjson.dumps(given["input"]).decode())
        if block.name != ANSWER_TOOL:
            block.signature = str(self._calls)
            self.call(self._calls, _string(given.get("id")) or None, block.name, "")
            self._calls += 1

    def _delta(self, index: Any, delta: Any) -> None:
        block = self._blocks.get(_hashable(index))
        if block is None or not isinstance(delta, dict):
            raise UpstreamFailure("The endpoint sent a piece of a block that has not begun.")
        kind = delta.get("type")
        if kind == "text_delta":
            self._say_of(block, delta.get("text"))
        elif kind == "citations_delta" and block.kind == "text":
            self._cite(block, delta.get("citation"))
        elif kind == "thinking_delta":
            self._thought(block, delta.get("thinking"))
        elif kind == "signature_delta":
            block.signature += _string(delta.get("signature"))
        elif kind == "input_json_delta" and block.kind == "tool_use":
            self._arguments(block, _string(delta.get("partial_json")))

    def _arguments(self, block: _Block, piece: str) -> None:
        if not piece:
            return
        block.said = True
        if block.name == ANSWER_TOOL:
            self._text(piece)
        else:
            self.call(int(block.signature), None, None, piece)

    def _stop(self, index: Any) -> None:
        block = self._blocks.pop(_hashable(index), None)
        if block is None:
            return
        if block.cites:
            self.annotate(block.length, block.cites)
        elif block.kind == "tool_use" and not block.said:
            self._arguments(block, "".join(block.text) or "{}")
        elif block.kind == "thinking" and block.signature:
            text = "".join(block.text)
            sealed = seal_thinking(text, block.signature, self._account)
            self.encrypt_reasoning(sealed, hide=self.hide, silent=not text)
        elif block.kind == "redacted_thinking" and block.signature:
            sealed = seal_redacted(block.signature, self._account)
            self.encrypt_reasoning(sealed, hide=self.hide, silent=True)

    def _thought(self, block: _Block, text: Any) -> None:
        if isinstance(text, str) and text:
            block.text.append(text)
            self.reasoning(text)

    def _say_of(self, block: _Block, text: Any) -> None:
        if isinstance(text, str) and text:
            block.length += len(text)
            self.text(text)

    def _cite(self, block: _Block, citation: Any) -> None:
        """What cannot be said as an annotation, or has been, is passed over."""
        annotation = annotation_of(citation, self._documents)
        if annotation is None or annotation in block.cites or len(block.cites) == _MOST_CITED:
            return
        block.cites.append(annotation)

    def _text(self, text: Any) -> None:
        if isinstance(text, str) and text:
            self.text(text)

    def _keep(self, usage: Any) -> None:
        """Counts come at the beginning and at the end: those that come later are the ones. Of an
        answer that breaks off in between nobody has counted the output.
        """
        if isinstance(usage, dict):
            self._counts |= {name: value for name, value in usage.items() if value is not None}

    def _count(self, usage: Any) -> None:
        self._keep(usage)
        self.usage = tokens.from_messages(self._counts)

    def _end(self, reason: Any) -> None:
        if isinstance(reason, str):
            self.finish_reason = _REASONS.get(reason, "stop")


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _hashable(index: Any) -> int | None:
    return index if isinstance(index, int) else None
