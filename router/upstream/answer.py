"""An endpoint's answer while it arrives.

Its connection puts the pieces in and wakes whoever waits, once per network read; the reader takes
everything there is at once. All that belongs to one answer lives here and dies with it, so that
nothing of it can leak into the next one on the same connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from router.errors import UpstreamError, UpstreamFailure, UpstreamTimeout, UpstreamTooLong
from router.upstream.inflate import CODINGS, Inflater

__all__ = [
    "HIGH_WATER",
    "MAX_BODY_BYTES",
    "ConnectionHandle",
    "Headers",
    "HttpAnswer",
]


class Headers(Mapping[str, str]):
    """Header fields as they were parsed, looked up without regard to case.

    ``fields`` has lower-case names; a field sent several times has its values joined by commas.
    Only what is looked up is decoded.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        try:
            return self._fields[name.lower().encode()].decode("latin-1")
        except KeyError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)


MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""An answer in one piece may be this large, decompressed."""

HIGH_WATER: Final = 256 * 1024
"""Bytes that wait to be read before the connection stops receiving."""

_SETTLE_SECONDS: Final = 0.25
_FIRST_BYTE: Final = "the first byte (timeouts.first_byte)"
_NEXT_PIECE: Final = "the next piece of the answer (timeouts.idle)"
_WHOLE: Final = "the whole answer (timeouts.total)"


class ConnectionHandle(Protocol):
    """What an answer needs of its connection."""

    due: float
    """When to call the answer's ``expire``, in the loop's time."""
    looks_at: float
    """When it looks whether that is due; to be told to ``watch`` where that is too late."""

    def watch(self) -> None:
        """Look by the time that it is due."""
        ...

    def resume(self) -> None:
        """Go on receiving, if that was stopped."""
        ...

    def finish(self) -> None:
        """The answer is done with: keep the connection if that is safe, else cut it off."""
        ...

    def drop(self) -> None:
        """Cut the connection off."""
        ...


class HttpAnswer:
    """Implements ``router.core.upstream.UpstreamResponse``. At most one task reads it.

    ``idle`` is in seconds, ``total`` a point in the loop's time. The connection fills ``status``,
    ``fields`` (headers, lower-case names), ``is_json``, ``tells_limits``, ``pieces`` and ``size``
    (what is unread, in bytes), ``touched`` (a byte of the answer has arrived) and ``complete`` (its
    end has).
    """

    __slots__ = (
        "_closed",
        "_each",
        "_error",
        "_failed",
        "_idle",
        "_inflater",
        "_link",
        "_loop",
        "_name",
        "_rested",
        "_seconds",
        "_total",
        "_waiter",
        "complete",
        "fields",
        "is_json",
        "pieces",
        "size",
        "status",
        "tells_limits",
        "touched",
    )

    def __init__(
        self,
        link: ConnectionHandle,
        loop: asyncio.AbstractEventLoop,
        name: str,
        idle: float,
        total: float,
    ) -> None:
        self._link = link
        self._loop = loop
        self._name = name
        self._idle = self._seconds = idle
        self._total = total
        self._waiter: asyncio.Future[None] | None = None
        self._error: UpstreamError | None = None
        self._inflater: Inflater | None = None
        self._each: Callable[[bytes], bool] | None = None
        self._failed: BaseException | None = None
        self._rested = False
        self._closed = False
        self.status = 0
        self.fields: dict[bytes, bytes] = {}
        self.is_json = False
        self.tells_limits = False
        self.pieces: list[bytes] = []
        self.size = 0
        self.touched = False
        self.complete = False

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers, looked up without regard to case."""
        return Headers(self.fields)

    async def head(self, seconds: float) -> None:
        """Wait for the status and headers; the answer is closed when this raises."""
        self._seconds = seconds
        try:
            while not self.status:
                if self._error is not None:
                    raise self._error
                await self.news()
        except BaseException:
            self.close()
            raise
        self._seconds = self._idle

    def decode(self) -> None:
        """Have compressed content decompressed; raises UpstreamFailure for an unknown coding."""
        coding = self.fields.get(b"content-encoding")
        if coding is None:
            return
        name = coding.decode("latin-1").strip().lower()
        if name in CODINGS:
            self._inflater = Inflater(name)
        elif name not in ("", "identity"):
            raise UpstreamFailure(
                f"Endpoint '{self._name}' compressed its answer, unasked, with {name[:40]!r}."
            )

    def take(self, *, raw: bool = False) -> bytes | None:
        """See ``UpstreamResponse.take``; with ``raw`` as it came over the wire."""
        if self._inflater is not None and not raw:
            return self._inflated(self._inflater)
        pieces = self.pieces
        if pieces and not self.complete and self._loop.time() >= self._total:
            self._overdue(_WHOLE)
            pieces.clear()
        if not pieces:
            if self._error is not None:
                raise self._error
            return b"" if self.complete else None
        return self._arrived()

    def news(self) -> asyncio.Future[None]:
        """See ``UpstreamResponse.news``."""
        loop = self._loop
        waiter = loop.create_future()
        if self._inflater is not None and self._inflater.pending:
            # What is packed tightly must not keep the event loop for itself.
            self._rested = True
            loop.call_soon(_done, waiter)
            return waiter
        link = self._link
        due = loop.time() + self._seconds
        link.due = due = due if due < self._total else self._total
        if due < link.looks_at:
            link.watch()
        self._waiter = waiter
        return waiter

    async def each(self, take: Callable[[bytes], bool]) -> None:
        """See ``UpstreamResponse.each``."""
        if self._inflater is not None or self.pieces or self.complete or self._error is not None:
            return
        self._each = take
        try:
            await self.news()
        finally:
            self._each = None
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    async def read(self) -> bytes:
        """See ``UpstreamResponse.read``."""
        while (data := self.take()) is None:
            await self.news()
        return data

    async def body(self) -> bytes:
        """See ``UpstreamResponse.body``."""
        if self.complete and self._inflater is None and self.size <= MAX_BODY_BYTES:
            return self.take() or b""  # all of it came with the head, as it mostly does
        pieces = []
        size = 0
        while piece := await self.read():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise UpstreamFailure(
                    f"The answer of endpoint '{self._name}' exceeds {MAX_BODY_BYTES} bytes."
                )
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def settle(self) -> None:
        """See ``UpstreamResponse.settle``."""
        # Whatever goes wrong here, the content was complete: close() cuts the connection off.
        with contextlib.suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while not self.complete:
                    if self.take(raw=True) is None:
                        await self.news()

    def close(self) -> None:
        """See ``UpstreamResponse.close``."""
        if self._closed:
            return
        self._closed = True
        if not self.complete:
            self.fail(UpstreamFailure(f"The answer of endpoint '{self._name}' has been closed."))
        self._link.finish()

    def wake(self) -> None:
        """Tell the reader that something has arrived."""
        each = self._each
        if each is not None and self.pieces and not self.complete:
            now = self._loop.time()
            if now < self._total:
                try:
                    if len(self.pieces) == 1 and self.size <= HIGH_WATER:
                        self.size = 0
                        goes_on = each(self.pieces.pop())
                    else:
                        goes_on = each(self._arrived())
                except BaseException as exc:  # which is for the reader
                    self._failed = exc
                    goes_on = False
                if goes_on:
                    self._link.due = min(now + self._seconds, self._total)
                    return
                self._each = None
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _arrived(self) -> bytes:
        pieces = self.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self.size > HIGH_WATER:
            self._link.resume()
        self.size = 0
        return data

    def fail(self, error: UpstreamError) -> None:
        """There will be no more: raise ``error`` once everything that did arrive has been read."""
        if self._error is None and not self.complete:
            self._error = error
        self.wake()

    def expire(self) -> None:
        """The time that was being watched is over."""
        # Nobody waits any more when the reader was faster, or was cancelled.
        if self._waiter is not None and not self._waiter.done():
            if self._link.due >= self._total:
                self._overdue(_WHOLE)
            else:
                self._overdue(_NEXT_PIECE if self.status else _FIRST_BYTE)

    def _inflated(self, inflater: Inflater) -> bytes | None:
        """``take``, decompressed; a piece at a time, between which others have their turn."""
        try:
            while True:
                if inflater.pending:
                    if not self._rested:
                        return None
                    self._rested = False
                    piece = inflater.feed(b"")
                elif (data := self.take(raw=True)) is None:
                    return None
                elif data:
                    piece = inflater.feed(data)
                else:
                    inflater.finish()
                    return b""
                if piece:
                    return piece
        except zlib.error as exc:
            raise UpstreamFailure(
                f"Endpoint '{self._name}' sent an answer that cannot be decompressed."
            ) from exc

    def _overdue(self, what: str) -> None:
        message = f"Endpoint '{self._name}' timed out: waited for {what}."
        if what is _WHOLE:
            self.fail(UpstreamTooLong(message, begun=self.touched))
        else:
            self.fail(UpstreamTimeout(message))
        self._link.drop()


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
