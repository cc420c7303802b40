"""The Responses API over a WebSocket: what is said there, and how it is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest
from openai.types.responses import ResponseSteerFailedEvent

from tests.support.reloading import keys, reload
from tests.support.router import endpoint, routing
from tests.support.sockets import Socket, connected
from tests.support.speech import DIALECTS, SPEECH
from tests.support.sse import Event, check_responses_stream
from tests.support.upstream import Upstream, reset_now, streamed, whole

CHAT = SPEECH["chat"]
HELLO = streamed(*CHAT.pieces, kind=CHAT.kind)
KEY, OTHER = "sk-a-1", "sk-b-2"
CALL = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "look",
    "arguments": "{}",
    "id": "fc_1",
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(upstream: Upstream, at: int = -1) -> list[Any]:
    """What a chat endpoint was told by one of the requests: the contents of its messages."""
    return [message.get("content") for message in upstream.requests[at].json["messages"]]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_events_are_those_of_a_stream(dialect: Any) -> None:
    speech = SPEECH[dialect]
    script = streamed(*speech.pieces, kind=speech.kind)
    async with (
        Upstream(script, script) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        over_http = (await router.ask(stream=True, store=False)).events
        async with connected(router.url) as socket:
            await socket.send()
            events = await socket.events()
        headers = events[0].pop("headers")
        assert headers["x-request-id"].startswith("req_")
        assert headers["x-pointsman-endpoint"] == "one"
        assert [event["type"] for event in events] == [event.type for event in over_http]
        final = check_responses_stream([Event(event["type"], event, b"") for event in events])
        assert final["output_text"] == speech.text
        assert final["store"] is False


@pytest.mark.parametrize("path", ["/v1/responses", "/api/v1/responses"])
async def test_at_every_prefix(path: str) -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url, path) as socket,
    ):
        assert (await socket.ask())["output_text"] == CHAT.text


async def test_below_a_foreign_application() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat"), foreign=True, handler_cancellation=False) as router,
        connected(router.url) as socket,
    ):
        assert (await socket.ask())["output_text"] == CHAT.text


async def test_what_is_not_stored_is_continued() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        async with connected(router.url) as socket:
            first = await socket.ask(input="one")
            second = await socket.ask(input="two", previous_response_id=first["id"])
            assert second["previous_response_id"] == first["id"]
            await socket.ask(input="three", previous_response_id=second["id"])
            assert said(upstream) == ["one", CHAT.text, "two", CHAT.text, "three"]
            # An older one, too: a branch.
            await socket.ask(input="other", previous_response_id=first["id"])
            assert said(upstream) == ["one", CHAT.text, "other"]
        async with router.http.get(f"{router.url}/v1/responses/{first['id']}") as reply:
            assert reply.status == 404
        async with connected(router.url) as socket:
            error = await socket.refused(input="four", previous_response_id=second["id"])
        assert error["status"] == 400
        assert error["error"]["code"] == "previous_response_not_found"
        assert error["error"]["param"] == "previous_response_id"


async def test_what_is_not_stored_is_referred_to() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        async with connected(router.url) as socket:
            first = await socket.ask(input=[{**user("one"), "id": "msg_one"}])
            [item] = first["output"]
            references = [
                {"type": "item_reference", "id": ident} for ident in ("msg_one", item["id"])
            ]
            second = await socket.ask(input=[*references, user("two")])
            assert said(upstream) == ["one", CHAT.text, "two"]
            await socket.ask(input=[references[1], user("three")], store=True)
            assert said(upstream) == [CHAT.text, "three"]
            await socket.ask(input="four", previous_response_id=second["id"])
            assert said(upstream) == ["one", CHAT.text, "two", CHAT.text, "four"]
        async with connected(router.url) as socket:
            error = await socket.refused(input=[references[0], user("five")])
            assert (error["status"], error["error"]["param"]) == (404, "input[0]")
            # What a stored response has repeated is stored with it.
            await socket.ask(input=[references[1], user("six")])
            assert said(upstream) == [CHAT.text, "six"]


async def test_what_is_stored_is_continued_anywhere() -> None:
    async with (
        Upstream(HELLO, HELLO, HELLO, whole(CHAT.whole)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        async with connected(router.url) as socket:
            first = await socket.ask(input="one", store=True)
        async with connected(router.url) as socket:
            second = await socket.ask(input="two", previous_response_id=first["id"])
            third = await socket.ask(input="three", previous_response_id=second["id"], store=True)
        reply = await router.ask(input="four", previous_response_id=third["id"])
        assert reply.status == 200
        text = CHAT.text
        assert said(upstream) == ["one", text, "two", text, "three", text, "four"]


async def test_with_the_database_down() -> None:
    """A chain of the connection's own needs none."""
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        first = await socket.ask(input="one")
        database = next(
            cell.cell_contents
            for cell in router.app.cleanup_ctx[0].__closure__ or ()
            if hasattr(cell.cell_contents, "database")
        ).database
        database.up = False
        try:
            second = await socket.ask(input="two", previous_response_id=first["id"])
            reference = {"type": "item_reference", "id": first["output"][0]["id"]}
            await socket.ask(input=[reference, user("three")])
            error = await socket.refused(input="x", store=True)
            elsewhere = await socket.refused(input=[{**reference, "id": "msg_1"}, user("x")])
        finally:
            database.up = True
        assert said(upstream) == [CHAT.text, "three"]
        assert second["status"] == "completed"
        assert (error["status"], elsewhere["status"]) == (503, 503)


