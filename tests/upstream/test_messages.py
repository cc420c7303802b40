"""Endpoints that speak Anthropic's Messages, over real sockets: what they are sent, by whom, and
what passes as it came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import orjson
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from router.plugin import Exchange, Interceptor, Proceed, Sink
from tests.support.fetch import fetch
from tests.support.router import API_KEY, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, json_answer, paced, streamed, whole

HELLO = SPEECH["messages"]
MESSAGE = orjson.loads(HELLO.whole)
LIMITS = {
    "request-id": "req_theirs",
    "anthropic-ratelimit-requests-remaining": "7",
    "anthropic-organization-id": "org_theirs",
    "x-internal": "no",
}
ASKED: dict[str, Any] = {
    "model": "m",
    "max_tokens": 50,
    "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1"}],
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
        }
    ],
    "container": {"skills": [1]},
    "speed": "fast",
}
OVERLOADED = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": "Overloaded"},
    "request_id": "req_theirs",
}


@asynccontextmanager
async def passing(default: Any, **more: Any) -> AsyncIterator[tuple[Upstream, Router]]:
    """A router in front of one endpoint that speaks Messages."""
    async with (
        Upstream(default=default) as upstream,
        routing(
            endpoint(upstream, "messages", aliases={"m": "theirs"}, models=["theirs"]), **more
        ) as router,
    ):
        yield upstream, router


async def post(router: Router, body: Any, path: str = "/v1/messages", **headers: str) -> Any:
    async with router.http.post(
        router.url + path, data=orjson.dumps(body), headers=headers
    ) as answer:
        return answer.status, dict(answer.headers), await answer.read()


async def test_a_request_passes_with_all_it_has() -> None:
    headers = {
        "anthropic-version": "2023-01-01",
        "anthropic-beta": "a-2025,b-2026",
        "x-api-key": "sk-clients",
        "anthropic-auth-token": "sk-clients",
    }
    async with passing(whole(HELLO.whole, headers=LIMITS)) as (upstream, router):
        path = "/v1/messages?beta=true&x=%20y"
        status, shown, body = await post(router, ASKED, path, **headers)
    assert status == 200
    assert orjson.loads(body) == {**MESSAGE, "model": "m"}
    (request,) = upstream.requests
    assert request.json == {**ASKED, "model": "theirs"}
    assert request.path == path
    assert request.headers["x-api-key"] == API_KEY
    assert request.headers["anthropic-version"] == "2023-01-01"
    assert request.headers["anthropic-beta"] == "a-2025,b-2026"
    assert b"sk-clients" not in request.head
    assert "authorization" not in request.headers
    assert shown["request-id"] == "req_theirs"
    assert shown["anthropic-ratelimit-requests-remaining"] == "7"
    assert "x-internal" not in shown
    assert "anthropic-organization-id" not in shown
    assert "X-Pointsman-Dropped-Parameters" not in shown


class Censor(Interceptor):
    """Has something else asked, of another model."""

    name = "censor"

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        """See ``Interceptor.intercept``."""
        if exchange.model == "m":
            exchange.body = {**exchange.body, "input": "censored"}
        else:
            exchange.ask_instead("m")
        await proceed(exchange, sink)


async def test_what_a_plugin_changes_is_what_is_asked() -> None:
    plugins = [f"{__name__}:Censor"]
    async with passing(json_answer(MESSAGE), plugins=plugins) as (upstream, router):
        status, _, _ = await post(router, ASKED)
        assert status == 200
        (request,) = upstream.requests
        assert b"hi" not in orjson.dumps(request.json["messages"])
        assert request.json["messages"][0]["content"][0]["text"] == "censored"
        status, _, _ = await post(router, {**ASKED, "model": "theirs"})
    assert status == 200
    assert upstream.requests[-1].json == {**ASKED, "model": "theirs"}


SEARCH = {
    "run": {"web_search": "router"},
    "web_search": {"provider": "searxng", "url": "http://127.0.0.1:1", "open_pages": False},
}


async def test_with_a_tool_that_is_run_here_nothing_may_be_left_out_either() -> None:
    strict = {"server": {"unsupported": "strict"}, "tools": SEARCH}
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    async with passing(HELLO.script(), **strict) as (upstream, router):
        status, _, body = await post(router, {**ASKED, "tools": tools})
        assert status == 400
        assert b"container" in body
        assert not upstream.requests
        plain = {name: ASKED[name] for name in ("model", "max_tokens", "messages")}
        status, _, _ = await post(router, {**plain, "tools": tools})
    assert status == 200
    assert upstream.requests


async def test_with_a_tool_that_is_run_here_lost_thinking_is_counted() -> None:
    thought = [
        {"type": "thinking", "thinking": "hm", "signature": "theirs"},
        {"type": "text", "text": "hi"},
    ]
    said = [
        *ASKED["messages"],
        {"role": "assistant", "content": thought},
        {"role": "user", "content": "on"},
    ]
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    asked = {"model": "m", "max_tokens": 50, "messages": said, "tools": tools}
    async with passing(HELLO.script(), tools=SEARCH) as (_, router):
        status, shown, _ = await post(router, asked)
    assert (status, shown["X-Pointsman-Reasoning-Dropped"]) == (200, "1")


async def test_a_stream_passes_as_it_came() -> None:
    async with passing(streamed(*HELLO.pieces, kind=HELLO.kind)) as (_, router):
        _, _, body = await post(router, {**ASKED, "stream": True})
        await router.idle()
        assert [(row.tokens.input, row.tokens.output) for row in router.rows] == [(7, 4)]
    came = b"".join(HELLO.pieces)
    assert b"".join(
        part + b"\n\n" for part in body.split(b"\n\n") if part and b"ping" not in part
    ) == came.replace(b'"theirs"', b'"m"')


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_is_told_in_the_endpoints_words(stream: bool) -> None:
    async with passing(json_answer(OVERLOADED, 529)) as (_, router):
        status, shown, body = await post(router, {**ASKED, "stream": stream})
        assert (status, orjson.loads(body)) == (529, OVERLOADED)
        told = await router.ask(input="hi")  # clients of other APIs have their own form
        assert (told.status, told.error["code"]) == (502, "upstream_error")
        assert "overloaded" in told.error["message"]
    assert "X-Pointsman-Endpoint" in shown


async def test_what_is_wrong_with_the_routers_key_is_nobody_elses_business() -> None:
    refused = {"type": "error", "error": {"type": "authentication_error", "message": "invalid"}}
    async with passing(json_answer(refused, 401)) as (_, router):
        status, _, body = await post(router, ASKED)
    assert status == 502
    assert orjson.loads(body)["error"]["type"] == "api_error"
    assert b"check its api_key" in body


async def test_a_stream_that_breaks_ends_with_an_error_of_the_api() -> None:
    for last in (b"", HELLO.error):
        pieces = (HELLO.opening, *HELLO.words, last)
        async with passing(streamed(*pieces, kind=HELLO.kind)) as (_, router):
            _, _, body = await post(router, {**ASKED, "stream": True})
        *_, end = [part for part in body.split(b"\n\n") if part]
        event = orjson.loads(end.partition(b"data: ")[2])
        assert event["type"] == "error"
        expected = "the GPU is on fire" if last else "The endpoint's stream ended before"
        assert event["error"]["message"].startswith(expected)


@pytest.mark.parametrize("kind", ["tool_search_tool_regex_20251119", "web_search_20250305", "new"])
async def test_what_nobody_here_understands_or_runs_passes_too(kind: str) -> None:
    strange = {**ASKED, "tools": [{"type": kind, "name": "search"}]}
    async with passing(json_answer(MESSAGE)) as (upstream, router):
        status, _, _ = await post(router, strange)
        assert status == 200
        assert upstream.requests[-1].json == {**strange, "model": "theirs"}
        cached = {**strange, "cache": True}
        status, _, _ = await post(router, cached)
    assert status == 200
    assert upstream.requests[-1].json == {**strange, "model": "theirs"}


async def test_what_an_endpoint_of_another_dialect_cannot_be_asked_goes_to_who_can() -> None:
    strange = {**ASKED, "tools": [{"type": "new", "name": "search"}]}
    chat = SPEECH["chat"]
    async with (
        Upstream(default=whole(chat.whole)) as one,
        Upstream(default=json_answer(MESSAGE)) as other,
        routing(endpoint(one, "chat", "one"), endpoint(other, "messages", "two")) as router,
    ):
        for _ in range(4):
            status, shown, _ = await post(router, strange)
            assert (status, shown["X-Pointsman-Endpoint"]) == (200, "two")
        assert not one.requests


@pytest.mark.parametrize("stream", [False, True])
async def test_another_dialect_takes_over(stream: bool) -> None:
    chat = SPEECH["chat"]
    async with (
        Upstream(default=json_answer(OVERLOADED, 529)) as one,
        Upstream(default=chat.script()) as other,
        routing(
            endpoint(one, "messages", "one", priority=1),
            endpoint(other, "chat", "two", priority=2),
            balance={"policy": "priority"},
        ) as router,
        AsyncAnthropic(base_url=router.url, api_key="x", max_retries=0) as client,
    ):
        asked: Any = {"model": "m", "max_tokens": 9, "messages": ASKED["messages"]}
        if stream:
            async with client.messages.stream(**asked) as events:
                message = await events.get_final_message()
        else:
            message = await client.messages.create(**asked)
        [block] = message.content
        assert block.type == "text"
        assert block.text == chat.text


async def test_tokens_are_counted_there() -> None:
    async with passing(json_answer({"input_tokens": 42})) as (upstream, router):
        path = "/v1/messages/count_tokens"
        body = {name: value for name, value in ASKED.items() if name != "max_tokens"}
        status, _, counted = await post(router, body, path + "?beta=true")
        assert (status, orjson.loads(counted)) == (200, {"input_tokens": 42})
        told = await fetch(
            router.http,
            "POST",
            router.url + "/v1/responses/input_tokens",
            json={"model": "m", "input": "hi"},
        )
    assert upstream.requests[0].path == path + "?beta=true"
    assert upstream.requests[0].json == {**body, "model": "theirs"}
    assert upstream.requests[1].json["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    ]
    assert told.json["input_tokens"] == 42


async def test_the_tools_of_a_namespace_are_counted_as_they_are_sent() -> None:
    function = {"type": "function", "name": "find", "parameters": {"type": "object"}}
    space = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [function]}
    call = {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "Ann"}
    items = [{"role": "user", "content": "hi"}, {**call, "namespace": "crm"}, output]
    async with passing(json_answer({"input_tokens": 42})) as (upstream, router):
        url = router.url + "/v1/responses/input_tokens"
        body = {"model": "m", "input": items, "tools": [space]}
        reply = await fetch(router.http, "POST", url, json=body)
    assert reply.json["input_tokens"] == 42
    [counted] = upstream.requests
    assert [tool["name"] for tool in counted.json["tools"]] == ["crm__find"]
    assert counted.json["messages"][1]["content"][0]["name"] == "crm__find"


THOUGHT = {
    **MESSAGE,
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "blob"},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "usage": {
        "input_tokens": 3,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 2},
    },
}
LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}


@pytest.mark.parametrize("asks", [True, False], ids=["encrypted", "stored"])
async def test_thinking_comes_back_as_it_was(asks: bool) -> None:
    async with (
        passing(json_answer(THOUGHT)) as (upstream, router),
        AsyncOpenAI(base_url=f"{router.url}/v1", api_key="x", max_retries=0) as client,
    ):
        asked: Any = {"model": "m", "tools": [LOOK], "reasoning": {"effort": "low"}}
        if asks:
            asked |= {"store": False, "include": ["reasoning.encrypted_content"]}
        first = await client.responses.create(**asked, input="hi")
        assert first.usage is not None
        assert first.usage.input_tokens == 123
        assert first.usage.input_tokens_details.cached_tokens == 100
        assert first.usage.output_tokens_details.reasoning_tokens == 2
        shown = first.output[0].to_dict().get("encrypted_content")
        assert (shown is not None) == asks
        output: Any = {"type": "function_call_output", "call_id": "toolu_1", "output": "seen"}
        if asks:
            history = [{"role": "user", "content": "hi"}, *first.output, output]
            await client.responses.create(**asked, input=history)
        else:
            await client.responses.create(**asked, input=[output], previous_response_id=first.id)
    messages = upstream.requests[1].json["messages"]
    assert messages[1] == {"role": "assistant", "content": THOUGHT["content"]}
    result = messages[2]["content"][0]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "toolu_1")


async def test_anothers_thinking_is_left_out_and_counted() -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": "pm1.another.t.x.y"}
    async with passing(json_answer(MESSAGE)) as (upstream, router):
        told = await router.ask(input=[item, {"role": "user", "content": "hi"}])
    assert told.headers["X-Pointsman-Reasoning-Dropped"] == "1"
    assert len(upstream.requests[0].json["messages"]) == 1


async def test_models_are_listed_with_their_limits() -> None:
    listed = {
        "data": [
            {"type": "model", "id": "a", "max_input_tokens": 1000, "max_tokens": 77},
            {"type": "model", "id": "b"},
        ],
        "has_more": False,
    }
    async with (
        Upstream(default=json_answer(MESSAGE), on_get=json_answer(listed)) as upstream,
        routing(endpoint(upstream, "messages", models=None)) as router,
    ):
        await router.ask(model="a")
        await router.ask(model="b", max_output_tokens=30)
        assert router.deployment(model="a").context == 1000
        [probe, *_] = upstream.probes
    assert probe.path == "/v1/models?limit=1000"
    assert probe.headers["anthropic-version"] == "2023-06-01"
    assert probe.headers["x-api-key"] == API_KEY
    assert [request.json["max_tokens"] for request in upstream.requests] == [77, 30]


async def test_a_rate_limit_is_told_with_its_headers() -> None:
    limited = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    script = whole(orjson.dumps(limited), 429, headers={**LIMITS, "retry-after": "9"})
    async with (
        passing(script) as (_, router),
        AsyncAnthropic(base_url=router.url, api_key="x", max_retries=0) as client,
    ):
        with pytest.raises(anthropic.RateLimitError) as caught:
            await client.messages.create(model="m", max_tokens=5, messages=ASKED["messages"])
    assert caught.value.body == limited
    assert caught.value.response.headers["retry-after"] == "9"
    assert caught.value.response.headers["anthropic-ratelimit-requests-remaining"] == "7"


async def test_with_a_cache_it_is_translated_and_kept() -> None:
    plain = {"model": "m", "max_tokens": 50, "messages": ASKED["messages"]}
    async with passing(HELLO.script(), cache={"mode": "always"}) as (upstream, router):
        answers = [await post(router, plain) for _ in range(2)]
    assert len(upstream.requests) == 1
    assert answers[1][1]["X-Cache"] == "HIT"
    texts = [orjson.loads(body)["content"][0]["text"] for _, _, body in answers]
    assert texts == [HELLO.text] * 2


async def test_the_head_of_a_stream_waits_for_the_endpoints() -> None:
    """However early other streams are opened: the client reads its status and its headers."""
    late = paced(streamed(*HELLO.pieces, kind=HELLO.kind, headers=LIMITS), 0.2)
    async with passing(late, server={"open_after": 0.01}) as (upstream, router):
        status, shown, body = await post(router, {**ASKED, "stream": True})
        assert (status, shown["request-id"]) == (200, "req_theirs")
        assert b'"id":"msg_up"' in body
        upstream.default = paced(json_answer(OVERLOADED, 529), 0.2)
        status, _, body = await post(router, {**ASKED, "stream": True})
    assert (status, orjson.loads(body)) == (529, OVERLOADED)


async def test_an_error_in_place_of_output_is_told_as_it_came() -> None:
    pieces = (HELLO.opening, HELLO.error)
    async with passing(streamed(*pieces, kind=HELLO.kind)) as (_, router):
        status, _, body = await post(router, {**ASKED, "stream": True})
    assert status == 200
    assert body.endswith(HELLO.error)
