"""Whatever a server answers, and whoever leaves whenever: an answer, or one of the errors."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import orjson
import pytest

from router.tools.mcp import McpClients, McpError, McpServer
from tests.support.hostile_mcp import Wire, head, hostile, json_answer, well
from tests.support.mcp import mcp_clients, trusted
from tests.support.mcp_server import Kind, serving_mcp
from tests.support.seed import seed
from tests.support.waiting import until


def any_json(rng: random.Random, depth: int = 3) -> Any:
    kind = rng.randrange(9 if depth else 6)
    if kind == 6:
        return [any_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind > 6:
        names = ["content", "tools", "type", "text", "nextCursor", "name", "inputSchema", "error"]
        names += ["protocolVersion", "capabilities", "serverInfo", "resultType", "isError", "x"]
        chosen = rng.sample(names, rng.randrange(5))
        return {name: any_json(rng, depth - 1) for name in chosen}
    return [None, True, rng.randrange(-5, 10**9), 1.5, "text", ""][kind]


async def answer(rng: random.Random, wire: Wire) -> None:
    """Often well; else anything, in any of the ways that there are."""
    if rng.random() < 0.5:
        await well(wire)
        return
    wanted = wire.message.get("id", 1)
    number = rng.choice([wanted, wanted, wanted, None, "x", -1])
    message: Any = {"jsonrpc": "2.0", "id": number, "result": any_json(rng)}
    if rng.random() < 0.3:
        message = {"jsonrpc": "2.0", "id": number, "error": any_json(rng)}
    elif rng.random() < 0.2:
        message = any_json(rng)
    body = orjson.dumps(message)
    status = rng.choice([200, 200, 200, 200, 201, 202, 204, 301, 307, 400, 401, 404, 429, 500, 503])
    way = rng.randrange(4)
    if way == 0:
        await wire.send(head(status, "text/event-stream") + b"data: " + body + b"\n\n")
        raise ConnectionError
    if way == 1 and status == 200:
        await wire.send(head(200) + body[: rng.randrange(len(body) + 1)])
        raise ConnectionError
    await wire.send(json_answer(b"" if status in (202, 204) else body, status))


@pytest.mark.parametrize("number", range(15))
async def test_whatever_is_answered(number: int) -> None:
    rng = random.Random(f"{seed()} {number}")
    sent = 0

    async def play(wire: Wire) -> None:
        await answer(rng, wire)

    limits: dict[str, Any] = {"call_timeout": 0.15, "connect_timeout": 0.3}
    async with hostile({"*": play}) as server, mcp_clients(**limits) as clients:
        it = trusted(server.url())
        for _ in range(4):
            for ask in (clients.list_tools(it), clients.call(it, "t", {})):
                with contextlib.suppress(McpError):
                    await ask
            sent += 1
        assert server.messages.count("tools/call") <= sent


async def one(rng: random.Random, clients: McpClients, it: McpServer) -> None:
    """A call whose caller may leave at any moment."""
    call = asyncio.create_task(clients.call(it, "slow", {"seconds": rng.random() * 0.05}))
    await asyncio.sleep(rng.random() * 0.1)
    if rng.random() < 0.5:
        call.cancel()
    await asyncio.wait([call])
    if not call.cancelled() and call.exception() is None:
        assert call.result().text == "done"


@pytest.mark.parametrize("kind", ["http", "handshake", "sse"])
async def test_whoever_leaves(kind: Kind) -> None:
    rng = random.Random(seed())
    async with serving_mcp(kind) as server, mcp_clients(idle_seconds=0.2) as clients:
        it = trusted(server.url())
        for _ in range(3):
            await asyncio.gather(*(one(rng, clients, it) for _ in range(20)))
        assert server.calls.count("slow") <= 60
        assert (await clients.call(it, "add", {"a": 1, "b": 2})).text == "3"
        await until(lambda: clients.sessions == 0)
