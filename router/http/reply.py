"""The HTTP end of an exchange: a sink that writes to the client's connection.

The exchange runs in a task of its own and pushes into the sink; the HTTP handler waits here for
the head, starts the response and then only watches. Once started, a batch goes to the transport
with one write and without waking anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from aiohttp import HttpVersion11, web

from router.core.exchange import ClientGone, Sink
from router.dialects.api_format import OPENAI, ApiFormat
from router.response.frame import Frame
from router.telemetry.tasks import Tasks

__all__ = [
    "CLIENT_CLOSED_REQUEST",
    "MAX_PENDING",
    "STALLED_CLIENT_SECONDS",
    "HttpReply",
    "HttpSink",
    "Reply",
    "limit_unsent",
]

STALLED_CLIENT_SECONDS: Final = 300.0
"""A client that takes nothing at all for so long is given up."""

MAX_PENDING: Final = 64 * 1024
"""Bytes that may wait for the head to be written."""

_MAX_UNSENT: Final = 128 * 1024
"""Bytes that the kernel holds for a client that does not read them, so that a slow one is seen to
be one. It could be megabytes otherwise, and the client would have to read a third of them before
there is any progress to see.
"""

_UNSENT: Final[int | None] = getattr(socket, "TCP_NOTSENT_LOWAT", None)
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)

_POLL_SECONDS: Final = 0.01

CLIENT_CLOSED_REQUEST: Final = 499
"""The status that logs and metrics show, by custom, when nobody was there to get one."""


class HttpSink(Sink, Protocol):
    """A sink whose answer has a status."""

    @property
    def status(self) -> int:
        """The HTTP status of the answer, once there is one."""
        ...


class Reply(HttpSink, Protocol):
    """A sink that a request's handler sees through to its end."""

    async def respond(self) -> web.StreamResponse:
        """What the handler does: wait for the answer and see it through."""
        ...


def limit_unsent(transport: asyncio.Transport) -> None:
    """Have the kernel hold no more than ``_MAX_UNSENT`` bytes for the client."""
    sock = transport.get_extra_info("socket")
    if _UNSENT is not None and sock is not None and sock.family in _INTERNET:
        with contextlib.suppress(OSError):  # the connection was closed in this moment
            sock.setsockopt(socket.IPPROTO_TCP, _UNSENT, _MAX_UNSENT)


