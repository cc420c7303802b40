"""Routers, simulated backends and whole fleets on real loopback sockets, while a context lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from router import create_app
from router.app import DIRECT
from router.http.direct import DirectSite
from router.settings.schema import Dialect
from router.simulate import create_backend
from router.simulate import listening as backend_listening

__all__ = ["DIALECTS", "MODELS", "OPENAI_STYLE", "http_client", "listening", "routed", "simulated"]

DIALECTS: tuple[Dialect, ...] = ("responses", "chat", "ollama", "messages")
OPENAI_STYLE: tuple[Dialect, ...] = ("responses", "chat", "ollama")
"""Those that embed and complete texts, too."""

MODELS: dict[Dialect, str] = {
    "responses": "sim-native",
    "chat": "sim-chat",
    "ollama": "sim-llama",
    "messages": "sim-claude",
}
"""What a simulated backend serves, by dialect; Ollama's without its ``:latest``."""


@asynccontextmanager
async def listening(app: web.Application, port: int = 0) -> AsyncIterator[str]:
    """Serve an application as ``pointsman serve`` does; its base URL, without a path."""
    runner = web.AppRunner(
        app, handle_signals=False, handler_cancellation=True, access_log=None, shutdown_timeout=1
    )
    await runner.setup()
    try:
        site: web.BaseSite = web.TCPSite(runner, "127.0.0.1", port)
        if (direct := app.get(DIRECT)) is not None:  # not one that a router is a part of
            site = DirectSite(runner, direct, "127.0.0.1", port)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def simulated(
    *dialects: Dialect, models: Sequence[str] | None = None, pace: float = 0
) -> AsyncIterator[list[dict[str, Any]]]:
    """A simulated backend per dialect; their endpoints, named after the dialect, as settings.

    ``pace`` is the pause between the pieces of a stream, in seconds.
    """
    async with AsyncExitStack() as stack:
        endpoints = []
        for dialect in dialects:
            app = create_backend(dialect, models, pace=pace)
            url = await stack.enter_async_context(backend_listening(app))
            endpoints.append({"name": dialect, "url": url, "dialect": dialect})
        yield endpoints


@asynccontextmanager
async def routed(*endpoints: dict[str, Any], **settings: Any) -> AsyncIterator[str]:
    """A router in front of these endpoints; its base URL, without a path.

    ``settings`` are sections of the configuration file. Streams that still run when the context
    ends are cut at once. A stream waits for output before it is opened, however busy the machine.
    """
    settings["server"] = {"drain_timeout": 0, "open_after": 15, **settings.get("server", {})}
    settings.setdefault("state", {"url": "sqlite:///:memory:"})
    settings["logging"] = {"access": False, **settings.get("logging", {})}
    app = create_app({"endpoints": list(endpoints), **settings})
    async with listening(app) as url:
        yield url


@asynccontextmanager
async def http_client(**options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """A client whose every request has a deadline."""
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout, **options) as session:
        yield session
