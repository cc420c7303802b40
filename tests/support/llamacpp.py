"""llama.cpp's router mode, as far as it lists, loads and unloads models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.support.fleet import listening

__all__ = ["LlamaCpp"]


class LlamaCpp:
    """``status`` is each model's; a load stays ``loading`` until the test ends it.

    ``loads`` are the models that were asked for, in their order.
    """

    def __init__(self, *models: str) -> None:
        self.status = dict.fromkeys(models, "unloaded")
        self.loads: list[str] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its root URL."""
        app = web.Application()
        for path in ("/models", "/v1/models"):
            app.router.add_get(path, self._list)
        app.router.add_post("/models/load", self._load)
        app.router.add_post("/models/unload", self._unload)
        async with listening(app) as url:
            yield url

    async def _list(self, request: web.Request) -> web.Response:
        data = [
            {
                "id": name,
                "object": "model",
                "owned_by": "llamacpp",
                "created": 0,
                "aliases": [],
                "status": {"value": status, "args": ["llama-server"]},
            }
            for name, status in self.status.items()
        ]
        return web.json_response({"object": "list", "data": data})

    async def _load(self, request: web.Request) -> web.Response:
        name = (await request.json())["model"]
        self.loads.append(name)
        if name not in self.status:
            return _error(404, "model is not found")
        if self.status[name] != "unloaded":
            return _error(400, "model is already running")
        self.status[name] = "loading"
        await asyncio.sleep(0)
        return web.json_response({"success": True})

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["model"]
        if self.status.get(name) != "loaded":
            return _error(400, "model is not running")
        self.status[name] = "unloaded"
        return web.json_response({"success": True})


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)