class HttpReply:
    """Implements ``router.core.exchange.Sink`` for one HTTP request.

    ``headers`` go out with every answer. ``keepalive_interval`` is in seconds: so much silence in
    a stream is filled, where the API's ``api_format`` has something to fill it with.
    """

    def __init__(
        self,
        request: web.Request,
        headers: Mapping[str, str],
        keepalive_interval: float,
        api_format: ApiFormat = OPENAI,
    ) -> None:
        self._request = request
        self._api_format = api_format
        self._encode = api_format.encode
        self._loop = asyncio.get_running_loop()
        self._headers = dict(headers)
        self._keepalive = keepalive_interval
        self._head: asyncio.Future[web.Response | None] = self._loop.create_future()
        self._done: asyncio.Future[None] | None = None
        self._pending: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._chunked = True
        self.opened = False
        self._ended = False
        self._closed = False
        self._last_write = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._waits: Tasks | None = None
        self.status = 200
        """The HTTP status of the answer, once there is one."""

    @property
    def paused(self) -> bool:
        """See ``Sink.paused``."""
        if self._transport is None:
            return not self._closed and sum(map(len, self._pending)) > MAX_PENDING
        return self._request.protocol.writing_paused

    async def resumed(self) -> None:
        """See ``Sink.resumed``."""
        while self.paused:
            transport = self._transport
            if transport is None:
                await asyncio.sleep(_POLL_SECONDS)  # the head is about to be written
                continue
            if transport.is_closing():
                raise ClientGone
            before = transport.get_write_buffer_size()
            if not await self._drained(STALLED_CLIENT_SECONDS):
                if transport.get_write_buffer_size() < before:
                    continue  # slow, but it reads
                transport.abort()
                raise ClientGone

    def open(self, headers: Mapping[str, str]) -> None:
        """See ``Sink.open``."""
        self.opened = True
        self._headers = {**self._api_format.headers, **self._headers, **headers}
        if not self._head.done():
            self._head.set_result(None)

    def feed(self, batch: Sequence[Frame]) -> None:
        """See ``Sink.feed``."""
        encode = self._encode
        data = encode(batch[0]) if len(batch) == 1 else b"".join(map(encode, batch))
        if not data:
            return  # an empty chunk would end the body
        transport = self._transport
        if self._closed or (transport is not None and transport.is_closing()):
            raise ClientGone
        if transport is None:
            self._pending.append(data)
        else:
            self._send(transport, data)

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """See ``Sink.finish``."""
        if self._head.done():
            return  # nobody waits for it any more
        self.status = status
        response = web.Response(
            status=status,
            body=body,
            headers={"Content-Type": "application/json", **self._headers, **headers},
        )
        self._head.set_result(response)

    def end(self) -> None:
        """See ``Sink.end``. Without an answer before it the client is let go of."""
        self._ended = self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._head.done():
            self._head.set_result(None)
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def respond(self) -> web.StreamResponse:
        """What the HTTP handler does: wait for the answer and see it through.

        The end of the body is left to aiohttp, which says nothing when the client is gone. The
        connection is cut off when the client has not taken what was written: closing it properly
        would wait for that.
        """
        try:
            response = await self._head
            if response is not None:
                return response
            if not self.opened:
                return web.Response(status=CLIENT_CLOSED_REQUEST)
            stream = web.StreamResponse(headers=self._headers)
            self._headers = {}
            if self._request.version >= HttpVersion11:
                stream.enable_chunked_encoding()
            else:
                stream.force_close()  # nothing else tells where the body ends
            with contextlib.suppress(ConnectionError, ClientGone):
                await stream.prepare(self._request)
                self._attach(stream)
                if not self._ended:
                    self._done = self._loop.create_future()
                    await self._done
                if self._request.protocol.writing_paused:
                    await self.resumed()
            return stream
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            transport, self._transport = self._transport, None
            self._closed = True
            if transport is not None and self._request.protocol.writing_paused:
                transport.abort()

    def _attach(self, stream: web.StreamResponse) -> None:
        """From here on batches go straight to the transport."""
        transport = self._request.transport
        if transport is None:
            raise ClientGone
        limit_unsent(transport)
        self._chunked = stream.chunked
        self._transport = transport
        self._last_write = self._loop.time()
        first, self._pending = b"".join(self._pending), []
        first = first or (b"" if self._ended else self._api_format.silence)
        if first:  # clients and proxies that wait for a first byte have one
            self._send(transport, first)
        if not self._ended and self._api_format.silence:
            self._timer = self._loop.call_later(self._keepalive, self._tick)

    def _send(self, transport: asyncio.Transport, data: bytes) -> None:
        self._last_write = self._loop.time()
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    async def _drained(self, seconds: float) -> bool:
        """Wait until the client has read enough for more to be written; False when it has not.

        In a task, since cancelling aiohttp's drain would cancel it for everybody.
        """
        if self._waits is None:
            self._waits = Tasks()
        if not self._waits:
            self._waits.spawn(self._drain(), "wait for a slow client")
        return await self._waits.wait(seconds)

    async def _drain(self) -> None:
        with contextlib.suppress(ConnectionError):  # the next write will tell
            await self._request.writer.drain()

    def _tick(self) -> None:
        """Fill silence. One timer per stream, set again only when it fires."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wait = self._keepalive - (self._loop.time() - self._last_write)
        if wait <= 0:
            wait = self._keepalive
            if not self.paused:
                self._send(transport, self._api_format.silence)
        self._timer = self._loop.call_later(wait, self._tick)
