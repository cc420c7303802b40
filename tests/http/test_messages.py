"""Anthropic's Messages API as HTTP has it, before upstreams that fail, dawdle and break off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from router.core.usage_record import Kind
from router.dialects.messages.thinking import sign
from router.settings.schema import Dialect
from tests.support import native as natives
from tests.support.account import Account
from tests.support.anthropic import (
    TOOL,
    VERSION,
    asked,
    bodies_of,
    check_message,
    check_stream,
)
from tests.support.dialects import dialect, speech
from tests.support.fetch import fetch
from tests.support.reading import native
from tests.support.router import API_KEY, Reply, Router, endpoint, routing
from tests.support.speech import SPEECH, Speech
from tests.support.sse import parse_events
from tests.support.upstream import Upstream, refused_port, silent, streamed, whole
from tests.support.waiting import until

__all__ = ["dialect", "speech"]

KEY = "sk-claude"
KEYS: dict[str, Any] = {"auth": {"keys": [{"name": "ann", "key": KEY}]}}
DROPPED_PARAMETERS = "X-Pointsman-Dropped-Parameters"
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
DROPPED = "X-Pointsman-Reasoning-Dropped"


async def post(router: Router, body: Any, path: str = "/v1/messages", **options: Any) -> Reply:
    options["headers"] = {**VERSION, **options.get("headers", {})}
    given = {"data": body} if isinstance(body, bytes) else {"json": body}
    return await fetch(router.http, "POST", router.url + path, **given, **options)


def error_of(reply: Reply) -> tuple[int, str, str]:
    """Status, type and message of an error in Anthropic's form; both ids are the request's."""
    body = reply.json
    assert sorted(body) == ["error", "request_id", "type"]
    assert body["type"] == "error"
    assert sorted(body["error"]) == ["message", "type"]
    assert body["request_id"] == reply.headers["request-id"] == reply.headers["X-Request-Id"]
    return reply.status, body["error"]["type"], body["error"]["message"]


def events_of(reply: Reply) -> list[dict[str, Any]]:
    assert reply.status == 200, reply.body
    assert reply.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    return bodies_of(parse_events(reply.body))


@STREAM
@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
async def test_an_answer_is_recorded(
    dialect: Dialect, speech: Speech, prefix: str, *, stream: bool
) -> None:
    script = streamed(*speech.pieces, kind=speech.kind) if stream else whole(speech.whole)
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect), **KEYS) as router,
    ):
        reply = await post(
            router,
            asked(stream=stream),
            f"{prefix}/messages?beta=true",
            headers={"x-api-key": KEY, "X-Request-Id": "mine", "anthropic-beta": "a,b"},
        )
        message = check_stream(events_of(reply)) if stream else reply.json
        assert message is not None
        check_message(message)
        assert message["content"] == [{"type": "text", "text": speech.text}]
        assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (7, 4)
        assert reply.headers["request-id"] == reply.headers["X-Request-Id"] == "mine"
        assert reply.headers["X-Pointsman-Endpoint"] == "one"
        assert reply.headers["X-Pointsman-Attempts"] == "1"
        assert DROPPED_PARAMETERS not in reply.headers
        await until(lambda: router.rows)
        (row,) = router.rows
        assert (row.key, row.operation, row.kind, row.request) == (
            "ann", "messages", Kind.FIRST, "mine",
        )  # fmt: skip
        assert (row.tokens.input, row.tokens.output) == (7, 4)
        [sent] = upstream.requests
        assert sent.headers.get("x-api-key") == (API_KEY if dialect == "messages" else None)
        passed = any(name.startswith("anthropic") for name in sent.headers)
        assert passed == (dialect == "messages")
        assert KEY not in repr(sent.headers) + sent.body.decode()


@pytest.mark.parametrize(
    ("body", "status", "kind", "says"),
    [
        (b"", 400, "invalid_request_error", "empty"),
        (b"{", 400, "invalid_request_error", "not valid JSON"),
        (b"[]", 400, "invalid_request_error", "JSON object"),
        (asked(max_tokens=...), 400, "invalid_request_error", "max_tokens: Field required"),
        (asked(model="nobody"), 404, "not_found_error", "nobody"),
        (b" " * 600_000, 413, "request_too_large", "exceeds"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_errors_are_told_in_its_form(
    body: Any, status: int, kind: str, says: str, path: str
) -> None:
    if path.endswith("count_tokens") and says.startswith("max_tokens"):
        body, says = asked(messages=...), "messages: Field required"
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, "chat"), server={"max_body_mb": 0.5}) as router,
    ):
        reply = await post(router, body, path)
        found = error_of(reply)
        assert found[:2] == (status, kind)
        assert says in found[2]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": ""},
        {"x-api-key": "sk-other"},
        {"x-api-key": KEY, "Authorization": "Bearer x"},
    ],
)
async def test_who_has_no_key_is_told_in_its_form(headers: dict[str, str]) -> None:
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, "chat"), **KEYS) as router,
    ):
        reply = await post(router, asked(), headers=headers)
        assert error_of(reply)[:2] == (401, "authentication_error")
        assert reply.headers["x-should-retry"] == "false"
        assert "sk-other" not in reply.body.decode()


@STREAM
async def test_an_upstream_that_is_not_there(dialect: Dialect, *, stream: bool) -> None:
    async with refused_port() as nobody, routing(endpoint(nobody, dialect)) as router:
        reply = await post(router, asked(stream=stream))
        assert error_of(reply)[:2] == (503, "overloaded_error")


@pytest.mark.parametrize(
    ("status", "told", "kind"),
    [(400, 400, "invalid_request_error"), (429, 429, "rate_limit_error"), (500, 502, "api_error")],
)
async def test_an_upstream_that_refuses(
    status: int, told: int, kind: str, dialect: Dialect
) -> None:
    said: Any = "too bad" if dialect == "ollama" else {"message": "too bad"}
    script = whole(orjson.dumps({"error": said}), status=status)
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        assert error_of(await post(router, asked()))[:2] == (told, kind)


@STREAM
async def test_a_prompt_that_is_too_long(*, stream: bool) -> None:
    """In the words by which Claude Code knows that it has to compact."""
    said = (
        "This model's maximum context length is 4096 tokens. However, you requested 5100 tokens "
        "(5000 in the messages, 100 in the completion)."
    )
    script = whole(orjson.dumps({"error": {"message": said}}), status=400)
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        status, kind, message = error_of(await post(router, asked(stream=stream)))
        assert (status, kind) == (400, "invalid_request_error")
        assert message == f"prompt is too long: 5000 tokens > 4096 maximum ({said})"


async def test_a_spent_budget_is_not_to_be_tried_again() -> None:
    key = {"name": "ann", "key": KEY, "budgets": [{"period": "month", "tokens": 1}]}
    async with (
        Upstream(default=whole(SPEECH["chat"].whole)) as upstream,
        routing(endpoint(upstream, "chat"), auth={"keys": [key]}) as router,
    ):
        refused = await post(router, asked(), headers={"x-api-key": KEY})
        if refused.status == 200:  # a budget that is unused takes one request
            refused = await post(router, asked(), headers={"x-api-key": KEY})
        assert error_of(refused)[:2] == (429, "rate_limit_error")
        assert refused.headers["x-should-retry"] == "false"


async def test_an_upstream_that_is_silent() -> None:
    async with (
        Upstream(default=silent) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"total": 0.1})) as router,
    ):
        assert error_of(await post(router, asked()))[:2] == (504, "timeout_error")


async def test_a_stream_that_breaks(dialect: Dialect, speech: Speech) -> None:
    script = streamed(speech.opening, speech.words[0], speech.error, kind=speech.kind)
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await post(router, asked(stream=True))
        events = events_of(reply)
        if dialect != "messages":  # whose own event passes as it came
            assert check_stream(events) is None
            assert events[-1]["request_id"] == reply.headers["request-id"]
        assert events[-1]["error"]["type"] == "api_error"
        router.forgive("attempt failed")


async def test_silence_is_filled_with_pings(dialect: Dialect, speech: Speech) -> None:
    async def late(wire: Any) -> None:
        await asyncio.sleep(0.2)
        await streamed(*speech.pieces, kind=speech.kind)(wire)

    early = {"open_after": 0.02, "keepalive_interval": 0.02}
    async with (
        Upstream(default=late) as upstream,
        routing(endpoint(upstream, dialect), server=early) as router,
    ):
        reply = await post(router, asked(stream=True))
        assert b": keep-alive" not in reply.body
        events = events_of(reply)
        if dialect != "messages":  # whose head is waited for
            assert [event["type"] for event in events[:2]] == ["message_start", "ping"]
        message = check_stream(events)
        assert message is not None
        assert message["content"] == [{"type": "text", "text": speech.text}]


async def test_a_client_that_leaves_gives_its_slot_back(dialect: Dialect, speech: Speech) -> None:
    script = streamed(speech.opening, speech.words[0], kind=speech.kind, then=silent)
    patient = {"first_byte": 30, "idle": 30, "total": 30}
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect, timeouts=patient)) as router,
    ):
        url = router.url + "/v1/messages"
        async with router.http.post(url, json=asked(stream=True)) as response:
            await response.content.readuntil(b"Hello")
            assert router.taken == 1
        async with asyncio.timeout(60):
            await upstream.requests[0].wire.gone.wait()
        await router.idle()
        assert await router.metric(
            "pointsman_requests_total", outcome="cancelled", operation="messages"
        ) == [1.0]


async def test_what_is_not_sent_is_named_or_refused() -> None:
    body = asked(container="c", tools=[{**TOOL, "input_examples": [{}]}])
    native_whole = SPEECH["chat"].whole
    async with (
        Upstream(default=whole(native_whole)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        routing(endpoint(upstream, "chat"), server={"unsupported": "strict"}) as strict,
    ):
        reply = await post(router, body)
        assert reply.status == 200
        assert reply.headers[DROPPED_PARAMETERS] == "tools.0.input_examples, container"
        status, kind, message = error_of(await post(strict, body))
        assert (status, kind) == (400, "invalid_request_error")
        assert "tools.0.input_examples" in message


async def test_thinking_of_others_is_counted() -> None:
    foreign = {"type": "thinking", "thinking": "Hm", "signature": "EqQBCgIYAhIM"}
    text = {"type": "text", "text": "a"}
    messages = [*asked()["messages"], {"role": "assistant", "content": [foreign, text]}]
    async with (
        Upstream(default=whole(SPEECH["chat"].whole)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        reply = await post(router, asked(messages=[*messages, *asked()["messages"]]))
        assert (reply.status, reply.headers[DROPPED]) == (200, "1")


@pytest.fixture
async def account() -> AsyncIterator[Account]:
    """A native upstream that wants its own encrypted reasoning back."""
    async with Account("ann") as account:
        yield account


@STREAM
async def test_encrypted_reasoning_goes_there_and_back(account: Account, *, stream: bool) -> None:
    thinking = {"type": "adaptive"}
    said: list[Any] = [{"role": "user", "content": "Begin 1."}]
    async with routing({**account.endpoint, "models": ["thinker"]}) as router:
        for turn in range(3):
            ask = asked(model="thinker", messages=said, thinking=thinking, stream=stream)
            reply = await post(router, ask)
            message = check_stream(events_of(reply)) if stream else reply.json
            assert message is not None
            check_message(message)
            kinds = [block["type"] for block in message["content"]]
            assert kinds[0] in ("thinking", "redacted_thinking"), message
            first = message["content"][0]
            assert (first.get("signature") or first["data"]).startswith(sign("pm1."))
            sent = account.received[-1]
            blobs = [item for item in sent["input"] if item.get("encrypted_content")]
            assert len(blobs) == turn
            assert not any(item["encrypted_content"].startswith("pm1.") for item in blobs)
            assert DROPPED not in reply.headers
            said += [
                {"role": "assistant", "content": message["content"]},
                {"role": "user", "content": "And now?"},
            ]


async def test_thinking_of_others_and_of_another_account_is_counted_together(
    account: Account,
) -> None:
    foreign = {"type": "thinking", "thinking": "Hm", "signature": "EqQBCgIYAhIM"}
    said: list[Any] = [{"role": "user", "content": "Begin 1."}]
    ask = asked(model="thinker", messages=said, thinking={"type": "adaptive"})
    async with routing({**account.endpoint, "models": ["thinker"]}) as router:
        content = (await post(router, ask)).json["content"]
    said += [
        {"role": "assistant", "content": [foreign, *content]},
        {"role": "user", "content": "And now?"},
    ]
    async with (
        Account("bob") as other,
        routing({**other.endpoint, "models": ["thinker"]}) as router,
    ):
        reply = await post(router, ask)
        assert (reply.status, reply.headers[DROPPED]) == (200, "2")


async def test_calls_that_interleave_reach_the_client_in_order() -> None:
    one, two = natives.call("a", '{"x":1}'), natives.call("b", '{"y":2}')
    first, second, *inner, last = natives.events(one, two)
    inner[2], inner[4:6] = inner[4], [inner[2], inner[5]]
    inner = sorted(inner, key=lambda event: event["type"] == "response.output_item.done")
    script = streamed(native(first, second, *inner, last), kind=SPEECH["responses"].kind)
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, "responses")) as router,
    ):
        message = check_stream(events_of(await post(router, asked(stream=True))))
        assert message is not None
        assert [block["input"] for block in message["content"]] == [{"x": 1}, {"y": 2}]


async def test_tokens_are_counted_by_who_can() -> None:
    counted = whole(orjson.dumps({"object": "response.input_tokens", "input_tokens": 42}))
    async with (
        Upstream(default=counted) as upstream,
        routing(endpoint(upstream, "responses"), endpoint(upstream, "chat", "two", models=["c"]))
        as router,
    ):  # fmt: skip
        body = asked(max_tokens=..., thinking={"type": "adaptive"}, metadata={"user_id": "u"})
        reply = await post(router, body, "/v1/messages/count_tokens")
        assert (reply.status, reply.json) == (200, {"input_tokens": 42})
        assert reply.headers["request-id"] == reply.headers["X-Request-Id"]
        assert sorted(upstream.requests[0].json) == ["input", "model", "reasoning"]
        reply = await post(router, {**body, "model": "c"}, "/v1/messages/count_tokens")
        assert list(reply.json) == ["input_tokens"]
        assert reply.headers["X-Pointsman-Estimated"] == "true"


async def test_what_attributes_a_request_for_billing_is_no_part_of_the_prompt() -> None:
    """Claude Code's first block differs in every request: neither the endpoint nor the cache gets
    to see it.
    """

    def body(mark: int) -> dict[str, Any]:
        billing = f"x-anthropic-billing-header: cc_version=2.1.0.{mark}; cch={mark:05x};"
        return asked(
            system=[{"type": "text", "text": billing}, {"type": "text", "text": "Be brief."}]
        )

    async with (
        Upstream(whole(SPEECH["chat"].whole)) as upstream,
        routing(endpoint(upstream, "chat"), cache={"mode": "always"}) as router,
    ):
        replies = [await post(router, body(mark)) for mark in (1, 2)]
        assert [reply.status for reply in replies] == [200, 200]
        [request] = upstream.requests
        assert request.json["messages"][0] == {"role": "system", "content": "Be brief."}
        assert [reply.headers["X-Cache"] for reply in replies] == ["MISS", "HIT"]
