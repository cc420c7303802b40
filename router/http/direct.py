"""The server of an application's direct routes: its connections, and the timer that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from aiohttp import web

from router.http.connection import Serve, ServerConnection
from router.http.plain_head import PlainHead
from router.telemetry.log import get_logger

__all__ = ["DirectServer", "DirectSite"]

_log = get_logger("router.http.direct")

_SWEEP_SECONDS: Final = 0.5
_FLUSH_SECONDS: Final = 2.0


class Front(Protocol):
    """Whom the requests are for."""

    closes: bool
    """Whether answers close their connections."""


class DirectServer:
    """The connections of one application, and the ``routes`` that it serves itself, by path.

    ``max_body`` is in bytes: larger ones are refused by aiohttp's handler, unread. ``keepalive``
    is the silence, in seconds, that may be in a stream. Answers close their connections while
    ``front`` says so.
    """

    def __init__(
        self,
        max_body: int,
        keepalive: float,
        routes: Mapping[str, Serve],
        front: Front,
    ) -> None:
        self._max_body = max_body
        self.front = front
        self._routes = routes
        self._period = min(_SWEEP_SECONDS, keepalive / 2)
        self.connections: set[ServerConnection] = set()
        self.fallback: Callable[[], asyncio.BaseProtocol] | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self.closing = False

    def handler(self, head: PlainHead) -> Serve | None:
        """What answers the request with this head; None where it is not served here."""
        if head.length > self._max_body:
            return None
        return self._routes.get(head.raw_path.partition("?")[0])

    def __call__(self) -> asyncio.BaseProtocol:
        """A protocol for a connection that was accepted."""
        return ServerConnection(self)

    def opened(self, connection: ServerConnection) -> None:
        """It is served here."""
        self.connections.add(connection)
        if self._sweep is None:
            self._sweep = connection.loop.call_later(self._period, self._look, connection.loop)

    def close_idle(self) -> None:
        """No further requests on connections that have none; the others close after theirs."""
        self.closing = True
        for connection in list(self.connections):
            connection.close_if_idle()

    async def shutdown(self) -> None:
        """Close every connection, once what was written has been read or time is up."""
        self.close_idle()
        tasks = [c.task for c in self.connections if c.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_FLUSH_SECONDS)
        tasks = [c.task for c in self.connections if c.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_FLUSH_SECONDS)
        for connection in list(self.connections):
            connection.abort()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all that takes time: idle connections, slow requests, silent streams."""
        now = loop.time()
        for connection in list(self.connections):
            try:
                connection.look(now)
            except Exception:  # the others are looked at all the same
                _log.exception("connection cannot be looked after")
                connection.abort()
        self._sweep = None
        if self.connections:
            self._sweep = loop.call_later(self._period, self._look, loop)


class DirectSite(web.BaseSite):
    """Listens on an address for connections that ``direct`` serves, with the runner's server for
    what it hands over.
    """

    def __init__(
        self,
        runner: web.AppRunner,
        direct: DirectServer,
        host: str,
        port: int,
        *,
        backlog: int = 128,
    ) -> None:
        super().__init__(runner, backlog=backlog)
        self._direct = direct
        self._host = host
        self._port = port
        direct.fallback = runner.server

    @property
    def name(self) -> str:
        """Where it listens, as a URL."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen. Raises OSError when that cannot be."""
        await super().start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._direct, self._host, self._port, backlog=self._backlog
        )

    async def stop(self) -> None:
        """Listen no longer, and close the connections that wait for a request."""
        await super().stop()
        self._direct.close_idle()
