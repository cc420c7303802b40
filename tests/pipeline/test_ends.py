"""How answers end that go on too long, fail at their endpoint, or find no room."""

from __future__ import annotations

import pytest

from router.core.exchange import Exchange, Sink
from router.core.plugin_hooks import Interceptor, Proceed
from router.pipeline import attempt
from router.response.frame import encode_event
from router.settings.schema import Dialect
from tests.support.router import API_KEY, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, streamed, whole

TOO_LONG = 4096


class EmptyBatches(Interceptor):
    """Feeds batches without a frame, which are nothing."""

    name = "empty_batches"

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        """See ``Interceptor.intercept``."""
        sink.open({})
        sink.feed([])
        await proceed(exchange, sink)


async def test_an_empty_batch_does_not_end_the_stream() -> None:
    chat = SPEECH["chat"]
    async with (
        Upstream(streamed(*chat.pieces, kind=chat.kind)) as upstream,
        routing(
            endpoint(upstream, "chat"), plugins=["tests.pipeline.test_ends:EmptyBatches"]
        ) as router,
    ):
        reply = await router.ask(stream=True)
        assert [event.type for event in reply.events][-1] == "response.completed"


@pytest.mark.parametrize("dialect", ["responses", "chat", "ollama"])
async def test_a_stream_without_end_is_given_up(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "_MAX_STREAM_BYTES", TOO_LONG)
    speech = SPEECH[dialect]
    words = speech.words[1:2] * TOO_LONG
    script = streamed(speech.opening, speech.words[0], *words, kind=speech.kind)
    async with Upstream(script) as upstream, routing(endpoint(upstream, dialect)) as router:
        reply = await router.ask(stream=True)
        assert reply.events[-1].type == "response.failed"
        assert str(TOO_LONG) in reply.body.decode().rpartition('"error"')[2]


async def test_an_answer_that_failed_at_its_endpoint() -> None:
    """It is passed on without the router's key, and counted as what it is."""
    native = SPEECH["responses"]
    failed = encode_event(
        "response.failed",
        b'{"type":"response.failed","sequence_number":9,"response":{"id":"resp_1","object":'
        b'"response","status":"failed","output":[],"error":{"code":"server_error",'
        b'"message":"key %b is worn out"}}}' % API_KEY.encode(),
    )
    script = streamed(native.opening, native.words[0], failed, kind=native.kind)
    async with Upstream(script) as upstream, routing(endpoint(upstream, "responses")) as router:
        reply = await router.ask(stream=True)
        assert reply.events[-1].type == "response.failed"
        assert b"key [api_key] is worn out" in reply.body
        assert API_KEY not in repr((reply.body, router.log))
        await router.idle()
        assert sum(await router.metric("pointsman_requests_total", outcome="failed")) == 1


async def test_why_it_had_to_go_elsewhere_says_more_than_that_there_is_no_room() -> None:
    async with Upstream(whole(b"{}", 500)) as one, Upstream() as two:
        endpoints = [
            endpoint(one, "chat", "one", weight=10.0),
            endpoint(two, "chat", "two", max_in_flight=1),
        ]
        async with routing(*endpoints, balance={"queue_timeout": 0.05}) as router:
            with router.occupied("two"):
                reply = await router.ask()
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")


async def test_what_a_hosted_tool_was_told_is_not_dropped_unsaid() -> None:
    told = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    async with Upstream() as upstream, routing(endpoint(upstream, "chat")) as router:
        reply = await router.ask(input=[{"role": "user", "content": "hi"}, told])
        assert (reply.status, reply.error["param"]) == (400, "input[1]")
        assert upstream.requests == []


async def test_a_bad_request_is_not_answered_with_an_estimate() -> None:
    refusal = b'{"error": {"message": "no such tool", "code": "invalid_value", "param": "tools"}}'
    async with (
        Upstream(whole(refusal, 400)) as upstream,
        routing(endpoint(upstream, "responses")) as router,
    ):
        body = {"model": "m", "input": "hi"}
        url = router.url + "/v1/responses/input_tokens"
        async with router.http.post(url, json=body) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["message"] == "no such tool"
        assert router.deployment("one").in_flight == 0
