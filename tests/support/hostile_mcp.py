"""MCP servers that misbehave, on raw sockets.

They speak the protocol with a handshake well, up to the message that a ``Play`` is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

__all__ = ["Hostile", "Play", "Wire", "head", "hostile", "json_answer", "result", "well"]


@dataclass
class Wire:
    """One HTTP request, and the connection to answer it on."""

    method: str
    path: str
    headers: Mapping[str, str]
    message: dict[str, Any]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def what(self) -> str:
        """The method of MCP, or that of HTTP where there is no message."""
        return str(self.message.get("method", self.method))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Play = Callable[[Wire], Awaitable[None]]


@dataclass
class Hostile:
    """What came, in order."""

    port: int = 0
    seen: list[Wire] = field(default_factory=list)
    open: int = 0

    @property
    def messages(self) -> list[str]:
        return [wire.what for wire in self.seen]

    def url(self, host: str = "127.0.0.1", path: str = "/mcp") -> str:
        return f"http://{host}:{self.port}{path}"


@asynccontextmanager
async def hostile(
    plays: Mapping[str, Play] | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Hostile]:
    """The server; ``plays`` are by ``Wire.what``, ``*`` is for everything."""
    found = Hostile()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.open += 1
        try:
            while (wire := await _request(reader, writer)) is not None:
                found.seen.append(wire)
                play = (plays or {}).get(wire.what) or (plays or {}).get("*") or well
                await play(wire)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            found.open -= 1
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, host, 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Wire | None:
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = text.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Wire(method, path, headers, orjson.loads(body) if body else {}, reader, writer)


def head(status: int = 200, kind: str = "application/json", *more: str) -> bytes:
    """The head of an answer, with the headers ``more``."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", *more, "", ""]
    return "\r\n".join(lines).encode()


def result(wire: Wire, value: Any) -> bytes:
    """The result of a request, as JSON."""
    return orjson.dumps({"jsonrpc": "2.0", "id": wire.message["id"], "result": value})


def json_answer(body: bytes, status: int = 200, *more: str) -> bytes:
    return head(status, "application/json", f"Content-Length: {len(body)}", *more) + body


async def well(wire: Wire) -> None:
    """How it should be."""
    if wire.what == "initialize":
        value: Any = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }
        await wire.send(json_answer(result(wire, value), 200, "Mcp-Session-Id: s1"))
    elif wire.what == "tools/list":
        tool = {"name": "t", "inputSchema": {"type": "object"}}
        await wire.send(json_answer(result(wire, {"tools": [tool]})))
    elif wire.what == "tools/call":
        value = {"content": [{"type": "text", "text": "well"}]}
        await wire.send(json_answer(result(wire, value)))
    elif wire.what == "ping":
        await wire.send(json_answer(result(wire, {})))
    else:  # notifications, DELETE, and what it does not know
        status = 202 if wire.what.startswith("notifications/") else 400
        await wire.send(head(status, "text/plain", "Content-Length: 0"))
