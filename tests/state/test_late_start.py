"""Starting while the PostgreSQL server is away."""

from __future__ import annotations

import asyncio

import pytest

from router.settings.schema import Dialect
from router.state.connect import open_database
from router.state.database import StateError
from tests.support.calling import answering, call, finished
from tests.support.cluster import cluster
from tests.support.router import PATIENCE, endpoint, routing
from tests.support.state import state_settings

NATIVE: Dialect = "responses"


async def test_where_storing_is_a_promise_the_router_does_not_start() -> None:
    with cluster() as server:
        server.kill()
        database = open_database(state_settings(server.url))
        with pytest.raises(StateError, match="cannot be used"):
            await database.start()
        await database.close()


async def test_where_serving_goes_before_storing_it_does() -> None:
    state = {"on_down": "degrade", "timeout": 0.5, "lease": 1.0}
    with cluster() as server:
        server.kill()
        async with answering(NATIVE) as upstream:
            one = endpoint(upstream, NATIVE)
            async with routing(one, state={"url": server.url, **state}) as router:
                reply = await router.ask()
                assert (reply.status, reply.json["store"]) == (200, False)
                assert reply.headers["X-Pointsman-Store"] == "degraded"
                refused = await router.ask(background=True)
                assert (refused.status, refused.error["code"]) == (503, "state_unavailable")
                server.start()
                async with asyncio.timeout(PATIENCE):
                    while not reply.json["store"]:
                        await asyncio.sleep(0.1)
                        reply = await router.ask()
                assert (
                    await call(router, "GET", f"/responses/{reply.json['id']}")
                ).json == reply.json
                run = await router.ask(background=True)
                assert (await finished(router, run.json["id"]))["status"] == "completed"
                router.forgive("the database does not answer")
