"""One HTTP/1.1 connection to an endpoint: one request at a time, then idle, then the next.

A connection is used again only when the last answer ended exactly where the parser says it ends,
both sides agreed to keep it, everything that was to be sent has been, and not a byte has arrived
since. In every other case it is cut off, so that no byte of one answer ends up in another.
"""

from __future__ import annotations

import asyncio
import socket
from math import inf
from typing import Final, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from router.balance.pauses import LIMIT_FIELDS
from router.errors import UpstreamError, UpstreamFailure
from router.upstream.answer import HIGH_WATER, HttpAnswer

__all__ = ["IDLE_SECONDS", "MAX_HEAD_BYTES", "Connection", "Keeper"]

IDLE_SECONDS: Final = 60.0
"""How long a connection is kept without a request."""

MAX_HEAD_BYTES: Final = 64 * 1024
"""The most that an answer may have of headers, or of anything else between pieces of content."""

_JOINED_BYTES: Final = 64 * 1024
"""Up to this size a body is copied behind its head, which costs less than writing two pieces."""


class Keeper(Protocol):
    """Who owns connections."""

    def opened(self, connection: Connection) -> None:
        """It is connected."""
        ...

    def release(self, connection: Connection) -> bool:
        """It is idle and can be used again; False when it is not wanted."""
        ...

    def dropped(self, connection: Connection) -> None:
        """It must not be used again; called any number of times."""
        ...

    def lost(self, connection: Connection) -> None:
        """It is closed."""
        ...


