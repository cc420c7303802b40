"""What comes and goes over the wire: server-sent events, and JSON objects.

``Frame`` is the unit a stream is made of: one event, decoded only when someone asks.

``SSEDecoder`` cuts bytes into events. It decodes nothing: a character may be split between two
reads. It follows the HTML standard's parsing rules (section 9.2.6): LF, CRLF or CR end a line,
several ``data`` lines are joined with LF, comments and unknown fields are skipped, and an event
that its blank line does not close is dropped.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from router.errors import UpstreamFailure

__all__ = [
    "COMMENT",
    "MAX_DEPTH",
    "MAX_EVENT_BYTES",
    "OPENING",
    "TERMINAL",
    "Comment",
    "EncodedFrame",
    "EventTooLarge",
    "Frame",
    "PassedFrame",
    "SSEDecoder",
    "data_of",
    "encode_event",
    "load_object",
]

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""One event may carry a whole response with images in it, but not more than this."""

MAX_DEPTH: Final = 200
"""How deeply an endpoint's JSON may be nested: what is read must also be written (orjson: 254)."""

COMMENT: Final = b": keep-alive\n\n"

OPENING: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
"""The events that a Responses stream begins with."""

TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The events that one of them ends a Responses stream."""

_CR: Final = ord("\r")  # a byte is looked for faster by its number
_LF: Final = ord("\n")
_BLANK: Final = b"\n\n"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event grew past ``MAX_EVENT_BYTES`` without its end."""


class SSEDecoder:
    """Cuts a byte stream into the data of its events.

    ``decode(data)`` returns the data of every event completed by these bytes, as bytes. The
    names of events are not looked at: every protocol read here repeats them inside its JSON.
    Events whose data is empty are dropped: some servers keep a connection alive with them.
    ``blocks(data)`` returns the events as they stand, for ``data_of``.
    """

    __slots__ = ("_begun", "_carriage_return", "_tail")

    def __init__(self) -> None:
        self._tail: bytearray | None = None
        self._carriage_return = False
        self._begun = False

    def decode(self, data: bytes) -> list[bytes]:
        """Take the bytes of one read; raise EventTooLarge when an event never ends."""
        return [event for block in self.blocks(data) if (event := data_of(block))]

    def blocks(self, data: bytes) -> list[bytes]:
        """The same, each with the blank line that closes it; every line ends with a LF."""
        if self._carriage_return or _CR in data:
            data = self._normalise(data)
        if self._tail is None:
            if self._begun and 1 < len(data) == data.find(_BLANK) + 2:
                return [data]  # the usual read: one event, not copied
            blocks = data.split(_BLANK)
        else:
            # The blank line may be split between two reads, so the search starts one byte early.
            start = len(self._tail) - 1
            self._tail += data
            if self._tail.find(_BLANK, start) < 0:
                self._check_size()
                return []
            blocks = bytes(self._tail).split(_BLANK)
            self._tail = None
        if rest := blocks.pop():
            self._tail = bytearray(rest)
            self._check_size()
        if blocks and not self._begun:
            self._begun = True
            blocks[0] = blocks[0].removeprefix(_BYTE_ORDER_MARK)
        return [block + _BLANK for block in blocks]

    def _normalise(self, data: bytes) -> bytes:
        """Turn CRLF and CR into LF. A CR ends its line at once, so that nothing waits for a LF
        that may never come; the LF of a CRLF split between two reads is dropped.
        """
        if not data:
            return data
        if self._carriage_return:
            data = data.removeprefix(b"\n")
        self._carriage_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check_size(self) -> None:
        if self._tail is not None and len(self._tail) > MAX_EVENT_BYTES:
            raise EventTooLarge(f"an event exceeds {MAX_EVENT_BYTES} bytes")


def data_of(block: bytes) -> bytes:
    """The joined data lines of an event of ``SSEDecoder.blocks``; empty where it has none (a
    comment).
    """
    # Most events are one line of data, with or without their name before it.
    start = block.find(b"\n") + 1 if block.startswith(b"event:") else 0
    if block.startswith(b"data: ", start) and block.find(b"\n", start) == len(block) - 2:
        return block[start + 6 : -2]
    lines = []
    for line in block[:-2].split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines)


class Frame:
    """One event: its ``type`` (empty for Chat Completions chunks) and its ``data``, JSON bytes."""

    __slots__ = ("_json", "data", "type")

    def __init__(self, type: str, data: bytes, json: dict[str, Any] | None = None) -> None:
        self.type = type
        self.data = data
        self._json = json

    @classmethod
    def of(cls, json: dict[str, Any]) -> Frame:
        """A frame of an event object that carries its own ``type``."""
        return cls(json["type"], orjson.dumps(json), json)

    @classmethod
    def all_of(cls, stored: bytes) -> list[Frame]:
        """The frames whose encodings were joined to ``stored``; encoded again they are the same."""
        frames = []
        for block in stored.split(b"\n\n")[:-1]:
            end = block.index(b"\n") if block.startswith(b"event: ") else -1
            frames.append(cls(block[7:end].decode() if end >= 0 else "", block[end + 7 :]))
        return frames

    def json(self) -> dict[str, Any]:
        """The event as an object; decoded once."""
        if self._json is None:
            self._json = orjson.loads(self.data)
        return self._json

    def encode(self) -> bytes:
        """The event as it stands on the wire; without a ``type`` just its data."""
        if self.type:
            return b"event: %b\ndata: %b\n\n" % (self.type.encode(), self.data)
        return b"data: %b\n\n" % self.data

    def __repr__(self) -> str:
        return f"Frame({self.type!r}, {len(self.data)} bytes)"


class PassedFrame(Frame):
    """An event of an endpoint that speaks the client's own API: it passes as it came."""

    __slots__ = ()


class EncodedFrame(Frame):
    """An event of which there is already what stands on the ``wire``: ``data`` is cut out of it
    when someone asks.
    """

    __slots__ = ("wire",)

    def __init__(self, type: str, wire: bytes) -> None:
        self.type = type
        self._json = None
        self.wire = wire

    def __getattr__(self, name: str) -> bytes:
        if name != "data":
            raise AttributeError(name)
        self.data = data = self.wire[len(self.type) + 14 if self.type else 6 : -2]
        return data

    def encode(self) -> bytes:
        """See ``Frame.encode``."""
        return self.wire


class Comment(Frame):
    """One line of ``text`` between the events, which no client takes for one of them."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        super().__init__("", text.encode())

    def encode(self) -> bytes:
        """See ``Frame.encode``."""
        return b": %b\n\n" % self.data


def encode_event(kind: str, data: bytes) -> bytes:
    """One event on the wire; without a ``kind`` just its data (Chat Completions)."""
    return Frame(kind, data).encode()


def load_object(data: bytes, what: str) -> dict[str, Any]:
    """Decode a JSON object that an endpoint sent; raises UpstreamFailure, naming ``what``."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise UpstreamFailure(f"The endpoint sent {what} that is not valid JSON.") from exc
    if not isinstance(value, dict):
        raise UpstreamFailure(f"The endpoint sent {what} that is not a JSON object.")
    if len(data) > 2 * MAX_DEPTH and _is_too_deep(data, value):
        raise UpstreamFailure(f"The endpoint sent {what} that is nested too deeply.")
    return value


def _is_too_deep(data: bytes, value: Any) -> bool:
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
