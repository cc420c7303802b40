"""HTTP/1.1 for the requests that matter: a POST to one of the routes that ask a model.

A connection begins here. As long as its requests are plain ones (``plain_head``), they are served
and answered without a web framework in between, each in one task and with one write. Whatever is
anything else, in any way, is handed over: aiohttp's server gets every byte of it, and the
connection from then on. So nothing has to be refused here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import parse_qsl

from aiohttp import web
from multidict import MultiDict

from router.http import reply
from router.http.plain_head import MAX_HEAD, PlainHead, parse_head, render_head
from router.telemetry.log import get_logger

if TYPE_CHECKING:
    from router.http.direct import DirectServer

__all__ = ["SENT", "DirectRequest", "HttpRequest", "Serve", "ServerConnection"]

_log = get_logger("router.http.connection")

_KEEPALIVE_SECONDS: Final = 75.0
"""How long a connection is kept without a request."""

_SLOW_SECONDS: Final = 1.0
"""A request that has not arrived whole by then is aiohttp's: it has the deadlines for slow ones."""

_MAX_HELD: Final = 64 * 1024
"""What a client may send ahead of its next turn before it is no longer read from."""

SENT: Final = web.Response()
"""What a handler returns whose answer has been written already."""


class WatchedReply(Protocol):
    """An answer whose connection tells it when it may write."""

    paused: bool

    def look(self, now: float) -> None:
        """Do what is due at ``now``, in the loop's time."""
        ...


class DirectRequest:
    """A request: what of ``aiohttp.web.Request`` the handlers of direct routes need.

    ``body`` is None where the client left before it had sent all of it.
    """

    __slots__ = ("body", "connection", "headers", "raw_path")

    method: Final = "POST"

    def __init__(self, connection: ServerConnection, head: PlainHead, body: bytes | None) -> None:
        self.connection = connection
        self.raw_path = head.raw_path
        self.headers = head.headers
        self.body = body

    @property
    def query_string(self) -> str:
        """What follows the question mark."""
        return self.raw_path.partition("?")[2]

    @property
    def query(self) -> Mapping[str, str]:
        """The query's parameters."""
        return MultiDict(parse_qsl(self.query_string, keep_blank_values=True))

    @property
    def body_exists(self) -> bool:
        """Whether there is a body."""
        return bool(self.body)

    @property
    def remote(self) -> str | None:
        """The client's address."""
        return self.connection.remote

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection's transport; None when the client has left."""
        return self.connection.transport


HttpRequest = web.Request | DirectRequest
Serve = Callable[[DirectRequest], Awaitable[web.StreamResponse]]
"""What answers a request."""


