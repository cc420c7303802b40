"""A server of the official SDK with a few tools, in a thread, or as a command on stdio."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.utilities.types import Image
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations

__all__ = ["Kind", "Serving", "made", "serving_mcp"]

Kind = Literal["http", "json", "handshake", "stateless", "sse"]
"""Streamable HTTP with streams or with whole answers, in today's protocol; the protocol with a
handshake, with sessions or without; and the older transport.
"""

Asgi = Callable[[Mapping[str, Any], Any, Any], Any]


@dataclass
class Serving:
    """What a server saw. ``requests`` are methods, paths and headers of HTTP."""

    port: int = 0
    kind: Kind = "http"
    calls: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    at_once: int = 0
    most: int = 0
    ends: list[Callable[[], object]] = field(default_factory=list)
    """Each ends a call of ``slow``, by any thread."""

    def end_slow(self) -> None:
        """What ``slow`` still does takes no longer."""
        for end in self.ends:
            end()

    def url(self, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{'/sse' if self.kind == 'sse' else '/mcp'}"


def made(seen: Serving) -> MCPServer:
    """The server."""
    server: MCPServer = MCPServer("test", log_level="CRITICAL")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def add(a: int, b: int) -> int:
        """Adds two numbers."""
        seen.calls.append("add")
        return a + b

    @server.tool()
    async def slow(seconds: float) -> str:
        """Takes its time."""
        ended = asyncio.Event()
        seen.ends.append(partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set))
        seen.calls.append("slow")
        seen.at_once += 1
        seen.most = max(seen.most, seen.at_once)
        try:
            with anyio.move_on_after(seconds):
                await ended.wait()
        except BaseException:
            seen.cancelled.append("slow")
            raise
        finally:
            seen.at_once -= 1
        return "done"

    @server.tool()
    async def fail() -> str:
        """Fails."""
        raise ValueError("it is broken")

    @server.tool(structured_output=False)
    async def picture() -> list[Any]:
        """Shows a picture."""
        return ["Here it is.", Image(data=b"\x89PNG" + bytes(96), format="png")]

    @server.tool()
    async def big(size: int) -> str:
        """Talks a lot."""
        return "x" * size

    return server


@asynccontextmanager
async def serving_mcp(
    kind: Kind = "http", token: str | None = None, tls: Path | None = None
) -> AsyncIterator[Serving]:
    """The server, in a thread, on every address of this machine, at a port of its own; with
    ``token`` for those who have it, with ``tls`` (certificate and key in a file) by https.
    """
    seen = Serving(kind=kind)
    server = made(seen)
    free = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app: Any
    if kind == "sse":
        app = server.sse_app(transport_security=free)
    else:
        app = server.streamable_http_app(
            json_response=kind == "json",
            stateless_http=kind == "stateless",
            transport_security=free,
        )
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:  # for TCP_NODELAY
        listening.bind(("0.0.0.0", 0))
        listening.listen(256)
        seen.port = listening.getsockname()[1]
        config = uvicorn.Config(_gate(app, seen, token), log_config=None, ssl_certfile=tls)
        run = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(run.serve([listening])))
        thread.start()
        try:
            yield seen
        finally:
            run.should_exit = run.force_exit = True
            await asyncio.to_thread(thread.join)


def _gate(app: Asgi, seen: Serving, token: str | None) -> Asgi:
    """Writes down what comes, and lets nobody in who has no token, or speaks today's protocol
    where the server is an older one.
    """

    async def gated(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen.requests.append((scope["method"], scope["path"], headers))
        status = 0
        if token is not None and headers.get("authorization") != f"Bearer {token}":
            status = 401
        old = seen.kind in ("handshake", "stateless")
        if old and headers.get("mcp-protocol-version", "").startswith("2026"):
            status = 400
        if not status:
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return gated


if __name__ == "__main__":
    made(Serving()).run("stdio")
