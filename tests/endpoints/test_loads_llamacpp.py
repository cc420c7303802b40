"""Loads of llama.cpp's router mode, which answers before it has loaded anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from router.endpoints import loading as loading_module
from router.errors import ModelLoadFailed, NotSupported
from router.simulate import create_backend
from tests.support.fleet import listening
from tests.support.llamacpp import LlamaCpp
from tests.support.waiting import until
from tests.support.watched import Watched, one, state, told, watched


@asynccontextmanager
async def llamacpp(*models: str, path: str = "") -> AsyncIterator[tuple[Watched, LlamaCpp]]:
    server = LlamaCpp(*models)
    async with server, watched(one(server.address + path)) as fleet:
        await until(lambda: fleet["one"].ready)
        for model in models:
            await told(fleet.deployment(model), loaded=False)
        yield fleet, server


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_module, "_POLL_SECONDS", 0.02)


@pytest.mark.usefixtures("polls")
@pytest.mark.parametrize("path", ["", "/v1"])
async def test_llamacpp_is_waited_for_although_it_answers_at_once(path: str) -> None:
    async with llamacpp("m", path=path) as (fleet, server):
        deployment = fleet.deployment("m")
        clients = [asyncio.create_task(fleet.loads.ensure(deployment)) for _ in range(5)]
        await until(lambda: server.status["m"] == "loading")
        await fleet.more()
        assert not state(deployment)[0]
        server.status["m"] = "loaded"
        await asyncio.gather(*clients)
        assert state(deployment)[0]
        assert server.loads == ["m"]
        await fleet.loads.warm(deployment, 0)
        assert server.status["m"] == "unloaded"
        assert not state(deployment)[0]


@pytest.mark.usefixtures("polls")
async def test_llamacpp_gives_up_a_load() -> None:
    async with llamacpp("m") as (fleet, server):
        deployment = fleet.deployment("m")
        client = asyncio.create_task(fleet.loads.ensure(deployment))
        await until(lambda: server.status["m"] == "loading")
        server.status["m"] = "unloaded"
        with pytest.raises(ModelLoadFailed, match="did not go on"):
            await client
        assert state(deployment) == (False, "cooling")


@pytest.mark.usefixtures("polls")
async def test_llamacpp_refuses_what_somebody_else_is_loading_already() -> None:
    async with llamacpp("m") as (fleet, server):
        deployment = fleet.deployment("m")
        server.status["m"] = "loading"
        client = asyncio.create_task(fleet.loads.ensure(deployment))
        await until(lambda: server.loads)
        server.status["m"] = "loaded"
        await client
        assert state(deployment)[0]


@pytest.mark.usefixtures("polls")
async def test_what_llamacpp_has_put_to_sleep_wakes_up_by_itself() -> None:
    async with llamacpp("m") as (fleet, server):
        deployment = fleet.deployment("m")
        server.status["m"] = "sleeping"
        await fleet.loads.ensure(deployment)
        assert not state(deployment)[0]
        assert deployment.cool_until == 0.0


async def test_one_that_tells_nothing_is_not_asked() -> None:
    async with listening(create_backend("chat", ["m"])) as url, watched(one(f"{url}/v1")) as fleet:
        await until(lambda: fleet["one"].ready)
        deployment = fleet.deployment("m")
        await fleet.more()
        assert state(deployment)[0]
        with pytest.raises(NotSupported):
            await fleet.loads.warm(deployment, None)
