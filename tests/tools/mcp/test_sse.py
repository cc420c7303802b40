"""Servers of the older transport that misbehave: the stream is the session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson
import pytest

from router.tools.mcp import McpError, McpProtocolError, McpTimeout, McpUnauthorized, McpUnreachable
from tests.support.hostile_mcp import Hostile, Play, Wire, head, hostile, json_answer
from tests.support.mcp import mcp_clients, trusted
from tests.support.waiting import until

STREAM: Final = head(200, "text/event-stream")


def bounds(expected: type[McpError]) -> dict[str, Any]:
    """Little time where it is to run out."""
    time = 0.4 if expected is McpTimeout else 20.0
    return {"call_timeout": time, "connect_timeout": time, "max_message_mb": 0.25}


class Old:
    """A server whose answers go over the stream; ``endpoint`` is the first event's data."""

    def __init__(self, call: bytes | None = None, endpoint: str = "/messages?session_id=1") -> None:
        self._call = call
        self._endpoint = endpoint
        self._stream: Wire | None = None
        self.ended = asyncio.Event()

    async def stream(self, wire: Wire) -> None:
        self._stream = wire
        await wire.send(STREAM + f"event: endpoint\ndata: {self._endpoint}\n\n".encode())
        await self.ended.wait()
        raise ConnectionError

    async def message(self, wire: Wire) -> None:
        await wire.send(head(202, "text/plain", "Content-Length: 0"))
        assert self._stream is not None
        if wire.what == "initialize":
            value: Any = {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "serverInfo": {"name": "old", "version": "1"},
            }
            await self.say(wire, {"result": value})
        elif wire.what == "tools/call" and self._call is not None:
            await self._stream.send(self._call)
        elif wire.what == "tools/call":
            self.ended.set()
        elif "id" in wire.message:
            await self.say(wire, {"error": {"code": -32601, "message": "unknown"}})

    async def say(self, wire: Wire, more: dict[str, Any]) -> None:
        assert self._stream is not None
        message = {"jsonrpc": "2.0", "id": wire.message["id"], **more}
        await self._stream.send(b"event: message\ndata: " + orjson.dumps(message) + b"\n\n")

    def plays(self, **more: Play) -> Mapping[str, Play]:
        return {"GET": self.stream, "*": self.message, **more}


async def fails(server: Hostile, expected: type[McpError]) -> None:
    async with mcp_clients(**bounds(expected)) as clients:
        with pytest.raises(McpError) as caught:
            await clients.call(trusted(server.url(path="/sse"), transport="sse"), "t", {})
        await until(lambda: clients.sessions == 0, timeout=10)
    assert server.messages.count("tools/call") <= 1
    assert isinstance(caught.value, expected), repr(caught.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://127.0.0.1:1/messages",
        "//169.254.169.254/latest",
        "https://elsewhere.test/messages",
        "file:///etc/passwd",
        "http://[::1",
        "",
    ],
)
async def test_an_endpoint_on_another_origin(endpoint: str) -> None:
    async with hostile(Old(endpoint=endpoint).plays()) as server:
        await fails(server, McpProtocolError)
        assert server.messages == ["GET"]


def first(data: bytes, *, more: bytes = b"", then: bool = True) -> Play:
    """A stream that begins with this, goes on with ``more`` for ever, or stays, or ends."""

    async def play(wire: Wire) -> None:
        await wire.send(data)
        while more:
            await wire.send(more)
        if then:
            await asyncio.Event().wait()
        raise ConnectionError

    return play


@pytest.mark.parametrize(
    ("play", "expected"),
    [
        (first(b""), McpTimeout),
        (first(STREAM), McpTimeout),
        (first(STREAM + b"event: endpoint\ndata: /mess"), McpTimeout),
        (first(STREAM, then=False), McpError),
        (first(STREAM + b"data: {}\n\n"), McpProtocolError),
        (first(STREAM, more=b"x" * 65536), McpProtocolError),
        (first(STREAM, more=b": ping\n\n" * 1000), McpProtocolError),
        (first(json_answer(b"{}")), McpProtocolError),
        (first(json_answer(b"{}", 401)), McpUnauthorized),
        (first(json_answer(b"{}", 404)), McpProtocolError),
        (first(json_answer(b"{}", 500)), McpUnreachable),
        (first(json_answer(b"", 302, "Location: http://127.0.0.1:1/")), McpUnreachable),
    ],
)
async def test_no_session(play: Play, expected: type[McpError]) -> None:
    async with hostile({"GET": play}) as server:
        await fails(server, expected)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (None, McpUnreachable),
        (b"", McpTimeout),
        (b"data: {nonsense\n\n", McpTimeout),
        (b"data: " + b"x" * 2**20, McpError),
        (b": ping\n\n" * 2**19, McpError),
    ],
    ids=["ends", "hangs", "nonsense", "huge event", "endless"],
)
async def test_the_stream_in_a_call(call: bytes | None, expected: type[McpError]) -> None:
    async with hostile(Old(call).plays()) as server:
        await fails(server, expected)


@pytest.mark.parametrize(
    ("play", "expected"),
    [
        (first(b""), McpTimeout),
        (first(b"", then=False), McpUnreachable),
        (first(json_answer(b"", 500)), McpUnreachable),
        (first(json_answer(b"", 401)), McpUnauthorized),
        (first(json_answer(b"", 307, "Location: http://127.0.0.1:1/")), McpUnreachable),
    ],
)
async def test_the_message_of_a_call(play: Play, expected: type[McpError]) -> None:
    old = Old(b"")
    async with hostile({**old.plays(), "tools/call": play}) as server:
        await fails(server, expected)


async def test_a_stream_that_floods_while_nobody_calls() -> None:
    old = Old(b"")
    flood = b": ping\n\n" * 10_000

    async def stream(wire: Wire) -> None:
        serving = asyncio.ensure_future(old.stream(wire))
        try:
            await asyncio.sleep(0.2)
            while True:
                await wire.send(flood)
        finally:
            serving.cancel()

    async with (
        hostile({**old.plays(), "GET": stream}) as server,
        mcp_clients(max_message_mb=0.25) as clients,
    ):
        it = trusted(server.url(path="/sse"), transport="sse")
        with pytest.raises(McpError):
            await clients.list_tools(it)
        await until(lambda: clients.sessions == 0, timeout=10)


async def test_one_that_ended_is_replaced_before_a_call() -> None:
    olds = [Old(), Old()]
    value = {"result": {"content": [{"type": "text", "text": "well"}]}}

    async def stream(wire: Wire) -> None:
        await olds[0].stream(wire)

    async def message(wire: Wire) -> None:
        if wire.what == "tools/call":
            await wire.send(head(202, "text/plain", "Content-Length: 0"))
            await olds[0].say(wire, value)
        else:
            await olds[0].message(wire)

    async with hostile({"GET": stream, "*": message}) as server, mcp_clients() as clients:
        it = trusted(server.url(path="/sse"), transport="sse")
        assert (await clients.call(it, "t", {})).text == "well"
        ended = olds.pop(0)
        ended.ended.set()
        await until(lambda: clients.sessions == 0)
        assert (await clients.call(it, "t", {})).text == "well"
        assert server.messages.count("GET") == 2
        assert server.messages.count("tools/call") == 2
