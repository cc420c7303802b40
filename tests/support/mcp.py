"""Clients of MCP servers for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any

from router.fetch.address import is_public
from router.fetch.guard import FetchGuard
from router.fetch.hosts import Address, HostCheck, Resolve
from router.settings.fetch import FetchSettings
from router.settings.mcp import McpSettings
from router.settings.tools import ToolsSettings
from router.tools.mcp import McpClients, McpServer

__all__ = ["mcp_clients", "trusted"]


@asynccontextmanager
async def mcp_clients(
    *,
    resolve: Resolve | None = None,
    public: Callable[[Address], bool] = is_public,
    listed: Sequence[str] | None = None,
    tls: SSLContext | None = None,
    call_timeout: float = 60.0,
    **settings: Any,
) -> AsyncIterator[McpClients]:
    """The clients of a router with these settings of ``tools.mcp``, and ``tools.call_timeout``."""
    guard = FetchGuard(
        FetchSettings(hosts=None if listed is None else tuple(listed)),
        hosts=HostCheck(resolve=resolve, public=public),
    )
    tools = ToolsSettings(call_timeout=call_timeout, mcp=McpSettings(**settings))
    clients = McpClients(tools, guard, tls=tls)
    try:
        yield clients
    finally:
        await clients.close()
        guard.close()
        assert clients.sessions == 0


def trusted(url: str, **fields: Any) -> McpServer:
    """A server of the configuration, which may be on this machine."""
    return McpServer("it", url=url, trusted=True, **fields)
