"""What a refusal teaches decides who is asked the next time, and what clients are told."""

from __future__ import annotations

import time
from typing import Any

import pytest

from router.balance.deployment_state import GRADES
from tests.support.pair import by, pair, single
from tests.support.speech import SPEECH
from tests.support.upstream import Script, streamed, whole

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
NO_TOOLS = whole(b'{"error": "registry.ollama.ai/library/m:latest does not support tools"}', 400)
TOO_LONG = b"This model's maximum context length is 600 tokens, however you requested 1000 tokens."


def refusing(message: bytes) -> Script:
    """A fault of the request, in OpenAI's words."""
    return whole(b'{"error": {"message": "%b", "type": "invalid_request_error"}}' % message, 400)


async def test_what_one_cannot_do_another_is_asked_for(stream: bool) -> None:
    async with pair(NO_TOOLS, dialect="ollama") as (router, one, two):
        kind = SPEECH["ollama"].kind
        if stream:
            one.default = two.default = streamed(*SPEECH["ollama"].pieces, kind=kind)
        for attempts in ("2", "1", "1"):
            reply = await router.ask(tools=[TOOL], stream=stream)
            assert (by(reply), reply.headers["X-Pointsman-Attempts"]) == ("two", attempts)
        assert by(await router.ask(stream=stream)) == "one"
        assert len(one.requests) == 2
        assert GRADES[router.deployment("one").grade] == "ready"
        assert not router.deployment("one").breaker.failure_ratio(time.monotonic())


async def test_what_nobody_can_do_is_named(stream: bool) -> None:
    async with pair(NO_TOOLS, dialect="ollama") as (router, one, two):
        two.scripts.append(NO_TOOLS)
        first = await router.ask(tools=[TOOL], stream=stream)
        assert first.status == 400
        assert "does not support tools" in first.error["message"]
        reply = await router.ask(tools=[TOOL], stream=stream)
        assert (reply.status, reply.error["code"]) == (400, "unsupported_feature")
        assert reply.error["param"] == "tools"
        assert "function tools" in reply.error["message"]
        assert reply.headers["X-Pointsman-Attempts"] == "0"
        chat = await router.ask(tools=[{"type": "function", "function": TOOL}], chat=True)
        assert (chat.status, chat.error["param"]) == (400, "tools")
        assert [len(one.requests), len(two.requests)] == [1, 1]


async def test_a_refusal_of_what_was_not_asked_for_teaches_nothing() -> None:
    """Or else one odd answer would take the endpoint away from everybody."""
    async with pair(NO_TOOLS, dialect="ollama") as (router, one, _):
        assert (await router.ask()).status == 400
        assert by(await router.ask(tools=[TOOL])) == "one"
        assert len(one.requests) == 2


@pytest.mark.parametrize("how", ["configured", "learned"])
async def test_a_request_that_is_too_long_for_all(how: str, stream: bool) -> None:
    fields: dict[str, Any] = {"context_length": 600} if how == "configured" else {}
    scripts = [refusing(TOO_LONG)] if how == "learned" else []
    async with single(*scripts, **fields) as (router, upstream):
        if how == "learned":
            assert (await router.ask(input="word " * 2000, stream=stream)).status == 400
        reply = await router.ask(input="word " * 2000, stream=stream)
        assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
        assert reply.error["param"] == "input"
        assert "600" in reply.error["message"]
        assert by(await router.ask()) == "one"
        assert len(upstream.requests) == len(scripts) + 1


async def test_a_request_that_is_too_long_for_one_goes_to_another() -> None:
    async with pair(refusing(TOO_LONG)) as (router, one, _):
        for attempts in ("2", "1"):
            reply = await router.ask(input="word " * 2000)
            assert (by(reply), reply.headers["X-Pointsman-Attempts"]) == ("two", attempts)
        assert by(await router.ask()) == "one"
        assert len(one.requests) == 2
