"""What a request may say about the cache, and what the configuration lets it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.plugins.response_cache.conftest import caching, wholes
from tests.support.router import Reply, Router
from tests.support.speech import SPEECH

SPEECH_OF_IT = SPEECH["responses"]
ON_REQUEST = {"mode": "on-request"}


async def ask(router: Router, cache_control: str | None = None, **fields: Any) -> Reply:
    """Ask with a ``Cache-Control``."""
    headers = {"Cache-Control": cache_control} if cache_control else {}
    body = {"model": "m", "input": "hi", "store": False, **fields}
    url = f"{router.url}/v1/responses"
    async with router.http.post(url, json=body, headers=headers) as response:
        return Reply(response.status, response.headers, await response.read())


@pytest.mark.parametrize(
    ("cache_control", "fields"),
    [
        (None, {"cache": True}),
        (None, {"cache": {}}),
        (None, {"nomyo": {"cache": True}}),
        ("max-age=60", {}),
    ],
)
async def test_on_request_it_has_to_be_asked_for(
    cache_control: str | None, fields: dict[str, Any]
) -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream, cache=ON_REQUEST) as router:
        for _ in range(2):
            reply = await ask(router)
            assert (reply.headers["X-Cache"], reply.headers["X-Cache-Reason"]) == (
                "BYPASS",
                "not_asked",
            )
        assert (await ask(router, cache_control, **fields)).headers["X-Cache"] == "MISS"
        assert (await ask(router, cache_control, **fields)).headers["X-Cache"] == "HIT"
        assert len(upstream.requests) == 3
        assert all(not {"cache", "nomyo"} & request.json.keys() for request in upstream.requests)


async def test_a_request_may_want_a_fresh_answer_which_is_kept() -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        await ask(router)
        assert (await ask(router, "no-cache")).headers["X-Cache"] == "MISS"
        assert (await ask(router, "max-age=0")).headers["X-Cache"] == "MISS"
        assert (await ask(router)).headers["X-Cache"] == "HIT"
        assert len(upstream.requests) == 3


async def test_a_request_may_leave_nothing_behind() -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        assert (await ask(router, "no-store")).headers["X-Cache"] == "MISS"
        assert (await ask(router, cache={"store": False})).headers["X-Cache"] == "MISS"
        reply = await ask(router, cache=False)
        assert (reply.headers["X-Cache"], reply.headers["X-Cache-Reason"]) == ("BYPASS", "refused")
        assert (await ask(router)).headers["X-Cache"] == "MISS"
        assert (await ask(router)).headers["X-Cache"] == "HIT"


async def test_only_an_answer_from_the_cache() -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        reply = await ask(router, "only-if-cached")
        assert (reply.status, reply.error["code"]) == (504, "not_cached")
        assert await router.metric("pointsman_requests_total", outcome="refused") == [1]
        assert not upstream.requests
        reply = await ask(router, "only-if-cached, no-cache, no-store")
        assert (reply.status, reply.error["code"]) == (504, "not_cached")
        await ask(router)
        assert (await ask(router, "only-if-cached")).headers["X-Cache"] == "HIT"
        reply = await ask(router, "only-if-cached", tools=[{"type": "web_search"}])
        assert (reply.status, reply.error["code"]) == (504, "not_cached")
        assert len(upstream.requests) == 1


async def test_an_answer_may_be_too_old() -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        await ask(router)
        await asyncio.sleep(1.1)
        assert (await ask(router, "max-age=60")).headers["Age"] == "1"
        assert (await ask(router, cache={"max_age": 1})).headers["X-Cache"] == "MISS"


async def test_an_answer_expires() -> None:
    cache = {"mode": "always", "ttl": 0.5}
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream, cache=cache) as router:
        await ask(router)
        assert (await ask(router)).headers["X-Cache"] == "HIT"
        await asyncio.sleep(0.6)
        assert (await ask(router)).headers["X-Cache"] == "MISS"


@pytest.mark.parametrize(
    ("cache", "param"),
    [
        ("yes", "cache"),
        ({"us": True}, "cache.us"),
        ({"ttl": "long"}, "cache.ttl"),
        ({"threshold": 2}, "cache.threshold"),
        ({"tags": "news"}, "cache.tags"),
    ],
)
async def test_what_is_wrong_is_named(cache: Any, param: str) -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        reply = await ask(router, cache=cache)
        assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
        assert reply.error["param"] == param
        assert not upstream.requests


async def test_a_paced_replay_takes_its_time() -> None:
    cache = {"mode": "always", "replay_rate": 20}
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream, cache=cache) as router:
        await ask(router)
        async with router.request(stream=True) as response:
            chunks = [chunk async for chunk in response.content.iter_any()]
        assert len(chunks) > 1
        assert b"response.completed" in chunks[-1]
