"""A key that is restricted to some models reaches no other one by any route of the APIs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.calling import answering, call
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.upstream import Upstream, Wire, whole

RESTRICTED = "sk-restricted"
FREE = "sk-free"
KEYS = [
    {"name": "restricted", "key": RESTRICTED, "models": ["big", "own-*"]},
    {"name": "free", "key": FREE},
]
MESSAGES = [{"role": "user", "content": "hi"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "hi"},
    "/v1/responses/input_tokens": {"input": "hi"},
    "/v1/responses/compact": {"input": "hi"},
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "hi"},
    "/v1/embeddings": {"input": "hi"},
    "/v1/rerank": {"query": "hi", "documents": ["one", "two"]},
    "/rerank": {"query": "hi", "documents": ["one", "two"]},
    "/v2/rerank": {"query": "hi", "documents": ["one", "two"]},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/api/chat": {"messages": MESSAGES},
    "/api/generate": {"prompt": "hi"},
    "/api/generate#load": {},
    "/api/embed": {"input": "hi"},
    "/api/embed#load": {"input": []},
    "/api/embeddings": {"prompt": "hi"},
    "/api/show": {},
}
ASKS_NOTHING = {
    "/v1/responses/input_tokens", "/v1/messages/count_tokens", "/api/generate#load",
    "/api/embed#load", "/api/show",
}  # fmt: skip
"""Routes by which no model answers, and so no other one either."""


async def broken(wire: Wire) -> None:
    await whole(b'{"error":{"message":"out of memory"}}', status=500)(wire)


@contextlib.asynccontextmanager
async def fleet(**sections: Any) -> AsyncIterator[tuple[Router, Upstream, Upstream]]:
    """``big`` at the first endpoint, and at the second what a restricted key may not use."""
    async with Upstream(default=broken) as one, Upstream(default=broken) as two:
        endpoints = [
            endpoint(one, "responses", "one", models=["big"]),
            endpoint(
                two,
                "responses",
                "two",
                models=["small"],
                aliases={"tiny": "small", "claude-*": "small"},
            ),
        ]
        sections.setdefault("auth", {"keys": KEYS})
        async with routing(*endpoints, **sections) as router:
            yield router, one, two


async def post(router: Router, route: str, model: str, key: str = RESTRICTED, **more: Any) -> Reply:
    return await fetch(
        router.http,
        "POST",
        router.url + route.partition("#")[0],
        json={**ROUTES[route], "model": model, **more},
        headers={"Authorization": f"Bearer {key}"},
    )


def asked(upstream: Upstream) -> list[str]:
    """The models that were asked."""
    return [request.json["model"] for request in upstream.requests]


@pytest.mark.parametrize("route", ROUTES)
async def test_no_route_asks_for_a_model_out_of_reach(route: str) -> None:
    async with fleet(cache={"mode": "always", "scope": "shared"}) as (router, one, two):
        for model in ("small", "tiny", "claude-x", "small:latest", "BIG", "big ", "nobody"):
            reply = await post(router, route, model)
            assert reply.status in (400, 404), (model, reply.body)
            assert reply.status == 404 or model == "big ", reply.body
            assert b"small" not in reply.body.replace(model.encode(), b"")
        assert asked(one) == asked(two) == []
        # It is there for those who may use it.
        assert (await post(router, route, "small", FREE)).status != 404


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("by", "to"), [("big", "small"), ("b*", "tiny"), ("big", "claude-x")])
async def test_no_route_falls_back_to_one(route: str, by: str, to: str) -> None:
    sections = {"fallbacks": {by: to}, "cache": {"mode": "always", "scope": "shared"}}
    async with fleet(**sections) as (router, _, two):
        for key, falls in ((FREE, route not in ASKS_NOTHING), (RESTRICTED, False)):
            two.requests.clear()
            reply = await post(router, route, "big", key)
            assert bool(asked(two)) == falls
            if not falls:
                assert "X-Pointsman-Fallback" not in reply.headers


async def test_nothing_that_is_kept_leads_to_one() -> None:
    """Conversations, earlier responses, prompts, runs in the background, cached answers."""
    async with answering("responses") as one, answering("responses") as two:
        endpoints = [
            endpoint(one, "responses", "one", models=["big"]),
            endpoint(two, "responses", "two", models=["small"]),
        ]
        cache = {"mode": "always", "scope": "shared"}
        async with routing(*endpoints, auth={"keys": KEYS}, cache=cache) as router:

            async def ask(model: str, key: str = RESTRICTED, **more: Any) -> Reply:
                return await post(router, "/v1/responses", model, key, **more)

            assert (await ask("small", FREE)).headers["X-Cache"] == "MISS"
            assert (await ask("small", FREE)).headers["X-Cache"] == "HIT"
            before = (await ask("big")).json["id"]
            kept = (await call(router, "POST", "/conversations", {}, key=RESTRICTED)).json["id"]
            two.requests.clear()
            for more in (
                {},
                {"stream": True},
                {"background": True},
                {"background": True, "stream": True},
                {"previous_response_id": before},
                {"conversation": kept},
            ):
                refused = await ask("small", **more)
                assert (refused.status, refused.error["code"]) == (404, "model_not_found"), more
            assert two.requests == []
            assert (await ask("big", previous_response_id=before)).status == 200
