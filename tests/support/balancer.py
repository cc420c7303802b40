"""A small balancer: asks ``/ready``, spreads requests over who is ready, and never asks twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

import aiohttp
from aiohttp import web

from tests.support.fleet import listening

__all__ = ["Backend", "Balancer", "balancing"]

_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0


class Backend:
    """One of those the requests are spread over. ``ready``: as far as the balancer knows;
    ``waiting`` requests have no answer's head yet, ``answered`` is how many got one.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.ready = False
        self.waiting = 0
        self.answered = 0


class Balancer:
    """Listens at ``url``. While ``watching`` is not set, it goes by what it knew before."""

    def __init__(self, urls: Sequence[str], http: aiohttp.ClientSession) -> None:
        self.url = ""
        self.backends = [Backend(url) for url in urls]
        self.watching = asyncio.Event()
        self.watching.set()
        self._http = http
        self._turn = count()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on to one backend, and its answer back as it comes."""
        ready = [backend for backend in self.backends if backend.ready]
        if not ready:
            return web.Response(status=503, text="The balancer knows nobody who is ready.")
        backend = ready[next(self._turn) % len(ready)]
        backend.waiting += 1
        try:
            theirs = await self._http.request(
                request.method, backend.url + request.path_qs, data=await request.read()
            )
        except aiohttp.ClientError as error:
            return web.Response(status=502, text=f"{backend.url}: {error!r}")
        finally:
            backend.waiting -= 1
        async with theirs:
            kind = {"Content-Type": theirs.headers.get("Content-Type", "text/plain")}
            answer = web.StreamResponse(status=theirs.status, headers=kind)
            await answer.prepare(request)
            async for data in theirs.content.iter_any():
                await answer.write(data)
            await answer.write_eof()
        backend.answered += 1
        return answer

    async def watch(self) -> None:
        """Ask everybody, again and again, whether they are ready."""
        while True:
            for backend in self.backends:
                await self.watching.wait()
                backend.ready = await self._is_ready(backend)
            await asyncio.sleep(_POLL_SECONDS)

    async def _is_ready(self, backend: Backend) -> bool:
        try:
            async with self._http.get(backend.url + "/ready") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def balancing(*urls: str) -> AsyncIterator[Balancer]:
    """A balancer in front of these base URLs, while the context lasts."""
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        balancer = Balancer(urls, http)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", balancer.handle)
        watching = asyncio.create_task(balancer.watch())
        try:
            async with listening(app) as balancer.url:
                yield balancer
        finally:
            watching.cancel()
            await asyncio.wait({watching})
