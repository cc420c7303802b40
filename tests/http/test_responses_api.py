"""The Responses API as HTTP has it: prefixes, the query, headers, and what is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, Wire, json_answer, whole

PREFIXES = ("/v1", "/api/v1")


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A native upstream that answers as it is asked to: whole, as a stream, or with a count."""
    counted = json_answer({"object": "response.input_tokens", "input_tokens": 42})

    async def either(wire: Wire) -> None:
        counts = wire.request.path.endswith("/input_tokens")
        await (counted if counts else SPEECH["responses"].script())(wire)

    async with Upstream(default=either) as server:
        yield server


@pytest.fixture
async def router(upstream: Upstream) -> AsyncIterator[Router]:
    async with routing(endpoint(upstream, "responses")) as router:
        yield router


async def post(router: Router, path: str, body: Any, **headers: str) -> Reply:
    return await fetch(router.http, "POST", router.url + path, json=body, headers=headers)


async def get(router: Router, path: str, method: str = "GET") -> Reply:
    return await fetch(router.http, method, router.url + path)


def ids(reply: Reply) -> list[str]:
    """Every request id in the head of an answer."""
    return [value for name, value in reply.headers.items() if name.lower() == "x-request-id"]


ASK: dict[str, Any] = {"model": "m", "input": "hi"}

_CALLED = {"input": "item with id 'msg_7'"}
"""What a message calls something that is not named as its field is."""


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_both_prefixes_serve_the_same(router: Router, prefix: str) -> None:
    reply = await post(router, f"{prefix}/responses", ASK)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.json["output_text"] == "Hello, wörld!"
    stream = await post(router, f"{prefix}/responses", {**ASK, "stream": True})
    assert stream.events[-1].type == "response.completed"
    assert (await get(router, f"{prefix}/models")).json["data"][0]["id"] == "m"
    assert (await post(router, f"{prefix}/responses/input_tokens", ASK)).json["input_tokens"] == 42


@pytest.mark.parametrize(
    ("query", "fields", "streams"),
    [
        ("?stream=true", {}, True),
        ("?stream=1", {}, True),
        ("?stream=TRUE", {"stream": None}, True),
        ("?stream=true", {"stream": False}, True),
        ("?stream=false", {}, False),
        ("?stream=false", {"stream": True}, True),
        ("?stream=", {}, False),
        ("?other=true", {}, False),
        ("", {"stream": True}, True),
        ("", {"stream": None}, False),
    ],
)
async def test_stream_as_a_query_flag(
    router: Router, upstream: Upstream, query: str, fields: dict[str, Any], streams: bool
) -> None:
    reply = await post(router, f"/v1/responses{query}", {**ASK, **fields})
    assert reply.status == 200
    if streams:
        assert reply.events[-1].type == "response.completed"
    else:
        assert reply.json["status"] == "completed"
    assert upstream.requests[-1].json["stream"] is streams


@pytest.mark.parametrize("path", ["", "/input_tokens"])
@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"previous_response_id": "resp_7"}, 400, "previous_response_not_found",
         "previous_response_id"),
        ({"conversation": "conv_7"}, 404, None, None),
        ({"conversation": {"id": "conv_7"}}, 404, None, None),
        ({"input": [{"type": "item_reference", "id": "msg_7"}]}, 404, None, "input[0]"),
        ({"prompt": {"id": "pmpt_7"}}, 404, None, "prompt.id"),
        ({"prompt": {"id": "pmpt_7", "version": "3"}}, 404, None, "prompt.id"),
        ({"background": True, "store": False}, 400, "unsupported_parameter", "background"),
        ({"previous_response_id": "resp_7", "conversation": "conv_7"}, 400,
         "mutually_exclusive_parameters", None),
        ({"previous_response_id": "resp_" + "7" * 5000}, 400, "previous_response_not_found",
         "previous_response_id"),
    ],
)  # fmt: skip
async def test_what_is_not_there_is_refused_by_name(
    router: Router,
    upstream: Upstream,
    path: str,
    fields: dict[str, Any],
    status: int,
    code: str | None,
    param: str | None,
) -> None:
    for stream in (False, True):
        reply = await post(router, f"/v1/responses{path}", {**ASK, **fields, "stream": stream})
        assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, param)
        assert reply.error["type"] == "invalid_request_error"
        for name in fields:
            assert _CALLED.get(name, name.split("_")[0]) in reply.error["message"].lower()
        assert len(reply.error["message"]) < 500
    assert upstream.requests == []


