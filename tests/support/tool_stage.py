"""A router in front of a model that calls tools, and an MCP server that has them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from router.settings.schema import Dialect
from tests.support.calling_model import Said, calling, outputs_of
from tests.support.fleet import http_client, routed
from tests.support.order import check_order, parse_sse
from tests.support.tool_server import McpCalls, mcp_server
from tests.support.upstream import Received, Upstream

__all__ = ["ADD", "Answer", "Stage", "adds_twice", "kinds", "once", "stage"]

JSON = dict[str, Any]
Answer = Callable[[Received], Said]
"""What the model says to a request."""
ADD = ("m__add", {"a": 1, "b": 2})


@dataclass
class Stage:
    """A router in front of a model that calls tools, and the server that has them."""

    http: aiohttp.ClientSession
    url: str
    server: str
    upstream: Upstream
    calls: McpCalls

    def tool(self, **fields: Any) -> JSON:
        return {"type": "mcp", "server_label": "m", "server_url": self.server, **fields}

    async def post(self, tools: list[JSON] | None = None, **fields: Any) -> tuple[int, bytes]:
        body = {"model": "m", "input": "Go", "tools": tools or [self.tool()], **fields}
        async with self.http.post(f"{self.url}/v1/responses", json=body) as response:
            return response.status, await response.read()

    async def ask(self, tools: list[JSON] | None = None, **fields: Any) -> JSON:
        """The final Response object; a stream's is checked on its way."""
        status, body = await self.post(tools, **fields)
        assert status == 200, body
        if fields.get("stream"):
            return check_order(parse_sse(body))
        answer: JSON = orjson.loads(body)
        return answer


@asynccontextmanager
async def stage(
    answer: Answer,
    dialect: Dialect = "chat",
    *,
    transport: Any = "http",
    token: bool = False,
    mcp: JSON | None = None,
    **settings: Any,
) -> AsyncIterator[Stage]:
    calls = McpCalls()
    async with (
        mcp_server(calls, transport, token=token) as server,
        Upstream(default=calling(dialect, answer)) as upstream,
        http_client() as http,
    ):
        host = server.split("/")[2]
        tools = {"run": {"mcp": "router"}, "mcp": mcp or {}, **settings.pop("tools", {})}
        endpoint = {"name": "one", "dialect": dialect, "models": ["m"]}
        endpoint["url"] = upstream.address + ("" if dialect == "ollama" else "/v1")
        settings = {"fetch": {"hosts": [host]}, **settings}
        async with routed(endpoint, tools=tools, **settings) as url:
            yield Stage(http, url, server, upstream, calls)


def kinds(response: JSON) -> list[str]:
    return [item["type"] for item in response["output"]]


def adds_twice(request: Received) -> Said:
    outputs = outputs_of(request)
    if not outputs:
        return ["Adding. ", ADD, ("m__add", {"a": 3, "b": 4})]
    return ["Sums: " + ", ".join(outputs)]


def once(*calls: Any) -> Answer:
    """Makes these calls, then says what came of them."""
    return lambda request: [" | ".join(outputs_of(request))] if outputs_of(request) else calls
