"""The port of several workers: the supervisor accepts, and hands each connection to a worker.

Which worker gets it is decided with all of them in view: the one with the fewest connections. The
kernel would spread them by chance (``SO_REUSEPORT`` by a hash, one inherited socket by who wakes up
first), and reset those that wait for a worker which ends. A connection is handed on as a file
descriptor over a Unix socket, one byte each.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["Acceptor", "HandedConnections", "Taker", "listen_on"]

_log = get_logger("router.workers")

_BACKLOG: Final = 4096
_AT_ONCE: Final = 64
_PAUSE_SECONDS: Final = 0.01
_NO_FILES_SECONDS: Final = 0.25
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_FULL: Final = frozenset({errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS})


def listen_on(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of ``host``, all on one port; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address[0], port, *address[2:]))
            port = one.getsockname()[1]
            one.listen(_BACKLOG)
            one.setblocking(False)
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


class Taker(Protocol):
    """A worker that takes connections. ``handing`` is the supervisor's end of its socket,
    ``handed`` how many it has been handed, and ``turn`` the number of the last one among those of
    all workers.
    """

    handing: socket.socket
    handed: int
    turn: int


class Acceptor:
    """Hands the connections of ``sockets`` to whom ``order`` names, the best first."""

    def __init__(
        self, sockets: Sequence[socket.socket], order: Callable[[], Sequence[Taker]]
    ) -> None:
        self._sockets = sockets
        self._order = order
        self._open = False
        self._turn = 0
        self._again: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to accept; until then connections wait in the backlog."""
        self._open = True
        self._resume()

    def close(self) -> None:
        """Accept no more, and leave the port."""
        self._pause()
        self._open = False
        for one in self._sockets:
            one.close()

    def _resume(self) -> None:
        self._again = None
        for one in self._sockets:
            asyncio.get_running_loop().add_reader(one.fileno(), self._accept, one)

    def _pause(self, seconds: float | None = None) -> None:
        """Leave them in the backlog, for so long or for good."""
        loop = asyncio.get_running_loop()
        if self._again is not None:
            self._again.cancel()
            self._again = None
        elif self._open:
            for one in self._sockets:
                loop.remove_reader(one.fileno())
        if seconds is not None:
            self._again = loop.call_later(seconds, self._resume)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            takers = self._order()
            if not takers:
                self._pause(_PAUSE_SECONDS)
                return
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                if exc.errno not in _NO_FILES:
                    raise
                _log.error("no connection can be accepted", reason=exc.strerror)
                self._pause(_NO_FILES_SECONDS)
                return
            with connection:
                if not any(self._handed(taker, connection) for taker in takers):
                    _log.warning("no worker takes a connection")
                    self._pause(_PAUSE_SECONDS)
                    return

    def _handed(self, taker: Taker, connection: socket.socket) -> bool:
        """Whether the worker has it now; not where it has ended, or does not take what it has."""
        try:
            socket.send_fds(taker.handing, [b"\0"], [connection.fileno()])
        except OSError as exc:
            gone = isinstance(exc, BrokenPipeError | ConnectionResetError)
            if not gone and exc.errno not in _FULL:
                _log.error("a connection was not handed on", reason=exc.strerror)
            return False
        taker.handed += 1
        self._turn += 1
        taker.turn = self._turn
        return True


class HandedConnections:
    """A worker's end: makes each connection that it is handed one of ``make``'s protocols.

    ``taken`` is how many those were.
    """

    def __init__(self, end: socket.socket) -> None:
        self.taken = 0
        self._end = end
        self._make: Callable[[], asyncio.BaseProtocol] | None = None
        self._tasks = Tasks()

    def open(self, make: Callable[[], asyncio.BaseProtocol]) -> None:
        """Take what is handed on."""
        self._make = make
        self._end.setblocking(False)
        asyncio.get_running_loop().add_reader(self._end.fileno(), self._take)

    async def close(self) -> None:
        """Take no more."""
        if self._end.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._end.fileno())
            self._end.close()
        await self._tasks.close()

    def _take(self) -> None:
        assert self._make is not None
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                byte, descriptors, _, _ = socket.recv_fds(self._end, 1, 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                byte, descriptors = b"", []
            if not byte:  # the supervisor is gone, which the link tells
                loop.remove_reader(self._end.fileno())
                return
            self.taken += 1
            for descriptor in descriptors:
                connection = socket.socket(fileno=descriptor)
                connection.setblocking(False)
                self._tasks.spawn(self._begin(connection), "take a connection")

    async def _begin(self, connection: socket.socket) -> None:
        assert self._make is not None
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection)
