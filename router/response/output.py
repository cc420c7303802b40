"""The state machine that turns what a model says, piece by piece, into output items.

A model may mix reasoning, text, refusals and several tool calls, and the fragments of parallel
calls may alternate, but items never overlap on the wire: one item is open and streamed live, what
comes for others meanwhile waits in the order of first appearance. Text and reasoning close as
soon as something else begins; a call closes once its arguments are a whole JSON object and
another item waits, else at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.errors import UpstreamFailure
from router.response.builder import ResponseBuilder, StreamState
from router.response.call_items import CallItem, CustomCallItem, SearchCallItem, ToolName
from router.response.frame import Frame
from router.response.items import (
    ItemWriter,
    ReasoningItem,
    RefusalItem,
    SilentReasoningItem,
    TextItem,
)

__all__ = ["MAX_WAITING_CHARS", "OutputBuilder"]

MAX_WAITING_CHARS: Final = 16 * 1024 * 1024
"""How much may wait behind the open item before the stream is given up."""

_WAITING_COST: Final = 4096
"""What a waiting item counts beside its text, so that empty ones are bounded, too."""

_CALLS: Final[Mapping[str, type[CallItem]]] = {
    "function": CallItem,
    "custom": CustomCallItem,
    "tool_search": SearchCallItem,
}
"""What writes the calls, by the type of the tool."""

_NO_NAMES: Final[Mapping[str, ToolName]] = {}

_MESSAGES: Final = {"reasoning": ReasoningItem, "text": TextItem, "refusal": RefusalItem}


class _Waiting:
    """An item that must wait, or a call whose name is not known yet."""

    __slots__ = ("annotations", "call_id", "fragments", "key", "kind", "logprobs", "name")

    def __init__(self, kind: str, key: int) -> None:
        self.kind = kind
        self.key = key
        self.call_id: str | None = None
        self.name: str | None = None
        self.fragments: list[str] = []
        self.logprobs: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []

    @property
    def is_ready(self) -> bool:
        """Whether it can be begun: a call is announced with its name."""
        return self.kind != "call" or bool(self.name)

    @property
    def cost(self) -> int:
        """What it takes of ``MAX_WAITING_CHARS``."""
        items = 1 + len(self.annotations)
        return _WAITING_COST * items + sum(map(len, self.fragments))


class OutputBuilder:
    """Feed it ``say`` and ``call``; it appends frames to ``out`` and items to ``items``.

    ``custom_tools`` names the tools whose calls are written as ``custom_tool_call`` items,
    ``tool_names`` the functions that stand for tools of other names, or types. ``started`` is
    whether any item was begun: one that waits for its name can still be taken back.
    ``open_kind`` is what is open: ``text``, ``reasoning``, ``refusal``, a ``call`` or nothing.
    """

    def __init__(
        self,
        builder: ResponseBuilder,
        custom_tools: frozenset[str] = frozenset(),
        tool_names: Mapping[str, ToolName] = _NO_NAMES,
    ) -> None:
        self.builder = builder
        self.out: list[Frame] = []
        self.items: list[dict[str, Any]] = []
        self._custom_tools = custom_tools
        self._tool_names = tool_names
        self._open: ItemWriter | None = None
        self.open_kind = ""
        self._open_key = -1
        self._closed_keys: set[int] = set()
        self._waiting: list[_Waiting] = []
        self._waiting_chars = 0
        self.started = False

    def say(self, kind: str, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        """A piece of ``reasoning``, ``text`` or ``refusal``."""
        if self.open_kind != kind or self._waiting:
            if self._waiting or (self._open is not None and not self._close_if_complete()):
                self._wait_text(kind, text, logprobs)
                return
            self._begin(kind, _MESSAGES[kind](self.builder, len(self.items), self.out))
        item = self._open
        if logprobs and isinstance(item, TextItem):
            item.delta_with_logprobs(text, logprobs)
        elif item is not None:
            item.delta(text)

    def annotate(self, length: int, annotations: list[dict[str, Any]]) -> None:
        """Say what the last ``length`` characters of the text cite: annotations, without the places
        of URLs in the text.
        """
        if self._waiting:
            last = self._waiting[-1]
            if last.kind == "text":
                last.annotations += _placed(annotations, last.fragments, length)
                self._count(_WAITING_COST * len(annotations))
        elif isinstance(self._open, TextItem):
            self._open.annotate(_placed(annotations, self._open.pieces, length))

    def open_text(self, kind: str) -> ItemWriter | None:
        """What takes more ``reasoning`` or ``text``, until anything else is said; None where it
        would be another item, or has to wait.
        """
        return self._open if self.open_kind == kind and not self._waiting else None

    def encrypt(self, encrypted: str | None, *, silent: bool) -> str | None:
        """End a piece of reasoning, with what can be sent back of it (None where it is kept from
        the client); ``silent`` is one without a text. The id of its item; None where it waits for
        others, and is not known yet.
        """
        if silent:
            if self._waiting or not (self._open is None or self._close_if_complete()):
                return None
            self._begin("reasoning", SilentReasoningItem(self.builder, len(self.items), self.out))
        item = self._open
        if not isinstance(item, ReasoningItem) or self._waiting:
            return None
        item.encrypted = encrypted
        self._finish_open("completed")
        return item.id

    def call(self, key: int, call_id: str | None, name: str | None, fragment: str) -> None:
        """A fragment of the tool call that upstream numbers ``key``."""
        if self.open_kind == "call" and self._open_key == key and self._open is not None:
            if fragment:
                self._open.delta(fragment)
                self._begin_what_can()
            return
        if key in self._closed_keys:
            return  # its arguments were complete: what may still come is white space
        waiting = self._find_call(key)
        if waiting is None:
            waiting = self._wait("call", key)
        waiting.call_id = waiting.call_id or call_id
        waiting.name = waiting.name or name
        if fragment:
            waiting.fragments.append(fragment)
            self._count(len(fragment))
        self._begin_what_can()

    def has_whole(self, key: int) -> bool:
        """Whether the arguments of the call with this key are already a whole JSON object."""
        if isinstance(self._open, CallItem) and self._open_key == key:
            return _is_json_object(self._open.received)
        waiting = self._find_call(key)
        if waiting is not None:
            return _is_json_object(waiting.fragments)
        return key in self._closed_keys

    def close(self, status: str) -> None:
        """End every item; the one that is being written last gets ``status``.

        In an ``incomplete`` answer a call cut off before its name is left out; otherwise that
        raises UpstreamFailure.
        """
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            if item.is_ready or status != "incomplete":
                self._finish_open(self._status_so_far(status))
                self._begin_waiting(item)
        self._finish_open(status)

    def partial(self) -> list[dict[str, Any]]:
        """The items so far, the unfinished one marked incomplete; writes nothing."""
        if self._open is None:
            return list(self.items)
        return [*self.items, self._open.finished("incomplete")]

    def _status_so_far(self, status: str) -> str:
        """The status of the open item when others follow it in an answer with this status."""
        item = self._open
        if status != "incomplete" or not isinstance(item, CallItem) or not any(item.received):
            return "completed"
        return "completed" if _is_json_object(item.received) else "incomplete"

    def _begin_what_can(self) -> None:
        """Begin the items that wait, in their order, as far as they are ready."""
        while self._waiting and self._waiting[0].is_ready and self._close_if_complete():
            self._begin_waiting(self._waiting.pop(0))

    def _close_if_complete(self) -> bool:
        """Close what is open so that another item can begin; False when it must wait."""
        if isinstance(self._open, CallItem) and not _is_json_object(self._open.received):
            return False
        self._finish_open("completed")
        return True

    def _begin(self, kind: str, item: ItemWriter, key: int = -1) -> None:
        self.builder.advance(StreamState.ITEM)
        self._open, self.open_kind, self._open_key = item, kind, key
        self.started = True
        item.open()

    def _begin_waiting(self, waiting: _Waiting) -> None:
        self._waiting_chars -= waiting.cost
        if waiting.kind != "call":
            item: ItemWriter = _MESSAGES[waiting.kind](self.builder, len(self.items), self.out)
        else:
            if not waiting.name:
                raise UpstreamFailure("The endpoint sent a tool call without a name.")
            item = self._call_item(waiting.name, waiting.call_id)
        self._begin(waiting.kind, item, waiting.key)
        text = "".join(waiting.fragments)
        if waiting.logprobs and isinstance(item, TextItem):
            item.delta_with_logprobs(text, waiting.logprobs)
        elif text:
            item.delta(text)
        if waiting.annotations and isinstance(item, TextItem):
            item.annotate(waiting.annotations)

    def _call_item(self, name: str, call_id: str | None) -> CallItem:
        tool = self._tool_names.get(name)
        if tool is None:
            tool = ToolName("custom" if name in self._custom_tools else "function", name)
        call_id = call_id or self.builder.new_id("call_")
        place = len(self.items)
        return _CALLS[tool.kind](self.builder, place, self.out, call_id, tool.name, tool.namespace)

    def _finish_open(self, status: str) -> None:
        if self._open is not None:
            self.items.append(self._open.close(status))
            if self.open_kind == "call":
                self._closed_keys.add(self._open_key)
            self._open, self.open_kind, self._open_key = None, "", -1
            self.builder.advance(StreamState.BETWEEN)

    def _wait_text(self, kind: str, text: str, logprobs: list[dict[str, Any]] | None) -> None:
        last = self._waiting[-1] if self._waiting else None
        if last is None or last.kind != kind:
            last = self._wait(kind, -1)
        last.fragments.append(text)
        last.logprobs.extend(logprobs or ())
        self._count(len(text))

    def _wait(self, kind: str, key: int) -> _Waiting:
        waiting = _Waiting(kind, key)
        self._waiting.append(waiting)
        self._count(_WAITING_COST)
        return waiting

    def _find_call(self, key: int) -> _Waiting | None:
        for waiting in self._waiting:
            if waiting.kind == "call" and waiting.key == key:
                return waiting
        return None

    def _count(self, chars: int) -> None:
        self._waiting_chars += chars
        if self._waiting_chars > MAX_WAITING_CHARS:
            raise UpstreamFailure("The endpoint sent more tool call data than can be held.")


def _placed(
    annotations: list[dict[str, Any]], pieces: list[str], length: int
) -> list[dict[str, Any]]:
    """The annotations, those of URLs with the place of the last characters of the text."""
    end = sum(map(len, pieces))
    place = {"start_index": max(0, end - length), "end_index": end}
    return [one | place if one["type"] == "url_citation" else one for one in annotations]


def _is_json_object(fragments: list[str]) -> bool:
    last = next((text for text in map(str.rstrip, reversed(fragments)) if text), "")
    if not last.endswith("}"):
        return False  # most fragments end elsewhere: this spares putting them together
    try:
        orjson.loads("".join(fragments))
    except orjson.JSONDecodeError:
        return False
    return True
