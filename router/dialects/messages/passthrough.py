"""Messages passed on to clients of Messages: read only as far as is needed to count tokens, to
notice a broken stream and to end it properly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from router.dialects.passthrough import PassthroughDecoder
from router.errors import EndpointWords, RouterError, UpstreamError, UpstreamFailure
from router.response import tokens
from router.response.builder import ResponseBuilder, StreamState
from router.response.decoder import not_a_stream, reported_failure
from router.response.frame import (
    Frame,
    PassedFrame,
    load_object,
)

__all__ = ["MessagesPassthrough"]

_STOP: Final = "message_stop"
_TEXTS: Final = ("text", "thinking", "partial_json")
_STATUSES: Final[Mapping[Any, int]] = {"overloaded_error": 529, "api_error": 500}


class MessagesPassthrough(PassthroughDecoder):
    """A ``StreamDecoder`` that changes nothing but the name of the model to ``model``.

    Nothing passes before there is output, so that another endpoint may take over: the beginning of
    the message is held, and left out where the client has had one already. ``failed`` makes the
    event that ends a stream which the endpoint did not end.
    """

    def __init__(
        self, builder: ResponseBuilder, model: str, failed: Callable[[RouterError], Frame]
    ) -> None:
        super().__init__(model)
        self._builder = builder
        self._failed = failed
        self._beginning: Frame | None = None
        self._reported: bytes | None = None
        self._counts: dict[str, Any] = {}
        self._stopped = False

    def salvage(self) -> list[Frame]:
        """See ``StreamDecoder.salvage``: all is there but its last event."""
        if self.ended or self.error is not None or not self._stopped:
            return []
        self.ended = True
        return [PassedFrame(_STOP, b'{"type":"message_stop"}')]

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        message = load_object(body, "a message")
        if message.get("type") == "error":
            raise _reported(message)
        content = message.get("content")
        if not isinstance(content, list):
            raise UpstreamFailure("The endpoint sent a message without content.")
        self._count(message.get("usage"))
        self.output_chars = sum(_chars(block) for block in content)
        return self._model.put(body, message)

    def assembled(self) -> bytes:
        """See ``StreamDecoder.assembled``: it is asked for as its client wants it."""
        raise NotImplementedError

    def whole_as_stream(self, body: bytes) -> list[Frame]:
        """See ``StreamDecoder.whole_as_stream``."""
        message = load_object(body, "a message")
        raise _reported(message) if message.get("type") == "error" else not_a_stream()

    def fail(self, error: RouterError) -> list[Frame]:
        """See ``StreamDecoder.fail``: with the endpoint's own event where it has sent one."""
        if self.ended:
            return []
        self.ended = True
        if self._reported is not None:
            return [PassedFrame("error", self._reported)]
        if not self.has_output and self._builder.state is not StreamState.NEW:
            return self._builder.fail(error, [])
        frame = self._failed(error)
        return [PassedFrame(frame.type, frame.data)]

    def _event(self, data: bytes, frames: list[Frame]) -> None:
        event = load_object(data, "a stream event")
        kind = event.get("type")
        kind = kind if isinstance(kind, str) else ""
        if b"\n" in data:
            data = data.replace(b"\n", b" ")  # in JSON a line feed is blank
        if kind == "content_block_delta":
            self.output_chars += _chars(event.get("delta"))
        elif kind == "message_start":
            self._beginning = PassedFrame(kind, self._begun(data, event))
            return
        elif kind == "message_delta":
            self._count(event.get("usage"))
            delta = event.get("delta")
            reason = delta.get("stop_reason") if isinstance(delta, dict) else None
            self._stopped = self._stopped or reason is not None
        elif kind == "error":
            self._reported = data
            raise _reported(event)
        elif kind == "ping" and not self.has_output:
            return
        if not self.has_output:
            self._begin(frames)
        self.ended = kind == _STOP
        frames.append(PassedFrame(kind, data))

    def _begin(self, frames: list[Frame]) -> None:
        if self._beginning is None:
            raise UpstreamFailure("The endpoint's stream does not begin with 'message_start'.")
        self.has_output = True
        if self._builder.state is StreamState.NEW:
            frames.append(self._beginning)
        self._beginning = None

    def _begun(self, data: bytes, event: dict[str, Any]) -> bytes:
        """The first event, with the model's name."""
        message = event.get("message")
        if not isinstance(message, dict):
            raise UpstreamFailure("The endpoint sent a 'message_start' without a message.")
        self._keep(message.get("usage"))
        named = self._model.in_bytes(data, message.get("model"))
        if named is not None:
            return named
        self._model.put(b"", message)
        return orjson.dumps(event)

    def _keep(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._counts |= {name: value for name, value in usage.items() if value is not None}

    def _count(self, usage: Any) -> None:
        self._keep(usage)
        self.usage = tokens.from_messages(self._counts)


def _reported(event: dict[str, Any]) -> UpstreamError:
    """The error that an event, or a body with status 200, reports."""
    error = reported_failure(event)
    given = event.get("error")
    kind = given.get("type") if isinstance(given, dict) else None
    if kind is not None:
        error.said = EndpointWords(_STATUSES.get(kind, error.status), event, {})
    return error


def _chars(block: Any) -> int:
    """The characters of text in a block, or a piece of one."""
    if not isinstance(block, dict):
        return 0
    said = sum(len(text) for name in _TEXTS if isinstance(text := block.get(name), str))
    given = block.get("input")
    return said + (len(orjson.dumps(given)) if given else 0)
