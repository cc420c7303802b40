"""An endpoint that is still loading its model is waited for, like a load of the router's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from router.balance.deployment_state import GRADES
from router.endpoints import loading as loading_module
from router.endpoints import prober as prober_module
from tests.support.llamacpp import Starting
from tests.support.pair import by
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole
from tests.support.waiting import until

CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def _polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_module, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(prober_module, "_BREATH", 0.02)


@asynccontextmanager
async def starting(
    *others: dict[str, Any], lists: bool = False, **fields: Any
) -> AsyncIterator[tuple[Router, Starting]]:
    """A router in front of llama.cpp, which is loading its model, and other endpoints."""
    server = Starting(lists=lists)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        one = endpoint(server, "chat", **{"timeouts": {"load": 60.0}, **fields})
        router = await stack.enter_async_context(
            routing(one, *others, balance={"policy": "least-loaded"})
        )
        yield router, server


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("models", [["m"], None])
async def test_requests_wait_for_it(lists: bool, models: list[str] | None) -> None:
    async with starting(lists=lists, models=models) as (router, server):
        clients = [asyncio.create_task(router.ask()) for _ in range(3)]
        if models is not None:
            await until(lambda: 503 in server.statuses(CHAT))
            deployment = router.deployment()
            await until(lambda: not deployment.loaded)
            assert GRADES[deployment.grade] == "cold"
        await until(lambda: len(server.statuses("/health")) > 1 or models is None)
        assert not any(client.done() for client in clients)
        server.loading = False
        for reply in await asyncio.gather(*clients):
            assert by(reply) == "one"
        deployment = router.deployment()
        assert deployment.breaker.failure_ratio(time.monotonic()) == 0
        assert GRADES[deployment.grade] == "ready"
        assert router.fleet.registry.named("one").host.up  # type: ignore[union-attr]


async def test_another_that_is_ready_is_not_waited_with() -> None:
    async with Upstream(default=whole(SPEECH["chat"].whole)) as two:
        other = endpoint(two, "chat", "two", max_in_flight=2)
        async with starting(other) as (router, server):
            with router.occupied("two"):  # so that the other one is preferred
                for _ in range(3):
                    assert by(await router.ask()) == "two"
                assert server.statuses(CHAT) == [503]
                server.loading = False
                await until(lambda: router.deployment().loaded)
                assert by(await router.ask()) == "one"


async def test_it_is_not_waited_for_longer_than_a_load_may_take() -> None:
    async with starting(timeouts={"load": 0.1}) as (router, server):
        reply = await router.ask()
        assert (reply.status, reply.error["code"]) == (503, "model_load_failed")
        assert "timeouts.load" in reply.error["message"]
        assert GRADES[router.deployment().grade] == "cooling"
        assert router.deployment().breaker.failure_ratio(time.monotonic()) == 0
        assert 200 not in server.statuses(CHAT)


async def test_one_that_says_so_for_ever_while_it_is_well_is_given_up() -> None:
    """Its health is good, and yet it refuses: the wait is bounded all the same."""
    loading = whole(b'{"error": {"message": "Loading model", "code": 503}}', 503)
    async with (
        Upstream(default=loading) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"load": 0.2})) as router,
    ):
        reply = await router.ask()
        assert (reply.status, reply.error["code"]) == (503, "upstream_unavailable")
        assert "loading its model" in reply.error["message"]
