"""A web server with files, which clients name by URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext

from aiohttp import web

__all__ = ["PNG", "Asked", "Files", "Handler", "file", "serving", "serving_at"]

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Asked:
    """A request as it came; ``address`` is the one that it was sent to."""

    address: str
    path: str
    headers: Mapping[str, str]


@dataclass
class Files:
    """The server. ``under_way`` are the requests that are being answered."""

    port: int
    asked: list[Asked] = field(default_factory=list)
    under_way: int = 0
    most: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def host(self) -> str:
        """For ``fetch.hosts``."""
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [asked.path for asked in self.asked]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a number of requests under way."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(condition)


def file(body: bytes = PNG, status: int = 200, **headers: str) -> Handler:
    """An answer with this body; an underscore in a header's name stands for a hyphen."""

    async def handler(request: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(
            status=status, body=body, headers={"Content-Type": "image/png", **named}
        )

    return handler


@asynccontextmanager
async def serving_at(
    host: str, handlers: Mapping[str, Handler], tls: SSLContext | None = None
) -> AsyncIterator[Files]:
    """The server on this address, and a free port."""

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        files.asked.append(Asked(address, request.raw_path, dict(request.headers)))
        files.under_way += 1
        files.most = max(files.most, files.under_way)
        try:
            async with files.changed:
                files.changed.notify_all()
            return await handlers.get(request.path, file(b"nothing here", 404))(request)
        finally:
            files.under_way -= 1
            async with files.changed:
                files.changed.notify_all()

    app = web.Application()
    app.router.add_route("GET", "/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0, ssl_context=tls)
    await site.start()
    files = Files(runner.addresses[0][1])
    try:
        yield files
    finally:
        await runner.cleanup()


def serving(**handlers: Handler) -> AbstractAsyncContextManager[Files]:
    """The server on 127.0.0.1, with a file under each of these names."""
    return serving_at("127.0.0.1", {f"/{name}": made for name, made in handlers.items()})
