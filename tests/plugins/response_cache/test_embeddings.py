"""Embeddings from the cache."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from router.core.usage_record import Kind
from router.settings.schema import Dialect
from tests.plugins.response_cache.conftest import ALWAYS, caching
from tests.support.admin import ADMIN, call_admin
from tests.support.plain import EMBEDDING, embedding, post
from tests.support.router import Router, endpoint, routing
from tests.support.upstream import Script, Upstream, Wire, whole
from tests.support.waiting import until


def tier(reply: Any) -> tuple[str, str | None]:
    assert reply.status == 200, reply.body
    return reply.headers["X-Cache"], reply.headers.get("X-Cache-Tier")


@pytest.mark.parametrize("dialect", ["responses", "chat", "ollama"])
async def test_the_same_is_answered_from_the_cache(dialect: Dialect) -> None:
    async with (
        Upstream(default=embedding(dialect, [0.25, 0.1])) as upstream,
        caching(upstream, dialect) as router,
    ):
        first = await post(router, EMBEDDING)
        assert tier(first) == ("MISS", None)
        again = await post(router, EMBEDDING, input=["hi"], user="somebody", metadata={})
        assert tier(again) == ("HIT", "exact")
        assert again.body == first.body
        assert "X-Pointsman-Endpoint" not in again.headers
        assert int(again.headers["Age"]) >= 0
        others: list[tuple[dict[str, Any], int]] = [
            ({"input": "ho"}, 1),
            ({"input": ["hi", "hi"]}, 2),
            ({"dimensions": 2}, 1),
            ({"encoding_format": "base64"}, 1),
        ]
        for other, count in others:
            upstream.default = embedding(dialect, *[[0.5, 0.5]] * count)
            assert tier(await post(router, EMBEDDING, **other)) == ("MISS", None)
        assert len(upstream.requests) == 5
        hit = next(row for row in router.rows if row.kind is Kind.CACHE)
        assert (hit.operation, hit.tokens.input, hit.tokens.output) == ("embeddings", 3, 0)


async def test_what_would_be_answered_is_told() -> None:
    async with (
        Upstream(default=embedding("chat", [0.25])) as upstream,
        caching(upstream, "chat", admin=ADMIN) as router,
    ):
        for _ in range(2):
            kept = (await post(router, EMBEDDING)).headers.get("X-Cache-Entry")

        async def looked_up(request: dict[str, Any]) -> Any:
            asked = {"request": {"model": "m", **request}}
            return (await call_admin(router, "POST", "/cache/lookup", asked)).json

        found = await looked_up({"input": ["hi"], "user": "somebody"})
        assert (found["cacheable"], found["tier"], found["key"]) == (True, "exact", kept)
        assert found["entry"]["answer"]["body"]["data"][0]["embedding"] == [0.25]
        missed = await looked_up({"input": ["ho"]})
        assert (missed["cacheable"], missed["tier"], missed["entry"]) == (True, None, None)
        other = {"query": "hi", "documents": ["ho"]}
        assert await looked_up(other) == {"cacheable": False, "reason": "api"}


async def test_controls_are_those_of_every_answer() -> None:
    async with (
        Upstream(default=embedding("chat", [0.25])) as upstream,
        caching(upstream, "chat", cache={"mode": "on-request"}) as router,
    ):
        plain = await post(router, EMBEDDING)
        assert plain.headers["X-Cache-Reason"] == "not_asked"
        only = {"Cache-Control": "only-if-cached"}
        missed = await post(router, EMBEDDING, only)
        assert (missed.status, missed.error["code"]) == (504, "not_cached")
        assert tier(await post(router, EMBEDDING, cache={"tags": ["t"]}))[0] == "MISS"
        assert tier(await post(router, EMBEDDING, only)) == ("HIT", "exact")
        fresh = await post(router, EMBEDDING, {"Cache-Control": "no-cache"}, cache=True)
        assert tier(fresh)[0] == "MISS"
        wrong = await post(router, EMBEDDING, cache=7)
        assert (wrong.status, wrong.error["param"]) == (400, "cache")
        assert all("cache" not in asked.json for asked in upstream.requests)


@pytest.mark.parametrize(
    "answer", [embedding("chat", [1.0], [2.0]), whole(b"{}", 500), whole(b'{"data":[{"embe')]
)
async def test_what_is_no_answer_is_not_kept(answer: Script) -> None:
    async with (
        Upstream(answer, answer, default=embedding("chat", [0.25])) as upstream,
        caching(upstream, "chat", balance={"max_attempts": 1}) as router,
    ):
        for status in (502, 502, 200):
            reply = await post(router, EMBEDDING)
            assert reply.status == status, reply.body
        assert tier(await post(router, EMBEDDING)) == ("HIT", "exact")


async def test_less_than_was_asked_is_not_kept() -> None:
    async with (
        Upstream(default=embedding("ollama", [0.25])) as upstream,
        caching(upstream, "ollama") as router,
    ):
        for _ in range(2):
            reply = await post(router, EMBEDDING, input_type="query")
            assert tier(reply) == ("MISS", None)
            assert reply.headers["X-Pointsman-Dropped-Parameters"] == "input_type"


async def test_those_who_ask_at_once_share_a_call() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slowly(wire: Wire) -> None:
        asked.set()
        await go.wait()
        await embedding("chat", [0.25])(wire)

    async with Upstream(default=slowly) as upstream:
        slow = {"first_byte": 20.0, "idle": 20.0, "total": 20.0}
        async with routing(endpoint(upstream, "chat", timeouts=slow), cache=ALWAYS) as router:
            first = asyncio.create_task(post(router, EMBEDDING))
            await asyncio.wait_for(asked.wait(), 60)
            others = [asyncio.create_task(post(router, EMBEDDING, user=str(i))) for i in range(5)]
            await until(lambda: router.running == 6)
            await asyncio.sleep(0.05)
            go.set()
            replies = [await first, *[await other for other in others]]
            assert {reply.body for reply in replies} == {replies[0].body}
            assert [tier(reply) for reply in replies] == [("MISS", None)] + 5 * [("HIT", "shared")]
            assert len(upstream.requests) == 1


async def test_a_damaged_entry_is_asked_for_anew() -> None:
    async with (
        Upstream(default=embedding("chat", [0.25])) as upstream,
        caching(upstream, "chat") as router,
    ):
        assert tier(await post(router, EMBEDDING))[0] == "MISS"
        await _damage(router)
        assert tier(await post(router, EMBEDDING))[0] == "MISS"
        assert len(upstream.requests) == 3


async def _damage(router: Router) -> None:
    """Every entry is not what was written any more."""
    from dataclasses import replace

    from cache.entry import EVERYTHING, CacheEntry
    from router.app import CACHE

    store = router.app[CACHE].store
    kept: list[CacheEntry] = []
    put = store.put

    async def captured(entry: CacheEntry) -> bool:
        kept.append(entry)
        return await put(entry)

    store.put = captured  # type: ignore[method-assign]
    await post(router, EMBEDDING, {"Cache-Control": "no-cache"})
    store.put = put  # type: ignore[method-assign]
    [entry] = kept
    assert entry.kind == "vectors"
    assert orjson.loads(entry.body)["body"]["data"]
    await store.invalidate(EVERYTHING)
    epoch = await store.epoch()
    await put(replace(entry, epoch=epoch, body=entry.body.replace(b"0.25", b"0.26")))