async def test_a_warm_up_asks_nobody() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        warm = await socket.ask(input=[], instructions="Be brief.", generate=False)
        assert warm["output"] == []
        assert warm["usage"]["total_tokens"] == 0
        assert not upstream.requests
        known = await socket.ask(input="one", generate=False)
        assert not upstream.requests
        await socket.ask(input="two", previous_response_id=known["id"])
        assert said(upstream) == ["one", "two"]
        await socket.ask(input="three", previous_response_id=warm["id"])
        assert said(upstream) == ["three"]
        kept = await socket.ask(input="four", generate=False, store=True)
        async with router.http.get(f"{router.url}/v1/responses/{kept['id']}") as reply:
            assert reply.status == 200
        error = await socket.refused(generate=False, model="nobody's")
        assert (error["status"], error["error"]["code"]) == (404, "model_not_found")
        error = await socket.refused(generate="no")
        assert error["error"]["param"] == "generate"
        assert router.rows[0].model == "m"
        assert len(router.rows) == len(upstream.requests)


async def test_what_failed_is_not_gone_on_from() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        root = await socket.ask(input="one")
        child = await socket.ask(input="two", previous_response_id=root["id"], stream_id="b")
        orphan = [{"type": "function_call_output", "call_id": "call_none", "output": "1"}]
        error = await socket.refused(input=orphan, previous_response_id=root["id"], stream_id="b")
        assert "No tool call found" in error["error"]["message"]
        # It was another stream's, for which it stays.
        await socket.ask(input="three", previous_response_id=root["id"])
        await socket.refused(input=orphan, previous_response_id=root["id"])
        error = await socket.refused(input="four", previous_response_id=root["id"])
        assert error["error"]["code"] == "previous_response_not_found"
        await socket.ask(input="five", previous_response_id=child["id"], stream_id="b")
        assert said(upstream) == ["one", CHAT.text, "two", CHAT.text, "five"]


async def test_the_output_of_a_call() -> None:
    chunk = orjson.loads(CHAT.words[0].removeprefix(b"data: "))
    call = {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": "{}"}}
    chunk["choices"][0]["delta"] = {"tool_calls": [{**call, "type": "function"}]}
    calls = streamed(b"data: %b\n\n" % orjson.dumps(chunk), CHAT.closing, kind=CHAT.kind)
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    async with (
        Upstream(calls, HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        first = await socket.ask(tools=tools)
        assert first["output"][0]["type"] == "function_call"
        output = {"type": "function_call_output", "call_id": "call_1", "output": "a cat"}
        await socket.ask(input=[output], previous_response_id=first["id"], tools=tools)
        roles = [message["role"] for message in upstream.requests[1].json["messages"]]
        assert roles == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"background": True}, "unsupported_parameter", "background"),
        ({"stream": False}, "unsupported_parameter", "stream"),
        (
            {"stream_options": {"durable": True}},
            "unsupported_parameter",
            "stream_options.durable",
        ),
        ({"stream_id": ""}, "invalid_stream_id", "stream_id"),
        ({"stream_id": "a b"}, "invalid_stream_id", "stream_id"),
        ({"stream_id": "a" * 257}, "invalid_stream_id", "stream_id"),
        ({"stream_id": 7}, "invalid_stream_id", "stream_id"),
        ({"type": "response.cancel"}, "invalid_value", "type"),
        ({"type": None}, "invalid_value", "type"),
        ({"temperature": "hot"}, "invalid_type", "temperature"),
        ({"model": None}, "missing_required_parameter", "model"),
        ({"input": None}, "missing_required_parameter", "input"),
    ],
)
async def test_what_is_wrong_is_named(fields: dict[str, Any], code: str, param: str) -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        error = await socket.refused(**fields)
        assert error["status"] == 400
        assert (error["error"]["code"], error["error"]["param"]) == (code, param)
        assert sorted(error["error"]) == ["code", "message", "param", "type"]
        assert not upstream.requests
        assert (await socket.ask())["output_text"] == CHAT.text


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("[]", "invalid_type"),
        ("[" * 500 + "]" * 500, "invalid_type"),
        ('{"type": "response.create", "a": ' + "[" * 300 + "]" * 300 + "}", "invalid_value"),
        (b"{}", "invalid_type"),
        (b"\x00\xff", "invalid_type"),
    ],
)
async def test_what_is_no_message(message: str | bytes, code: str) -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        if isinstance(message, bytes):
            await socket.ws.send_bytes(message)
        else:
            await socket.ws.send_str(message)
        error = await socket.event()
        assert (error["type"], error["status"]) == ("error", 400)
        assert error["error"]["code"] == code
        assert (await socket.ask())["output_text"] == CHAT.text


