"""A router in front of simulated backends, in a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from aiohttp import web

from router.app import DIRECT, create_app
from router.http.direct import DirectSite
from router.settings.schema import Settings
from router.simulate import DEFAULT_MODELS, Dialect, create_backend, listening

__all__ = ["ADMIN_KEY", "KEY", "MODELS", "serving"]

KEY = "sk-client"
ADMIN_KEY = "sk-admin"
MODELS = tuple(name for names in DEFAULT_MODELS.values() for name in names)
"""What the router serves, one model for each dialect."""

_PATIENCE = 20.0


def _settings(endpoints: list[dict[str, Any]], sections: dict[str, Any]) -> Settings:
    return Settings.model_validate(
        {
            "endpoints": endpoints,
            "logging": {"access": False},
            "state": {"url": "sqlite:///:memory:"},
            "auth": {"keys": [{"name": "tester", "key": KEY}]},
            "admin": {"key": ADMIN_KEY},
            "cache": {"mode": "on-request"},
            "server": {"drain_timeout": 1, "open_after": 15},
            **sections,
        }
    )


async def _serve(ready: Future[str], stop: asyncio.Event, sections: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        endpoints = []
        dialects: tuple[Dialect, ...] = ("responses", "chat", "ollama")
        for dialect in dialects:
            backend = create_backend(dialect, pace=0)
            url = await stack.enter_async_context(listening(backend))
            endpoints.append({"name": dialect, "url": url, "dialect": dialect})
        app = create_app(_settings(endpoints, sections))
        runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=1.0,
        )
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        await DirectSite(runner, app[DIRECT], "127.0.0.1", 0).start()
        ready.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await stop.wait()


@contextmanager
def serving(**sections: Any) -> Iterator[str]:
    """The address of a router that serves while the context lasts. Clients need ``KEY``."""
    ready: Future[str] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(_serve(ready, stop, sections))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run, name="router")
    thread.start()
    try:
        yield ready.result(_PATIENCE)
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join(_PATIENCE)
        assert not thread.is_alive()
