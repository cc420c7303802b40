"""Cold models behind a whole router, over real sockets: who waits, and who goes elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp

from router.simulate import create_backend
from router.simulate.backend import BACKEND
from router.simulate.memory import Memory
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening, routed
from tests.support.router import Reply
from tests.support.waiting import until
from tests.support.watched import NEVER


class Client:
    """Asks the router for the model ``m``."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    def asks(self, *, stream: bool = False) -> asyncio.Task[Reply]:
        body = {"model": "m", "input": "count to 2", "stream": stream}
        return asyncio.create_task(
            fetch(self._http, "POST", f"{self._url}/v1/responses", json=body)
        )


@asynccontextmanager
async def ollamas(
    *load_seconds: float, policy: str = "least-loaded", **fields: Any
) -> AsyncIterator[tuple[Client, list[Memory]]]:
    """A router in front of cold Ollamas, which take so long to load; their memories."""
    async with AsyncExitStack() as stack:
        endpoints, memories = [], []
        for number, seconds in enumerate(load_seconds):
            app = create_backend("ollama", ["m"], pace=0, load_seconds=seconds)
            url = await stack.enter_async_context(listening(app))
            name = f"box{number}"
            endpoints.append(
                {"name": name, "url": url, "dialect": "ollama", "priority": number + 1, **fields}
            )
            memories.append(app[BACKEND].memory)
        balance = {"health_interval": 0.05, "policy": policy}
        url = await stack.enter_async_context(routed(*endpoints, balance=balance))
        http = await stack.enter_async_context(http_client())
        yield Client(http, url), memories


def loads(memories: list[Memory]) -> int:
    """How many loads there were, anywhere."""
    return sum(memory.loads.total() for memory in memories)


async def test_followers_wait_for_the_load_that_the_first_client_leaves() -> None:
    async with ollamas(NEVER, NEVER) as (client, memories):
        first = client.asks()
        await until(lambda: loads(memories) == 1)
        followers = [client.asks(stream=bool(number % 2)) for number in range(20)]
        first.cancel()
        await asyncio.wait(followers, timeout=0.2)
        assert loads(memories) == 1
        for memory in memories:
            memory.load_seconds = 0.1
        replies = await asyncio.gather(*followers)
        assert {reply.status for reply in replies} == {200}
        assert len({reply.headers["X-Pointsman-Endpoint"] for reply in replies}) == 1
        assert loads(memories) == 1


async def test_a_load_that_takes_too_long_is_given_up_for_another_endpoint() -> None:
    async with ollamas(NEVER, 0, policy="priority", timeouts={"load": 0.3}) as (client, memories):
        replies = await asyncio.gather(*(client.asks() for _ in range(5)))
        assert {reply.status for reply in replies} == {200}
        assert {reply.headers["X-Pointsman-Endpoint"] for reply in replies} == {"box1"}
        assert [dict(memory.loads) for memory in memories] == [{"m": 1}, {"m": 1}]
        # Nobody repeats it.
        reply = await client.asks()
        assert reply.headers["X-Pointsman-Endpoint"] == "box1"
        assert loads(memories) == 2


async def test_a_model_that_nobody_can_load_is_a_503_that_says_so() -> None:
    async with ollamas(NEVER, timeouts={"load": 0.2}) as (client, _):
        reply = await client.asks()
        assert (reply.status, reply.error["code"]) == (503, "model_load_failed")
        assert reply.error["message"] == (
            "Endpoint 'box0' could not load the model 'm': "
            "it was not done within 0.2 s (timeouts.load)."
        )
        assert reply.headers["Retry-After"] == "30"
