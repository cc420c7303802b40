"""The load generator: closed-loop clients on raw protocols, cheap beside what they measure."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self, cast

import httptools

from .bodies import Request

__all__ = ["Address", "Load", "Result", "Sample", "ask", "fetch"]

Address = tuple[str, int]

_EVENT: Final = b"data:"
_FIRST_DELTA: Final = re.compile(rb"response\.output_text\.delta|text_delta")
_CONNECT_LIMIT: Final = 10.0
_MAX_FAILURES: Final = 20
_MAX_SAMPLES: Final = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer kept for checking; ``body`` is without HTTP framing."""

    request: Request
    body: bytes


@dataclass(slots=True)
class Result:
    """What came back: whole answers of status 200, events, milliseconds to the first delta and
    to the end of each answer.
    """

    answers: int = 0
    events: int = 0
    seconds: float = 0.0
    first_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class _Connection(asyncio.Protocol):
    """One kept-alive connection with at most one request under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._stream = False
        self._kept: list[bytes] | None = None
        self._tail = b""
        self._lead = b""
        self.status = 0
        self.events = 0
        self.sent_at = 0.0
        self.first_at = 0.0
        self.done_at = 0.0
        self.reusable = True

    def ask(self, wire: bytes, *, stream: bool, keep: bool) -> asyncio.Future[None]:
        """Send a request; done when the whole answer is there, ConnectionError if it breaks."""
        self._done = self._loop.create_future()
        self._stream, self._kept = stream, [] if keep else None
        self._tail = self._lead = b""
        self.status = self.events = 0
        self.first_at = 0.0
        self.sent_at = time.perf_counter()
        if self._transport is None:
            self._fail("the connection is closed")
        else:
            self._transport.write(wire)
        return self._done

    @property
    def streaming(self) -> bool:
        """Whether a stream has had its first delta and not its end."""
        return self.first_at > 0 and self._done is not None and not self._done.done()

    @property
    def body(self) -> bytes:
        """The body of the last answer, if it was to be kept."""
        return b"".join(self._kept or ())

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self.reusable = None, False
        self._fail("the connection was closed before the answer was whole")

    def data_received(self, data: bytes) -> None:
        if self._done is None or self._done.done():
            # Bytes that nobody asked for: the next request would take them for its answer.
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error}")
            self.close()

    def on_body(self, body: bytes) -> None:
        if self._kept is not None:
            self._kept.append(body)
        if not self._stream:
            return
        if not self.first_at:
            self._lead += body
            if _FIRST_DELTA.search(self._lead):
                self.first_at = time.perf_counter()
                self._lead = b""
        # The mark can be cut in two; the tail is shorter than it, so none is counted twice.
        data = self._tail + body
        self.events += data.count(_EVENT)
        self._tail = data[1 - len(_EVENT) :]

    def on_message_complete(self) -> None:
        self.done_at = time.perf_counter()
        self.status = self._parser.get_status_code()
        self.reusable = self.reusable and self._parser.should_keep_alive()
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _fail(self, reason: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError(reason))


async def _connect(address: Address) -> _Connection:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_CONNECT_LIMIT):
        _, connection = await loop.create_connection(lambda: _Connection(loop), *address)
    return connection


async def fetch(address: Address, path: str, limit: float = 5.0) -> tuple[int, bytes]:
    """GET ``path``; see ``ask``."""
    wire = f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode()
    return await ask(address, wire, limit)


async def ask(address: Address, wire: bytes, limit: float = 5.0) -> tuple[int, bytes]:
    """(status, body) of one request. OSError (TimeoutError too) if there is no answer."""
    connection = await _connect(address)
    try:
        async with asyncio.timeout(limit):
            await connection.ask(wire, stream=False, keep=True)
        return connection.status, connection.body
    finally:
        connection.close()


class Load:
    """``concurrency`` clients of one target, each sending its next request after an answer.

    Use as an async context manager: connections are open inside it. Every ``sample_every``-th
    answer is kept, up to a bound; an odd number meets every kind of request.
    """

    def __init__(
        self,
        address: Address,
        requests: Sequence[Request],
        concurrency: int,
        *,
        sample_every: int = 1,
    ) -> None:
        self._address = address
        self._requests = itertools.cycle(requests)
        self._concurrency = concurrency
        self._sample_every = sample_every
        self._connections: list[_Connection] = []
        self._started = 0
        self._left = 0
        self._until = 0.0
        self.result = Result()

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self._concurrency):
                self._connections.append(await _connect(self._address))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        # Closing takes effect in the loop's next turns; the next load shall not pay for it.
        await asyncio.sleep(0.01)

    @property
    def streaming(self) -> int:
        """How many streams are open now: begun to answer and not at their end."""
        return sum(connection.streaming for connection in self._connections)

    @property
    def events(self) -> int:
        """How many events have come of the answers that are under way."""
        return sum(connection.events for connection in self._connections)

    async def run(
        self,
        *,
        limit: float,
        seconds: float | None = None,
        each: int | None = None,
        spread: float = 0.0,
    ) -> Result:
        """Start new requests for ``seconds``, or ``each`` per client; wait for all answers.

        The clients begin evenly over ``spread`` seconds. TimeoutError after ``limit`` seconds.
        """
        began = time.perf_counter()
        self._until = began + seconds if seconds is not None else float("inf")
        self._left = each * self._concurrency if each is not None else 1 << 40
        pause = spread / self._concurrency
        async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
            for place in range(self._concurrency):
                group.create_task(self._client(place, place * pause))
        self.result.seconds = time.perf_counter() - began
        return self.result

    async def _client(self, place: int, wait: float) -> None:
        if wait:
            await asyncio.sleep(wait)
        while self._may_start():
            connection = self._connections[place]
            request = next(self._requests)
            keep = self._started % self._sample_every == 0
            keep = keep and self._started // self._sample_every < _MAX_SAMPLES
            self._started += 1
            self._left -= 1
            try:
                if not connection.reusable:
                    connection.close()
                    connection = self._connections[place] = await _connect(self._address)
                await connection.ask(request.wire, stream=request.stream, keep=keep)
            except OSError as error:
                self.result.failures.append(str(error) or type(error).__name__)
                connection.close()
                continue
            self._note(connection, request, keep)

    def _may_start(self) -> bool:
        if self._left <= 0 or len(self.result.failures) >= _MAX_FAILURES:
            return False
        return time.perf_counter() < self._until

    def _note(self, connection: _Connection, request: Request, keep: bool) -> None:
        result = self.result
        if connection.status != 200:
            body = connection.body[:200].decode(errors="replace")
            result.failures.append(f"status {connection.status} {body}".rstrip())
            return
        result.answers += 1
        result.whole_ms.append((connection.done_at - connection.sent_at) * 1000)
        result.events += connection.events
        if request.stream:
            if connection.events < request.shape.events:
                short = f"{connection.events} events of {request.shape.events}"
                result.failures.append(f"a short stream: {short}")
            if connection.first_at:
                result.first_ms.append((connection.first_at - connection.sent_at) * 1000)
        if keep:
            result.samples.append(Sample(request, connection.body))
