"""Sessions with MCP servers, shared: one for each server, its credentials and its owner."""

from __future__ import annotations

import asyncio
import importlib
import secrets
import ssl
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from router.fetch.guard import FetchGuard
from router.settings.tools import ToolsSettings
from router.settings.words import install_extra
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.tools.mcp.errors import (
    McpError,
    McpNotInstalled,
    McpToolError,
    McpUnreachable,
)
from router.tools.mcp.server import McpResult, McpServer, McpTool, Transport

if TYPE_CHECKING:
    from router.tools.mcp.session import McpSession

__all__ = ["McpClients"]

_REMEMBERED: Final = 1024
"""Servers of which it is remembered what they speak."""

_CLOSING: Final = 10.0
"""Seconds that sessions have to end, before they are ended."""

_SDK: Final = ("mcp", "mcp_types", "httpx2", "httpcore2", "anyio")

_log = get_logger("router.mcp")


class McpClients:
    """Lists and calls tools; ``settings`` may be changed at any time.

    ``guard`` has the hosts that a client may name. ``tls`` is for https, None for the system's
    authorities. Deadlines are times of the event loop (``loop.time()``); None leaves it to the
    settings, which bound all of them. A call is sent once at most, whatever happens.
    """

    def __init__(
        self, settings: ToolsSettings, guard: FetchGuard, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.settings = settings
        self._guard = guard
        self._tls = tls
        self._key = secrets.token_bytes(32)
        self._tasks = Tasks()
        self._sessions: OrderedDict[str, McpSession] = OrderedDict()
        self._living: set[McpSession] = set()
        self._spoken: OrderedDict[str, Transport] = OrderedDict()
        self._closed = False
        self._prepared = False

    @property
    def sessions(self) -> int:
        """How many there are, those that are being opened or closed included."""
        return len(self._living)

    async def list_tools(
        self, server: McpServer, *, deadline: float | None = None
    ) -> tuple[McpTool, ...]:
        """The server's tools, of all its pages; raises McpError."""
        for last in (False, True):
            session, fresh = await self._session(server, deadline)
            try:
                return await session.list_tools(self._until(deadline))
            except McpUnreachable as error:
                if last or (fresh and error.sent):
                    raise
        raise AssertionError("the second try returns or raises")

    async def call(
        self,
        server: McpServer,
        name: str,
        arguments: dict[str, Any],
        *,
        deadline: float | None = None,
        call_id: str = "",
    ) -> McpResult:
        """What the tool gives back; raises McpError. ``call_id`` is for the log.

        Whoever is cancelled here cancels the call at the server.
        """
        try:
            return await self._call(server, name, arguments, deadline)
        except McpToolError:
            raise
        except McpError as error:
            kind = type(error).__name__
            _log.warning("MCP call failed", server=server.label, call=call_id, error=kind)
            raise

    async def close(self) -> None:
        """End all calls and sessions, commands included."""
        self._closed = True
        for session in list(self._living):
            session.stop()
        await self._tasks.wait(_CLOSING)
        await self._tasks.close()

    async def _call(
        self, server: McpServer, name: str, arguments: dict[str, Any], deadline: float | None
    ) -> McpResult:
        for last in (False, True):
            session, _ = await self._session(server, deadline)
            try:
                return await session.call(name, arguments, self._until(deadline))
            except McpUnreachable as error:
                # Only what never left this process is sent in another session.
                if last or error.sent:
                    raise
        raise AssertionError("the second try returns or raises")

    def _until(self, deadline: float | None) -> float:
        longest = asyncio.get_running_loop().time() + self.settings.call_timeout
        return longest if deadline is None else min(deadline, longest)

    async def _session(self, server: McpServer, deadline: float | None) -> tuple[McpSession, bool]:
        """A session that is open, and whether it is new."""
        await self._prepare()
        longest = asyncio.get_running_loop().time() + self.settings.mcp.connect_timeout
        until = longest if deadline is None else min(deadline, longest)
        key = server.fingerprint(self._key)
        session = self._sessions.get(key)
        if session is not None and session.usable:
            self._sessions.move_to_end(key)
            fresh = not session.is_open
            await session.opened(until)
            if fresh or await session.answers(until):
                return session, fresh
        session = self._sessions.get(key)  # somebody else may have opened another one meanwhile
        if session is None or not session.usable:
            session = self._open(server, key)
        await session.opened(until)
        self._spoken[key] = session.transport
        self._spoken.move_to_end(key)
        if len(self._spoken) > _REMEMBERED:
            self._spoken.popitem(last=False)
        return session, True

    def _open(self, server: McpServer, key: str) -> McpSession:
        from router.tools.mcp.session import McpSession

        if self._closed or self._tls is None:
            raise McpUnreachable("The router is shutting down.", sent=False)
        self._make_room()
        listed = self.settings.mcp.hosts or self._guard.settings.hosts
        session = McpSession(
            server,
            self.settings.mcp,
            spoken=self._spoken.get(key, server.transport),
            hosts=None if server.trusted else (self._guard.hosts, listed),
            tls=self._tls,
        )
        self._sessions[key] = session
        self._living.add(session)
        task = self._tasks.spawn(session.run(), f"MCP session {server.label}")
        task.add_done_callback(lambda _: self._ended(session, key))
        return session

    def _make_room(self) -> None:
        most = self.settings.mcp.max_sessions
        if len(self._living) < most:
            return
        idle = next((one for one in self._sessions.values() if one.idle), None)
        # What is being closed may last a few seconds, and is bounded like what is open.
        if idle is None or len(self._living) >= 2 * most:
            raise McpUnreachable(
                "The router has as many sessions with MCP servers as it may.", sent=False
            )
        idle.retire()

    def _ended(self, session: McpSession, key: str) -> None:
        self._living.discard(session)
        if self._sessions.get(key) is session:
            del self._sessions[key]

    async def _prepare(self) -> None:
        """What takes a second, the first time, and so is done in a thread."""
        if self._prepared:
            return
        try:
            await asyncio.to_thread(importlib.import_module, "router.tools.mcp.session")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _SDK:
                raise
            raise McpNotInstalled(
                f"The router cannot use MCP servers; {install_extra('tools')}"
            ) from None
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        self._prepared = True
