"""A response told to a client of the Messages API.

Blocks of a message follow one upon the other, and so do they in its stream: the oldest that is not
done is told live, what comes for others meanwhile is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import orjson

from router.dialects.messages.context import NO_EDITS, AppliedEdits
from router.dialects.messages.encode_response import (
    blocks_of,
    call_of,
    error_of,
    message_of,
    outline,
    stop_of,
    usage_of,
)
from router.dialects.messages.schema import error_body
from router.dialects.messages.server_tools import use_and_result
from router.dialects.messages.thinking import Show, sign
from router.errors import UpstreamFailure
from router.response.frame import Frame
from router.response.output_events import OutputEvents

__all__ = ["MAX_HELD", "MessagesEncoder", "TokenCountEncoder"]

MAX_HELD: Final = 16 * 1024 * 1024
"""So many characters may wait for the block before them."""

_COST: Final = 256
"""What each piece counts beside its text."""

_DELTAS: Final = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
    "server_tool_use": ("input_json_delta", "partial_json"),
}


class _Open:
    """A block that has begun. ``part`` is which part of its item's reasoning was the last."""

    __slots__ = ("begun", "citations", "done", "held", "part", "signature", "started")

    def __init__(self, begun: dict[str, Any]) -> None:
        self.begun = begun
        self.held: list[str] = []
        self.started = self.done = False
        self.signature: str | None = None
        self.part: int | None = None
        self.citations: Sequence[dict[str, Any]] = ()


