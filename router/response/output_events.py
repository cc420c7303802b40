"""What the events of a response say, each thing once.

Servers stream more or less: some send a text in pieces, some only in the item that is done, or in
the final response. ``OutputEvents`` knows what of an item has been sent, and hands a listener the
pieces as they come, and the rest when the item is done. What an endpoint sent may be anything: what
makes no sense is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from router.response.frame import Frame

__all__ = ["CALL_TEXTS", "OutputEvents", "OutputListener"]

Place = int | str
"""What tells an item from others: its place in the output, or else its id."""

TextKind = Literal["text", "refusal"]
ReasoningSource = Literal["content", "summary"]

CALL_TEXTS: Final[Mapping[Any, str]] = {"function_call": "arguments", "custom_tool_call": "input"}
"""The calls that a client answers, and the field with their text."""

_TEXTS: Final[Mapping[Any, tuple[TextKind, str]]] = {
    "output_text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
}
_SOURCES: Final[tuple[ReasoningSource, ...]] = ("content", "summary")
_CALL: Final = -1
"""The part of a call that is its text; a message's are counted from 0."""


class OutputListener(Protocol):
    """Hears what a response says."""

    def response_opened(self, response: dict[str, Any]) -> None:
        """The response has begun; told again before other events of its opening."""
        ...

    def item_added(self, place: Place, item: dict[str, Any]) -> None:
        """An item begins: it says as much of itself as is known."""
        ...

    def text(
        self, place: Place, part: int, kind: TextKind, piece: str, logprobs: Any, *, whole: bool
    ) -> None:
        """A piece of a message's part. ``whole``: all of it, which did not come in pieces."""
        ...

    def reasoning(self, place: Place, source: ReasoningSource, part: int, piece: str) -> None:
        """A piece of reasoning: its own words or a summary, whichever came first."""
        ...

    def call(self, place: Place, item: dict[str, Any]) -> None:
        """A call begins, with its name and ``call_id``."""
        ...

    def arguments(self, place: Place, piece: str) -> None:
        """A piece of what the call is made with."""
        ...

    def item_done(self, place: Place, item: dict[str, Any]) -> None:
        """All of the item has been told."""
        ...

    def response_done(self, response: dict[str, Any]) -> None:
        """The response is completed or incomplete; all of its items have been told."""
        ...

    def response_failed(self, response: dict[str, Any]) -> None:
        """The response failed."""
        ...


class _Progress:
    """How much of an item has been told: characters by part, and where its reasoning is from."""

    __slots__ = ("called", "sent", "source")

    def __init__(self) -> None:
        self.called = False
        self.source: ReasoningSource | None = None
        self.sent: dict[int, int] = {}