class Connection(asyncio.Protocol):
    """Implements ``router.upstream.answer.ConnectionHandle``. ``name`` is the endpoint's, for
    messages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, keeper: Keeper) -> None:
        self._loop = loop
        self._name = name
        self._keeper = keeper
        self._transport: asyncio.Transport
        self._answer: HttpAnswer | None = None
        self._progress = False  # the read under way brought a head, content, or the end
        self._bare_bytes = 0  # received since there was progress
        self._received = 0  # up to the read that brought the end of the head
        self._head_bytes = 0
        self._interim = False  # inside a 1xx answer
        self._until_eof = False  # such an answer is the connection's last
        self._keep = False
        self._paused = False
        self.due = 0.0
        self.looks_at = inf
        self._timer: asyncio.TimerHandle | None = None
        self._parser = HttpResponseParser(self)

    def ask(self, head: bytes, body: bytes, idle: float, total: float) -> HttpAnswer:
        """Send a request; ``idle`` and ``total`` are those of the answer."""
        self._answer = answer = HttpAnswer(self, self._loop, self._name, idle, total)
        self._keep = False
        self._bare_bytes = self._received = self._head_bytes = 0
        if self._transport.is_closing():
            answer.fail(self._broken(answer))
        elif len(body) > _JOINED_BYTES:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head + body)
        return answer

    def watch(self) -> None:
        """See ``ConnectionHandle.watch``. One timer serves the connection for life: when it fires
        early, because more has been awaited meanwhile, it sets itself anew.
        """
        if self._timer is not None:
            self._timer.cancel()
        self.looks_at = self.due
        self._timer = self._loop.call_at(self.due, self._fire)

    def resume(self) -> None:
        """See ``ConnectionHandle.resume``."""
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def finish(self) -> None:
        """See ``ConnectionHandle.finish``."""
        self._answer = None
        sent = not self._transport.get_write_buffer_size()
        if self._keep and sent and self._keeper.release(self):
            if self._paused:
                self.resume()
            self.due = self._loop.time() + IDLE_SECONDS
            if self.due < self.looks_at:
                self.watch()
        else:
            self.drop()

    def drop(self) -> None:
        """See ``ConnectionHandle.drop``. Aborted, not closed: the endpoint is to notice at once."""
        self._keep = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.looks_at = -inf  # it needs no timer any more
        self._transport.abort()
        self._keeper.dropped(self)

    def _fire(self) -> None:
        self._timer = None
        self.looks_at = inf  # nobody may be waiting now: the next one who does sets it anew
        if self._loop.time() < self.due:
            self.watch()
        elif self._answer is not None:
            self._answer.expire()
        else:
            self.drop()

    def _broken(self, answer: HttpAnswer) -> UpstreamFailure:
        did = "broke off its answer" if answer.touched else "closed the connection, not answering"
        return UpstreamFailure(f"Endpoint '{self._name}' {did}.", again=True)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._keeper.opened(self)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        answer = self._answer
        if answer is None or answer.complete:
            self.drop()  # nobody asked for this
            return
        answer.touched = True
        if not answer.status:
            self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._reject(answer, error)
            return
        if self._progress:
            self._progress = False
            self._bare_bytes = 0
            if answer.size > HIGH_WATER and not self._paused:
                self._paused = True
                self._transport.pause_reading()
            answer.wake()
        else:
            self._bare_bytes += len(data)
            if self._bare_bytes > MAX_HEAD_BYTES:
                self._reject(answer, self._too_long())

    def eof_received(self) -> None:
        """See ``asyncio.Protocol``."""
        answer = self._answer
        if answer is not None and self._until_eof:
            answer.complete = True
            answer.wake()
        elif answer is not None:
            answer.fail(self._broken(answer))
        self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        if self._answer is not None:
            self._answer.fail(self._broken(self._answer))
        self.drop()
        self._keeper.lost(self)
        del self._parser  # which refers to this connection: freed without the garbage collector

    def _reject(self, answer: HttpAnswer, error: Exception) -> None:
        """Give up what cannot be understood. An answer that is complete stays what it is."""
        self._progress = False
        # The parser wraps what its callbacks raise.
        cause = error.__context__ if error.__context__ is not None else error
        if not isinstance(cause, UpstreamError):
            message = f"Endpoint '{self._name}' sent an answer that is not HTTP/1.1 ({error})."
            cause = UpstreamFailure(message)
        answer.fail(cause)
        self.drop()

    def _too_long(self) -> UpstreamFailure:
        return UpstreamFailure(
            f"Endpoint '{self._name}' sent more than {MAX_HEAD_BYTES} bytes of headers."
        )

    # Callbacks of the parser, within data_received

    def on_message_begin(self) -> None:
        """A first byte: of the answer, or of something after its end."""
        assert self._answer is not None
        if self._answer.complete:
            raise UpstreamFailure(f"Endpoint '{self._name}' sent more than its answer.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the header, or of the trailer, which nobody reads."""
        answer = self._answer
        assert answer is not None
        if answer.status:
            return
        if self._received > MAX_HEAD_BYTES:  # it need not all be of the head
            self._head_bytes += len(name) + len(value) + 4
            if self._head_bytes > MAX_HEAD_BYTES:
                raise self._too_long()
        fields = answer.fields
        name = name.lower()
        fields[name] = fields[name] + b", " + value if name in fields else value

    def on_headers_complete(self) -> None:
        """The head of the answer, or of an interim one before it."""
        answer = self._answer
        assert answer is not None
        fields = answer.fields
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100 or status == 101:
                raise UpstreamFailure(
                    f"Endpoint '{self._name}' answered with HTTP {status}, out of place here."
                )
            self._interim = True
            fields.clear()
            return
        coding = fields.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or b"content-length" in fields):
            raise UpstreamFailure(
                f"Endpoint '{self._name}' sent an answer with Transfer-Encoding "
                f"{coding[:40].decode('latin-1')!r}, which cannot be read."
            )
        if coding is None and b"content-length" not in fields:
            self._until_eof = status not in (204, 304)
        answer.is_json = fields.get(b"content-type", b"").startswith(b"application/json")
        answer.tells_limits = not LIMIT_FIELDS.isdisjoint(fields)
        answer.status = status
        self._progress = True

    def on_body(self, data: bytes) -> None:
        """A piece of the content, without what frames it."""
        answer = self._answer
        assert answer is not None
        answer.pieces.append(data)
        answer.size += len(data)
        self._progress = True

    def on_message_complete(self) -> None:
        """The end of the answer, or of an interim one before it."""
        if self._interim:
            self._interim = False
            return
        assert self._answer is not None
        self._answer.complete = True
        self._keep = self._parser.should_keep_alive()
        self._progress = True
