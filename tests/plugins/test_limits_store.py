"""What the metrics tell of the store of the limits."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.calling import answering
from tests.support.redis import redis_server
from tests.support.router import Router, endpoint, routing


async def ready(router: Router) -> tuple[int, bool]:
    """The status of ``/ready``, and what it says of the store of the limits."""
    async with router.http.get(router.url + "/ready") as answer:
        return answer.status, (await answer.json())["limits"]


@pytest.mark.parametrize("on_down", ["fail_open", "fail_closed"])
async def test_a_store_that_is_away_is_told_of(on_down: str) -> None:
    keys = [{"name": "a", "key": "sk-a", "limits": {"concurrent": 5}}]
    with redis_server() as server:
        limits = {"store": server.url, "on_down": on_down}
        async with (
            answering("chat") as upstream,
            routing(
                endpoint(upstream, "chat"), auth={"keys": keys}, accounts={"limits": limits}
            ) as router,
        ):
            router.http.headers["Authorization"] = "Bearer sk-a"
            assert (await router.ask(store=False)).status == 200
            assert await router.metric("pointsman_limits_store_up") == [1]
            assert await ready(router) == (200, True)
            assert await router.metric("pointsman_limits_uncounted_total") == [0, 0]
            await asyncio.to_thread(server.kill)
            passes = on_down == "fail_open"
            for _ in range(5):
                reply = await router.ask(store=False)
                assert reply.status == (200 if passes else 503), reply.body
            assert await router.metric("pointsman_limits_store_up") == [0]
            assert await ready(router) == (200, False)
            counted = await router.metric("pointsman_limits_uncounted_total", away="store")
            assert counted == [5 if passes else 0]
            await asyncio.to_thread(server.start)
            await router.metric_becomes(1, "pointsman_limits_store_up")
            assert await ready(router) == (200, True)
