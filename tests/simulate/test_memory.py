"""How a simulated Ollama loads its models, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from router.simulate import create_backend, listening
from router.simulate.backend import BACKEND
from router.simulate.memory import Memory
from tests.support.fleet import listening as listening_with_cancellation
from tests.support.waiting import until

NEVER = 3600.0
CHAT = "/api/chat"
GENERATE = "/api/generate"
USER = [{"role": "user", "content": "Hello"}]


class Ollama:
    """A backend and a client of it."""

    def __init__(self, url: str, app: web.Application, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http
        self.memory: Memory = app[BACKEND].memory

    async def post(self, path: str, status: int = 200, **body: Any) -> Any:
        async with self._http.post(self._url + path, json={"model": "m", **body}) as answer:
            assert answer.status == status
            return await answer.json()

    async def chat(self, **body: Any) -> Any:
        return await self.post(CHAT, messages=USER, stream=False, **body)

    async def loaded(self) -> list[str]:
        async with self._http.get(f"{self._url}/api/ps") as answer:
            return [model["name"] for model in (await answer.json())["models"]]


@asynccontextmanager
async def ollama(
    http: aiohttp.ClientSession, *models: str, **options: Any
) -> AsyncIterator[Ollama]:
    app = create_backend("ollama", models or ["m"], pace=0, **options)
    async with listening(app) as url:
        yield Ollama(url, app, http)


async def test_a_load_takes_its_time_and_says_so(http: aiohttp.ClientSession) -> None:
    async with ollama(http, load_seconds=0.05) as one:
        first = await one.chat()
        assert first["load_duration"] >= 50_000_000
        assert first["total_duration"] >= first["load_duration"] + first["eval_duration"]
        second = await one.chat()
        assert second["load_duration"] < first["load_duration"]
        assert one.memory.loads == {"m": 1}


async def test_without_a_prompt_it_only_loads(http: aiohttp.ClientSession) -> None:
    async with ollama(http, load_seconds=0.05) as one:
        answer = await one.post(GENERATE, stream=False)
        assert answer.keys() == {"model", "created_at", "response", "done", "done_reason"}
        assert (answer["done"], answer["done_reason"]) == (True, "load")
        assert await one.loaded() == ["m"]
        answer = await one.post(GENERATE, keep_alive=0)
        assert answer["done_reason"] == "unload"
        assert await one.loaded() == []
        answer = await one.post(GENERATE, 404, model="x")
        assert answer == {"error": "model 'x' not found"}
        await one.post(GENERATE, 501, prompt="Why is the sky blue?")
        assert one.memory.loads == {"m": 1}


async def test_those_who_ask_for_the_same_wait_for_one_load(http: aiohttp.ClientSession) -> None:
    async with ollama(http, load_seconds=0.05) as one:
        await asyncio.gather(*(one.chat() for _ in range(10)))
        assert one.memory.loads == {"m": 1}


async def test_what_is_being_loaded_is_listed_already(http: aiohttp.ClientSession) -> None:
    async with ollama(http, load_seconds=NEVER) as one:
        client = asyncio.create_task(one.chat())
        await until(lambda: one.memory.loads)
        assert await one.loaded() == ["m"]
        one.memory.load_seconds = 0.0
        await client


@pytest.mark.parametrize("serve", [listening, listening_with_cancellation])
async def test_a_client_that_leaves_takes_its_load_along(
    http: aiohttp.ClientSession, serve: Any
) -> None:
    app = create_backend("ollama", ["m"], pace=0, load_seconds=NEVER)
    async with serve(app) as url:
        one = Ollama(url, app, http)
        first = asyncio.create_task(one.chat())
        await until(lambda: one.memory.loads == {"m": 1})
        first.cancel()
        await until(lambda: not one.memory.listed())
        # Who waits for the same model begins anew.
        second = asyncio.create_task(one.chat())
        await until(lambda: one.memory.loads == {"m": 2})
        third = asyncio.create_task(one.chat())
        second.cancel()
        await until(lambda: one.memory.loads == {"m": 3})
        one.memory.load_seconds = 0.0
        await third


async def test_another_context_is_another_load(http: aiohttp.ClientSession) -> None:
    async with ollama(http) as one:
        for context in (4096, 4096, 8192):
            await one.chat(options={"num_ctx": context})
        assert one.memory.loads == {"m": 2}
        await one.chat()
        assert one.memory.loads == {"m": 3}


async def test_the_one_used_least_recently_leaves(http: aiohttp.ClientSession) -> None:
    async with ollama(http, "a", "b", "c", max_loaded=2) as one:
        for model in ("a", "b", "a", "c"):
            await one.chat(model=model)
        assert await one.loaded() == ["a", "c"]


async def test_how_long_it_is_kept_is_remembered(http: aiohttp.ClientSession) -> None:
    async with ollama(http) as one:
        await one.chat(keep_alive="2h")
        first = one.memory.listed()["m"]
        await one.chat()
        assert one.memory.listed()["m"] >= first
        await one.chat(keep_alive=0)
        assert await one.loaded() == []


async def test_others_have_everything_in_memory(http: aiohttp.ClientSession) -> None:
    app = create_backend("chat", ["m"], pace=0, load_seconds=NEVER)
    async with listening(app) as url:
        one = Ollama(url, app, http)
        await one.post("/chat/completions", messages=USER)
        assert one.memory.loads == {}
