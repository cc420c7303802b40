"""Answers of the Responses API, or translated to it, for clients of Chat Completions.

Another reader makes events of what an endpoint sends; here they are told as the chunks of one
completion. A message, its reasoning and its calls are one message there, in the order of the
answer; what else an answer may hold (hosted tools, citations) is left out. An answer that failed
is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from router.dialects.chat.chunks import CALLS, ChatStream, finish_reason
from router.dialects.chat.decode_stream import logprob_entries
from router.dialects.chat.replay import completion
from router.dialects.responses.decode_stream import failure_of
from router.dialects.responses.input_items import is_sound
from router.errors import (
    RouterError,
    UpstreamError,
    UpstreamFailure,
)
from router.response.decoder import StreamDecoder
from router.response.frame import Frame
from router.response.pieces import with_logprobs

__all__ = ["ChatEncoder"]

_OPENING: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "response.output_text.delta": ("content", "text"),
    "response.refusal.delta": ("refusal", "text"),
    "response.reasoning_text.delta": ("reasoning_content", "content"),
    "response.reasoning_summary_text.delta": ("reasoning_content", "summary"),
}
"""The events that bring text: where it goes, and which list of the item it is from."""

_ARGUMENTS: Final = frozenset(
    {"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"}
)
_REASONING: Final = ("content", "summary")
_PARTS: Final[Mapping[Any, tuple[str, str]]] = {
    "output_text": ("content", "text"),
    "refusal": ("refusal", "refusal"),
}
_MALFORMED: Final = (TypeError, ValueError, LookupError, AttributeError)
"""What comes of events, or items, that are not as they should be."""


class _EncodedItem:
    """How much of an item has been told. ``source`` is the list that its reasoning is from."""

    __slots__ = ("call", "kind", "sent", "source")

    def __init__(self) -> None:
        self.call: int | None = None
        self.kind: Any = None
        self.source: str | None = None
        self.sent: dict[int, int] = {}


class ChatEncoder:
    """A ``StreamDecoder`` that tells a client of Chat Completions what ``inner`` reads.

    The response builder of ``inner`` is its own, and names the completion. ``wants_usage``: a
    stream ends with a chunk of its usage; ``muted``: the answer is wanted in one piece, and no
    chunk is written. ``has_output`` is whether the client has been told anything: silent reasoning
    is nothing that another endpoint could not do again.
    """

    def __init__(self, inner: StreamDecoder, *, wants_usage: bool, muted: bool = False) -> None:
        self.error: UpstreamError | None = None
        self.failure: str | None = None
        self.usage: dict[str, Any] | None = None
        self.final: dict[str, Any] | None = None
        self.encrypted_reasoning: dict[str, str] = {}
        self._inner = inner
        self._wants_usage = wants_usage
        self._muted = muted
        self._stream: ChatStream | None = None
        self._items: dict[int | str, _EncodedItem] = {}
        self._calls = 0
        self._thought: tuple[int | str, str, int] | None = None
        self._ended = False

    @property
    def output_chars(self) -> int:
        """See ``StreamDecoder.output_chars``."""
        return self._inner.output_chars

    @property
    def has_output(self) -> bool:
        """See ``StreamDecoder.has_output``."""
        return self._stream is not None and self._stream.said

    @property
    def ended(self) -> bool:
        """See ``StreamDecoder.ended``."""
        return self._ended

    def feed(self, data: bytes) -> list[Frame]:
        """See ``StreamDecoder.feed``."""
        return self._tell(self._inner.feed, data)

    def finish(self) -> list[Frame]:
        """See ``StreamDecoder.finish``."""
        return self._tell(self._inner.finish)

    def salvage(self) -> list[Frame]:
        """See ``StreamDecoder.salvage``."""
        return self._tell(self._inner.salvage)

    def whole_as_stream(self, body: bytes) -> list[Frame]:
        """See ``StreamDecoder.whole_as_stream``."""
        frames = self._tell(self._inner.whole_as_stream, body)
        if self.error is not None:
            raise self.error
        return frames

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        self._inner.whole(body)
        return self._completion()

    def assembled(self) -> bytes:
        """See ``StreamDecoder.assembled``."""
        self._inner.assembled()
        return self._completion()

    def _completion(self) -> bytes:
        """The completion that the final response of ``inner`` is told as; raises UpstreamError."""
        final = self._inner.final
        assert final is not None
        self.usage = self._inner.usage
        if final["status"] == "failed":
            raise failure_of(final.get("error"))
        if not all(map(is_sound, final["output"])):
            raise _malformed()
        try:
            whole = completion(final, id=_name(final), created=final["created_at"])
            return orjson.dumps(whole)
        except _MALFORMED as exc:
            raise _malformed() from exc

    def fail(self, error: RouterError) -> list[Frame]:
        """See ``StreamDecoder.fail``: an error event, as OpenAI's own streams end when they
        break.
        """
        if self._ended:
            return []
        self._ended = True
        return [Frame("", orjson.dumps(error.envelope()))]

    def _tell(self, read: Callable[..., list[Frame]], *data: bytes) -> list[Frame]:
        """The chunks for the events that ``read`` makes."""
        if self._ended or self.error is not None:
            return []
        frames = read(*data)
        try:
            for frame in () if self._muted else frames:
                self._event(frame)
            self.usage = self._inner.usage
        except _MALFORMED:
            self.error = _malformed()
        except UpstreamError as exc:
            self.error = exc
            self.usage = self._inner.usage
        if self._muted:
            self._ended = self._inner.ended
        if not self._ended:
            self.error = self.error or self._inner.error
        return self._stream.take() if self._stream is not None else []

    def _event(self, frame: Frame) -> None:
        kind = frame.type
        if kind in _TEXTS:
            self._text(*_TEXTS[kind], frame.json())
        elif kind in _ARGUMENTS:
            event = frame.json()
            told = self._items.get(_place(event))
            if told is not None and told.call is not None:
                self._argument(told, event["delta"])
        elif kind == "response.output_item.added":
            event = frame.json()
            self._begin(_place(event), event["item"])
        elif kind == "response.output_item.done":
            event = frame.json()
            self._rest(_place(event), event["item"])
        elif kind in _OPENING:
            self._open(frame.json()["response"])
        elif kind in ("response.completed", "response.incomplete"):
            self._end(frame.json()["response"])
        elif kind == "response.failed":
            raise failure_of(frame.json()["response"].get("error"))

    def _open(self, response: dict[str, Any]) -> None:
        if self._stream is None:
            model = response["model"] + ""
            self._stream = ChatStream(
                _name(response), response["created_at"], model, self._wants_usage
            )

    @property
    def _out(self) -> ChatStream:
        assert self._stream is not None  # every reader opens a response before anything else
        return self._stream

    def _begin(self, place: int | str, item: Any) -> None:
        """An item begins; a call is told at once."""
        told = self._items[place] = _EncodedItem()
        if isinstance(item, dict) and item.get("type") in CALLS:
            self._begin_call(told, item)

    def _begin_call(self, told: _EncodedItem, item: dict[str, Any]) -> None:
        if not is_sound({**item, CALLS[item["type"]][1]: ""}):
            raise ValueError("a call without an id or a name")
        told.call, told.kind = self._calls, item["type"]
        self._calls += 1
        self._out.call(told.call, item)

    def _argument(self, told: _EncodedItem, piece: str) -> None:
        assert told.call is not None
        told.sent[0] = told.sent.get(0, 0) + len(piece)
        self._out.arguments(told.call, told.kind, piece)

    def _text(self, name: str, source: str, event: dict[str, Any]) -> None:
        place = _place(event)
        told = self._items.get(place)
        if told is None:
            told = self._items[place] = _EncodedItem()
        index = event.get("summary_index" if source == "summary" else "content_index")
        index = index if type(index) is int else 0
        logprobs = event.get("logprobs")
        entries = logprob_entries(logprobs) if logprobs else None
        if name == "reasoning_content":
            self._reasoning(place, told, source, index, event["delta"])
        else:
            self._say(told, name, index, event["delta"], entries)

    def _say(
        self,
        told: _EncodedItem,
        name: str,
        index: int,
        piece: str,
        logprobs: list[dict[str, Any]] | None = None,
    ) -> None:
        told.sent[index] = told.sent.get(index, 0) + len(piece)
        if piece:
            self._out.say(name, piece + "", logprobs)

    def _reasoning(
        self, place: int | str, told: _EncodedItem, source: str, index: int, piece: str
    ) -> None:
        """A piece of reasoning: its own words or a summary, whichever came first."""
        if told.source is None:
            told.source = source
        if told.source != source or not piece:
            return
        where = (place, source, index)
        told.sent[index] = told.sent.get(index, 0) + len(piece)
        if self._thought not in (None, where):
            piece = "\n\n" + piece
        self._thought = where
        self._out.say("reasoning_content", piece)

    def _rest(self, place: int | str, item: dict[str, Any]) -> None:
        """What of an item that is done has not been told: some servers send no pieces."""
        told = self._items.get(place)
        if told is None:
            told = self._items[place] = _EncodedItem()
        kind = item.get("type")
        if kind in CALLS:
            if told.call is None:
                self._begin_call(told, item)
            if rest := item[CALLS[kind][1]][told.sent.get(0, 0) :]:
                self._argument(told, rest)
        elif kind == "reasoning":
            self._rest_of_reasoning(place, told, item)
        elif kind == "message":
            for index, part in enumerate(item["content"]):
                if (known := part.get("type")) in _PARTS:
                    self._rest_of_part(told, index, part, *_PARTS[known])

    def _rest_of_part(
        self, told: _EncodedItem, index: int, part: dict[str, Any], name: str, field: str
    ) -> None:
        sent, text = told.sent.get(index, 0), part[field]
        if not sent and (entries := logprob_entries(part.get("logprobs"))):
            for piece, logprobs in with_logprobs(text, entries):
                self._say(told, name, index, piece, logprobs)
        elif rest := text[sent:]:
            self._say(told, name, index, rest)

    def _rest_of_reasoning(
        self, place: int | str, told: _EncodedItem, item: dict[str, Any]
    ) -> None:
        for source in (told.source,) if told.source else _REASONING:
            for index, part in enumerate(item.get(source) or ()):
                if rest := part["text"][told.sent.get(index, 0) :]:
                    self._reasoning(place, told, source, index, rest)

    def _end(self, response: dict[str, Any]) -> None:
        if not self._items:  # no event but the last said anything
            for place, item in enumerate(response["output"]):
                self._rest(place, item)
        usage = self._inner.usage if self._wants_usage else None
        reason = finish_reason(bool(self._calls), response.get("incomplete_details"))
        self._out.end(reason, usage)
        self._ended = True


def _place(event: Mapping[str, Any]) -> int | str:
    """What tells an item from others: its place in the output, or else its id."""
    place = event.get("output_index")
    if type(place) is int:
        return place
    item = event.get("item")
    ident = item.get("id") if isinstance(item, dict) else event.get("item_id")
    return ident if isinstance(ident, str) else ""


def _name(response: Mapping[str, Any]) -> str:
    """The completion's id, made of the response's."""
    return "chatcmpl-" + str(response["id"]).removeprefix("resp_")


def _malformed() -> UpstreamFailure:
    return UpstreamFailure("The endpoint sent a response that is malformed.")
