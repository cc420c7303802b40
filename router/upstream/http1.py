"""The pooled connections to one endpoint, speaking HTTP/1.1 themselves.

    HttpTransport   requests out, their answers' heads in; retries what may be retried
    ├── Pool        idle and open connections
    │   └── Dialer  name resolution, TCP, TLS
    └── Connection  one socket and its parser
        └── HttpAnswer   one answer: what has arrived, who waits for it, until when

A kept connection may be closed by the endpoint in the moment in which a request is written to it.
When such a connection dies before a single byte of an answer has arrived, the request is sent once
more on a fresh one: in all likelihood the endpoint has never read it, nothing of an answer has
been passed on, and what a model is asked has no effect but its answer. A fresh connection that
dies like that has been closed because of the request, and is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from router.core.upstream import ANTHROPIC_VERSION, LoadRequest, UpstreamRequest
from router.errors import UpstreamError, UpstreamFailure, UpstreamTimeout, UpstreamUnavailable
from router.settings.schema import EndpointSettings
from router.upstream.answer import MAX_BODY_BYTES, HttpAnswer
from router.upstream.connection import Connection
from router.upstream.dial import CannotConnect, Dialer
from router.upstream.refusals import refusal

__all__ = ["MAX_BODY_BYTES", "MAX_IDLE", "HttpTransport", "Pool"]

_MAX_REFUSAL_BYTES: Final = 64 * 1024
_REFUSAL_SECONDS: Final = 5.0
"""What an endpoint gets to say why it refuses."""

_MAX_HEADS: Final = 64
_VERSION: Final = "/v1"


class HttpTransport:
    """Implements ``router.core.upstream.Transport``."""

    def __init__(self, endpoint: EndpointSettings) -> None:
        self._name = endpoint.name
        self._timeouts = endpoint.timeouts
        self._dialer = Dialer(endpoint)
        self._pool: Pool | None = None
        self._retired = False
        self._loop: asyncio.AbstractEventLoop
        self._posts: dict[str, bytes] = {}
        fields = [
            f"Host: {self._dialer.authority}",
            "Accept: */*",
            "Accept-Encoding: identity",
            "User-Agent: pointsman",
        ]
        self._key = b""
        self._for_get = ""
        if endpoint.dialect == "messages":  # its POSTs may have another one
            self._for_get = f"\r\n{ANTHROPIC_VERSION[0]}: {ANTHROPIC_VERSION[1]}"
        if endpoint.api_key is not None:
            key = endpoint.api_key.get_secret_value()
            self._key = key.encode()
            name = "x-api-key: " if endpoint.dialect == "messages" else "Authorization: Bearer "
            fields.append(name + key)
        self._fields = "\r\n".join(fields)

    async def send(self, request: UpstreamRequest) -> HttpAnswer:
        """See ``Transport.send``."""
        timeouts = request.patience or self._timeouts
        body = request.body
        if request.method == "POST":
            begin = self._posts.get(request.path) or self._post(request.path)
        else:
            begin = self._head_of(request.method, self._dialer.path + request.path)
        more = _more(request.headers) if request.headers else b""
        head = b"%b%d\r\n%b\r\n" % (begin, len(body), more)
        # An answer in one piece has its first byte when all of it is there.
        first_byte = timeouts.first_byte if request.stream else timeouts.total
        answer = await self._ask(head, body, first_byte, timeouts.idle, timeouts.total)
        if answer.status != 200:
            raise await self._refusal(answer)
        if _CODING in answer.fields:
            try:
                answer.decode()
            except UpstreamError:
                answer.close()
                raise
        return answer

    async def get(
        self, path: str, timeout: float, *, unversioned: bool = False
    ) -> tuple[int, bytes]:
        """See ``Transport.get``."""
        line = self._request_line("GET", self._base(unversioned) + path)
        return await self._within(
            timeout, f"{line}{self._fields}{self._for_get}\r\n\r\n".encode(), b""
        )

    async def post(self, request: LoadRequest, timeout: float) -> tuple[int, bytes]:
        """See ``Transport.post``."""
        base = self._base(request.unversioned)
        head = self._head_of("POST", base + request.path) + b"%d\r\n\r\n" % len(request.body)
        return await self._within(timeout, head, request.body)

    def _base(self, unversioned: bool) -> str:
        return self._dialer.path.removesuffix(_VERSION) if unversioned else self._dialer.path

    async def _within(self, timeout: float, head: bytes, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer that must be there in ``timeout`` seconds."""
        try:
            answer = await self._ask(head, body, timeout, timeout, timeout)
            try:
                answer.decode()
                return answer.status, await answer.body()
            finally:
                answer.close()
        except UpstreamTimeout as exc:
            raise UpstreamTimeout(
                f"Endpoint '{self._name}' did not answer within {timeout:g} s."
            ) from exc

    def retire(self) -> None:
        """See ``Transport.retire``."""
        self._retired = True
        if self._pool is not None:
            self._pool.retire()

    @property
    def busy(self) -> bool:
        """See ``Transport.busy``."""
        return self._pool is not None and self._pool.open > 0

    async def close(self) -> None:
        """See ``Transport.close``."""
        if self._pool is not None:
            await self._pool.close()

    async def _ask(
        self, head: bytes, body: bytes, first_byte: float, idle: float, total: float
    ) -> HttpAnswer:
        """Send a request and wait for the head of its answer, whatever its status."""
        pool = self._pool or self._opened()
        total += self._loop.time()
        connection = pool.take()
        if connection is not None:
            answer = connection.ask(head, body, idle, total)
            try:
                await answer.head(first_byte)
                return answer
            except UpstreamFailure:
                if answer.touched:
                    raise
        connection = await pool.connect(total)
        answer = connection.ask(head, body, idle, total)
        await answer.head(first_byte)
        return answer

    def _opened(self) -> Pool:
        """The pool, made when it is first needed."""
        self._loop = asyncio.get_running_loop()
        pool = self._pool = Pool(self._loop, self._name, self._dialer, self._timeouts.connect)
        if self._retired:
            pool.retire()
        return pool

    async def _refusal(self, answer: HttpAnswer) -> UpstreamError:
        """What an answer other than 200 means, however much of its body arrives."""
        body = b""
        # The status says enough, whatever becomes of the words that go with it.
        with contextlib.suppress(UpstreamError, TimeoutError), contextlib.closing(answer):
            answer.decode()
            async with asyncio.timeout(_REFUSAL_SECONDS):
                while len(body) < _MAX_REFUSAL_BYTES and (piece := await answer.read()):
                    body += piece
        if self._key:
            body = body.replace(self._key, b"[api_key]")
        return refusal(self._name, answer.status, answer.headers, body)

    def _post(self, path: str) -> bytes:
        """Everything of a POST's head before the length of its body."""
        post = self._head_of("POST", self._dialer.path + path)
        if len(self._posts) < _MAX_HEADS:
            self._posts[path] = post
        return post

    def _head_of(self, method: str, path: str) -> bytes:
        """Everything of such a request's head before the length of its body."""
        return (
            f"{self._request_line(method, path)}{self._fields}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()

    @staticmethod
    def _request_line(method: str, path: str) -> str:
        if not (path.isascii() and path.isprintable()) or " " in path:
            raise ValueError(f"not a path that can be requested: {path!r}")
        return f"{method} {path} HTTP/1.1\r\n"


_CODING: Final = b"content-encoding"


def _more(headers: Mapping[str, str]) -> bytes:
    """Header lines beyond those of every request."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("not headers that can be sent")
    return ("\r\n".join(lines) + "\r\n").encode()


MAX_IDLE: Final = 256
"""How many idle connections are kept."""

_CLOSE_SECONDS: Final = 1.0


class Pool:
    """Implements ``router.upstream.connection.Keeper``. Belongs to the loop it is made on.

    ``connect_seconds`` bounds making a connection: name resolution, TCP and TLS.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, dialer: Dialer, connect_seconds: float
    ) -> None:
        self._loop = loop
        self._name = name
        self._dialer = dialer
        self._connect_seconds = connect_seconds
        self._open: set[Connection] = set()
        # Ordered: the one used last is taken first, so that superfluous ones grow old.
        self._idle: dict[Connection, None] = {}
        self._closing = False
        self._empty = asyncio.Event()

    def take(self) -> Connection | None:
        """An idle connection, if there is one."""
        return self._idle.popitem()[0] if self._idle else None

    async def connect(self, total: float) -> Connection:
        """A fresh connection; ``total`` is a point in the loop's time.

        Raises UpstreamUnavailable, NoFileDescriptors, or UpstreamTimeout past ``total``.
        """
        if self._closing:
            raise self._unavailable("it is no longer in use")
        connection = Connection(self._loop, self._name, self)
        left = total - self._loop.time()
        connected = False
        try:
            async with asyncio.timeout(min(self._connect_seconds, left)):
                await self._dialer.dial(self._loop, connection)
            connected = True
        except CannotConnect as exc:
            raise self._unavailable(str(exc)) from exc
        except TimeoutError as exc:
            if left < self._connect_seconds:
                raise UpstreamTimeout(
                    f"Endpoint '{self._name}' timed out: waited for a connection (timeouts.total)."
                ) from exc
            reason = f"timed out after {self._connect_seconds:g} s (timeouts.connect)"
            raise self._unavailable(reason) from exc
        finally:
            if not connected:
                # uvloop does not tell the protocol when it gives up a connection just made.
                self.lost(connection)
        return connection

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self._open)

    def retire(self) -> None:
        """Keep no connection, and make no new ones."""
        self._closing = True
        for connection in list(self._idle):
            connection.drop()

    async def close(self) -> None:
        """Cut off every connection; no new ones are made."""
        self._closing = True
        for connection in list(self._open):
            connection.drop()
        if self._open:
            # A connection that does not even close is not waited for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._empty.wait()

    def opened(self, connection: Connection) -> None:
        """See ``Keeper.opened``."""
        self._open.add(connection)
        if self._closing:
            connection.drop()

    def release(self, connection: Connection) -> bool:
        """See ``Keeper.release``."""
        if self._closing or len(self._idle) >= MAX_IDLE:
            return False
        self._idle[connection] = None
        return True

    def dropped(self, connection: Connection) -> None:
        """See ``Keeper.dropped``."""
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        """See ``Keeper.lost``."""
        self._idle.pop(connection, None)
        self._open.discard(connection)
        if self._closing and not self._open:
            self._empty.set()

    def _unavailable(self, reason: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f"No connection to endpoint '{self._name}': {reason}.", again=True
        )