async def test_what_is_tolerated() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        first = await socket.ask(stream=True, background=False, stream_options=None)
        done = {"type": "response.processed", "response_id": first["id"]}
        await socket.ws.send_str(orjson.dumps(done).decode())
        assert (await socket.ask(previous_response_id=None))["status"] == "completed"


async def test_what_is_to_steer_a_response_is_given_back() -> None:
    """And the response goes on."""
    go_on = asyncio.Event()

    async def held(wire: Any) -> None:
        await go_on.wait()
        await HELLO(wire)

    async with (
        Upstream(held) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        await socket.send()
        ident = (await socket.until("response.created"))["response"]["id"]
        steer = {"previous_response_id": ident, "input": "Be brief."}
        await socket.ws.send_str(orjson.dumps({"type": "response.steer", **steer}).decode())
        event = await socket.until("response.steer.failed")
        assert event["steer"] == steer
        assert event["error"]["code"] == "steering_not_supported"
        ResponseSteerFailedEvent.model_validate(event, strict=True)
        for name in steer:
            odd = {"type": "response.steer", **steer, name: 7}
            await socket.ws.send_str(orjson.dumps(odd).decode())
            assert (await socket.until("error"))["error"]["param"] == name
        go_on.set()
        assert (await socket.events())[-1]["type"] == "response.completed"


async def test_one_stream_in_order_and_several_at_once() -> None:
    hold = asyncio.Event()

    async def held(wire: Any) -> None:
        wire.head(200, {"Content-Type": CHAT.kind})
        wire.piece(CHAT.opening + CHAT.words[0])
        await hold.wait()
        wire.piece(CHAT.closing)
        wire.end()

    async with (
        Upstream(held, HELLO, HELLO) as upstream,
        routing(endpoint(upstream, "chat", max_in_flight=8)) as router,
        connected(router.url) as socket,
    ):
        await socket.send(stream_id="slow", input="first")
        await socket.until("response.output_text.delta", "slow")
        await socket.send(stream_id="slow", input="second")
        await socket.send(input="third")
        await socket.until("response.completed", None)
        assert [said(upstream, at) for at in (0, 1)] == [["first"], ["third"]]
        hold.set()
        await socket.until("response.completed", "slow")
        await socket.until("response.completed", "slow")
        assert said(upstream) == ["second"]


async def test_thirty_two_names() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        for number in range(32):
            await socket.ask(generate=False, stream_id=f"agent_{number}")
        error = await socket.refused(stream_id="agent_33")
        assert error["error"]["code"] == "websocket_stream_limit_reached"
        assert error["stream_id"] == "agent_33"
        assert (await socket.ask(stream_id="agent_0"))["status"] == "completed"
        assert (await socket.ask())["status"] == "completed"


async def test_errors_have_status_and_headers() -> None:
    limited = whole(orjson.dumps({"error": {"message": "slowly"}}), 429, {"Retry-After": "7"})
    async with (
        Upstream(limited) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        error = await socket.refused(stream_id="main")
        assert (error["status"], error["stream_id"]) == (429, "main")
        assert error["error"]["code"] == "rate_limit_exceeded"
        assert error["headers"]["retry-after"] == "7"
        assert error["headers"]["x-request-id"].startswith("req_")


async def test_a_stream_that_breaks_ends_as_failed() -> None:
    broken = streamed(CHAT.opening, CHAT.words[0], kind=CHAT.kind, then=reset_now)

    async with (
        Upstream(broken, HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        await socket.send()
        assert (await socket.events())[-1]["type"] == "response.failed"
        assert (await socket.ask())["output_text"] == CHAT.text


async def test_another_endpoint_takes_over() -> None:
    async with (
        Upstream(whole(b"{}", 500)) as broken,
        Upstream(HELLO) as upstream,
        routing(
            endpoint(broken, "chat"),
            endpoint(upstream, "chat", "two"),
            balance={"policy": "priority"},
        ) as router,
        connected(router.url) as socket,
    ):
        await socket.send()
        events = await socket.events()
        assert events[-1]["type"] == "response.completed"
        assert events[0]["headers"]["x-pointsman-endpoint"] == "two"


async def test_each_request_is_counted_logged_and_cached() -> None:
    async with (
        Upstream(HELLO) as upstream,
        routing(
            endpoint(upstream, "chat"),
            cache={"mode": "always"},
            logging={"access": True},
        ) as router,
    ):
        async with connected(router.url, headers={"X-Request-Id": "upgrade-1"}) as socket:
            ids = []
            for _ in range(2):
                await socket.send(input="cached?")
                events = await socket.events()
                assert events[-1]["response"]["output_text"] == CHAT.text
                ids.append(events[0]["headers"]["x-request-id"])
            assert events[0]["headers"]["x-cache"] == "HIT"
            await socket.refused(model="none")
            await router.metric_becomes(1, "pointsman_websockets_open")
        assert len(upstream.requests) == 1
        await router.metric_becomes(3, "pointsman_requests_total", operation="responses")
        await router.metric_becomes(1, "pointsman_requests_total", operation="websocket")
        await router.metric_becomes(0, "pointsman_websockets_open")
        lines = [line for line in router.log if line["event"] == "request"]
        shown = [(line["method"], line["status"], line["request_id"]) for line in lines[:3]]
        assert shown == [
            ("GET", 101, "upgrade-1"),
            ("WS", 200, ids[0]),
            ("WS", 200, ids[1]),
        ]
        assert len({*ids, "upgrade-1"}) == 3


async def test_a_key_is_asked_for_and_noticed_to_be_gone() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat"), auth=keys(KEY, OTHER)) as router,
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with connected(router.url):
                pass
        assert refused.value.status == 401
        async with (
            connected(router.url, key=KEY) as socket,
            connected(router.url, key=OTHER) as stays,
        ):
            first = await socket.ask()
            # What one connection keeps is not there for another.
            error = await stays.refused(previous_response_id=first["id"])
            assert error["error"]["code"] == "previous_response_not_found"
            await reload(router, endpoint(upstream, "chat"), auth=keys(OTHER))
            error = await socket.refused()
            assert (error["status"], error["error"]["code"]) == (401, "invalid_api_key")
            assert (await stays.ask())["status"] == "completed"


async def test_the_limits_of_a_key() -> None:
    auth = {"keys": [{"name": "a", "key": KEY, "limits": {"requests_per_minute": 1}}]}
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat"), auth=auth) as router,
        connected(router.url, key=KEY) as socket,
    ):
        await socket.ask()
        error = await socket.refused()
        assert error["status"] == 429
        assert int(error["headers"]["retry-after"]) > 0
    [row] = router.rows
    assert row.key == "a"


async def test_turned_off() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat"), server={"websocket": False}) as router,
    ):
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        async with router.http.get(router.url + "/v1/responses", headers=upgrade) as reply:
            assert reply.status == 426
            error = (await reply.json())["error"]
        assert sorted(error) == ["code", "message", "param", "type"]
        assert error["code"] == "websocket_not_supported"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 405),
        ({"Connection": "Upgrade", "Upgrade": "h2c"}, 405),
        ({"Connection": "Upgrade", "Upgrade": "websocket"}, 400),
        (
            {
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "12",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            },
            400,
        ),
    ],
)
async def test_what_is_no_upgrade(headers: dict[str, str], status: int) -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        router.http.get(router.url + "/v1/responses", headers=headers) as reply,
    ):
        assert reply.status == status
        assert "error" in await reply.json()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "websocket"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "https://good.example"}, 101),
        ({"Origin": "http://localhost:3000"}, 101),
    ],
)
async def test_pages_of_other_origins(headers: dict[str, str], status: int) -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat"), server={"cors": ["https://good.example"]}) as router,
    ):
        if status == 101:
            async with connected(router.url, headers=headers) as socket:
                assert (await socket.ask())["status"] == "completed"
            return
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with connected(router.url, headers=headers):
                pass
        assert refused.value.status == status


