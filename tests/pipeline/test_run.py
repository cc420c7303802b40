"""Which endpoints a request may go to, and what its failure says about them."""

from __future__ import annotations

import pytest

from tests.support.router import API_KEY, Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Script, Upstream, refused_port, streamed, whole
from tests.support.waiting import until

AUDIO = [
    {
        "role": "user",
        "content": [{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}],
    }
]
"""What Ollama's own API cannot carry, and Chat Completions can."""

WEIGHTS = pytest.mark.parametrize("weight", [0.1, 10.0], ids=["able first", "unable first"])


async def asked(weight: float, *scripts: Script) -> tuple[Reply, list[int]]:
    """The answer to ``AUDIO`` from an Ollama endpoint of this weight and a chat endpoint, which
    plays the scripts, and how often each of them was asked.
    """
    async with Upstream() as one, Upstream() as two:
        two.default = whole(SPEECH["chat"].whole)
        two.scripts.extend(scripts)
        unable, able = (
            endpoint(one, "ollama", "unable", weight=weight),
            endpoint(two, "chat", "able"),
        )
        async with routing(unable, able) as router:
            # Both have something in flight, so that the weights decide who is chosen first.
            with router.occupied("unable", "able"):
                reply = await router.ask(input=AUDIO)
        return reply, [len(one.requests), len(two.requests)]


@WEIGHTS
async def test_what_one_dialect_cannot_carry_another_may(weight: float) -> None:
    reply, counts = await asked(weight)
    assert reply.status == 200
    assert reply.headers["X-Pointsman-Endpoint"] == "able"
    assert reply.headers["X-Pointsman-Attempts"] == "1"
    assert counts == [0, 1]


@WEIGHTS
async def test_a_failure_is_told_rather_than_what_could_not_be_carried(weight: float) -> None:
    reply, counts = await asked(weight, whole(b"{}", 500))
    assert (reply.status, reply.error["code"]) == (502, "upstream_error")
    assert counts == [0, 1]


async def test_what_no_endpoint_can_carry() -> None:
    async with Upstream() as upstream:
        endpoints = [endpoint(upstream, "ollama", name) for name in ("one", "two")]
        async with routing(*endpoints) as router:
            reply = await router.ask(input=AUDIO)
        assert (reply.status, reply.error["code"]) == (400, "unsupported_value")
        assert reply.error["param"] == "input[0].content[0]"
        assert upstream.requests == []


@pytest.mark.parametrize("begun", [False, True])
async def test_an_endpoints_key_is_not_shown_when_it_is_quoted(begun: bool) -> None:
    chat = SPEECH["chat"]
    quoted = b'data: {"error": {"message": "Incorrect key: %b."}}\n\n' % API_KEY.encode()
    words = chat.pieces[:2] if begun else ()
    script = streamed(*words, quoted, kind=chat.kind)
    async with Upstream(script) as upstream, routing(endpoint(upstream, "chat")) as router:
        reply = await router.ask(stream=True)
        assert b"Incorrect key: [api_key]." in reply.body
        assert reply.status == (200 if begun else 502)
        assert API_KEY not in repr((reply.body, router.log))


async def readiness(router: Router) -> int:
    async with router.http.get(router.url + "/ready") as answer:
        return answer.status


async def test_who_answers_that_it_is_busy_is_there() -> None:
    async with (
        Upstream(whole(b"{}", 503)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        one = router.deployment().endpoint
        await until(one.probed.is_set)
        assert (await router.ask()).status == 503
        assert await readiness(router) == 200


async def test_who_cannot_be_reached_is_not() -> None:
    async with refused_port() as nobody, routing(endpoint(nobody, "chat")) as router:
        one = router.deployment().endpoint
        await until(one.probed.is_set)
        one.host.reachable(0.0)  # as if it had only just gone
        assert (await router.ask()).status == 503
        assert await readiness(router) == 503