class ServerConnection(asyncio.Protocol):
    """One client's connection. At most one of its requests is worked on at a time."""

    __slots__ = (
        "_drained",
        "_head",
        "_held",
        "_known",
        "_missing",
        "_pieces",
        "_reading",
        "_server",
        "_since",
        "close_after",
        "loop",
        "remote",
        "reply",
        "task",
        "transport",
        "writing_paused",
    )

    def __init__(self, server: DirectServer) -> None:
        self._server = server
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None
        self.remote: str | None = None
        self.writing_paused = False
        self.close_after = False
        """The connection closes after the answer."""
        self.reply: WatchedReply | None = None
        """The answer that is under way."""
        self._drained: asyncio.Future[None] | None = None
        self._known: tuple[bytes, PlainHead, Serve] | None = None
        self._head: PlainHead | None = None
        self._pieces: list[bytes] = []
        self._missing = 0
        self._held = bytearray()
        self._reading = True
        self._since = self.loop.time()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.remote = str(peer[0]) if isinstance(peer, tuple) else None
        sock = transport.get_extra_info("socket")
        if sock is not None:  # a client that is gone without a word is noticed some day
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        reply.limit_unsent(self.transport)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``: whoever works for this client stops."""
        self.transport = None
        self._server.connections.discard(self)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self.task is not None:
            self.task.cancel()
        elif self._head is not None:  # in the midst of its request, which is accounted for
            request = DirectRequest(self, self._head, None)
            self.task = self.loop.create_task(self._serve(request))

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self.writing_paused = True
        if self.reply is not None:
            self.reply.paused = True

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self.writing_paused = False
        if self.reply is not None:
            self.reply.paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        if self.task is not None:
            self._hold(data)
        elif self._head is not None:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing <= 0:
                head, self._head = self._head, None
                self._begin(head, self._taken())
        else:
            first = not self._pieces
            if not first:
                self._pieces.append(data)
                data = self._taken()
            self._read_head(data, first=first)

    # Requests

    def _taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def _hold(self, data: bytes) -> None:
        """Keep what belongs to the next request."""
        self._held += data
        if len(self._held) > _MAX_HELD and self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()

    def _read_head(self, data: bytes, *, first: bool) -> None:
        """Begin a request whose first bytes these are; wait where its end is missing. ``first``:
        nothing of it has come before.
        """
        end = data.find(b"\r\n\r\n", 0, MAX_HEAD) + 4
        if end == 3:
            if len(data) >= MAX_HEAD or not b"POST /".startswith(data[:6]):
                self._hand_over(data)
            else:
                if first:
                    self._since = self.loop.time()
                self._pieces.append(data)
            return
        raw = data[:end]
        if self._known is not None and self._known[0] == raw:
            head = self._known[1]
        else:
            parsed = parse_head(raw)
            serve = None if parsed is None else self._server.handler(parsed)
            if parsed is None or serve is None:
                self._hand_over(data)
                return
            head = parsed
            self._known = raw, head, serve
        missing = end + head.length - len(data)
        if missing <= 0:
            self._begin(head, data, end)
        else:
            self._pieces.append(data[end:])
            self._head, self._missing = head, missing
            self._since = self.loop.time()

    def _begin(self, head: PlainHead, data: bytes, start: int = 0) -> None:
        """Serve the request whose body begins there in ``data``."""
        end = start + head.length
        if len(data) > end:
            self._held += data[end:]
        body = data[start:end]
        self.close_after = head.close
        request = DirectRequest(self, head, body)
        self.task = self.loop.create_task(self._serve(request))

    async def _serve(self, request: DirectRequest) -> None:
        try:
            assert self._known is not None
            response = await self._known[2](request)
            if response is not SENT:
                self._write(response)
                await self.emptied(reply.STALLED_CLIENT_SECONDS)
        except asyncio.CancelledError:
            self.abort()
            raise
        except Exception:
            _log.exception("request failed", path=request.raw_path[:200])
            self.abort()
        finally:
            if self.task is asyncio.current_task():
                self._go_on()

    def answered(self) -> None:
        """The answer has been written. Whatever its task does from here on is not for the client,
        who may leave, or ask for something else.
        """
        if not self.writing_paused:
            self._go_on()

    def _go_on(self) -> None:
        self.task = self.reply = None
        self._since = self.loop.time()
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self.close_after:
            transport.close()
            return
        if not self._reading:
            self._reading = True
            transport.resume_reading()
        if self._held:
            held = bytes(self._held)
            self._held.clear()
            self.data_received(held)

    def _hand_over(self, data: bytes) -> None:
        """Have aiohttp serve this connection from here on, beginning with these bytes."""
        transport, fallback = self.transport, self._server.fallback
        assert fallback is not None
        if transport is None:
            return
        self.transport = None
        self._server.connections.discard(self)
        protocol = cast(asyncio.Protocol, fallback())
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    # Answers

    def write(self, data: bytes) -> None:
        """Send bytes; nothing happens when the client has left."""
        if self.transport is not None:
            self.transport.write(data)

    def _write(self, response: web.StreamResponse) -> None:
        """Send an answer that aiohttp would have written."""
        assert isinstance(response, web.Response)
        body = response.body
        assert body is None or isinstance(body, bytes)
        self.write_whole(response.status, response.headers, body or b"")

    def write_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send an answer in one piece."""
        self.write(self.head(status, headers, len(body)) + body)

    def head(self, status: int, headers: Mapping[str, Any], length: int | None) -> bytes:
        """The head of an answer whose body has so many bytes; None: it comes in chunks."""
        server = self._server
        if server.closing or server.front.closes:
            self.close_after = True
        return render_head(status, headers, self.close_after, length)

    async def emptied(self, stalled: float) -> bool:
        """Wait until the client has read enough for more to be written; False when it has left, or
        takes nothing at all for ``stalled`` seconds, which cuts it off.
        """
        while self.writing_paused:
            transport = self.transport
            if transport is None or transport.is_closing():
                return False
            before = transport.get_write_buffer_size()
            if not await self._drains(stalled) and transport.get_write_buffer_size() >= before:
                transport.abort()
                return False
        return True

    async def _drains(self, seconds: float) -> bool:
        if self.writing_paused and self.transport is not None:
            self._drained = self.loop.create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._drained
            except TimeoutError:
                return False
            finally:
                self._drained = None
        return True

    def abort(self) -> None:
        """Cut the connection off."""
        if self.transport is not None:
            self.transport.abort()

    # Time

    def look(self, now: float) -> None:
        """Do what is due at ``now``, in the loop's time."""
        transport = self.transport
        if transport is None:
            return
        if self.task is not None:
            if self.reply is not None:
                self.reply.look(now)
        elif self._head is not None or self._pieces:
            if now - self._since >= _SLOW_SECONDS:
                self._give_up_waiting()
        elif now - self._since >= _KEEPALIVE_SECONDS:
            if transport.get_write_buffer_size():
                transport.abort()
            else:
                transport.close()

    def _give_up_waiting(self) -> None:
        known, pieces = self._known, self._taken()
        if self._head is not None:
            assert known is not None
            self._head = None
            pieces = known[0] + pieces
        self._hand_over(pieces)

    def close_if_idle(self) -> None:
        """Close the connection, now or after the answer that is under way."""
        self.close_after = True
        begun = self._head is not None or self._pieces
        if self.task is None and not begun and self.transport is not None:
            self.transport.close()