async def test_as_codex_opens_it() -> None:
    """Its headers and its first two requests; compression is agreed on and used."""
    headers = {
        "OpenAI-Beta": "responses_websockets=2026-02-06",
        "originator": "codex_cli_rs",
        "User-Agent": "codex_cli_rs/0.142.0",
        "session_id": "0199",
        "x-codex-turn-state": "",
    }
    tool = {"type": "custom", "name": "apply_patch", "format": {"type": "text"}}
    same = {"instructions": "You are Codex.", "tools": [tool], "prompt_cache_key": "0199"}
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url, headers=headers, compress=15) as socket,
    ):
        assert socket.ws.compress == 15
        answer = socket.ws._response.headers
        assert "permessage-deflate" in answer["Sec-WebSocket-Extensions"]
        assert answer["X-Request-Id"]
        for name in ("x-codex-turn-state", "x-models-etag", "x-reasoning-included"):
            assert name not in answer
        warm = await socket.ask(input=[], generate=False, **same)
        await socket.ask(
            input=[{"type": "message", "role": "user", "content": "ö" * 50_000}],
            previous_response_id=warm["id"],
            include=["reasoning.encrypted_content"],
            client_metadata={"x": "y"},
            **same,
        )
        assert said(upstream) == ["You are Codex.", "ö" * 50_000]


