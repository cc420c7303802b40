"""Calls and messages between the supervisor and a worker, over a connected Unix socket.

A message is four bytes with its length (big-endian) and a JSON array: what kind it is, the number
of the call, and

    CALL     name, value   answered by an ANSWER or a FAILURE of the same number
    ANSWER   value         what the handler of that name returned
    FAILURE  text          the handler raised
    TELL     name, value   without an answer

What is sent in one turn of the event loop is one write.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import orjson

from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["Handler", "LinkFailed", "WorkerLink"]

_log = get_logger("router.workers")

_CALL, _ANSWER, _FAILURE, _TELL = range(4)
_ASKS: Final = frozenset({_CALL, _TELL})
_HEAD: Final = 4
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The longest message, and the most that waits to be read by the other side."""

_LARGE: Final = 256 * 1024
"""Bytes of an answer that waits until those before it are on their way."""

_MOST_CALLS: Final = 100_000

Handler = Callable[[Any], Any]
"""Gets the value of a call or message; what it returns, or its awaitable gives, is the answer."""


class LinkFailed(Exception):
    """A call has no answer: the other side is gone, too slow, or failed at it."""


class WorkerLink(asyncio.Protocol):
    """One end of a link. ``handlers`` may be added as long as nothing can have been sent to them.

    ``on_lost`` is called once the other side is gone.
    """

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self.handlers: dict[str, Handler] = {}
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._received = bytearray()
        self._sent: list[bytes] = []
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._room = asyncio.Event()
        self._room.set()
        self._turn = asyncio.Lock()
        self._tasks = Tasks()

    @classmethod
    async def over(cls, end: socket.socket, on_lost: Callable[[], None]) -> WorkerLink:
        """The link over one end of a pair of sockets. Nothing is read before ``read``."""
        end.setblocking(False)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: cls(on_lost), sock=end)
        return link

    @property
    def up(self) -> bool:
        """Whether the other side is there, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    def read(self) -> None:
        """Begin to read: all handlers are there."""
        self._reading = True
        if self._transport is not None:
            self._transport.resume_reading()
        self._take_all()

    async def call(self, name: str, value: Any, timeout: float) -> Any:
        """What the other side's handler of this name answers; raises LinkFailed."""
        if not self.up or len(self._calls) >= _MOST_CALLS:
            raise LinkFailed("not connected" if not self.up else "too many calls wait")
        self._number += 1
        number = self._number
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._calls[number] = answer
        self._send((_CALL, number, name, value))
        late = self._loop.call_later(timeout, _fail, answer, f"no answer within {timeout:g} s")
        try:
            return await answer
        finally:
            late.cancel()
            self._calls.pop(number, None)

    def tell(self, name: str, value: Any = None) -> None:
        """Send without an answer. Where the other side is gone, nobody is told."""
        if self.up:
            self._send((_TELL, 0, name, value))

    async def close(self) -> None:
        """Send what is left, end the connection and what works on its calls."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
        await self._tasks.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own
        self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = None
        self._room.set()
        for answer in self._calls.values():
            _fail(answer, "the other side is gone")
        self._on_lost()

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._room.clear()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._room.set()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._received += data
        if self._reading:  # uvloop may have read before it was told to pause
            self._take_all()

    def _take_all(self) -> None:
        received = self._received
        begin = 0
        while len(received) - begin >= _HEAD:
            end = begin + _HEAD + int.from_bytes(received[begin : begin + _HEAD])
            if end - begin > _MOST_BYTES:
                _log.error("a message is too long", bytes=end - begin)
                self._abort()
                return
            if len(received) < end:
                break
            self._take(orjson.loads(memoryview(received)[begin + _HEAD : end]))
            begin = end
        if begin:
            del received[:begin]

    def _take(self, message: list[Any]) -> None:
        kind, number = message[0], message[1]
        if kind in _ASKS:
            self._handle(number, message[2], message[3])
            return
        answer = self._calls.get(number)
        if answer is None or answer.done():
            return  # nobody waits any more
        if kind == _ANSWER:
            answer.set_result(message[2])
        else:
            _fail(answer, message[2])

    def _handle(self, number: int, name: str, value: Any) -> None:
        """Have a call or a message handled; number 0 is one without an answer."""
        try:
            result = self.handlers[name](value)
        except Exception as exc:
            self._failed(number, name, exc)
            return
        if inspect.isawaitable(result):
            self._tasks.spawn(self._finish(number, name, result), f"answer {name}")
        elif number:
            self._send((_ANSWER, number, result))

    async def _finish(self, number: int, name: str, result: Awaitable[Any]) -> None:
        try:
            value = await result
        except Exception as exc:
            self._failed(number, name, exc)
            return
        if number and self.up:
            await self._answer(orjson.dumps((_ANSWER, number, value)))

    async def _answer(self, data: bytes) -> None:
        """Send an answer; many large ones at once are not too much for the other side."""
        if len(data) < _LARGE:
            self._put(data)
            return
        async with self._turn:
            await self._room.wait()
            if self.up:
                self._put(data)
                self._flush()

    def _failed(self, number: int, name: str, exc: Exception) -> None:
        _log.error("a message was not handled", message=name, exc_info=exc)
        if number and self.up:
            self._send((_FAILURE, number, f"{type(exc).__name__}: {exc}"))

    def _send(self, message: tuple[Any, ...]) -> None:
        self._put(orjson.dumps(message))

    def _put(self, data: bytes) -> None:
        if not self._sent:
            self._loop.call_soon(self._flush)
        self._sent += (len(data).to_bytes(_HEAD), data)

    def _flush(self) -> None:
        sent, self._sent = self._sent, []
        if not sent or self._transport is None or self._transport.is_closing():
            return
        self._transport.write(b"".join(sent))
        if self._transport.get_write_buffer_size() > _MOST_BYTES:
            _log.error("the other side does not read", bytes=_MOST_BYTES)
            self._abort()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _fail(answer: asyncio.Future[Any], why: str) -> None:
    if not answer.done():
        answer.set_exception(LinkFailed(why))
