"""A search service and web pages for tests. 127.0.0.2 plays a public address, as in the tests of
the guard: 127.0.0.1 is inside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import orjson
from aiohttp import web

from router.fetch.guard import FetchGuard
from router.fetch.hosts import HostCheck
from router.settings.fetch import FetchSettings
from router.settings.web_search import WebSearchSettings
from router.tools.web_search.options import SearchOptions, read_options
from router.tools.web_search.outcome import SearchOutcome
from router.tools.web_search.tool import WebSearch
from tests.support.files import Handler

__all__ = [
    "KEY",
    "PUBLIC",
    "AskedOfService",
    "Service",
    "guard",
    "later",
    "options",
    "run",
    "service",
    "settings",
    "web_search",
]

PUBLIC = "127.0.0.2"
KEY = "sk-search-secret"


@dataclass(frozen=True)
class AskedOfService:
    """A request as the search service got it; ``body`` is its JSON."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Service:
    """A running search service."""

    url: str
    asked: list[AskedOfService] = field(default_factory=list)


@asynccontextmanager
async def service(answer: Handler | Any) -> AsyncIterator[Service]:
    """A search service on 127.0.0.1, which gives this answer: JSON, or what a handler makes."""

    async def handle(request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        query, headers = dict(request.query), dict(request.headers)
        body = orjson.loads(raw) if raw else None
        served.asked.append(AskedOfService(request.method, request.path, query, headers, body))
        if callable(answer):
            made: web.StreamResponse = await answer(request)
            return made
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served = Service(f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield served
    finally:
        await runner.cleanup()


def settings(url: str = "http://127.0.0.1:1", **fields: Any) -> WebSearchSettings:
    """Settings of a SearXNG, unless they say otherwise."""
    return WebSearchSettings.model_validate({"provider": "searxng", "url": url, **fields})


def guard(
    resolved: Sequence[Sequence[str]] = ((PUBLIC,),), asked: list[str] | None = None
) -> FetchGuard:
    """A guard for which names have each of these addresses in turn, the last for ever."""
    answers = list(resolved)

    async def resolve(host: str, port: int) -> Sequence[str]:
        if asked is not None:
            asked.append(host)
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def is_public(address: IPv4Address | IPv6Address) -> bool:
        return str(address) == PUBLIC

    return FetchGuard(FetchSettings(), hosts=HostCheck(resolve=resolve, public=is_public))


@asynccontextmanager
async def web_search(
    url: str = "http://127.0.0.1:1", pages: FetchGuard | None = None, **fields: Any
) -> AsyncIterator[WebSearch]:
    """The tool, on a search service at ``url``."""
    tool = WebSearch(settings(url, **fields), pages or guard())
    try:
        yield tool
    finally:
        await tool.close()


def options(**fields: Any) -> SearchOptions:
    return read_options({"type": "web_search", **fields}, "tools[0]")


def later(seconds: float = 30.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def run(
    tool: WebSearch, given: SearchOptions | None = None, *, used: int = 0, **arguments: Any
) -> SearchOutcome:
    """What a call with these arguments comes to."""
    text = orjson.dumps(arguments).decode()
    return await tool.run(given or SearchOptions(), text, deadline=later(), used=used)
