"""Two hundred responses with tools at once, whose servers hang, die and lie; and routers that are
killed in the middle of a call.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support.calling_model import Said, asked_tools, calling, outputs_of
from tests.support.order import check_order, parse_sse
from tests.support.processes import Processes
from tests.support.router import endpoint, routing
from tests.support.tool_server import McpCalls, mcp_server
from tests.support.upstream import Received, Upstream
from tests.support.waiting import until

JSON = dict[str, Any]
Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

LOOPS = 200


async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


async def lies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request with the answer to another one, and then with garbage."""
    await reader.readuntil(b"\r\n\r\n")
    body = orjson.dumps({"jsonrpc": "2.0", "id": 4711, "result": {"tools": "none"}})
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(body) + body + b"\x00garbage")
    await writer.drain()
    await reader.read()


async def never_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends events for ever, none of them an answer."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    while not writer.is_closing():
        writer.write(b": nothing\n\n")
        await writer.drain()
        await asyncio.sleep(0.01)


@asynccontextmanager
async def hostile(behave: Behave) -> AsyncIterator[str]:
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await behave(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


def says(request: Received) -> Said:
    """Calls what it is offered: twice if it can be, and something slow."""
    outputs = outputs_of(request)
    if len(outputs) >= 4 or not asked_tools(request):
        return ["Done: " + "; ".join(outputs)]
    return [("m__add", {"a": len(outputs), "b": 1}), ("m__slow", {"name": "x"})]


@pytest.mark.soak
async def test_many_loops_leave_nothing_behind() -> None:
    calls = McpCalls()
    calls.gate.set()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        good = await enter(mcp_server(calls))
        servers = [good, await enter(mcp_server(calls, "sse"))]
        servers += [await enter(hostile(one)) for one in (hangs, dies, lies, never_ends)]
        upstream = await enter(Upstream(default=calling("chat", says)))
        hosts = [server.split("/")[2] for server in servers]
        router = await enter(
            routing(
                endpoint(upstream, "chat", max_in_flight=256),
                fetch={"hosts": hosts},
                tools={"call_timeout": 20, "mcp": {"connect_timeout": 5, "max_sessions": 256}},
            )
        )

        async def ask(number: int) -> str:
            server = servers[number % len(servers)]
            tool = {"type": "mcp", "server_label": "m", "server_url": server}
            stream = bool(number // len(servers) % 2)
            reply = await router.ask(tools=[tool], stream=stream, store=False)
            if reply.status != 200:
                assert reply.status == 424, reply.body
                return "refused"
            final = check_order(parse_sse(reply.body)) if stream else reply.json
            assert final["status"] == "completed"
            return str([item["type"] for item in final["output"]])

        told = Counter(await asyncio.gather(*map(ask, range(LOOPS))))
        well = ["mcp_list_tools", *["mcp_call"] * 4, "message"]
        share = LOOPS // len(servers)
        assert told[str(well)] >= 2 * share
        assert told["refused"] >= 4 * share
        assert sum(told.values()) == LOOPS
        await router.idle()


@pytest.mark.soak
async def test_a_call_is_made_once_though_its_router_is_killed(tmp_path: Path) -> None:
    calls = McpCalls()

    def answer(request: Received) -> Said:
        return ["Done"] if outputs_of(request) else [("m__slow", {})]

    with Processes(tmp_path) as processes:
        async with (
            mcp_server(calls) as server,
            Upstream(default=calling("chat", answer)) as upstream,
            aiohttp.ClientSession() as http,
        ):
            router = await processes.router(
                "killed",
                {
                    "endpoints": [endpoint(upstream, "chat")],
                    "state": {"url": f"sqlite:///{tmp_path}/state.db", "lease": 1},
                    "tools": {"mcp": {"servers": [{"label": "m", "url": server}]}},
                },
            )
            tools = [{"type": "mcp", "server_label": "m"}]
            body = {"model": "m", "input": "Go", "background": True, "tools": tools}
            async with http.post(f"{router.url}/v1/responses", json=body) as made:
                url = f"{router.url}/v1/responses/{(await made.json())['id']}"
            await until(lambda: calls.begun == 1)
            router.kill()
            router.start()
            await router.ready()

            async def over() -> JSON | None:
                async with http.get(url) as response:
                    found: JSON = await response.json()
                return found if found["status"] not in ("queued", "in_progress") else None

            response = await until(over)
            assert response["status"] == "failed"
            assert calls.begun == 1
