"""One end of a socket, for whole messages: four bytes with the length (big-endian), and JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

__all__ = ["Channel", "Gone"]

_MOST_MESSAGE = 32 * 1024 * 1024


class Gone(Exception):
    """The other end is not there any more."""


class Channel:
    """The end of a connected socket. Everything raises Gone once the other one is closed."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def fileno(self) -> int:
        """For ``select``."""
        return self.end.fileno()

    def send(self, message: Any) -> None:
        """Send a message, however long that takes."""
        data = json.dumps(message).encode()
        try:
            self.end.sendall(struct.pack(">I", len(data)) + data)
        except OSError:
            raise Gone from None

    def receive(self) -> Any:
        """The next message."""
        (size,) = struct.unpack(">I", self._exactly(4))
        if size > _MOST_MESSAGE:
            raise Gone
        return json.loads(self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        pieces = []
        while size:
            try:
                piece = self.end.recv(min(size, 1 << 20))
            except OSError:
                raise Gone from None
            if not piece:
                raise Gone
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)
