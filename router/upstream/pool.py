"""The connections to one endpoint: those in use, without a limit, and those that wait."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from router.errors import UpstreamTimeout, UpstreamUnavailable
from router.upstream.connection import Connection
from router.upstream.dial import CannotConnect, Dialer

__all__ = ["MAX_IDLE", "Pool"]

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

        Raises UpstreamUnavailable, or UpstreamTimeout past ``total``.
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