class OutputEvents:
    """Follows the events of one response for ``listener``. ``ended``: nothing more is told."""

    __slots__ = ("_done", "_items", "_listener", "ended")

    def __init__(self, listener: OutputListener) -> None:
        self._listener = listener
        self._items: dict[Place, _Progress] = {}
        self._done: list[Place] = []
        self.ended = False

    def feed(self, batch: Sequence[Frame]) -> None:
        """The next events, in order."""
        for frame in batch:
            take = _EVENTS.get(frame.type)
            if take is not None and not self.ended:
                take(self, frame.json())

    def _opened(self, event: dict[str, Any]) -> None:
        self._listener.response_opened(_dict(event.get("response")))

    def _text(self, event: dict[str, Any], kind: TextKind = "text") -> None:
        piece, part = event.get("delta"), _index(event, "content_index")
        if isinstance(piece, str) and piece:
            place = _place(event)
            _count(self._progress(place), part, piece)
            logprobs = event.get("logprobs")
            self._listener.text(place, part, kind, piece, logprobs, whole=False)

    def _refusal(self, event: dict[str, Any]) -> None:
        self._text(event, "refusal")

    def _words(self, event: dict[str, Any]) -> None:
        part = _index(event, "content_index")
        self._reasoning(_place(event), "content", part, event.get("delta"))

    def _summary(self, event: dict[str, Any]) -> None:
        part = _index(event, "summary_index")
        self._reasoning(_place(event), "summary", part, event.get("delta"))

    def _reasoning(self, place: Place, source: ReasoningSource, part: int, piece: Any) -> None:
        progress = self._progress(place)
        if not isinstance(piece, str) or not piece or progress.source not in (None, source):
            return
        progress.source = source
        _count(progress, part, piece)
        self._listener.reasoning(place, source, part, piece)

    def _arguments(self, event: dict[str, Any]) -> None:
        place, piece = _place(event), event.get("delta")
        progress = self._items.get(place)
        if progress is not None and progress.called and isinstance(piece, str) and piece:
            _count(progress, _CALL, piece)
            self._listener.arguments(place, piece)

    def _item_added(self, event: dict[str, Any]) -> None:
        item, place = event.get("item"), _place(event)
        if isinstance(item, dict):
            self._listener.item_added(place, item)
            self._begin_call(place, self._progress(place), item)

    def _begin_call(self, place: Place, progress: _Progress, item: dict[str, Any]) -> None:
        known = item.get("type") in CALL_TEXTS and isinstance(item.get("name"), str)
        if known and isinstance(item.get("call_id"), str) and not progress.called:
            progress.called = True
            self._listener.call(place, item)

    def _item_done(self, event: dict[str, Any]) -> None:
        place = _place(event)
        if "" in self._items and "output_index" not in event:
            place = ""  # nor did its pieces say whose they were
        self._done.append(place)
        self._finish(place, event.get("item"))
        self._items.pop(place, None)  # another one may come in its place

    def _finish(self, place: Place, item: Any) -> None:
        """Tell what of a finished item has not been told."""
        if not isinstance(item, dict):
            return
        progress, kind = self._progress(place), item.get("type")
        if kind == "message":
            for part, content in enumerate(_list(item.get("content"))):
                self._finish_part(place, progress, part, _dict(content))
        elif kind == "reasoning":
            for source in _SOURCES if progress.source is None else (progress.source,):
                for part, content in enumerate(_list(item.get(source))):
                    text = _dict(content).get("text")
                    self._reasoning(place, source, part, _rest(progress, part, text))
        elif kind in CALL_TEXTS:
            self._begin_call(place, progress, item)
            rest = _rest(progress, _CALL, item.get(CALL_TEXTS[kind]))
            self._arguments({"output_index": place, "item_id": place, "delta": rest})
        self._listener.item_done(place, item)

    def _finish_part(
        self, place: Place, progress: _Progress, part: int, content: dict[str, Any]
    ) -> None:
        known = _TEXTS.get(content.get("type"))
        if known is None:
            return
        kind, field = known
        whole = part not in progress.sent
        if rest := _rest(progress, part, content.get(field)):
            _count(progress, part, rest)
            logprobs = content.get("logprobs") if whole else None
            self._listener.text(place, part, kind, rest, logprobs, whole=whole)

    def _end(self, event: dict[str, Any]) -> None:
        response = _dict(event.get("response"))
        output = _list(response.get("output"))
        left = [(place, item) for place, item in self._placed(output) if place not in self._done]
        # Some give several items one place, or none: those are taken for the first that are left.
        elsewhere = len(self._done) - (len(output) - len(left))
        for place, item in left[max(0, elsewhere) :]:
            self._finish(place, item)
        self.ended = True
        self._listener.response_done(response)

    def _placed(self, output: list[Any]) -> Iterator[tuple[Place, Any]]:
        """The items of a final response, by the place that their events named."""
        named = self._items.keys() | set(self._done)
        for index, item in enumerate(output):
            ident = _dict(item).get("id")
            by_id = index not in named and isinstance(ident, str) and ident in named
            yield str(ident) if by_id else index, item

    def _failed(self, event: dict[str, Any]) -> None:
        self.ended = True
        self._listener.response_failed(_dict(event.get("response")))

    def _progress(self, place: Place) -> _Progress:
        progress = self._items.get(place)
        if progress is None:
            progress = self._items[place] = _Progress()
        return progress


def _place(event: Mapping[str, Any]) -> Place:
    place = event.get("output_index")
    if isinstance(place, int):
        return place
    ident = event.get("item_id") or _dict(event.get("item")).get("id")
    return ident if isinstance(ident, str) else ""


def _index(event: Mapping[str, Any], name: str) -> int:
    index = event.get(name)
    return index if isinstance(index, int) else 0


def _count(progress: _Progress, part: int, piece: str) -> None:
    progress.sent[part] = progress.sent.get(part, 0) + len(piece)


def _rest(progress: _Progress, part: int, text: Any) -> str:
    return text[progress.sent.get(part, 0) :] if isinstance(text, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_EVENTS: Final[Mapping[str, Callable[[OutputEvents, dict[str, Any]], None]]] = {
    "response.created": OutputEvents._opened,
    "response.queued": OutputEvents._opened,
    "response.in_progress": OutputEvents._opened,
    "response.output_item.added": OutputEvents._item_added,
    "response.output_text.delta": OutputEvents._text,
    "response.refusal.delta": OutputEvents._refusal,
    "response.reasoning_text.delta": OutputEvents._words,
    "response.reasoning_summary_text.delta": OutputEvents._summary,
    "response.function_call_arguments.delta": OutputEvents._arguments,
    "response.custom_tool_call_input.delta": OutputEvents._arguments,
    "response.output_item.done": OutputEvents._item_done,
    "response.completed": OutputEvents._end,
    "response.incomplete": OutputEvents._end,
    "response.failed": OutputEvents._failed,
}
