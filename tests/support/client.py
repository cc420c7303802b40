"""A client on a raw socket, which reads when it is told to and leaves as it likes."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import orjson

__all__ = ["Client", "Leaving"]

Leaving = Literal["close", "reset"]


class Client:
    """One connection to a router. ``received`` is everything that was read so far."""

    def __init__(
        self, decoder: asyncio.StreamReader, writer: asyncio.StreamWriter, prefix: bytes
    ) -> None:
        self._reader = decoder
        self._writer = writer
        self.prefix = prefix
        self.received = bytearray()

    @classmethod
    async def open(cls, url: str, *, receive_buffer: int | None = None) -> Client:
        """Connect; ``receive_buffer`` bytes is what the kernel holds for it, if given."""
        parts = urlsplit(url)
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
        # No more than this is read ahead of what the test takes.
        decoder, writer = await asyncio.open_connection(sock=sock, limit=4096)
        return cls(decoder, writer, parts.path.encode())

    def send(self, data: bytes) -> None:
        """Write these very bytes."""
        self._writer.write(data)

    def ask(self, *, stream: bool, version: str = "1.1", headers: str = "", **fields: Any) -> None:
        """Ask the model ``m`` for a response."""
        body = orjson.dumps({"model": "m", "input": "hi", "stream": stream, **fields})
        head = (
            f"POST {self.prefix.decode()}/v1/responses HTTP/{version}\r\nHost: localhost\r\n"
            f"{headers}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.send(head.encode() + body)

    async def take(self, size: int) -> bytes:
        """Read ``size`` bytes at most; nothing at the end."""
        async with asyncio.timeout(60):
            data = await self._reader.read(size)
        self.received += data
        return data

    async def until(self, mark: bytes) -> bytes:
        """Read until ``mark`` has come; everything up to there is returned and forgotten."""
        while (at := self.received.find(mark)) < 0:
            if not await self.take(4096):
                raise AssertionError(f"the end came before {mark!r}: {self.received[-500:]!r}")
        return self.cut(at + len(mark))

    def cut(self, size: int) -> bytes:
        """So many bytes of what was received; they are forgotten."""
        head = bytes(self.received[:size])
        del self.received[:size]
        return head

    async def rest(self) -> bytes:
        """Everything until the router closes the connection."""
        while await self.take(65536):
            pass
        self._writer.close()
        return self.cut(len(self.received))

    def pause(self) -> None:
        """Read nothing more by itself."""
        transport = cast(asyncio.ReadTransport, self._writer.transport)
        if transport.is_reading():
            transport.pause_reading()

    def leave(self, how: Leaving = "close") -> None:
        """Close the connection, or reset it."""
        if how == "reset":
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        self._writer.close()
