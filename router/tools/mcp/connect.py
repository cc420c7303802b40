"""How a session comes about: the transport that a server speaks, and the handshake."""

from __future__ import annotations

import contextlib
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from router.settings.mcp import McpSettings
from router.telemetry.log import get_logger
from router.tools.mcp.causes import why_not_opened
from router.tools.mcp.errors import McpError, McpProtocolError, McpUnreachable
from router.tools.mcp.http import Listed, McpHttp
from router.tools.mcp.request import CURRENT, McpRequest
from router.tools.mcp.server import McpServer, Transport
from router.tools.mcp.stdio import running_command
from router.tools.mcp.watched import watched

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

__all__ = ["Connector"]

_GOODBYE: Final = 2.0
"""Seconds to tell a server that its session ends."""

_INFO: Final = types.Implementation(name="pointsman", version="0")
_MIB: Final = 2**20

_log = get_logger("router.mcp")


class Connector:
    """Opens one session. ``spoken`` is the transport that the server spoke last, or ``auto``;
    ``gone`` is told why an open session is no more.
    """

    def __init__(
        self,
        server: McpServer,
        settings: McpSettings,
        spoken: Transport,
        hosts: Listed | None,
        tls: ssl.SSLContext,
        gone: Callable[[McpError], None],
    ) -> None:
        self.spoken: Transport = spoken
        self.http: McpHttp | None = None
        self.server = server
        self._settings = settings
        self._hosts = hosts
        self._tls = tls
        self._gone = gone
        self._opening: McpRequest | None = None

    async def run(self, serve: Callable[[ClientSession], Awaitable[None]]) -> None:
        """Open a session and ``serve`` it; raises McpError where none can be opened.

        Streamable HTTP is tried first, and its predecessor where the server answers that with a
        4xx, as MCP has it for clients that know both; what worked last comes first.
        """
        deadline = anyio.current_time() + self._settings.connect_timeout
        first: McpError | None = None
        for transport in self._transports():
            opening = self._opening = McpRequest(deadline)
            CURRENT.set(opening)
            error = await self._attempt(transport, opening, serve)
            if error is None:
                return
            first = first or error
            if not (isinstance(error, McpProtocolError) and 400 <= opening.status < 500):
                break
        assert first is not None
        raise first

    def give_up(self, error: McpError) -> None:
        """Where no session is open yet, none will be."""
        if self._opening is not None:
            self._opening.fail(error)

    def _transports(self) -> tuple[Transport, ...]:
        if self.server.transport != "auto" or self.server.command is not None:
            return (self.server.transport,)
        return ("sse", "http") if self.spoken == "sse" else ("http", "sse")

    async def _attempt(
        self,
        transport: Transport,
        opening: McpRequest,
        serve: Callable[[ClientSession], Awaitable[None]],
    ) -> McpError | None:
        failure: Exception | None = None
        opened = False
        try:
            with opening.scope:
                opening.scope.deadline = opening.deadline
                streams = self._streams(transport)
                async with Client(streams, cache=None, client_info=_INFO) as client:
                    opened = True
                    opening.answer(None)
                    opening.scope.deadline = math.inf
                    self.spoken = transport
                    if self.http is not None:
                        self.http.settle()
                    await serve(client.session)
                    opening.scope.deadline = anyio.current_time() + _GOODBYE
        except Exception as error:  # whatever the SDK raises, alone or in groups
            failure = error
        if opened:
            if failure is not None:
                _log.debug("MCP session broke", server=self.server.label, error=repr(type(failure)))
            return None
        return why_not_opened(failure, opening, self.server, transport)

    @contextlib.asynccontextmanager
    async def _streams(self, transport: Transport) -> AsyncIterator[TransportStreams]:
        server, settings = self.server, self._settings
        most = int(settings.max_message_mb * _MIB)
        async with contextlib.AsyncExitStack() as stack:
            if server.command is not None:
                streams = await stack.enter_async_context(running_command(server, most, self._lost))
            else:
                assert server.url is not None
                http = self.http = McpHttp(
                    server,
                    sse=transport == "sse",
                    hosts=self._hosts,
                    tls=self._tls,
                    max_bytes=most,
                    calls=settings.max_calls,
                    lost=self._lost,
                )
                if transport == "sse":
                    opened = sse_client(
                        server.url,
                        sse_read_timeout=math.inf,
                        httpx_client_factory=lambda *_, **__: http.client(),
                    )
                else:
                    client = await stack.enter_async_context(http.client())
                    opened = streamable_http_client(
                        server.url, http_client=client, max_sse_event_size=most
                    )
                streams = await stack.enter_async_context(opened)
            yield watched(streams, self._ended)

    def _ended(self) -> None:
        said = f"The MCP server {self.server.label!r} ended the session before it answered."
        self._lost(McpUnreachable(said))

    def _lost(self, error: McpError) -> None:
        """The session is no more, or was never opened."""
        self.give_up(error)
        self._gone(error)