async def test_a_large_request() -> None:
    """More than the event loop's own thread works on."""
    many = [{"type": "message", "role": "user", "content": f"{n}"} for n in range(6000)]
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat"), server={"max_body_values": 50_000}) as router,
        connected(router.url) as socket,
    ):
        first = await socket.ask(input=many)
        await socket.ask(input="more", previous_response_id=first["id"])
        assert len(said(upstream)) == 6002
        error = await socket.refused(input=[*many, *many, *many])
        assert (error["status"], error["error"]["code"]) == (413, "request_too_large")


async def test_encrypted_reasoning_comes_back() -> None:
    """What an endpoint sealed for itself is kept for it, though the client did not ask for it."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "ok", "annotations": []}],
    }
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
    opening = {**base, "status": "in_progress", "output": []}
    final = {**base, "status": "completed", "output": [reasoning, message]}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": opening}]
    for place, item in enumerate((reasoning, message)):
        for kind in ("added", "done"):
            events.append(
                {"type": f"response.output_item.{kind}", "output_index": place, "item": item}
            )
    events.append({"type": "response.completed", "response": final})
    native = streamed(
        *(
            b"data: %b\n\n" % orjson.dumps({**e, "sequence_number": n})
            for n, e in enumerate(events)
        ),
        kind="text/event-stream",
    )
    async with (
        Upstream(default=native) as upstream,
        routing(endpoint(upstream, "responses")) as router,
        connected(router.url) as socket,
    ):
        first = await socket.ask()
        assert "sealed" not in orjson.dumps(first).decode()
        await socket.ask(input="more", previous_response_id=first["id"])
        assert upstream.requests[0].json["include"] == ["reasoning.encrypted_content"]
        sent = [i for i in upstream.requests[1].json["input"] if i.get("type") == "reasoning"]
        assert [item["encrypted_content"] for item in sent] == ["sealed"]


async def test_a_compacted_window_begins_a_new_chain() -> None:
    """OpenResponses' ``websocket-compact-new-chain``."""
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
    compaction = {"id": "resp_c", "object": "response.compaction", "created_at": 1}
    native = SPEECH["responses"]
    async with (
        Upstream(
            whole(orjson.dumps({**compaction, "output": [item]})),
            streamed(*native.pieces, kind=native.kind),
        ) as upstream,
        routing(endpoint(upstream, "responses")) as router,
        connected(router.url) as socket,
    ):
        body = orjson.dumps({"model": "m", "input": "a long story"})
        async with router.http.post(f"{router.url}/v1/responses/compact", data=body) as reply:
            window = (await reply.json())["output"]
        again = {"type": "message", "role": "user", "content": "go on"}
        response = await socket.ask(input=[*window, again])
        assert response["output_text"] == native.text
        sent = upstream.requests[1].json["input"]
        assert [one["type"] for one in sent] == ["compaction", "message"]


async def test_two_clients_do_not_hear_of_each_other() -> None:
    async with (
        Upstream(default=HELLO) as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as one,
        connected(router.url) as other,
    ):

        async def talk(socket: Socket) -> list[str]:
            previous, ids = None, []
            for _ in range(5):
                previous = (await socket.ask(previous_response_id=previous))["id"]
                ids.append(previous)
            return ids

        first, second = await asyncio.gather(talk(one), talk(other))
        assert not {*first} & {*second}
