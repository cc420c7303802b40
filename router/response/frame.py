"""The unit a stream is made of: one server-sent event, decoded only when someone asks."""

from __future__ import annotations

from typing import Any

import orjson

from router.response.sse import encode_event

__all__ = ["Comment", "Frame"]


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
        """The event as it stands on the wire."""
        return encode_event(self.type, self.data)

    def __repr__(self) -> str:
        return f"Frame({self.type!r}, {len(self.data)} bytes)"


class Comment(Frame):
    """One line of ``text`` between the events, which no client takes for one of them."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        super().__init__("", text.encode())

    def encode(self) -> bytes:
        """See ``Frame.encode``."""
        return b": %b\n\n" % self.data