@pytest.mark.parametrize(
    "fields",
    [
        {"previous_response_id": None, "conversation": None, "background": None, "prompt": None},
        {"background": False, "store": True},
        {"store": False},
    ],
)
async def test_what_is_null_is_absent(router: Router, fields: dict[str, Any]) -> None:
    reply = await post(router, "/v1/responses", {**ASK, **fields})
    assert reply.status == 200
    assert reply.json["store"] is (fields.get("store") is not False)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/responses/resp_7"),
        ("GET", "/responses/resp_7?stream=true&starting_after=3"),
        ("DELETE", "/responses/resp_7"),
        ("POST", "/responses/resp_7/cancel"),
        ("GET", "/responses/resp_7/input_items"),
        ("GET", "/responses/resp_7/input_items?limit=100&order=asc&after=msg_1"),
    ],
)
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_response_that_is_not_there(
    router: Router, prefix: str, method: str, path: str
) -> None:
    reply = await get(router, prefix + path, method)
    assert reply.status == 404
    error = reply.error
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", None, None)
    assert error["message"].startswith("Response with id 'resp_7' not found.")


@pytest.mark.parametrize(
    ("query", "param", "code"),
    [
        ("limit=0", "limit", "integer_below_min_value"),
        ("limit=-1", "limit", "integer_below_min_value"),
        ("limit=101", "limit", "integer_above_max_value"),
        ("limit=" + "9" * 3000, "limit", "integer_above_max_value"),
        ("limit=ten", "limit", "invalid_type"),
        ("limit=", "limit", "invalid_type"),
        ("limit=1.5", "limit", "invalid_type"),
        ("order=up", "order", "invalid_value"),
        ("order=" + "x" * 3000, "order", "invalid_value"),
    ],
)
async def test_a_bad_page_is_refused_before_the_response_is_looked_up(
    router: Router, query: str, param: str, code: str
) -> None:
    reply = await get(router, f"/v1/responses/resp_7/input_items?{query}")
    assert (reply.status, reply.error["param"], reply.error["code"]) == (400, param, code)
    assert len(reply.error["message"]) < 500


@pytest.mark.parametrize("stream", [False, True])
async def test_headers_say_who_answered(router: Router, stream: bool) -> None:
    reply = await post(router, "/v1/responses", {**ASK, "stream": stream})
    assert reply.headers["X-Pointsman-Endpoint"] == "one"
    assert reply.headers["X-Pointsman-Attempts"] == "1"
    assert reply.headers["X-Request-Id"].startswith("req_")
    if stream:
        assert reply.headers["Cache-Control"] == "no-cache"


async def test_tokens_are_counted_by_who_can(router: Router, upstream: Upstream) -> None:
    reply = await post(router, "/v1/responses/input_tokens", {**ASK, "store": True, "metadata": {}})
    assert reply.json == {"object": "response.input_tokens", "input_tokens": 42}
    assert reply.headers["X-Pointsman-Endpoint"] == "one"
    assert "X-Pointsman-Estimated" not in reply.headers
    assert upstream.requests[-1].json == ASK


@pytest.mark.parametrize(
    "answer", [whole(b"{}"), whole(b"no JSON"), whole(b"{}", 404), whole(b"{}", 500)]
)
async def test_tokens_are_estimated_where_nobody_can(answer: Any) -> None:
    async with (
        Upstream(default=answer) as native,
        Upstream() as chat,
        routing(endpoint(native, "responses"), endpoint(chat, "chat", "two")) as router,
    ):
        small = await post(router, "/v1/responses/input_tokens", ASK)
        large = await post(router, "/v1/responses/input_tokens", {**ASK, "input": "word " * 500})
    for reply in (small, large):
        assert reply.status == 200
        assert reply.headers["X-Pointsman-Estimated"] == "true"
    assert 0 < small.json["input_tokens"] < 50 < 300 < large.json["input_tokens"] < 1000


async def test_tokens_of_an_unknown_model(router: Router) -> None:
    reply = await post(router, "/v1/responses/input_tokens", {**ASK, "model": "x"})
    assert (reply.status, reply.error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    "given", ["abc", "A-b.c:d_9", "x" * 64, "0b5b6d2e-7d1e-4c3a-9d3c-000000000000"]
)
async def test_a_request_id_comes_back(router: Router, given: str) -> None:
    for path, body in (("/v1/responses", ASK), ("/v1/responses", {**ASK, "stream": True}),
                       ("/v1/responses", {}), ("/v1/nowhere", {})):  # fmt: skip
        reply = await post(router, path, body, **{"X-Request-Id": given})
        assert ids(reply) == [given]


@pytest.mark.parametrize(
    "given", ["", "x" * 65, "a b", "a\tb", "ä", "a;b", "<script>", 'a"b', "a/b"]
)
async def test_a_request_id_that_will_not_do_is_replaced(router: Router, given: str) -> None:
    reply = await post(router, "/v1/responses", ASK, **{"X-Request-Id": given})
    (ident,) = ids(reply)
    assert ident.startswith("req_")
    assert len(ident) == 28


async def test_request_ids_are_unique(router: Router) -> None:
    replies = await asyncio.gather(*(post(router, "/v1/responses", ASK) for _ in range(20)))
    assert len({reply.headers["X-Request-Id"] for reply in replies}) == 20
    assert len({reply.json["id"] for reply in replies}) == 20
