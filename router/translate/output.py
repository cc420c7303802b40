"""The state machine that turns what a model says, piece by piece, into output items.

A model may mix reasoning, text, refusals and several tool calls, and the fragments of parallel
calls may alternate, but items never overlap on the wire: one item is open and streamed live, what
comes for others meanwhile waits in the order of first appearance. Text and reasoning close as
soon as something else begins; a call closes once its arguments are complete JSON and another
item waits, else at the end.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from router.errors import UpstreamFailure
from router.translate.draft import Draft
from router.translate.items import (
    CallItem,
    CustomCallItem,
    ItemWriter,
    ReasoningItem,
    RefusalItem,
    TextItem,
)
from router.translate.states import State
from router.wire.frame import Frame

__all__ = ["MAX_WAITING_CHARS", "OutputBuilder"]

MAX_WAITING_CHARS: Final = 16 * 1024 * 1024
"""How much may wait behind the open item before the stream is given up."""

_MESSAGES: Final = {"reasoning": ReasoningItem, "text": TextItem, "refusal": RefusalItem}


class _Waiting:
    """An item that must wait, or a call whose name is not known yet."""

    __slots__ = ("call_id", "fragments", "key", "kind", "logprobs", "name")

    def __init__(self, kind: str, key: int) -> None:
        self.kind = kind
        self.key = key
        self.call_id: str | None = None
        self.name: str | None = None
        self.fragments: list[str] = []
        self.logprobs: list[dict[str, Any]] = []


class OutputBuilder:
    """Feed it ``say`` and ``call``; it appends frames to ``out`` and items to ``items``.

    ``custom_tools`` names the tools whose calls are written as ``custom_tool_call`` items.
    """

    def __init__(self, draft: Draft, custom_tools: frozenset[str] = frozenset()) -> None:
        self.draft = draft
        self.out: list[Frame] = []
        self.items: list[dict[str, Any]] = []
        self._custom_tools = custom_tools
        self._open: ItemWriter | None = None
        self._open_kind = ""
        self._open_key = -1
        self._closed_keys: set[int] = set()
        self._waiting: list[_Waiting] = []
        self._waiting_chars = 0

    @property
    def started(self) -> bool:
        """Whether any item was begun."""
        return self._open is not None or bool(self.items) or bool(self._waiting)

    def say(self, kind: str, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        """A piece of ``reasoning``, ``text`` or ``refusal``."""
        if self._open_kind != kind or self._waiting:
            if not self._make_room():
                self._wait_text(kind, text, logprobs)
                return
            self._begin(kind, _MESSAGES[kind](self.draft, len(self.items), self.out))
        item = self._open
        if logprobs and isinstance(item, TextItem):
            item.delta_with_logprobs(text, logprobs)
        elif item is not None:
            item.delta(text)

    def call(self, key: int, call_id: str | None, name: str | None, fragment: str) -> None:
        """A fragment of the tool call that upstream numbers ``key``."""
        if self._open_kind == "call" and self._open_key == key and self._open is not None:
            if fragment:
                self._open.delta(fragment)
            return
        if key in self._closed_keys:
            return  # its arguments were complete: what may still come is white space
        waiting = self._find_call(key)
        if waiting is None:
            waiting = _Waiting("call", key)
            self._waiting.append(waiting)
        waiting.call_id = waiting.call_id or call_id
        waiting.name = waiting.name or name
        if fragment:
            waiting.fragments.append(fragment)
            self._count(fragment)
        if waiting is self._waiting[0] and waiting.name and self._close_if_complete():
            self._begin_waiting(self._waiting.pop(0))

    def close(self, status: str) -> None:
        """End every item; the one that is being written last gets ``status``.

        Raises UpstreamFailure for a call that never got a name.
        """
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            self._finish_open("completed")
            self._begin_waiting(item)
        self._finish_open(status)

    def partial(self) -> list[dict[str, Any]]:
        """The items so far, the unfinished one marked incomplete; writes nothing."""
        if self._open is None:
            return list(self.items)
        return [*self.items, self._open.finished("incomplete")]

    def _make_room(self) -> bool:
        """Close what is open so that another item can begin; False when it must wait."""
        if self._waiting:
            return False
        if self._open_kind == "call":
            return self._close_if_complete()
        self._finish_open("completed")
        return True

    def _close_if_complete(self) -> bool:
        if isinstance(self._open, CallItem) and not _is_json_object(self._open):
            return False
        self._finish_open("completed")
        return True

    def _begin(self, kind: str, item: ItemWriter, key: int = -1) -> None:
        self.draft.advance(State.ITEM)
        self._open, self._open_kind, self._open_key = item, kind, key
        item.open()

    def _begin_waiting(self, waiting: _Waiting) -> None:
        if waiting.kind != "call":
            item: ItemWriter = _MESSAGES[waiting.kind](self.draft, len(self.items), self.out)
        else:
            if not waiting.name:
                raise UpstreamFailure("The endpoint sent a tool call without a name.")
            make = CustomCallItem if waiting.name in self._custom_tools else CallItem
            call_id = waiting.call_id or self.draft.new_id("call_")
            item = make(self.draft, len(self.items), self.out, call_id, waiting.name)
        self._begin(waiting.kind, item, waiting.key)
        text = "".join(waiting.fragments)
        if waiting.logprobs and isinstance(item, TextItem):
            item.delta_with_logprobs(text, waiting.logprobs)
        elif text:
            item.delta(text)

    def _finish_open(self, status: str) -> None:
        if self._open is not None:
            self.items.append(self._open.close(status))
            if self._open_kind == "call":
                self._closed_keys.add(self._open_key)
            self._open, self._open_kind, self._open_key = None, "", -1
            self.draft.advance(State.BETWEEN)

    def _wait_text(self, kind: str, text: str, logprobs: list[dict[str, Any]] | None) -> None:
        last = self._waiting[-1] if self._waiting else None
        if last is None or last.kind != kind:
            last = _Waiting(kind, -1)
            self._waiting.append(last)
        last.fragments.append(text)
        last.logprobs.extend(logprobs or ())
        self._count(text)

    def _find_call(self, key: int) -> _Waiting | None:
        for waiting in self._waiting:
            if waiting.kind == "call" and waiting.key == key:
                return waiting
        return None

    def _count(self, text: str) -> None:
        self._waiting_chars += len(text)
        if self._waiting_chars > MAX_WAITING_CHARS:
            raise UpstreamFailure("The endpoint sent more tool call data than can be held.")


def _is_json_object(item: CallItem) -> bool:
    text = item.arguments_so_far
    if not text.rstrip().endswith("}"):
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
