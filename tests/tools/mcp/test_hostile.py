"""Servers that hang, die, lie, or never end: each is one error, in time, and leaves nothing."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Mapping
from typing import Any, Final

import orjson
import pytest

from router.tools.mcp import (
    McpClients,
    McpError,
    McpProtocolError,
    McpTimeout,
    McpToolError,
    McpUnauthorized,
    McpUnreachable,
)
from tests.support.hostile_mcp import Play, Wire, head, hostile, json_answer, result
from tests.support.mcp import mcp_clients, trusted
from tests.support.waiting import until

SSE: Final = "text/event-stream"
EVENT: Final = (
    b'data: {"jsonrpc":"2.0","method":"notifications/message",'
    b'"params":{"level":"info","data":1}}\n\n'
)


def says(data: bytes, *, then: str = "stay") -> Play:
    """Sends this, and stays, or closes the connection."""

    async def play(wire: Wire) -> None:
        await wire.send(data)
        if then == "close":
            raise ConnectionError
        await asyncio.Event().wait()

    return play


def answers(body: bytes, status: int = 200, *more: str) -> Play:
    async def play(wire: Wire) -> None:
        await wire.send(json_answer(body, status, *more))

    return play


def gives(value: object) -> Play:
    async def play(wire: Wire) -> None:
        await wire.send(json_answer(result(wire, value)))

    return play


def floods(start: bytes, piece: bytes) -> Play:
    async def play(wire: Wire) -> None:
        await wire.send(start)
        while True:
            await wire.send(piece)

    return play


async def wrong_id(wire: Wire) -> None:
    wire.message["id"] = "another"
    await wire.send(json_answer(result(wire, {"content": []})))


async def resumed_for_ever(wire: Wire) -> None:
    """The stream ends, and says to come back in a long time."""
    await wire.send(head(200, SSE) + b"id: 1\nretry: 99999999\ndata:\n\n")
    raise ConnectionError


async def resumed_again_and_again(wire: Wire) -> None:
    await wire.send(head(200, SSE) + b"id: 1\nretry: 0\ndata:\n\n")
    raise ConnectionError


NINE: Final = head(200, "application/json", "Content-Length: 9")
ASKS: Final = 'WWW-Authenticate: Bearer resource_metadata="http://127.0.0.1/"'
PLAYS: Mapping[str, tuple[Play, type[McpError]]] = {
    "hangs": (says(b""), McpTimeout),
    "hangs after the head": (says(NINE), McpTimeout),
    "hangs in the body": (says(NINE + b'{"js'), McpTimeout),
    "hangs in a stream": (says(head(200, SSE) + EVENT), McpTimeout),
    "half a head": (says(b"HTTP/1.1 200 OK\r\nContent-"), McpTimeout),
    "dies": (says(b"", then="close"), McpUnreachable),
    "dies after the head": (says(head(200, SSE), then="close"), McpUnreachable),
    "dies in the body": (says(NINE + b"{", then="close"), McpError),
    "dies in a stream": (says(head(200, SSE) + EVENT, then="close"), McpUnreachable),
    "resumed for ever": (resumed_for_ever, McpTimeout),
    "no HTTP": (says(b"\x00\xff garbage\r\n\r\n", then="close"), McpProtocolError),
    "no JSON": (answers(b"{nonsense"), McpProtocolError),
    "no UTF-8": (answers(b'{"jsonrpc":"2.0","id":1,"result":"\xff"}'), McpProtocolError),
    "no message": (answers(b'{"id": 1}'), McpProtocolError),
    "too deep": (answers(b"[" * 100_000), McpProtocolError),
    "HTML": (answers(b"<html>", 200, "Content-Type: text/html"), McpProtocolError),
    "a stream without sense": (
        says(head(200, SSE) + b"data: {nonsense\n\n", then="close"),
        McpProtocolError,
    ),
    "nothing follows": (says(head(202, "text/plain", "Content-Length: 0")), McpProtocolError),
    "no content at all": (says(head(204, "text/plain")), McpProtocolError),
    "a huge body": (floods(head(200, "application/json"), b" " * 65536), McpProtocolError),
    "a huge head": (floods(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000), McpProtocolError),
    "a huge event": (floods(head(200, SSE), b"data: " + b"x" * 65536), McpProtocolError),
    "endless events": (floods(head(200, SSE), EVENT * 100), McpProtocolError),
    "endless comments": (
        floods(head(200, SSE), b": ping\n\n" * 100),
        McpProtocolError,
    ),
    "compressed": (
        answers(gzip.compress(bytes(10**6)), 200, "Content-Encoding: gzip"),
        McpProtocolError,
    ),
    "401": (answers(b"", 401, ASKS), McpUnauthorized),
    "403": (answers(b"", 403), McpUnauthorized),
    "429": (answers(b"", 429), McpUnreachable),
    "500": (answers(b"", 500), McpUnreachable),
    "redirect inside": (answers(b"", 307, "Location: http://127.0.0.1:1/"), McpUnreachable),
    "redirect without sense": (answers(b"", 307, "Location: http://[::1"), McpUnreachable),
    "redirect nowhere": (answers(b"", 307), McpError),
    "redirect with a password": (answers(b"", 307, "Location: //u:p@127.0.0.1/"), McpUnreachable),
    "redirect in a circle": (answers(b"", 307, "Location: /mcp"), McpError),
}

IN_CALLS: Mapping[str, tuple[Play, type[McpError]]] = {
    **PLAYS,
    "resumed again and again": (resumed_again_and_again, McpProtocolError),
    "another's id": (wrong_id, McpTimeout),
    "no content": (gives({}), McpProtocolError),
    "content of no kind": (gives({"content": [{"type": "x"}]}), McpProtocolError),
    "content that is text": (gives({"content": "text"}), McpProtocolError),
    "a result that is a list": (answers(b'{"jsonrpc":"2.0","id":3,"result":[]}'), McpProtocolError),
    "an error": (
        answers(b'{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"no"}}', 400),
        McpToolError,
    ),
    "a session that is forgotten": (answers(b"", 404), McpUnreachable),
}


def bounds(expected: type[McpError]) -> dict[str, Any]:
    """Little time where it is to run out."""
    time = 0.4 if expected is McpTimeout else 20.0
    return {"call_timeout": time, "connect_timeout": time, "max_message_mb": 0.25}


def in_call(play: Play) -> dict[str, Play]:
    """For the call, and for what is asked to go on with its answer."""
    return {"tools/call": play, "GET": play}


async def called(clients: McpClients, url: str) -> McpError:
    """How a call fails: in time."""
    began = time.monotonic()
    with pytest.raises(McpError) as caught:
        await clients.call(trusted(url), "t", {})
    assert time.monotonic() - began < 10
    assert "127.0.0.1" not in caught.value.message
    assert "http:" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("name", IN_CALLS)
async def test_in_a_call(name: str) -> None:
    play, expected = IN_CALLS[name]
    async with hostile(in_call(play)) as server, mcp_clients(**bounds(expected)) as clients:
        error = await called(clients, server.url())
        assert isinstance(error, expected), repr(error)
        assert server.messages.count("tools/call") == 1
        if not isinstance(error, McpToolError):  # the session is of no more use
            await until(lambda: clients.sessions == 0, timeout=10)


@pytest.mark.parametrize("name", PLAYS)
async def test_before_a_call(name: str) -> None:
    play, expected = PLAYS[name]
    async with hostile({"*": play}) as server, mcp_clients(**bounds(expected)) as clients:
        with pytest.raises(McpError) as caught:
            await clients.list_tools(trusted(server.url()))
        assert isinstance(caught.value, expected), repr(caught.value)
        await until(lambda: clients.sessions == 0, timeout=10)


async def test_what_a_server_says_of_an_error_holds_no_secret() -> None:
    async def refuse(wire: Wire) -> None:
        said = f"no: {wire.headers['authorization']}, {wire.headers['x-key']}, " + "x" * 5000
        error = {"code": -32000, "message": said}
        await wire.send(json_answer(orjson.dumps({"jsonrpc": "2.0", "id": 3, "error": error})))

    async with hostile({"tools/call": refuse}) as server, mcp_clients() as clients:
        it = trusted(server.url(), authorization="s3cret-token", headers={"X-Key": "s3cret-key"})
        with pytest.raises(McpToolError) as caught:
            await clients.call(it, "t", {})
        assert "no: ***, ***" in caught.value.message
        assert "s3cret" not in repr(caught.value)
        assert len(caught.value.message) < 1200


async def test_a_router_without_file_descriptors_does_not_blame_the_server(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setattr("router.tools.mcp.http.is_shortage", lambda _: True)
    async with mcp_clients() as clients:
        with pytest.raises(McpUnreachable, match="no file descriptors"):
            await clients.list_tools(trusted(f"http://127.0.0.1:{unused_tcp_port}/"))
