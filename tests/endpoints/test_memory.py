"""What the prober makes of what endpoints tell of their models: memory and context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.llamacpp import LlamaCpp
from tests.support.upstream import Script, Upstream, Wire, json_answer
from tests.support.waiting import until
from tests.support.watched import Watched, one, state, told, watched


class Ollama(Upstream):
    """Lists ``models``, and ``resident`` as what is in memory.

    What it tells of its memory has ``status``, waits for ``telling``, and is counted by ``asked``.
    """

    def __init__(self, *models: str) -> None:
        super().__init__(models=models, on_get=self._lists)
        self.resident: tuple[str, ...] = ()
        self.status = 200
        self.asked = 0
        self.telling = asyncio.Event()
        self.telling.set()

    @asynccontextmanager
    async def watched(self, **fields: Any) -> AsyncIterator[Watched]:
        async with self, watched(one(self.address, "ollama", **fields)) as fleet:
            await until(lambda: fleet["one"].ready)
            yield fleet

    async def _lists(self, wire: Wire) -> None:
        if wire.request.path == "/api/tags":
            await _named(self.models)(wire)
            return
        resident = self.resident
        self.asked += 1
        await self.telling.wait()
        await _named(resident, self.status)(wire)


def _named(models: tuple[str, ...], status: int = 200) -> Script:
    return json_answer({"models": [{"name": name} for name in models]}, status)


@pytest.mark.parametrize("asked_as", ["m", "m:latest"])
async def test_what_is_in_memory(asked_as: str) -> None:
    ollama = Ollama("m:latest", "other:7b")
    async with ollama.watched(models=[asked_as, "other:7b"]) as fleet:
        deployment, other = fleet.deployment(asked_as), fleet.deployment("other:7b")
        await told(deployment, loaded=False)
        assert state(deployment) == (False, "cold")
        ollama.resident = ("m:latest",)
        await told(deployment, loaded=True)
        assert state(deployment) == (True, "ready")
        assert state(other) == (False, "cold")
        ollama.resident = ("other:7b",)
        await told(deployment, loaded=False)
        assert state(other) == (True, "ready")


async def test_an_endpoint_that_does_not_tell_this_time_leaves_it_as_it_was() -> None:
    ollama = Ollama("a", "b")
    ollama.resident = ("a",)
    async with ollama.watched() as fleet:
        await told(fleet.deployment("b"), loaded=False)
        ollama.status, ollama.resident = 500, ("b",)
        await fleet.more()
        assert (fleet.deployment("a").loaded, fleet.deployment("b").loaded) == (True, False)
        assert fleet["one"].host.up
        # Of a model that nobody had asked for nothing is known.
        assert fleet["one"].catalogue.in_memory("a") is None


async def test_what_became_known_since_it_was_asked_counts_more() -> None:
    ollama = Ollama("m")
    async with ollama.watched() as fleet:
        deployment = fleet.deployment("m")
        await told(deployment, loaded=False)
        ollama.telling.clear()
        asked = ollama.asked
        await until(lambda: ollama.asked > asked)
        deployment.answered(0.0, None)
        seen = len(fleet.told)
        ollama.telling.set()
        await until(lambda: len(fleet.told) > seen)
        assert deployment.loaded
        # The next time it says so again.
        await told(deployment, loaded=False)


async def test_what_answers_is_in_memory_whatever_is_listed() -> None:
    ollama = Ollama("m")
    async with ollama.watched() as fleet:
        deployment = fleet.deployment("m")
        await told(deployment, loaded=False)
        deployment.take()
        deployment.answered(0.0, None)
        await fleet.more()
        assert deployment.loaded
        deployment.give_back(0.0)
        await told(deployment, loaded=False)


async def test_llamacpp_tells_in_its_list() -> None:
    server = LlamaCpp("a", "b")
    server.status["a"] = "loaded"
    async with server, watched(one(f"{server.address}/v1")) as fleet:
        await until(lambda: fleet["one"].ready)
        await told(fleet.deployment("b"), loaded=False)
        assert fleet.deployment("a").loaded
        server.status.update(a="sleeping", b="loaded")
        await told(fleet.deployment("a"), loaded=False)
        assert fleet.deployment("b").loaded


async def test_a_context_that_is_told_is_the_models_unless_one_is_configured() -> None:
    context = 4096

    async def models(wire: Wire) -> None:
        rows = [{"id": name, "max_model_len": context} for name in ("a", "b")]
        await json_answer({"data": rows})(wire)

    async with Upstream(on_get=models) as upstream:
        capabilities = {"b": {"context_length": 1000}}
        async with watched(one(upstream.address, capabilities=capabilities)) as fleet:
            group = await fleet.registry.group("a")
            assert group.contexts
            assert fleet.deployment("a").context == 4096
            assert fleet.deployment("b").context == 1000
            context = 8192
            await until(lambda: fleet.deployment("a").context == 8192)
            assert fleet.deployment("b").context == 1000
            assert fleet.deployment("a").loaded
