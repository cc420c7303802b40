"""What the prober makes of what endpoints tell of their models: memory and context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.support.fleet import listening
from tests.support.llamacpp import LlamaCpp
from tests.support.router import eventually
from tests.support.watched import Watched, one, state, told, watched


class Ollama:
    """Lists ``models``, and ``resident`` as what is in memory."""

    def __init__(self, *models: str) -> None:
        self.models = models
        self.resident: tuple[str, ...] = ()
        self.status = 200
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    @asynccontextmanager
    async def watched(self, **fields: Any) -> AsyncIterator[Watched]:
        app = web.Application()
        app.router.add_get("/api/tags", self._tags)
        app.router.add_get("/api/ps", self._ps)
        async with listening(app) as url, watched(one(url, "ollama", **fields)) as fleet:
            await eventually(lambda: fleet["one"].ready)
            yield fleet

    async def _tags(self, request: web.Request) -> web.Response:
        return web.json_response({"models": [{"name": name} for name in self.models]})

    async def _ps(self, request: web.Request) -> web.Response:
        resident = self.resident
        self.asked += 1
        await self.gate.wait()
        body = {"models": [{"name": name} for name in resident]}
        return web.json_response(body, status=self.status)


@pytest.mark.parametrize("asked_as", ["m", "m:latest"])
async def test_what_is_in_memory(asked_as: str) -> None:
    ollama = Ollama("m:latest", "other:7b")
    async with ollama.watched(models=[asked_as, "other:7b"]) as fleet:
        target, other = fleet.target(asked_as), fleet.target("other:7b")
        await told(target, loaded=False)
        assert state(target) == (False, "cold")
        ollama.resident = ("m:latest",)
        await told(target, loaded=True)
        assert state(target) == (True, "ready")
        assert state(other) == (False, "cold")
        ollama.resident = ("other:7b",)
        await told(target, loaded=False)
        assert state(other) == (True, "ready")


async def test_an_endpoint_that_does_not_tell_this_time_leaves_it_as_it_was() -> None:
    ollama = Ollama("a", "b")
    ollama.resident = ("a",)
    async with ollama.watched() as fleet:
        await told(fleet.target("b"), loaded=False)
        ollama.status, ollama.resident = 500, ("b",)
        await fleet.more()
        assert (fleet.target("a").loaded, fleet.target("b").loaded) == (True, False)
        assert fleet["one"].host.up
        # Of a model that nobody had asked for nothing is known.
        assert fleet["one"].catalogue.in_memory("a") is None


async def test_what_became_known_since_it_was_asked_counts_more() -> None:
    ollama = Ollama("m")
    async with ollama.watched() as fleet:
        target = fleet.target("m")
        await told(target, loaded=False)
        ollama.gate.clear()
        asked = ollama.asked
        await eventually(lambda: ollama.asked > asked)
        target.answered(0.0, None)
        seen = len(fleet.told)
        ollama.gate.set()
        await eventually(lambda: len(fleet.told) > seen)
        assert target.loaded
        # The next time it says so again.
        await told(target, loaded=False)


async def test_what_answers_is_in_memory_whatever_is_listed() -> None:
    ollama = Ollama("m")
    async with ollama.watched() as fleet:
        target = fleet.target("m")
        await told(target, loaded=False)
        target.take()
        target.answered(0.0, None)
        await fleet.more()
        assert target.loaded
        target.give_back(0.0)
        await told(target, loaded=False)


async def test_llamacpp_tells_in_its_list() -> None:
    server = LlamaCpp("a", "b")
    server.status["a"] = "loaded"
    async with server.serving() as url, watched(one(f"{url}/v1")) as fleet:
        await eventually(lambda: fleet["one"].ready)
        await told(fleet.target("b"), loaded=False)
        assert fleet.target("a").loaded
        server.status.update(a="sleeping", b="loaded")
        await told(fleet.target("a"), loaded=False)
        assert fleet.target("b").loaded


async def test_a_context_that_is_told_is_the_models_unless_one_is_configured() -> None:
    context = 4096

    async def models(request: web.Request) -> web.Response:
        rows = [{"id": name, "max_model_len": context} for name in ("a", "b")]
        return web.json_response({"data": rows})

    app = web.Application()
    app.router.add_get("/models", models)
    async with listening(app) as url:
        capabilities = {"b": {"context_length": 1000}}
        async with watched(one(url, capabilities=capabilities)) as fleet:
            group = await fleet.registry.group("a")
            assert group.contexts
            assert fleet.target("a").context == 4096
            assert fleet.target("b").context == 1000
            context = 8192
            await eventually(lambda: fleet.target("a").context == 8192)
            assert fleet.target("b").context == 1000
            assert fleet.target("a").loaded
