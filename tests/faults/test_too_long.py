"""An answer that takes longer than ``timeouts.total``: whose fault that is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, Wire, silent, streamed, whole
from tests.support.waiting import until

CHAT = SPEECH["chat"]
TIMEOUTS = {"first_byte": 5.0, "idle": 5.0, "total": 0.4}


def endpoints(*upstreams: Upstream) -> list[dict[str, Any]]:
    return [
        endpoint(upstream, "chat", name, timeouts=TIMEOUTS)
        for upstream, name in zip(upstreams, ("one", "two"), strict=False)
    ]


async def begins_and_stops(wire: Wire) -> None:
    """The head and an event without output, and then nothing for a long time."""
    wire.head(200, {"Content-Type": CHAT.kind})
    wire.piece(CHAT.opening)
    await wire.gone.wait()


def failure_ratio(router: Router, name: str = "one") -> float:
    return router.deployment(name).breaker.failure_ratio(asyncio.get_running_loop().time())


async def test_what_has_begun_is_only_too_long() -> None:
    async with (
        Upstream(begins_and_stops) as one,
        Upstream(begins_and_stops) as two,
        routing(*endpoints(one, two)) as router,
    ):
        reply = await router.ask(stream=True)
        assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")
        assert "timeouts.total" in reply.error["message"]
        assert reply.headers["X-Pointsman-Attempts"] == "1"
        assert len(one.requests) + len(two.requests) == 1
        assert failure_ratio(router) == failure_ratio(router, "two") == 0


async def test_an_endpoint_that_answers_others_is_well() -> None:
    async with (
        Upstream(silent, default=whole(CHAT.whole)) as one,
        routing(*endpoints(one)) as router,
    ):
        long = asyncio.create_task(router.ask(input="long"))
        await until(lambda: one.requests)
        while not long.done():
            assert (await router.ask(input="short")).status == 200
        reply = await long
        assert (reply.status, reply.headers["X-Pointsman-Attempts"]) == (504, "1")
        assert failure_ratio(router) == 0


async def test_one_that_has_answered_only_at_first_is_not() -> None:
    async with (
        Upstream(silent, whole(CHAT.whole)) as one,
        Upstream(default=whole(CHAT.whole)) as two,
        routing(*endpoints(one, two)) as router,
    ):
        other = router.deployment("two").endpoint.host
        other.drained = True
        other.refresh(0.0)
        long = asyncio.create_task(router.ask(input="long"))
        await until(lambda: one.requests)
        assert (await router.ask(input="short")).headers["X-Pointsman-Endpoint"] == "one"
        other.drained = False
        other.refresh(0.0)
        reply = await long
        assert (reply.status, reply.headers["X-Pointsman-Attempts"]) == (200, "2")
        assert failure_ratio(router) > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_one_that_says_nothing_to_anybody_is_not(stream: bool) -> None:
    good = streamed(*CHAT.pieces, kind=CHAT.kind) if stream else whole(CHAT.whole)
    async with Upstream(silent) as one, Upstream(silent) as two:
        one.scripts = two.scripts
        two.scripts.append(good)
        async with routing(*endpoints(one, two)) as router:
            reply = await router.ask(stream=stream)
            assert (reply.status, reply.headers["X-Pointsman-Attempts"]) == (200, "2")
            blamed = [name for name in ("one", "two") if failure_ratio(router, name) > 0]
            assert len(blamed) == 1
