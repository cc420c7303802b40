"""A scripted upstream on raw sockets: every request is answered as its script says, byte by byte.

A script is a coroutine function that gets the ``Wire`` a request came on, and writes to it whatever
it likes: heads, chunks, half of them, nonsense, nothing, a reset. The usual ones are made by
``whole``, ``streamed`` and their like below. Requests that no script was queued for get the
upstream's ``default``; GETs are answered with a list of models and kept apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast

import orjson

__all__ = [
    "Received",
    "Script",
    "Upstream",
    "Wire",
    "paced",
    "refused_port",
    "reset_now",
    "silent",
    "streamed",
    "whole",
]

Framing = Literal["chunked", "length", "close"]
"""How a body's end is told: by chunks, by a Content-Length, or by the end of the connection."""


@dataclass
class Received:
    """One request as it came. ``head`` ends before the empty line."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    wire: Wire = field(repr=False)
    head: bytes = field(repr=False)

    @property
    def json(self) -> dict[str, Any]:
        """The body, decoded."""
        value: dict[str, Any] = orjson.loads(self.body)
        return value


class Wire(asyncio.Protocol):
    """One connection of the upstream. ``gone`` is set once it is closed, whoever closed it."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._buffer = bytearray()
        self._playing = False
        self._framing: Framing = "chunked"
        self._writable = asyncio.Event()
        self._writable.set()
        self.transport: asyncio.Transport | None = None
        self.gone = asyncio.Event()
        self.answered = 0
        self.written = 0

    def head(
        self,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        *,
        framing: Framing = "chunked",
        length: int = 0,
    ) -> None:
        """Write a status line and headers; ``length`` is the body's, for that framing."""
        self._framing = framing
        lines = [f"HTTP/1.1 {status} Whatever"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
        elif framing == "length":
            lines.append(f"Content-Length: {length}")
        else:
            lines.append("Connection: close")
        self.raw("\r\n".join([*lines, "", ""]).encode())

    def piece(self, data: bytes) -> None:
        """Write a piece of the body."""
        if self._framing == "chunked":
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self.raw(data)

    def end(self) -> None:
        """Write the end of the body."""
        if self._framing == "chunked":
            self.raw(b"0\r\n\r\n")
        elif self._framing == "close":
            self.close()

    def raw(self, data: bytes) -> None:
        """Write these very bytes."""
        if self.transport is not None:
            self.transport.write(data)
            self.written += len(data)

    @property
    def blocked(self) -> bool:
        """Whether the other side does not take what is written."""
        return not self._writable.is_set()

    async def drained(self) -> None:
        """Wait until the other side takes more, or is gone."""
        await self._writable.wait()

    def reset(self) -> None:
        """Break the connection with a TCP reset."""
        if self.transport is not None:
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

    def close(self) -> None:
        """Close the connection properly, once everything written is out."""
        if self.transport is not None:
            self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        # Not isinstance: uvloop's transports are no asyncio.Transport by class.
        self.transport = cast(asyncio.Transport, transport)
        self._upstream.wires.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self.transport = None
        self._writable.set()
        self.gone.set()

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        drop = self._upstream.drops_request
        if drop is not None and self.answered >= drop - 1:
            self._upstream.dropped += 1
            (self.reset if self._upstream.dropped % 2 else self.close)()
            return
        self._buffer += data
        self._next()

    def _next(self) -> None:
        request = None if self._playing else self._cut_request()
        if request is not None:
            self._playing = True
            self._upstream.play(request, self._played)

    def _played(self) -> None:
        self._playing = False
        self.answered += 1
        if self.answered == self._upstream.closes_after:
            self.close()
        else:
            self._next()

    def _cut_request(self) -> Received | None:
        """The next whole request in the buffer."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self._buffer[:end])
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        size = end + 4 + int(headers.get("content-length", "0"))
        if len(self._buffer) < size:
            return None
        body = bytes(self._buffer[end + 4 : size])
        del self._buffer[:size]
        method, path, _ = first.split(" ")
        return Received(method, path, headers, body, self, head)


Script = Callable[[Wire], Awaitable[None]]


class Upstream:
    """A server on a free loopback port.

    ``closes_after`` answers it closes a connection without having announced it; ``drops_request``
    is the number of the request on a connection that it hangs up on (a reset and a proper close in
    turns) instead of answering. ``keeps_probes`` is whether a connection that a GET came on stays
    open, so that the next request comes on it.
    """

    def __init__(
        self,
        *scripts: Script,
        default: Script | None = None,
        models: tuple[str, ...] = ("m",),
        tls: ssl.SSLContext | None = None,
        closes_after: int | None = None,
        drops_request: int | None = None,
        keeps_probes: bool = True,
    ) -> None:
        self.scripts = deque(scripts)
        self.default = default
        self.requests: list[Received] = []
        self.probes: list[Received] = []
        self.wires: list[Wire] = []
        self.closes_after = closes_after
        self.drops_request = drops_request
        self.dropped = 0
        self.keeps_probes = keeps_probes
        self._models = models
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Wire(self), "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close everything; a script that failed raises its error here."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for wire in self.wires:
            if wire.transport is not None:
                wire.transport.abort()
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise errors[0]

    @property
    def open_wires(self) -> list[Wire]:
        """The connections that nobody has closed."""
        return [wire for wire in self.wires if not wire.gone.is_set()]

    def play(self, request: Received, played: Callable[[], None]) -> None:
        """Answer a request; ``played`` is called afterwards."""
        if request.method == "GET":
            self.probes.append(request)
            closing = {} if self.keeps_probes else {"Connection": "close"}
            script = whole(self._listing(request.path), headers=closing)
        else:
            self.requests.append(request)
            chosen = self.scripts.popleft() if self.scripts else self.default
            assert chosen is not None, f"no script for {request}"
            script = chosen

        async def run() -> None:
            await script(request.wire)
            if request.method == "GET" and not self.keeps_probes:
                request.wire.close()
            played()

        self._tasks.add(asyncio.get_running_loop().create_task(run()))

    def _listing(self, path: str) -> bytes:
        if path.endswith("/api/tags"):
            return orjson.dumps({"models": [{"name": name} for name in self._models]})
        return orjson.dumps({"object": "list", "data": [{"id": name} for name in self._models]})


def whole(
    body: bytes,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    kind: str = "application/json",
) -> Script:
    """An answer in one piece."""

    async def script(wire: Wire) -> None:
        wire.head(
            status, {"Content-Type": kind, **(headers or {})}, framing="length", length=len(body)
        )
        wire.raw(body)

    return script


def streamed(
    *pieces: bytes,
    kind: str = "text/event-stream",
    framing: Framing = "chunked",
    headers: Mapping[str, str] | None = None,
    pause: float = 0.0,
    then: Script | None = None,
) -> Script:
    """A 200 with these pieces, ``pause`` seconds apart, and the end of the body or ``then``."""

    async def script(wire: Wire) -> None:
        wire.head(
            200,
            {"Content-Type": kind, **(headers or {})},
            framing=framing,
            length=sum(map(len, pieces)),
        )
        for piece in pieces:
            wire.piece(piece)
            await asyncio.sleep(pause)
        if then is None:
            wire.end()
        else:
            await then(wire)

    return script


def paced(script: Script, seconds: float) -> Script:
    """The same after a pause."""

    async def later(wire: Wire) -> None:
        await asyncio.sleep(seconds)
        await script(wire)

    return later


async def reset_now(wire: Wire) -> None:
    """A TCP reset, a moment later: what was written before has been read by then."""
    await asyncio.sleep(0.02)
    wire.reset()
    await wire.gone.wait()


async def silent(wire: Wire) -> None:
    """Nothing more, until the other side closes."""
    await wire.gone.wait()


@contextlib.asynccontextmanager
async def refused_port() -> AsyncIterator[str]:
    """An address that refuses connections: bound, so that nobody else gets it, not listening."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
