"""A router in front of one simulated backend that remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import web
from multidict import CIMultiDict

from router.dialects.dropped import DROPPED_PARAMETERS
from router.settings.schema import Dialect
from router.simulate import create_backend
from router.simulate import listening as backend_listening
from tests.support.fetch import fetch
from tests.support.fleet import http_client, routed
from tests.support.router import Reply
from tests.support.sockets import connected

__all__ = ["COLUMNS", "EMBEDDER", "MODEL", "ONLY", "Stand", "standing"]

MODEL: Final = "m"
EMBEDDER: Final = "m-embed"
ONLY: Final = "responses only"
"""An endpoint that has ``/v1/responses`` and nothing beside it."""

COLUMNS: Final[dict[str, Dialect]] = {
    "responses": "responses",
    ONLY: "responses",
    "chat": "chat",
    "ollama": "ollama",
    "messages": "messages",
}
"""The kinds of endpoints, and the dialects they are configured with."""

_OTHERS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank")

_PATIENCE: Final = 20

_VERSION: Final = {"anthropic-version": "2023-06-01"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Stand:
    """``received`` are path and body of what came to the backend, the latest last.

    ``cached``: the router's cache is on, and answers are those that it gives when asked again.
    """

    column: str
    url: str
    backend: str
    http: aiohttp.ClientSession
    received: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    cached: bool = False
    hits: int = 0

    async def post(self, path: str, body: dict[str, Any], *, socket: bool = False) -> Reply:
        """Ask the router, over a WebSocket or by a POST."""
        if self.cached:
            return await self._post_twice(path, body, socket=socket)
        return await self._post(path, body, {}, socket=socket)

    async def post_once(self, path: str, body: dict[str, Any]) -> Reply:
        """Ask the router for what its cache does not keep."""
        return await self._post(path, body, {}, socket=False)

    async def _post(
        self, path: str, body: dict[str, Any], headers: dict[str, str], *, socket: bool
    ) -> Reply:
        if not socket:
            return await fetch(self.http, "POST", self.url + path, json=body, headers=headers)
        body = dict(body)
        stream = body.pop("stream")
        async with connected(self.url, path, headers=headers) as connection:
            await connection.ws.send_str(orjson.dumps({"type": "response.create", **body}).decode())
            return _reply(await connection.events(), stream=stream)

    async def _post_twice(self, path: str, body: dict[str, Any], *, socket: bool) -> Reply:
        """Ask the endpoint through the router, and then the router again: its second answer.

        What the endpoint was asked in full is answered from the cache.
        """
        fresh = {"Cache-Control": "no-cache"}
        first = await self._post(path, body, fresh, socket=socket)
        for _ in range(_PATIENCE):
            again = await self._post(path, body, {}, socket=socket)
            assert again.status == first.status, again.body
            assert again.headers.get(DROPPED_PARAMETERS) == first.headers.get(DROPPED_PARAMETERS)
            known = again.headers.get("X-Cache")
            if known != "MISS" or again.status != 200 or DROPPED_PARAMETERS in again.headers:
                break
            await asyncio.sleep(0.01)  # the answer was there before it had been put away
        else:
            raise AssertionError("the second answer did not come from the cache")
        self.hits += known == "HIT"
        return again

    async def again(self) -> dict[str, Any]:
        """What the backend itself says to the latest request, whole: it always says the same."""
        path, asked = self.received[-1]
        given = {name: value for name, value in asked.items() if name != "stream_options"}
        if "stream" in given:
            given["stream"] = False
        reply = await fetch(self.http, "POST", self.backend + path, json=given, headers=_VERSION)
        self.received.pop()
        assert reply.status == 200, reply.body
        return reply.json


def _reply(events: list[dict[str, Any]], *, stream: bool) -> Reply:
    """What came over a WebSocket, as it would have come by HTTP."""
    headers: CIMultiDict[str] = CIMultiDict(events[0].pop("headers", {}))
    last = events[-1]
    if last["type"] == "error":
        return Reply(last["status"], headers, orjson.dumps({"error": last["error"]}))
    if not stream:
        headers["Content-Type"] = "application/json"
        return Reply(200, headers, orjson.dumps(last["response"]))
    headers["Content-Type"] = "text/event-stream; charset=utf-8"
    frames = [b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events]
    return Reply(200, headers, b"".join(frames))


@asynccontextmanager
async def standing(
    column: str, *, cached: bool = False, fields: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Stand]:
    """A router in front of an endpoint of this kind, which may have more ``fields``; ``settings``
    are sections of its own.
    """
    if cached:
        settings["cache"] = {"mode": "always", "semantic": {"enabled": False}}
    received: list[tuple[str, dict[str, Any]]] = []

    @web.middleware
    async def remember(request: web.Request, handler: Handler) -> web.StreamResponse:
        if column == ONLY and request.path in _OTHERS:
            raise web.HTTPNotFound
        if request.method == "POST":
            received.append((request.path, orjson.loads(await request.read())))
        return await handler(request)

    app = create_backend(COLUMNS[column], (MODEL, EMBEDDER), pace=0)
    app.middlewares.append(remember)
    endpoint = {"name": "one", "dialect": COLUMNS[column], **(fields or {})}
    async with (
        backend_listening(app) as address,
        routed({**endpoint, "url": address}, **settings) as url,
        http_client() as http,
    ):
        yield Stand(column, url, address.removesuffix("/v1"), http, received, cached)
