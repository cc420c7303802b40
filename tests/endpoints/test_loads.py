"""Loads over real sockets: one per model and endpoint, the router's own, whoever leaves."""

from __future__ import annotations

import asyncio
import time

import pytest

from router.core.upstream import UpstreamRequest
from router.errors import ModelLoadFailed
from tests.support.waiting import until
from tests.support.watched import LATEST, NEVER, cold_ollama, state, told


async def test_many_first_requests_cause_one_load() -> None:
    async with cold_ollama(load_seconds=NEVER) as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        assert state(deployment) == (False, "cold")
        waiting = [asyncio.create_task(fleet.loads.ensure(deployment)) for _ in range(20)]
        await until(lambda: memory.loads)
        assert deployment.load_began is not None
        assert deployment.predicted_load(time.monotonic()) > 0.0
        # Ollama lists the model by now; that it is in memory is not true yet.
        await fleet.more()
        assert not state(deployment)[0]
        memory.load_seconds = 0.1
        await asyncio.gather(*waiting)
        assert memory.loads == {LATEST: 1}
        assert state(deployment) == (True, "ready")
        assert deployment.predicted_load(time.monotonic()) == 0.0
        assert deployment.load_time.value is not None
        assert deployment.load_time.value >= 0.1
        await fleet.loads.ensure(deployment)
        assert memory.loads == {LATEST: 1}


async def test_the_first_client_leaves_and_the_load_goes_on() -> None:
    async with cold_ollama(load_seconds=NEVER) as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        first = asyncio.create_task(fleet.loads.ensure(deployment))
        await until(lambda: memory.loads)
        second = asyncio.create_task(fleet.loads.ensure(deployment))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        memory.load_seconds = 0.1
        await second
        assert state(deployment)[0]
        assert memory.loads == {LATEST: 1}


async def test_a_load_that_nobody_waits_for_any_more_goes_on() -> None:
    async with cold_ollama(load_seconds=NEVER) as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        client = asyncio.create_task(fleet.loads.ensure(deployment))
        await until(lambda: memory.loads)
        client.cancel()
        await fleet.more()
        memory.load_seconds = 0.1
        await told(deployment, loaded=True)
        assert memory.loads == {LATEST: 1}


async def test_a_load_is_for_the_context_of_the_requests_to_come() -> None:
    async with cold_ollama(num_ctx=4096, keep_alive="2m") as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        await fleet.loads.ensure(deployment)
        body = b"""{"model": "m", "stream": false, "messages": [{"role": "user", "content": "hi"}],
            "options": {"num_ctx": 4096}, "keep_alive": "2m"}"""
        answer = await fleet["one"].transport.send(UpstreamRequest("/api/chat", body, False))
        await answer.body()
        answer.close()
        assert memory.loads == {LATEST: 1}


async def test_an_ollama_that_is_started_again_is_cold_again() -> None:
    async with cold_ollama() as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        await fleet.loads.ensure(deployment)
        await fleet.more()
        assert state(deployment)[0]
        memory.unload(LATEST)
        await told(deployment, loaded=False)
        assert state(deployment) == (False, "cold")
        await fleet.loads.ensure(deployment)
        assert memory.loads == {LATEST: 2}


async def test_models_of_one_endpoint_are_loaded_side_by_side() -> None:
    async with cold_ollama("a", "b") as (fleet, memory):
        await asyncio.gather(*(fleet.loads.ensure(fleet.deployment(name)) for name in ("a", "b")))
        assert memory.loads == {"a": 1, "b": 1}


async def test_what_is_pushed_out_of_memory_is_cold() -> None:
    async with cold_ollama("a", "b", max_loaded=1) as (fleet, _):
        await fleet.loads.ensure(fleet.deployment("a"))
        await fleet.loads.ensure(fleet.deployment("b"))
        await told(fleet.deployment("a"), loaded=False)
        assert fleet.deployment("b").loaded


async def test_a_model_can_be_kept_warm_and_put_out() -> None:
    async with cold_ollama() as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        await fleet.loads.warm(deployment, "10m")
        assert state(deployment)[0]
        soon = memory.listed()[LATEST]
        await fleet.loads.warm(deployment, "2h")
        assert memory.loads == {LATEST: 1}
        assert memory.listed()[LATEST] > soon
        await fleet.loads.warm(deployment, 0)
        assert not state(deployment)[0]
        assert memory.listed() == {}
        # Who comes now loads it again.
        await fleet.loads.ensure(deployment)
        assert memory.loads == {LATEST: 2}


async def test_a_model_that_is_being_put_out_is_loaded_afterwards() -> None:
    async with cold_ollama() as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        await fleet.loads.ensure(deployment)
        leaving = asyncio.create_task(fleet.loads.warm(deployment, "0s"))
        await until(lambda: not deployment.loaded)
        await fleet.loads.ensure(deployment)
        await leaving
        assert state(deployment)[0]
        assert memory.loads == {LATEST: 2}


async def test_warming_waits_for_the_load_under_way() -> None:
    async with cold_ollama(load_seconds=NEVER) as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        client = asyncio.create_task(fleet.loads.ensure(deployment))
        await until(lambda: memory.loads)
        warm = asyncio.create_task(fleet.loads.warm(deployment, "2h"))
        await asyncio.sleep(0)
        memory.load_seconds = 0.1
        await asyncio.gather(client, warm)
        assert memory.loads == {LATEST: 1}


async def test_an_endpoint_that_is_gone_gives_up_its_loads() -> None:
    async with cold_ollama(load_seconds=NEVER) as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        client = asyncio.create_task(fleet.loads.ensure(deployment))
        await until(lambda: memory.loads)
        fleet.loads.drop(fleet["one"])
        with pytest.raises(ModelLoadFailed, match="it was given up"):
            await client
        assert deployment.load_began is None
        await until(lambda: not memory.listed())


async def test_closing_leaves_nobody_waiting() -> None:
    async with cold_ollama(load_seconds=NEVER) as (fleet, _):
        client = asyncio.create_task(fleet.loads.ensure(fleet.deployment(LATEST)))
        await asyncio.sleep(0)  # the load has not even begun to run
        await fleet.loads.close()
        with pytest.raises(ModelLoadFailed):
            await client
