"""What the cache makes of requests of which the endpoint is not sent everything, and of answers
that another model gave.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.plugins.response_cache.conftest import ALWAYS, caching
from tests.support.anthropic import VERSION, asked
from tests.support.calling import answering
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, refused_port, silent, whole
from tests.support.waiting import until

UNSENT = "X-Pointsman-Dropped-Parameters"
DROPPED = "X-Pointsman-Reasoning-Dropped"
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])

FOREIGN = [{"type": "thinking", "thinking": "Hm", "signature": "EqQBCgIYAhIM"}]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def post(router: Router, path: str, body: dict[str, Any], *, stream: bool) -> Reply:
    body = {**body, "stream": stream}
    return await fetch(router.http, "POST", router.url + path, json=body, headers=VERSION)


@STREAM
@pytest.mark.parametrize(
    ("path", "plain", "more", "named"),
    [
        ("/api/chat", CHAT, {"options": {"num_batch": 4}}, "options.num_batch"),
        ("/v1/messages", asked(), {"container": "c"}, "container"),
    ],
)
async def test_what_a_foreign_api_leaves_out_is_named_and_not_kept(
    path: str, plain: dict[str, Any], more: dict[str, Any], named: str, *, stream: bool
) -> None:
    body = {**plain, **more}
    async with answering("responses") as upstream, caching(upstream) as router:
        for calls in (1, 2):
            reply = await post(router, path, body, stream=stream)
            assert reply.status == 200, reply.body
            assert (reply.headers["X-Cache"], reply.headers[UNSENT]) == ("MISS", named)
            assert len(upstream.requests) == calls
        # What the endpoint was asked in full is kept, and answers both.
        answers: list[tuple[str, dict[str, Any]]] = [("MISS", plain), ("HIT", plain), ("HIT", body)]
        for cache, asks in answers:
            reply = await post(router, path, asks, stream=stream)
            assert reply.headers["X-Cache"] == cache
            assert reply.headers.get(UNSENT) == (None if asks is plain else named)
        assert len(upstream.requests) == 3


async def test_each_of_those_who_share_an_answer_is_told_what_was_left_out_for_it() -> None:
    go = asyncio.Event()

    async def held(wire: Any) -> None:
        await go.wait()
        await whole(SPEECH["responses"].whole)(wire)

    async with Upstream(default=held) as upstream, caching(upstream) as router:
        bodies: list[dict[str, Any]] = [{**CHAT, "options": {"num_batch": 4}}, CHAT]
        tasks = []
        for body in bodies:
            tasks.append(asyncio.create_task(post(router, "/api/chat", body, stream=False)))
            await until(lambda: router.running == len(tasks))
            await until(lambda: upstream.requests)
        go.set()
        first, second = await asyncio.gather(*tasks)
        assert len(upstream.requests) == 1
    assert (first.headers["X-Cache"], first.headers[UNSENT]) == ("MISS", "options.num_batch")
    assert second.headers["X-Cache-Tier"] == "shared"
    assert UNSENT not in second.headers


async def test_thinking_that_was_dropped_is_counted_and_the_answer_is_not_kept() -> None:
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [*FOREIGN, {"type": "text", "text": "Hello"}]},
        {"role": "user", "content": "and?"},
    ]
    body = asked(messages=turns)
    async with answering("responses") as upstream, caching(upstream) as router:
        for _ in range(2):
            reply = await post(router, "/v1/messages", body, stream=False)
            assert (reply.headers["X-Cache"], reply.headers[DROPPED]) == ("MISS", "1")
        assert len(upstream.requests) == 2


async def test_an_answer_that_lacks_something_is_not_kept_where_its_head_left_before() -> None:
    """The head leaves while an endpoint is asked that would have been sent everything."""
    asked_for: dict[str, Any] = {
        "stream": True,
        "store": False,
        "context_management": [{"type": "x"}],
    }
    async with Upstream(default=silent) as one, answering("chat") as two:
        endpoints = [
            endpoint(one, "responses", "one", priority=1, timeouts={"first_byte": 1.0}),
            endpoint(two, "chat", "two", priority=2),
        ]
        sections: dict[str, Any] = {"cache": ALWAYS, "server": {"open_after": 0.05}}
        balance = {"policy": "priority"}
        async with routing(*endpoints, balance=balance, **sections) as router:
            for calls in (1, 2):
                reply = await router.ask(**asked_for)
                assert check_responses_stream(reply.events)["status"] == "completed"
                assert UNSENT not in reply.headers  # they had left
                assert reply.headers["X-Cache"] == "MISS"
                assert len(two.requests) == calls


@STREAM
async def test_the_model_that_stood_in_is_named(*, stream: bool) -> None:
    async with refused_port() as nobody, answering("chat") as upstream:
        dead = endpoint(nobody, "chat", "one", models=["big"])
        alive = endpoint(upstream, "chat", "two", models=["small"])
        sections: dict[str, Any] = {"cache": ALWAYS, "fallbacks": {"big": ["small"]}}
        async with routing(dead, alive, **sections) as router:
            for _ in range(2):
                reply = await post(router, "/api/chat", {**CHAT, "model": "big"}, stream=stream)
                assert reply.headers["X-Pointsman-Fallback"] == "small"
                lines = [orjson.loads(line) for line in reply.body.splitlines()]
                assert {line["model"] for line in lines} == {"small"}
