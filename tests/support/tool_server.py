"""Real MCP servers of the official SDK, over HTTP, SSE and stdio.

``python -m tests.support.tool_server`` is one that speaks over stdin and stdout.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.waiting import until

__all__ = ["TOKEN", "McpCalls", "mcp_server", "tool_server"]

TOKEN = "mcp-secret-token"


class McpCalls(list[tuple[str, Any]]):
    """What was called, in order. While ``gate`` is clear, ``slow`` does not answer."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = 0
        self.cancelled = 0


def tool_server(calls: McpCalls) -> MCPServer:
    """A server with a few tools."""
    server = MCPServer("tools of tests")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        calls.append(("add", (a, b)))
        return str(a + b)

    @server.tool()
    def fail(why: str = "no reason") -> str:
        """Fail."""
        calls.append(("fail", why))
        raise ToolError(why)

    @server.tool()
    async def slow(name: str = "x") -> str:
        """Answer once the gate is open."""
        calls.begun += 1
        try:
            await calls.gate.wait()
        except asyncio.CancelledError:
            calls.cancelled += 1
            raise
        calls.append(("slow", name))
        return f"slow {name}"

    @server.tool()
    def long(characters: int) -> str:
        """A long text."""
        return "x" * characters

    @server.tool()
    def environment(name: str) -> str:
        """A variable of the server's environment."""
        return os.environ.get(name, "")

    return server


class _Guarded:
    """Asks for ``TOKEN``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = Request(scope).headers.get("authorization")
            if given != f"Bearer {TOKEN}":
                await Response("Unauthorized", 401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


@asynccontextmanager
async def mcp_server(
    calls: McpCalls, transport: Literal["http", "sse"] = "http", *, token: bool = False
) -> AsyncIterator[str]:
    """A server on a loopback port; the URL that clients are given."""
    server = tool_server(calls)
    app: Starlette = server.streamable_http_app() if transport == "http" else server.sse_app()
    config = uvicorn.Config(
        _Guarded(app) if token else app,
        port=0,
        log_level="critical",
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    running = uvicorn.Server(config)
    task = asyncio.create_task(running.serve())
    try:
        await until(lambda: running.started)
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/{'mcp' if transport == 'http' else 'sse'}"
    finally:
        calls.gate.set()
        running.should_exit = True
        await task


if __name__ == "__main__":
    tool_server(McpCalls()).run("stdio")
