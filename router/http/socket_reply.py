"""The WebSocket end of an exchange: a sink whose events are messages, and the socket they share.

Several responses may be under way on one socket. Whatever any of them has to say goes into one
queue, in order, that one task writes: compressing a message and closing are not synchronous, and a
sink is. A client that reads slowly pauses all of them, and the reading of what it sends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from aiohttp import WSMsgType, web

from router.core.exchange import ClientGone
from router.http.reply import (
    CLIENT_CLOSED_REQUEST,
    MAX_PENDING,
    STALLED_CLIENT_SECONDS,
    limit_unsent,
)
from router.response.frame import Comment, Frame

__all__ = ["MessageQueue", "SocketReply", "error_message"]

_CLOSE_SECONDS: Final = 5.0
"""What a client gets to read what was written before the close, and to answer it."""

_LOOK_SECONDS: Final = 1.0


class MessageQueue:
    """What waits to be written to one socket. ``write`` is run by a task of the socket's owner."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse[Any]) -> None:
        self._request = request
        self._socket = socket
        self._messages: deque[bytes | tuple[int, str]] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self.closing = False
        """Nothing is written any more but what waits already."""
        if request.transport is not None:
            limit_unsent(request.transport)

    @property
    def paused(self) -> bool:
        """See ``Sink.paused``."""
        return self._size > MAX_PENDING or self._request.protocol.writing_paused

    @property
    def gone(self) -> bool:
        """Whether there is nobody to write to."""
        transport = self._request.transport
        return self._socket.closed or transport is None or transport.is_closing()

    def send(self, message: bytes) -> None:
        """A text message; raises ClientGone."""
        if self.closing or self.gone:
            raise ClientGone
        self._messages.append(message)
        self._size += len(message)
        self._filled.set()

    def close(self, code: int, reason: str) -> None:
        """Close the socket once everything before has been written."""
        if not self.closing:
            self.closing = True
            self._messages.append((code, reason))
            self._filled.set()

    async def resumed(self) -> None:
        """Wait until ``paused`` is over; raises ClientGone, also for a client that takes nothing
        at all for ``STALLED_CLIENT_SECONDS``.
        """
        loop = asyncio.get_running_loop()
        unsent, since = self._unsent(), loop.time()
        while self.paused:
            if self.gone:
                raise ClientGone
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._emptied.wait()
            if (now := self._unsent()) < unsent:
                since = loop.time()
            elif loop.time() - since > STALLED_CLIENT_SECONDS:
                self.abort()
                raise ClientGone
            unsent = now

    def _unsent(self) -> int:
        transport = self._request.transport
        return self._size + (transport.get_write_buffer_size() if transport is not None else 0)

    def abort(self) -> None:
        """Cut the connection off."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def write(self) -> None:
        """Write what is sent until the socket is closed."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._messages:
                message = self._messages.popleft()
                try:
                    if isinstance(message, tuple):
                        await self._close(*message)
                        return
                    await self._socket.send_frame(message, WSMsgType.TEXT)
                except ConnectionError:
                    return  # whoever sends or reads is told
                self._size -= len(message)
                if not self.paused:
                    self._emptied.set()

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(2 * _CLOSE_SECONDS):
                await self._socket.close(code=code, message=reason.encode())
        except TimeoutError:
            self.abort()


class SocketReply:
    """Implements ``router.core.exchange.Sink`` for one request that came as a message.

    ``stream`` is the name of the stream that it belongs to, which its events carry; ``headers``
    are told with the first of them.
    """

    def __init__(self, queue: MessageQueue, stream: str | None, headers: Mapping[str, str]) -> None:
        self._queue = queue
        self._stream = stream
        self._headers = dict(headers)
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: web.Response | None = None
        self._head = b"{"
        self.opened = False
        self.failed = False
        """Whether the response ended as failed."""
        self.status = 200
        """The status that a POST would have been answered with, once there is one."""

    @property
    def paused(self) -> bool:
        """See ``Sink.paused``."""
        return self._queue.paused

    async def resumed(self) -> None:
        """See ``Sink.resumed``."""
        await self._queue.resumed()

    def open(self, headers: Mapping[str, str]) -> None:
        """See ``Sink.open``."""
        self.opened = True
        self._head = _head(self._stream, {**self._headers, **headers})

    def feed(self, batch: Sequence[Frame]) -> None:
        """See ``Sink.feed``."""
        for frame in batch:
            if isinstance(frame, Comment):
                continue
            if frame.type == "error":
                self.failed = True
                self._queue.send(_late_error(self._stream, frame.json()))
                continue
            self.failed = self.failed or frame.type == "response.failed"
            data = frame.data if frame.data.startswith(b"{") else orjson.dumps(frame.json())
            self._queue.send(self._head + data[1:])
            self._head = _head(self._stream)

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """See ``Sink.finish``."""
        self.status = status
        self._error = web.Response(status=status, body=body, headers={**self._headers, **headers})

    def end(self) -> None:
        """See ``Sink.end``."""
        if not self._over.done():
            self._over.set_result(None)

    async def respond(self) -> web.StreamResponse:
        """Wait for the end; the answer where it is no stream, which is still to be sent."""
        await self._over
        if self._error is not None:
            return self._error
        return web.Response(status=self.status if self.opened else CLIENT_CLOSED_REQUEST)


def error_message(stream: str | None, answer: web.Response) -> bytes:
    """The event for an error that a POST would have been answered with, its envelope included."""
    body = answer.body
    error = orjson.loads(body)["error"] if isinstance(body, bytes) else None
    return orjson.dumps(
        {
            "type": "error",
            "status": answer.status,
            **_named(stream),
            "error": error,
            "headers": _shown(answer.headers),
        }
    )


def _late_error(stream: str | None, event: Mapping[str, Any]) -> bytes:
    """The same for an ``error`` event in the midst of a stream."""
    given = event.get("error")
    error = given if isinstance(given, dict) else event
    fields = {name: error.get(name) for name in ("message", "param", "code")}
    kind = error.get("type") if error is not event else None
    wrapped = {"type": kind or "server_error", **fields}
    return orjson.dumps({"type": "error", "status": 500, **_named(stream), "error": wrapped})


def _named(stream: str | None) -> dict[str, str]:
    return {} if stream is None else {"stream_id": stream}


def _head(stream: str | None, headers: Mapping[str, str] | None = None) -> bytes:
    """How an event begins that has fields beside its own."""
    fields: dict[str, Any] = dict(_named(stream))
    if headers:
        fields["headers"] = _shown(headers)
    return orjson.dumps(fields)[:-1] + b"," if fields else b"{"


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    hidden = {"content-type", "content-length"}
    return {k.lower(): v for k, v in headers.items() if k.lower() not in hidden}
