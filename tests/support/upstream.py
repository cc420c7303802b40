"""A scripted upstream on raw sockets: every request is answered as its script says, byte by byte.

A script is a coroutine function that gets the ``Wire`` a request came on, and writes to it whatever
it likes: heads, chunks, half of them, nonsense, nothing, a reset. The request is ``wire.request``.
Functions below make the usual ones. Requests that no script was queued for get the upstream's
``default``; GETs are answered with a list of models, or by ``on_get``, and kept apart.
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
    "by_path",
    "json_answer",
    "paced",
    "refused_port",
    "reset_now",
    "silent",
    "streamed",
    "whole",
    "whole_or_streamed",
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
        return cast(dict[str, Any], orjson.loads(self.body))


class Wire(asyncio.Protocol):
    """One connection. ``gone`` is set once it is closed, whoever closed it; ``writable`` is clear
    while the other side takes no more. ``request`` is the one that is being answered.
    """

    request: Received

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._buffer = bytearray()
        self._playing = self._closing = False
        self._framing: Framing = "chunked"
        self.writable = asyncio.Event()
        self.writable.set()
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
        reason: str = "Whatever",
    ) -> None:
        """Write a status line and headers; ``length`` is the body's, for that framing."""
        self._framing = framing
        lines = [f"HTTP/1.1 {status} {reason}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
        elif framing == "length":
            lines.append(f"Content-Length: {length}")
        if framing == "close" or self._closing:
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
        self.writable.set()
        self.gone.set()

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self.writable.set()

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
            self.request = request
            self._closing = request.method == "GET" and not self._upstream.keeps_probes
            self._upstream.play(request)

    def played(self) -> None:
        """The request is answered: go on to the next."""
        self._playing = False
        self.answered += 1
        if self._closing or self.answered == self._upstream.closes_after:
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
    """A server on a loopback port: ``port``, or a free one, which it keeps when entered again.

    ``closes_after`` answers it closes a connection without having announced it; ``drops_request``
    is the number of the request on a connection that it hangs up on (a reset and a proper close in
    turns) instead of answering. ``keeps_probes`` is whether a connection that a GET came on stays
    open, so that the next request comes on it. While ``gate`` is clear, nothing is answered.
    """

    def __init__(
        self,
        *scripts: Script,
        default: Script | None = None,
        on_get: Script | None = None,
        models: tuple[str, ...] = ("m",),
        tls: ssl.SSLContext | None = None,
        closes_after: int | None = None,
        drops_request: int | None = None,
        keeps_probes: bool = True,
        port: int = 0,
    ) -> None:
        self.scripts = deque(scripts)
        self.default = default
        self.on_get = on_get
        self.requests: list[Received] = []
        self.probes: list[Received] = []
        self.wires: list[Wire] = []
        self.closes_after = closes_after
        self.drops_request = drops_request
        self.dropped = 0
        self.keeps_probes = keeps_probes
        self.models = models
        self.gate = asyncio.Event()
        self.gate.set()
        self._tls = tls
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._script_failed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Wire(self), "127.0.0.1", self._port, ssl=self._tls, backlog=4096
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self.address = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close everything; a script that failed raises its error here."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for wire in self.wires:
            if wire.transport is not None:
                wire.transport.abort()
        for error in results:
            if isinstance(error, Exception):
                raise error

    async def serve_forever(self) -> None:
        """Serve, as a process of its own does, until it is ended or a script fails."""
        async with self:
            await self._script_failed.wait()

    @property
    def open_wires(self) -> list[Wire]:
        """The connections that nobody has closed."""
        return [wire for wire in self.wires if not wire.gone.is_set()]

    def play(self, request: Received) -> None:
        """Answer a request."""
        if request.method == "GET":
            self.probes.append(request)
            script: Script | None = self._get
        else:
            self.requests.append(request)
            script = self.scripts.popleft() if self.scripts else self.default
        assert script is not None, f"no script for {request}"
        task = asyncio.get_running_loop().create_task(self._run(script, request.wire))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def _get(self, wire: Wire) -> None:
        names = [{"id": name, "name": name} for name in self.models]
        tags = wire.request.path.endswith("/api/tags")  # not /api/ps: what is in memory is not told
        listing = json_answer({"models": names} if tags else {"object": "list", "data": names})
        await (self.on_get or listing)(wire)

    async def _run(self, script: Script, wire: Wire) -> None:
        await self.gate.wait()
        await script(wire)
        wire.played()

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)
        else:
            self._script_failed.set()


def whole(
    body: bytes,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    kind: str = "application/json",
) -> Script:
    """An answer in one piece."""

    async def script(wire: Wire) -> None:
        given = {"Content-Type": kind, **(headers or {})}
        wire.head(status, given, framing="length", length=len(body))
        wire.raw(body)

    return script


def json_answer(value: Any, status: int = 200) -> Script:
    """This value in one piece."""
    return whole(orjson.dumps(value), status)


def whole_or_streamed(one: Script, stream: Script) -> Script:
    """The one that the request asks for."""

    async def script(wire: Wire) -> None:
        await (stream if wire.request.json.get("stream") else one)(wire)

    return script


def by_path(scripts: Mapping[str, Script]) -> Script:
    """The script of the request's path; a 404 where there is none."""
    missing = json_answer({"detail": "Not Found"}, 404)

    async def script(wire: Wire) -> None:
        await scripts.get(wire.request.path, missing)(wire)

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
