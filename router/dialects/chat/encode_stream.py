"""Answers of the Responses API, or translated to it, for clients of Chat Completions.

Another reader makes events of what an endpoint sends; here they are told as the chunks of one
completion. A message, its reasoning and its calls are one message there, in the order of the
answer; what else an answer may hold (hosted tools, citations of files) is left out. An answer that
failed is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from router.dialects.chat.chunks import ChatStream, chat_annotations, finish_reason
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
from router.response.output_events import OutputEvents
from router.response.replay import with_logprobs

__all__ = ["ChatEncoder"]

_FIELDS: Final = {"text": "content", "refusal": "refusal"}
_MALFORMED: Final = (TypeError, ValueError, LookupError, AttributeError)
"""What comes of events, or items, that are not as they should be."""


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
        self._calls: dict[int | str, tuple[int, Any]] = {}
        self._thought: tuple[int | str, int] | None = None
        self._told = 0  # characters of the messages that are done
        self._events = OutputEvents(self)
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
            if not self._muted:
                self._events.feed(frames)
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

    def response_opened(self, response: dict[str, Any]) -> None:
        """See ``OutputListener.response_opened``."""
        if self._stream is None:
            model = response["model"] + ""
            self._stream = ChatStream(
                _name(response), response["created_at"], model, self._wants_usage
            )

    def item_added(self, place: int | str, item: dict[str, Any]) -> None:
        """See ``OutputListener.item_added``: nothing is told of it yet."""

    def text(
        self, place: int | str, part: int, kind: str, piece: str, logprobs: Any, *, whole: bool
    ) -> None:
        """See ``OutputListener.text``."""
        entries = logprob_entries(logprobs) if logprobs else None
        if whole and entries:
            for text, some in with_logprobs(piece, entries):
                self._out.say(_FIELDS[kind], text, some)
        else:
            self._out.say(_FIELDS[kind], piece, entries)

    def reasoning(self, place: int | str, source: str, part: int, piece: str) -> None:
        """See ``OutputListener.reasoning``: its parts stand apart."""
        if self._thought not in (None, (place, part)):
            piece = "\n\n" + piece
        self._thought = (place, part)
        self._out.say("reasoning_content", piece)

    def call(self, place: int | str, item: dict[str, Any]) -> None:
        """See ``OutputListener.call``."""
        self._calls[place] = (len(self._calls), item["type"])
        self._out.call(len(self._calls) - 1, item)

    def arguments(self, place: int | str, piece: str) -> None:
        """See ``OutputListener.arguments``."""
        self._out.arguments(*self._calls[place], piece)

    def item_done(self, place: int | str, item: dict[str, Any]) -> None:
        """See ``OutputListener.item_done``; raises ValueError for one that is malformed. What a
        message cites is told when all of it is said.
        """
        if not is_sound(item):
            raise ValueError("an item without what every one of its type has")
        if item["type"] == "message" and isinstance(item["content"], list):
            said = [part for part in item["content"] if part["type"] == "output_text"]
            if annotations := chat_annotations(said, self._told):
                self._out.annotate(annotations)
            self._told += sum(len(part["text"]) for part in said)

    def response_done(self, response: dict[str, Any]) -> None:
        """See ``OutputListener.response_done``."""
        usage = self._inner.usage if self._wants_usage else None
        reason = finish_reason(bool(self._calls), response.get("incomplete_details"))
        self._out.end(reason, usage)
        self._ended = True

    def response_failed(self, response: dict[str, Any]) -> None:
        """See ``OutputListener.response_failed``; raises UpstreamError."""
        raise failure_of(response.get("error"))

    @property
    def _out(self) -> ChatStream:
        assert self._stream is not None  # every decoder opens a response before anything else
        return self._stream


def _name(response: Mapping[str, Any]) -> str:
    """The completion's id, made of the response's."""
    return "chatcmpl-" + str(response["id"]).removeprefix("resp_")


def _malformed() -> UpstreamFailure:
    return UpstreamFailure("The endpoint sent a response that is malformed.")
