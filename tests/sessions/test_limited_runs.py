"""Background runs of keys with limits and budgets, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plugins import limits
from router.app import ACCOUNTING
from router.state.statement import Statement
from tests.support.calling import answering, call, finished
from tests.support.redis import redis_server
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, paced, silent, streamed
from tests.support.waiting import until

KEY = "sk-limited"
DURABLE: dict[str, Any] = {"stream": True, "stream_options": {"durable": True}}


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where limits are counted."""
    if request.param == "memory":
        yield "memory://"
        return
    with redis_server() as server:
        yield server.url


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with answering("chat") as server:
        yield server


@asynccontextmanager
async def limited(upstream: Upstream, store: str, **key: Any) -> AsyncIterator[Router]:
    """A router whose only key has these limits."""
    sections: dict[str, Any] = {
        "auth": {"keys": [{"name": "limited", "key": KEY, **key}]},
        "accounts": {"limits": {"store": store}},
    }
    one = endpoint(upstream, "chat", timeouts={"first_byte": 8.0, "idle": 8.0, "total": 9.0})
    async with routing(one, **sections) as router:
        router.http.headers["Authorization"] = f"Bearer {KEY}"
        yield router


async def stored(router: Router) -> list[Any]:
    """Everything that is kept of responses and runs."""
    accounts = router.app[ACCOUNTING]
    rows = await accounts._database.read(Statement("SELECT id FROM responses"))
    rows += await accounts._database.read(Statement("SELECT id FROM runs"))
    return [*rows]


@pytest.mark.parametrize("fields", [{"background": True}, DURABLE])
async def test_past_a_rate_it_is_refused_at_once(
    upstream: Upstream, store: str, fields: dict[str, Any]
) -> None:
    async with limited(upstream, store, limits={"requests_per_minute": 2}) as router:
        for left in "10":
            reply = await router.ask(**fields)
            assert reply.status == 200, reply.body
            # Counted once, when it came, and not again when it began.
            assert reply.headers["x-ratelimit-remaining-requests"] == left
        kept = await stored(router)
        reply = await router.ask(**fields)
        assert (reply.status, reply.error["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(reply.headers["Retry-After"]) <= 30
        assert await stored(router) == kept
        refused = await router.metric("pointsman_limits_hit_total", limit="requests")
        assert refused == [1]
        await until(lambda: len(upstream.requests) == 2)


async def test_past_a_budget_it_is_refused_at_once(upstream: Upstream, store: str) -> None:
    budget = {"period": "day", "tokens": 12}
    async with limited(upstream, store, budgets=[budget]) as router:
        assert (await router.ask(max_output_tokens=11)).status == 200  # it uses more than that
        kept = await stored(router)
        for fields in ({"background": True}, DURABLE):
            reply = await router.ask(**fields)
            assert (reply.status, reply.error["code"]) == (429, "insufficient_quota")
            assert "it resets on" in reply.error["message"]
            assert int(reply.headers["Retry-After"]) >= 1
        assert await stored(router) == kept
        assert len(upstream.requests) == 1


async def test_a_budget_that_is_spent_when_it_begins(store: str) -> None:
    speech = SPEECH["chat"]
    slow = paced(streamed(*speech.pieces, kind=speech.kind), 0.3)
    budget = {"period": "day", "tokens": 12}
    async with (
        Upstream(default=slow) as upstream,
        limited(upstream, store, budgets=[budget], limits={"concurrent": 1}) as router,
    ):
        idents = []
        for _ in range(2):
            reply = await router.ask(background=True, max_output_tokens=5)
            assert reply.status == 200, reply.body
            idents.append(reply.json["id"])
        assert (await finished(router, idents[0]))["status"] == "completed"
        failed = await finished(router, idents[1])
        assert (failed["status"], failed["output"]) == ("failed", [])
        assert failed["error"]["code"] == "insufficient_quota"
        assert "1 tokens left of 12 tokens" in failed["error"]["message"]
        assert len(upstream.requests) == 1


async def test_more_than_may_be_at_once_wait_for_each_other(store: str) -> None:
    speech = SPEECH["chat"]
    slow = paced(streamed(*speech.pieces, kind=speech.kind), 0.1)
    async with (
        Upstream(default=slow) as upstream,
        limited(upstream, store, limits={"concurrent": 2}) as router,
    ):
        replies = [await router.ask(background=True) for _ in range(8)]
        assert [reply.status for reply in replies] == [200] * 8
        most = 0
        watching = True

        async def watch() -> None:
            nonlocal most
            while watching:
                most = max(most, len(upstream.open_wires))
                await asyncio.sleep(0.005)

        watcher = asyncio.create_task(watch())
        for reply in replies:
            assert (await finished(router, reply.json["id"]))["status"] == "completed"
        watching = False
        await watcher
        assert most <= 2
        assert len(upstream.requests) == 8
        assert await router.metric("pointsman_limits_hit_total") == []


async def test_it_waits_for_a_request_that_is_under_way(store: str) -> None:
    """Which no other router sees in the database: only the rate limiter knows."""
    speech = SPEECH["chat"]
    hanging = streamed(*speech.pieces[:3], kind=speech.kind, then=silent)
    answer = streamed(*speech.pieces, kind=speech.kind)
    async with (
        Upstream(hanging, default=answer) as upstream,
        limited(upstream, store, limits={"concurrent": 1}) as router,
    ):
        async with router.request(stream=True, store=False) as response:
            await response.content.readany()
            refused = await router.ask(**DURABLE)  # as any request for whose answer one waits
            assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
            queued = (await router.ask(background=True)).json["id"]
            cancelled = (await router.ask(background=True)).json["id"]
            await asyncio.sleep(0.5)
            reply = await call(router, "GET", f"/responses/{queued}")
            assert reply.json["status"] in ("queued", "in_progress")
            reply = await call(router, "POST", f"/responses/{cancelled}/cancel")
            assert reply.json["status"] == "cancelled"
            assert len(upstream.requests) == 1
        done = await finished(router, queued)
        assert (done["status"], done["output_text"]) == ("completed", speech.text)
        assert len(upstream.requests) == 2


async def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    monkeypatch.setattr(limits, "_ROOM_SECONDS", 0.3)
    speech = SPEECH["chat"]
    hanging = streamed(*speech.pieces[:3], kind=speech.kind, then=silent)
    async with (
        Upstream(hanging) as upstream,
        limited(upstream, store, limits={"concurrent": 1}) as router,
        router.request(stream=True, store=False) as response,
    ):
        await response.content.readany()
        failed = await finished(router, (await router.ask(background=True)).json["id"])
        assert (failed["status"], failed["error"]["code"]) == ("failed", "rate_limit_exceeded")
        assert await router.metric("pointsman_limits_hit_total", limit="concurrent") == [1]