class MessagesEncoder:
    """Implements ``router.dialects.dialect.ResponseEncoder``; ``show`` is what is shown of
    reasoning, ``edits`` what was cleared of the history.
    """

    def __init__(self, show: Show, request_id: str | None, edits: AppliedEdits = NO_EDITS) -> None:
        self._show = show
        self._edits = edits
        self._request_id = request_id
        self._out: list[Frame] = []
        self._line: deque[_Open] = deque()
        self._items: dict[Any, dict[int | str, _Open]] = {}
        self._index = 0
        self._held = 0
        self._opened = False
        self._pages: dict[str, str] = {}
        self._events = OutputEvents(self)

    def whole(self, body: bytes) -> bytes:
        """See ``ResponseEncoder.whole``."""
        message = message_of(orjson.loads(body), self._show)
        return orjson.dumps({**message, **self._edits.told()})

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """See ``ResponseEncoder.frames``; raises UpstreamFailure for more than can be held."""
        self._events.feed(batch)
        out, self._out = self._out, []
        return out

    def response_opened(self, response: dict[str, Any]) -> None:
        """See ``OutputListener.response_opened``."""
        if not self._opened:
            self._opened = True
            self._out.append(Frame.of({"type": "message_start", "message": outline(response)}))

    def item_added(self, place: int | str, item: dict[str, Any]) -> None:
        """See ``OutputListener.item_added``: a search is shown while it is under way."""
        if (ran := use_and_result(item)) is not None and ran[1] != "{}":
            self._say(self._open(place, "use", ran[0]), ran[1])

    def text(
        self, place: int | str, part: int, kind: str, piece: str, logprobs: Any, *, whole: bool
    ) -> None:
        """See ``OutputListener.text``: a refusal is a text, too."""
        self._say(self._block(place, part, {"type": "text", "text": ""}), piece)

    def reasoning(self, place: int | str, source: str, part: int, piece: str) -> None:
        """See ``OutputListener.reasoning``."""
        if self._show != "text":
            return
        begun = {"type": "thinking", "thinking": "", "signature": ""}
        block = self._block(place, source, begun)
        if block.part is not None and block.part != part:
            self._say(block, "\n\n")
        block.part = part
        self._say(block, piece)

    def call(self, place: int | str, item: dict[str, Any]) -> None:
        """See ``OutputListener.call``: a call is a block from the start."""
        begun = call_of(item)
        if begun is not None:
            self._open(place, "call", begun)

    def arguments(self, place: int | str, piece: str) -> None:
        """See ``OutputListener.arguments``."""
        block = self._items.get(place, {}).get("call")
        if block is not None:
            self._say(block, piece)

    def item_done(self, place: int | str, item: dict[str, Any]) -> None:
        """See ``OutputListener.item_done``: its blocks end, signed where they have to be."""
        told = next((part for part in ("summary", "content") if part in self._blocks(place)), None)
        for block in blocks_of(item, self._show, told, pages=self._pages):
            opened = self._blocks(place).get(block.part)
            if opened is None:
                opened = self._open(place, block.part, block.begun)
                if block.begun["type"] == "server_tool_use":
                    self._say(opened, block.text)
            opened.signature = block.signature
            opened.citations = block.citations
        self._close(place)

    def response_done(self, response: dict[str, Any]) -> None:
        """See ``OutputListener.response_done``."""
        for place in list(self._items):
            self._close(place)
        self.response_opened(response)
        usage = usage_of(response)
        usage.pop("service_tier", None)
        delta = {"type": "message_delta", "delta": stop_of(response), "usage": usage}
        self._out.append(Frame.of({**delta, **self._edits.told()}))
        self._out.append(Frame.of({"type": "message_stop"}))

    def response_failed(self, response: dict[str, Any]) -> None:
        """See ``OutputListener.response_failed``."""
        status, message = error_of(response)
        self._out.append(Frame.of(error_body(status, message, self._request_id)))

    def _blocks(self, place: int | str) -> dict[int | str, _Open]:
        return self._items.get(place, {})

    def _block(self, place: int | str, part: int | str, begun: dict[str, Any]) -> _Open:
        return self._blocks(place).get(part) or self._open(place, part, begun)

    def _open(self, place: Any, part: int | str, begun: dict[str, Any]) -> _Open:
        """A new block, which ends those before it in its item."""
        self.response_opened({})
        blocks = self._items.setdefault(place, {})
        for other in blocks.values():
            other.done = True
        block = blocks[part] = _Open(begun)
        self._line.append(block)
        self._advance()
        return block

    def _close(self, place: Any) -> None:
        for block in self._items.pop(place, {}).values():
            block.done = True
        self._advance()

    def _say(self, block: _Open, text: str) -> None:
        if self._line[0] is block:
            self._delta(block, text)
        elif not block.done:
            block.held.append(text)
            self._held += len(text) + _COST
            if self._held > MAX_HELD:
                raise UpstreamFailure("The endpoint sent more at a time than can be held.")

    def _advance(self) -> None:
        """Tell what waits, as far as the blocks before it are done."""
        while self._line:
            block = self._line[0]
            if not block.started:
                block.started = True
                self._event("content_block_start", content_block=block.begun)
                if block.held:
                    self._held -= sum(map(len, block.held)) + _COST * len(block.held)
                    self._delta(block, "".join(block.held))
            if not block.done:
                return
            for citation in block.citations:
                delta = {"type": "citations_delta", "citation": citation}
                self._event("content_block_delta", delta=delta)
            if block.begun["type"] == "thinking":
                signature = block.signature or sign(None)
                self._event(
                    "content_block_delta", delta={"type": "signature_delta", "signature": signature}
                )
            self._event("content_block_stop")
            self._index += 1
            self._line.popleft()

    def _delta(self, block: _Open, text: str) -> None:
        kind, field = _DELTAS[block.begun["type"]]
        self._event("content_block_delta", delta={"type": kind, field: text})

    def _event(self, kind: str, **fields: Any) -> None:
        self._out.append(Frame(kind, orjson.dumps({"type": kind, "index": self._index, **fields})))


class TokenCountEncoder:
    """Tells how many tokens a prompt has, and had before ``edits`` cleared some of it."""

    def __init__(self, edits: AppliedEdits = NO_EDITS) -> None:
        self._edits = edits

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """See ``ResponseEncoder.frames``: a count is never streamed."""
        return []

    def whole(self, body: bytes) -> bytes:
        """See ``ResponseEncoder.whole``."""
        count = orjson.loads(body)["input_tokens"]
        told: dict[str, Any] = {"input_tokens": count}
        if self._edits.applied is not None:
            told["context_management"] = {"original_input_tokens": count + self._edits.tokens}
        return orjson.dumps(told)
