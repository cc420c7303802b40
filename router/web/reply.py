"""The HTTP end of an exchange: a sink that writes to the client's connection.

The exchange runs in a task of its own and pushes into the sink; the HTTP handler waits here for
the head, starts the response and then only watches. Once started, a batch goes to the transport
with one write and without waking anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from router.exchange import ClientGone
from router.wire.frame import Frame
from router.wire.sse import COMMENT

__all__ = ["HttpReply"]

_STALLED_CLIENT_SECONDS: Final = 300.0
"""A client that takes nothing at all for so long is given up."""

_SSE_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class HttpReply:
    """Implements ``router.exchange.Sink`` for one HTTP request.

    ``headers`` go out with every answer. ``keepalive_interval`` is in seconds: so much silence in
    a stream is filled with a comment.
    """

    def __init__(
        self, request: web.Request, headers: Mapping[str, str], keepalive_interval: float
    ) -> None:
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._headers = dict(headers)
        self._keepalive = keepalive_interval
        self._head: asyncio.Future[web.Response | None] = self._loop.create_future()
        self._done: asyncio.Future[None] | None = None
        self._pending: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._writer: AbstractStreamWriter | None = None
        self._chunked = True
        self._opened = False
        self._ended = False
        self._closed = False
        self._last_write = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def opened(self) -> bool:
        """See ``Sink.opened``."""
        return self._opened

    @property
    def paused(self) -> bool:
        """See ``Sink.paused``."""
        return self._writer is not None and self._request.protocol.writing_paused

    async def resumed(self) -> None:
        """See ``Sink.resumed``."""
        if self._writer is None:
            return
        try:
            async with asyncio.timeout(_STALLED_CLIENT_SECONDS):
                await self._writer.drain()
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()
            raise ClientGone from None
        except ConnectionError:
            raise ClientGone from None

    def open(self, headers: Mapping[str, str]) -> None:
        """See ``Sink.open``."""
        self._opened = True
        self._headers = {**_SSE_HEADERS, **self._headers, **headers}
        if not self._head.done():
            self._head.set_result(None)

    def feed(self, batch: Sequence[Frame]) -> None:
        """See ``Sink.feed``."""
        if len(batch) == 1:
            self._write(batch[0].encode())
        else:
            self._write(b"".join([frame.encode() for frame in batch]))

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """See ``Sink.finish``."""
        if self._head.done():
            return  # nobody waits for it any more
        response = web.Response(
            status=status,
            body=body,
            headers={"Content-Type": "application/json", **self._headers, **headers},
        )
        self._head.set_result(response)

    def end(self) -> None:
        """See ``Sink.end``."""
        self._ended = True
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def respond(self) -> web.StreamResponse:
        """What the HTTP handler does: wait for the answer and see it through."""
        response = await self._head
        if response is not None:
            return response
        stream = web.StreamResponse(headers=self._headers)
        if self._request.version >= HttpVersion11:
            stream.enable_chunked_encoding()
        self._writer = await stream.prepare(self._request)
        first, self._pending = self._pending, []
        await stream.write(b"".join(first))
        self._attach(stream)
        try:
            if not self._ended:
                self._done = self._loop.create_future()
                await self._done
        finally:
            self.close()
        await stream.write_eof()
        return stream

    def close(self) -> None:
        """Stop the keep-alive and let go of the connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport = None
        self._closed = True

    def _attach(self, stream: web.StreamResponse) -> None:
        """From here on batches go straight to the transport."""
        self._chunked = stream.chunked
        self._transport = self._request.transport
        late, self._pending = self._pending, []
        if late:
            self._write(b"".join(late))
        self._last_write = self._loop.time()
        self._timer = self._loop.call_later(self._keepalive, self._tick)

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if self._closed or (transport is not None and transport.is_closing()):
            raise ClientGone
        if transport is None:
            self._pending.append(data)
            return
        self._last_write = self._loop.time()
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def _tick(self) -> None:
        """Fill silence. One timer per stream, set again only when it fires."""
        silence = self._loop.time() - self._last_write
        wait = self._keepalive - silence
        if wait <= 0:
            wait = self._keepalive
            if not self.paused and self._transport is not None:
                if self._transport.is_closing():
                    return
                self._write(COMMENT)
        self._timer = self._loop.call_later(wait, self._tick)
