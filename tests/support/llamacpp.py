"""llama.cpp's server: as it starts, and in router mode as far as it lists and loads models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.support.fleet import listening
from tests.support.speech import SPEECH

__all__ = ["LlamaCpp", "Starting"]


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


class Starting:
    """llama.cpp with one model, ``m``: as long as ``loading`` it answers everything with 503.

    ``answered`` are the paths that it was asked for, with the status. With ``lists`` it lists its
    model even then.
    """

    def __init__(self, *, lists: bool = False) -> None:
        self.loading = True
        self.lists = lists
        self.answered: list[tuple[str, int]] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its root URL."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        async with listening(app) as url:
            yield url

    def statuses(self, path: str) -> list[int]:
        """The statuses of the answers to requests for a path."""
        return [status for asked, status in self.answered if asked == path]

    async def _answer(self, request: web.Request) -> web.Response:
        answer = self._of(request.path)
        self.answered.append((request.path, answer.status))
        return answer

    def _of(self, path: str) -> web.Response:
        if self.loading and not (self.lists and path == "/v1/models"):
            error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
            return web.json_response({"error": error}, status=503)
        if path == "/health":
            return web.json_response({"status": "ok"})
        if path == "/v1/models":
            entry = {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}}
            return web.json_response({"object": "list", "data": [entry]})
        return web.Response(body=SPEECH["chat"].whole, content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)
