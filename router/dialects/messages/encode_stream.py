"""A response told to a client of the Messages API.

Blocks of a message follow one upon the other, and so do they in its stream: the oldest that is not
done is told live, what comes for others meanwhile is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

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
from router.dialects.messages.thinking import Show, sign
from router.errors import UpstreamFailure
from router.response.frame import Frame

__all__ = ["MAX_HELD", "MessagesEncoder", "TokenCountEncoder"]

MAX_HELD: Final = 16 * 1024 * 1024
"""So many characters may wait for the block before them."""

_COST: Final = 256
"""What each piece counts beside its text."""

_DELTAS: Final = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


class _Open:
    """A block that has begun. ``told`` is how much of its text has come, ``part`` which piece of
    its item's text was the last.
    """

    __slots__ = ("begun", "done", "held", "part", "signature", "started", "told")

    def __init__(self, begun: dict[str, Any]) -> None:
        self.begun = begun
        self.held: list[str] = []
        self.started = self.done = False
        self.signature: str | None = None
        self.told = 0
        self.part = 0


class MessagesEncoder:
    """Implements ``router.dialects.dialect.ResponseEncoder``; ``show`` is what is shown of
    reasoning.
    """

    def __init__(self, show: Show, request_id: str | None) -> None:
        self._show = show
        self._request_id = request_id
        self._out: list[Frame] = []
        self._line: deque[_Open] = deque()
        self._items: dict[Any, dict[int | str, _Open]] = {}
        self._index = 0
        self._done = 0
        self._held = 0
        self._opened = self._ended = False

    def whole(self, body: bytes) -> bytes:
        """See ``ResponseEncoder.whole``."""
        return orjson.dumps(message_of(orjson.loads(body), self._show))

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """See ``ResponseEncoder.frames``; raises UpstreamFailure for more than can be held."""
        for frame in batch:
            take = _EVENTS.get(frame.type)
            if take is not None and not self._ended:
                take(self, frame.json())
        out, self._out = self._out, []
        return out

    def _begin(self, event: dict[str, Any]) -> None:
        if not self._opened:
            self._opened = True
            message = outline(_response(event))
            self._out.append(Frame.of({"type": "message_start", "message": message}))

    def _added(self, event: dict[str, Any]) -> None:
        """An item has begun: a call is a block from the start, others once they have a text."""
        item = event.get("item")
        if isinstance(item, dict) and item.get("type") in ("function_call", "custom_tool_call"):
            begun = call_of(item)
            if begun is not None:
                self._open(_place(event), "call", begun)

    def _text(self, event: dict[str, Any]) -> None:
        self._piece(event, _part(event, "content_index"), {"type": "text", "text": ""})

    def _summary(self, event: dict[str, Any]) -> None:
        self._thought(event, "summary", _part(event, "summary_index"))

    def _raw(self, event: dict[str, Any]) -> None:
        self._thought(event, "content", _part(event, "content_index"))

    def _thought(self, event: dict[str, Any], source: str, index: int) -> None:
        """Some tell the reasoning and its summary: the first of the two is told."""
        blocks = self._items.get(_place(event), {})
        if self._show != "text" or (blocks and source not in blocks):
            return
        block = blocks.get(source)
        if block is not None and block.part != index and event.get("delta"):
            self._say(block, "\n\n")
        begun = {"type": "thinking", "thinking": "", "signature": ""}
        self._piece(event, source, begun, index)

    def _arguments(self, event: dict[str, Any]) -> None:
        block = self._items.get(_place(event), {}).get("call")
        delta = event.get("delta")
        if block is not None and isinstance(delta, str) and delta:
            self._say(block, delta)

    def _piece(
        self, event: dict[str, Any], part: int | str, begun: dict[str, Any], index: int = 0
    ) -> None:
        """A piece of text; a block without any is none."""
        delta = event.get("delta")
        if not isinstance(delta, str) or not delta:
            return
        place = _place(event)
        block = self._items.get(place, {}).get(part) or self._open(place, part, begun)
        block.part = index
        self._say(block, delta)

    def _item_done(self, event: dict[str, Any]) -> None:
        self._done += 1
        self._settle(_place(event), event.get("item"))

    def _settle(self, place: Any, item: Any) -> None:
        """Tell what of a finished item was not streamed, and end its blocks."""
        blocks = self._items.get(place, {})
        told = next((part for part in ("summary", "content") if part in blocks), None)
        for block in blocks_of(item, self._show, told):
            opened = self._items.get(place, {}).get(block.part)
            if opened is None:
                opened = self._open(place, block.part, block.begun)
            opened.signature = block.signature
            if rest := block.text[opened.told :]:
                self._say(opened, rest)
        self._close(place)

    def _finished(self, event: dict[str, Any]) -> None:
        response = _response(event)
        output = response.get("output")
        for place, item in list(enumerate(output if isinstance(output, list) else ()))[
            self._done :
        ]:
            self._settle(place, item)
        for place in list(self._items):
            self._close(place)
        self._begin(event)
        usage = usage_of(response)
        usage.pop("service_tier", None)
        self._out.append(
            Frame.of({"type": "message_delta", "delta": stop_of(response), "usage": usage})
        )
        self._out.append(Frame.of({"type": "message_stop"}))
        self._ended = True

    def _failed(self, event: dict[str, Any]) -> None:
        status, message = error_of(_response(event))
        self._out.append(Frame.of(error_body(status, message, self._request_id)))
        self._ended = True

    def _open(self, place: Any, part: int | str, begun: dict[str, Any]) -> _Open:
        """A new block, which ends those before it in its item."""
        self._begin({})
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
        block.told += len(text)
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


_EVENTS: Final[dict[str, Callable[[MessagesEncoder, dict[str, Any]], None]]] = {
    "response.created": MessagesEncoder._begin,
    "response.output_item.added": MessagesEncoder._added,
    "response.output_text.delta": MessagesEncoder._text,
    "response.refusal.delta": MessagesEncoder._text,
    "response.reasoning_summary_text.delta": MessagesEncoder._summary,
    "response.reasoning_text.delta": MessagesEncoder._raw,
    "response.function_call_arguments.delta": MessagesEncoder._arguments,
    "response.custom_tool_call_input.delta": MessagesEncoder._arguments,
    "response.output_item.done": MessagesEncoder._item_done,
    "response.completed": MessagesEncoder._finished,
    "response.incomplete": MessagesEncoder._finished,
    "response.failed": MessagesEncoder._failed,
}


class TokenCountEncoder:
    """Tells how many tokens a prompt has."""

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """See ``ResponseEncoder.frames``: a count is never streamed."""
        return []

    def whole(self, body: bytes) -> bytes:
        """See ``ResponseEncoder.whole``."""
        return orjson.dumps({"input_tokens": orjson.loads(body)["input_tokens"]})


def _place(event: dict[str, Any]) -> Any:
    """The item that an event is about."""
    index = event.get("output_index")
    if isinstance(index, int):
        return index
    ident = event.get("item_id")
    return ident if isinstance(ident, str) else None


def _part(event: dict[str, Any], name: str) -> int:
    index = event.get(name)
    return index if isinstance(index, int) else 0


def _response(event: dict[str, Any]) -> dict[str, Any]:
    response = event.get("response")
    return response if isinstance(response, dict) else {}
