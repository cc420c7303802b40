"""Fallbacks keep to the models that a key may use, and may be configured by patterns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.calling import answering, call, finished
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, Wire, whole
from tests.support.waiting import until

BIG_ONLY = "sk-big-only"
ANY = "sk-any"
KEYS = [
    {"name": "restricted", "key": BIG_ONLY, "models": ["big", "own-*"]},
    {"name": "free", "key": ANY},
]


async def gone(wire: Wire) -> None:
    await whole(b'{"error":{"message":"out of memory"}}', status=500)(wire)


@contextlib.asynccontextmanager
async def fleet(fallbacks: Any, **sections: Any) -> AsyncIterator[tuple[Router, Upstream]]:
    """``big`` at an endpoint that cannot serve it, and others at one that can."""
    async with Upstream(default=gone) as one, answering("responses") as two:
        others = ["small", "tiny", "own-small"]
        endpoints = [
            endpoint(one, "responses", "one", models=["big"]),
            endpoint(two, "responses", "two", models=others),
        ]
        sections.setdefault("auth", {"keys": KEYS})
        async with routing(*endpoints, fallbacks={"big": fallbacks}, **sections) as router:
            yield router, two


async def asked(router: Router, key: str, **fields: Any) -> Reply:
    router.http.headers["Authorization"] = f"Bearer {key}"
    return await router.ask(**{"model": "big", "store": False, **fields})


def of_fallback(reply: Reply) -> tuple[int, str | None]:
    return reply.status, reply.headers.get("X-Pointsman-Fallback")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
async def test_a_restricted_key_is_given_no_model_that_it_may_not_use(
    *, chat: bool, stream: bool
) -> None:
    async with fleet(["small"]) as (router, two):
        for _ in range(2):
            reply = await asked(router, BIG_ONLY, chat=chat, stream=stream)
            assert of_fallback(reply) == (502, None)
        assert not two.requests
        if not chat:
            assert of_fallback(await asked(router, ANY, stream=stream)) == (200, "small")


@pytest.mark.parametrize(
    ("fallbacks", "expected"),
    [
        ({"models": ["small"], "for_keys": "any"}, (200, "small")),
        ({"models": ["small"], "for_keys": "allowed"}, (502, None)),
        ({"models": ["small"]}, (502, None)),
        (["small", "own-small", "tiny"], (200, "own-small")),
        ("small", (502, None)),
        ("own-small", (200, "own-small")),
    ],
)
async def test_what_a_fallback_says_of_keys(
    fallbacks: Any, expected: tuple[int, str | None]
) -> None:
    async with fleet(fallbacks) as (router, two):
        assert of_fallback(await asked(router, BIG_ONLY)) == expected
        assert [r.json["model"] for r in two.requests] == [m for m in expected[1:] if m]


async def test_nor_in_a_background_run() -> None:
    async with fleet(["small"]) as (router, two):
        router.http.headers["Authorization"] = f"Bearer {BIG_ONLY}"
        body = {"model": "big", "input": "hi", "background": True}
        run = (await call(router, "POST", "/responses", body)).json
        assert (await finished(router, run["id"]))["status"] == "failed"
        assert not two.requests


async def test_nor_through_an_answer_that_keys_share() -> None:
    """``cache.scope: shared`` makes one call of what both ask; another model answers it."""
    go = asyncio.Event()

    async def held(wire: Wire) -> None:
        await go.wait()
        await whole(SPEECH["responses"].whole)(wire)

    cache = {"mode": "always", "scope": "shared"}
    async with fleet(["small"], cache=cache) as (router, two):
        two.default = held
        free = asyncio.create_task(asked(router, ANY))
        await until(lambda: two.requests)
        restricted = await asked(router, BIG_ONLY)
        assert of_fallback(restricted) == (502, None)
        go.set()
        assert of_fallback(await free) == (200, "small")
        assert of_fallback(await asked(router, BIG_ONLY)) == (502, None)
        assert len(two.requests) == 1


async def test_patterns_of_fallbacks_and_aliases() -> None:
    fallbacks = {"claude-*": "small", "claude-opus-*": ["nobody", "m"], "claude-mine": "tiny"}
    async with answering("responses") as upstream:
        one = endpoint(upstream, "responses", models=["m", "small", "tiny"], aliases={"gpt-*": "m"})
        async with routing(one, fallbacks=fallbacks) as router:
            for model, stand_in in [
                ("claude-haiku", "small"),
                ("claude-opus-4", "m"),
                ("claude-mine", "tiny"),
                ("gpt-5", None),
                ("small", None),
            ]:
                for stream in (False, True):
                    reply = await router.ask(model=model, stream=stream)
                    assert of_fallback(reply) == (200, stand_in)
                    own = "m" if model == "gpt-5" else stand_in or model
                    assert upstream.requests[-1].json["model"] == own
            assert (await router.ask(model="other")).status == 404
            # What clients make up is no label of a metric.
            counted = await router.metric("pointsman_fallbacks_total", model="claude-*")
            assert counted == [2]
            assert not await router.metric("pointsman_fallbacks_total", model="claude-haiku")
            listing = (await fetch(router.http, "GET", router.url + "/v1/models")).json
            assert [model["id"] for model in listing["data"]] == ["m", "small", "tiny"]
            one_of_them = await fetch(router.http, "GET", router.url + "/v1/models/gpt-5")
            assert (one_of_them.status, one_of_them.json["id"]) == (200, "gpt-5")


async def test_a_pattern_is_no_fallback_of_its_own_target() -> None:
    async with Upstream(default=gone) as upstream:
        one = endpoint(upstream, "responses", models=["claude-small"])
        async with routing(one, fallbacks={"claude-*": "claude-small"}) as router:
            assert of_fallback(await router.ask(model="claude-small")) == (502, None)
