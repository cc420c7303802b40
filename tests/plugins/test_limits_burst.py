"""Many requests at once against one budget in Redis: counted exactly, and none is turned away for
a store that is well.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import aiohttp
import orjson
import pytest

from tests.support.redis import redis_server
from tests.support.router import endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole

_AT_ONCE = 2000
_FIT = 50
_TOKENS = 20
_PROMPT = 9
"""What "x" is estimated at: a token, four for its message, four for the prompt."""


def using(tokens: int) -> Upstream:
    """An endpoint whose every answer used so many tokens."""
    answer = orjson.loads(SPEECH["chat"].whole)
    answer["usage"] = {
        "prompt_tokens": _PROMPT, "completion_tokens": tokens - _PROMPT, "total_tokens": tokens,
    }  # fmt: skip
    server = Upstream()
    server.default = whole(orjson.dumps(answer))
    return server


@pytest.mark.parametrize(("routers", "on_down"), [(1, "fail_open"), (2, "fail_closed")])
async def test_a_burst_gets_exactly_what_the_budget_has(routers: int, on_down: str) -> None:
    budget = {"period": "total", "tokens": _FIT * _TOKENS}
    keys = [{"name": "a", "key": "sk-a", "budgets": [budget]}]
    patient = dict.fromkeys(("connect", "first_byte", "idle", "total"), 60.0)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(redis_server())
        upstream = await stack.enter_async_context(using(_TOKENS))
        running = [
            await stack.enter_async_context(
                routing(
                    endpoint(upstream, "chat", timeouts=patient),
                    auth={"keys": keys},
                    accounts={"limits": {"store": server.url, "on_down": on_down}},
                )
            )
            for _ in range(routers)
        ]
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=400),
                headers={"Authorization": "Bearer sk-a"},
            )
        )
        # Each reserves as much as it will be told to have used.
        body = {"model": "m", "input": "x", "max_output_tokens": _TOKENS - _PROMPT, "store": False}

        async def ask(url: str) -> int:
            async with http.post(url + "/v1/responses", json=body) as response:
                await response.read()
                return response.status

        ends = Counter(
            await asyncio.gather(*[ask(running[n % routers].url) for n in range(_AT_ONCE)])
        )
        assert ends == {200: _FIT, 429: _AT_ONCE - _FIT}
        for router in running:
            assert await router.metric("pointsman_limits_store_up") == [1]
            assert await router.metric("pointsman_limits_uncounted_total") == [0, 0]
