"""One session with an MCP server, on the official SDK.

What the SDK opens must be closed by the task that opened it, so a session is a task of its own,
``run``. It ends when the session is retired and nothing is under way. Requests run in its task
group: who waits for one may leave at any time, and the SDK still has its time to cancel it at the
server. A session is retired by the first thing that goes wrong with it, since the SDK may be left
with work that never ends; requests that are under way are let finish.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from router.settings.mcp import McpSettings
from router.telemetry.log import get_logger
from router.tools.mcp.causes import why_refused
from router.tools.mcp.connect import Connector
from router.tools.mcp.content import as_result
from router.tools.mcp.errors import (
    McpError,
    McpProtocolError,
    McpTimeout,
    McpToolError,
    McpUnreachable,
)
from router.tools.mcp.http import Listed
from router.tools.mcp.request import CURRENT, McpRequest
from router.tools.mcp.server import McpResult, McpServer, McpTool, Transport
from router.tools.mcp.watched import silence_sdk

__all__ = ["McpSession"]

_log = get_logger("router.mcp")

_T = TypeVar("_T")

_MOST_PAGES: Final = 20
_MOST_TOOLS: Final = 1000
_FRESH: Final = 10.0
"""Seconds without a request after which the server is asked whether it still knows the session."""

_PING: Final = 5.0
_LINGER: Final = 1.0
"""Seconds for what is still being sent when a session ends."""

_RESULT: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class McpSession:
    """See the module. ``spoken`` is the transport that the server is known to speak, or ``auto``;
    ``hosts`` decides of its addresses, None where any will do.
    """

    def __init__(
        self,
        server: McpServer,
        settings: McpSettings,
        *,
        spoken: Transport,
        hosts: Listed | None,
        tls: ssl.SSLContext,
    ) -> None:
        silence_sdk()
        self._settings = settings
        self._who = f"The MCP server {server.label!r}"
        self._connector = Connector(server, settings, spoken, hosts, tls, self._broke)
        self._client: ClientSession | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opened.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._under_way: set[McpRequest] = set()
        self._slots = asyncio.Semaphore(settings.max_calls)
        self._checking = asyncio.Lock()
        self._changed = asyncio.Event()
        self._used = _now()
        self._retired = False
        self._listed = False

    @property
    def transport(self) -> Transport:
        """What the server turned out to speak; ``auto`` where that is not known."""
        return self._connector.spoken

    @property
    def usable(self) -> bool:
        """Whether it takes requests, or will when it is open."""
        return not self._retired

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done."""
        return self._client is not None

    @property
    def idle(self) -> bool:
        """Whether it is open, and nothing is under way."""
        return self.is_open and not self._retired and not self._under_way

    @property
    def _has_handshake(self) -> bool:
        """Whether the server speaks the protocol of before 2026-07-28, and has sessions, too."""
        return self._client is not None and self._client.initialize_result is not None

    async def opened(self, until: float) -> None:
        """Wait until it is open; raises what went wrong, and McpTimeout at ``until``."""
        try:
            async with asyncio.timeout_at(until):
                await asyncio.shield(self._opened)
        except TimeoutError:
            raise McpTimeout(f"{self._who} did not open a session in time.") from None

    async def answers(self, until: float) -> bool:
        """Whether it can be used; where it was not for a while, the server is asked. One that has
        no sessions of its own forgets none.
        """
        if not self._has_handshake or _now() - self._used < _FRESH:
            return self.usable
        async with self._checking:
            if not self.usable or _now() - self._used < _FRESH:
                return self.usable
            try:
                await self._ask(min(until, _now() + _PING), lambda client: client.send_ping())
            except McpToolError:
                return True  # it says that it knows no pings, but it says so
            except McpError:
                return False
            return True

    async def list_tools(self, deadline: float) -> tuple[McpTool, ...]:
        """See ``McpClients.list_tools``."""
        tools: list[McpTool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._ask(deadline, _listing(params))
            tools += map(_tool, page.tools)
            cursor = page.next_cursor
            if not cursor:
                self._listed = True
                return tuple(tools)
            if len(tools) > _MOST_TOOLS:
                break
        raise McpProtocolError(f"{self._who} has more tools than the router reads.")

    async def call(self, name: str, arguments: dict[str, Any], deadline: float) -> McpResult:
        """See ``McpClients.call``."""
        if not self._has_handshake and not self._listed:
            # Since 2026-07-28 a listing says which arguments are sent as headers, too.
            await self.list_tools(deadline)
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        sent = types.CallToolRequest(params=params)
        # Not its ``call_tool``: that lists the tools again where it likes to, and runs their
        # schemas, which are the server's, over what came.
        result = await self._ask(deadline, lambda client: client.send_request(sent, _RESULT))
        if isinstance(result, types.InputRequiredResult):
            said = f"{self._who} asks for more input, which the router cannot give."
            raise McpToolError(said, types.INVALID_REQUEST)
        return as_result(result, self._settings.max_result_kb * 1024)

    def retire(self) -> None:
        """Take no more requests, and end when those that are under way have."""
        self._retired = True
        self._changed.set()

    def stop(self) -> None:
        """End now."""
        error = McpUnreachable("The router is shutting down.")
        self._connector.give_up(error)
        self._broke(error)

    async def run(self) -> None:
        """The session, from its beginning to its end."""
        error: McpError = McpUnreachable(f"{self._who} ended the session.", sent=False)
        try:
            await self._connector.run(self._serve)
        except McpError as failure:
            error = failure
        finally:
            self._retired = True
            if not self._opened.done():
                self._opened.set_exception(error)

    async def _serve(self, client: ClientSession) -> None:
        """Run requests until the session is retired, and the last one is over."""
        async with anyio.create_task_group() as group:
            self._client, self._group = client, group
            self._used = _now()
            if not self._opened.done():
                self._opened.set_result(None)
            while not self._retired or self._under_way:
                left = math.inf
                if not self._under_way:
                    left = self._used + self._settings.idle_seconds - _now()
                self._changed.clear()
                with anyio.move_on_after(max(left, 0)) as unused:
                    await self._changed.wait()
                if unused.cancelled_caught:
                    self._retired = True
        if self._connector.http is not None:
            with anyio.move_on_after(_LINGER):
                await self._connector.http.quiet()

    async def _ask(self, deadline: float, send: Callable[[ClientSession], Awaitable[_T]]) -> _T:
        """What ``send`` returns; it is sent once at most."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            said = f"{self._who} has more calls under way than the router allows."
            raise McpTimeout(said) from None
        try:
            return await self._sent(McpRequest(deadline), send)
        finally:
            self._slots.release()

    async def _sent(
        self, request: McpRequest, send: Callable[[ClientSession], Awaitable[_T]]
    ) -> _T:
        if self._retired or self._group is None:
            raise McpUnreachable(f"{self._who} ended the session.", sent=False)
        self._under_way.add(request)
        if self._connector.http is not None:
            self._connector.http.begin()
        self._group.start_soon(self._run, request, send)
        try:
            result: _T = await request.result()
        except McpToolError:
            raise
        except McpError as error:
            self.retire()
            if isinstance(error, McpUnreachable):  # of which others may be told, too
                raise McpUnreachable(error.message, sent=error.sent and request.sent) from error
            raise
        except TimeoutError:
            self.retire()
            raise McpTimeout(f"{self._who} did not answer in time.") from None
        except asyncio.CancelledError:
            if self._has_handshake and self._connector.spoken == "http":
                self.retire()  # its stream stays until the server ends it
            raise
        return result

    async def _run(
        self, request: McpRequest, send: Callable[[ClientSession], Awaitable[Any]]
    ) -> None:
        """What the SDK does for a request, its cancellation included."""
        assert self._client is not None
        CURRENT.set(request)
        try:
            with request.scope:
                request.answer(await send(self._client))
        except MCPError as error:
            server, transport = self._connector.server, self._connector.spoken
            request.fail(why_refused(error, request, server, transport))
        except Exception as error:  # whatever the SDK makes of a server that lies
            if not isinstance(error, ValidationError):
                kind = type(error).__name__
                _log.warning("MCP request broke", server=self._connector.server.label, error=kind)
            request.fail(McpProtocolError(f"{self._who} answers with something that is not MCP."))
        finally:
            request.fail(McpUnreachable(f"{self._who} ended the session before it answered."))
            self._under_way.discard(request)
            self._used = _now()
            if not self._under_way and self._connector.http is not None:
                self._connector.http.rest()
            self._changed.set()

    def _broke(self, error: McpError) -> None:
        """Nothing can be answered any more."""
        for request in list(self._under_way):
            request.fail(error)
        if not self._opened.done():
            self._opened.set_exception(error)
        self.retire()


def _listing(
    params: types.PaginatedRequestParams,
) -> Callable[[ClientSession], Awaitable[types.ListToolsResult]]:
    return lambda client: client.list_tools(params=params)


def _tool(tool: types.Tool) -> McpTool:
    hints = tool.annotations
    return McpTool(
        tool.name,
        tool.description,
        tool.input_schema,
        None if hints is None else hints.model_dump(by_alias=True, exclude_none=True),
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
