"""One request over a socket of its own, and the answer as it came."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

__all__ = ["Exchanged", "exchange"]

_DEADLINE: Final = 60.0


@dataclass(frozen=True)
class Exchanged:
    """``asked`` and ``head`` end before the empty line; ``body`` is without the chunks' sizes."""

    asked: bytes
    sent: bytes
    head: bytes
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body, decoded."""
        value: dict[str, Any] = orjson.loads(self.body)
        return value


async def exchange(
    url: str, method: str, path: str, body: dict[str, Any] | None = None
) -> Exchanged:
    """Ask the server at ``url``, and read until it closes the connection.

    Raises TimeoutError when that takes longer than a minute, ValueError where the body is not as
    long as the answer's head says.
    """
    sent = b"" if body is None else orjson.dumps(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "X-Request-Id: golden"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(sent)}"]
    asked = "\r\n".join([*lines, "Connection: close"]).encode()
    port = urlsplit(url).port
    async with asyncio.timeout(_DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(asked + b"\r\n\r\n" + sent)
            answer = await reader.read(-1)
        finally:
            writer.close()
            await writer.wait_closed()
    head, _, rest = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?mi)^content-length: (\d+)", head)
    if length and int(length[1]) != len(rest):
        raise ValueError(f"a body of {len(rest)} bytes, {length[1]!r} were announced")
    return Exchanged(asked, sent, head, rest if length else _joined(rest))


def _joined(rest: bytes) -> bytes:
    """The content of a chunked body. Raises ValueError where it is cut off."""
    pieces: list[bytes] = []
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found:
            raise ValueError("a chunked body without its end")
        length = int(size, 16)
        if length == 0:
            return b"".join(pieces)
        pieces.append(rest[:length])
        rest = rest[length + 2 :]
