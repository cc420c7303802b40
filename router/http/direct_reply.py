"""The HTTP end of an exchange on a connection that is served directly: a sink that writes to it.

The exchange runs in the task of its request, and every call here is one write at most: the head of
a stream leaves with its first events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from router.core.exchange import ClientGone
from router.dialects.api_format import AS_EVENT, ApiFormat
from router.http import reply
from router.http.connection import ServerConnection
from router.response.frame import EncodedFrame, Frame

__all__ = ["DirectReply"]


class DirectReply:
    """Implements ``router.core.exchange.Sink``. ``request_id`` goes out with every answer.
    ``keepalive_interval`` is in seconds: so much silence in a stream is filled, where the API has
    something to fill it with.
    """

    __slots__ = (
        "_api_format",
        "_as_events",
        "_connection",
        "_encode",
        "_head",
        "_keepalive",
        "_last_write",
        "_over",
        "_request_id",
        "opened",
        "paused",
        "status",
    )

    def __init__(
        self,
        connection: ServerConnection,
        request_id: str,
        keepalive_interval: float,
        api_format: ApiFormat,
    ) -> None:
        self._connection = connection
        connection.reply = self
        self._request_id = request_id
        self._keepalive = keepalive_interval
        self._api_format = api_format
        self._encode = api_format.encode
        self._as_events = api_format.encode is AS_EVENT
        self._head = b""
        self._last_write = 0.0
        self._over = False
        self.opened = False
        self.paused = connection.writing_paused
        """See ``Sink.paused``; the connection sees to it."""
        self.status = 200
        """The HTTP status of the answer, once there is one."""

    async def resumed(self) -> None:
        """See ``Sink.resumed``."""
        if not await self._connection.emptied(reply.STALLED_CLIENT_SECONDS):
            raise ClientGone

    def open(self, headers: Mapping[str, str]) -> None:
        """See ``Sink.open``."""
        connection = self._connection
        fields = {**self._api_format.headers, "X-Request-Id": self._request_id, **headers}
        self._head = connection.head(200, fields, None)
        self.opened = True
        connection.loop.call_soon(self._begin)

    def feed(self, batch: Sequence[Frame]) -> None:
        """See ``Sink.feed``."""
        encode = self._encode
        if len(batch) != 1:
            data = b"".join(map(encode, batch))
        elif type(frame := batch[0]) is EncodedFrame and self._as_events:
            data = frame.wire
        else:
            data = encode(frame)
        if not data:
            return  # an empty chunk would end the body
        connection = self._connection
        transport = connection.transport
        if self._over or transport is None or transport.is_closing():
            raise ClientGone
        self._last_write = connection.loop.time()
        if self._head:
            head, self._head = self._head, b""
            transport.write(b"%b%x\r\n%b\r\n" % (head, len(data), data))
        else:
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """See ``Sink.finish``."""
        if self._over or self.opened:
            return
        self.status = status
        fields = {
            "Content-Type": "application/json", "X-Request-Id": self._request_id, **headers
        }  # fmt: skip
        self._connection.write_whole(status, fields, body)
        self._over = True
        self._connection.answered()

    def end(self) -> None:
        """See ``Sink.end``. Without an answer before it the client is let go of."""
        if self._over:
            return
        self._over = True
        connection = self._connection
        if not self.opened:
            connection.close_after = True
            return
        head, self._head = self._head, b""
        connection.write(head + b"0\r\n\r\n")
        connection.answered()

    async def settled(self) -> None:
        """Wait until the client has taken what was written; it is cut off when it does not."""
        try:
            with suppress(ClientGone):
                await self.resumed()
        finally:
            if self.paused:
                self._connection.abort()

    def _begin(self) -> None:
        """Clients and proxies that wait for a first byte have one."""
        if self._head:
            self._send_silence()

    def look(self, now: float) -> None:
        """Fill the silence of a stream that has lasted until ``now``, in the loop's time."""
        silent = now - self._last_write >= self._keepalive and not self._over
        if silent and self.opened and self._api_format.silence and not self.paused:
            self._send_silence()

    def _send_silence(self) -> None:
        connection, silence = self._connection, self._api_format.silence
        self._last_write = connection.loop.time()
        head, self._head = self._head, b""
        chunk = b"%x\r\n%b\r\n" % (len(silence), silence) if silence else b""
        connection.write(head + chunk)
