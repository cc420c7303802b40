"""A refusal that is the request's own fault is passed on as it is: nobody else is asked, and no
endpoint is left alone for it.
"""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from router.balance.deployment_state import GRADES
from router.settings.schema import Dialect
from tests.support.pair import by, pair
from tests.support.router import Router
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, streamed, whole

CONNECTOR = {
    "message": "Error retrieving tool list from MCP server: 'docs'. Http status code: 401 "
    "(Unauthorized)",
    "type": "external_connector_error",
    "param": "tools",
    "code": "http_error",
}
NO_ITEM = {
    "message": "Item with id 'rs_1' not found. Items are not persisted when `store` is set to "
    "false.",
    "type": "invalid_request_error",
    "param": "input",
    "code": None,
}
FLAGGED = {
    "message": "Your input was flagged for violence.",
    "type": "moderation_error",
    "param": None,
    "code": None,
}
BROKE = {
    "message": "Insufficient credits.",
    "type": "billing_error",
    "param": None,
    "code": "no_credit",
}
OURS = [(402, BROKE), (409, BROKE), (424, CONNECTOR), (401, CONNECTOR), (404, NO_ITEM),
        (403, FLAGGED), (410, BROKE), (418, BROKE), (451, FLAGGED)]  # fmt: skip

API: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("/v1/responses", {"input": "hi"}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "messages": (
        "/v1/messages",
        {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    ),
    "ollama": ("/api/chat", {"messages": [{"role": "user", "content": "hi"}]}),
}


def error_of(dialect: Dialect, error: dict[str, Any]) -> bytes:
    """The body of an error as servers of this dialect write it."""
    return orjson.dumps({"error": error["message"] if dialect == "ollama" else error})


def failures(router: Router) -> float:
    """The share of failures that the first endpoint's breaker knows of."""
    return router.deployment("one").breaker.failure_ratio(time.monotonic())


async def check_unharmed(router: Router, one: Upstream, two: Upstream, times: int) -> None:
    """Nobody else was asked, and the first endpoint goes on."""
    assert [len(one.requests), len(two.requests)] == [times, 0]
    assert GRADES[router.deployment("one").grade] == "ready"
    assert failures(router) == 0
    assert by(await router.ask()) == "one"


@pytest.mark.parametrize(("status", "error"), OURS)
async def test_it_keeps_its_status_type_code_and_message(
    dialect: Dialect, stream: bool, status: int, error: dict[str, Any]
) -> None:
    if dialect == "ollama" and error is not CONNECTOR and status in (401, 403, 404):
        pytest.skip("does not apply: Ollama's errors have no field that says what they are about")
    body = error_of(dialect, error)
    async with pair(*[whole(body, status)] * 6, dialect=dialect) as (router, one, two):
        for _ in range(6):
            reply = await router.ask(stream=stream)
            assert reply.status == status
            assert reply.headers["X-Pointsman-Attempts"] == "1"
            if dialect == "ollama":
                error = {**error, "type": "invalid_request_error", "param": None, "code": None}
            assert reply.error == error
        await check_unharmed(router, one, two, 6)


@pytest.mark.parametrize("api", API)
async def test_every_api_tells_it_in_its_own_envelope(
    api: str, dialect: Dialect, stream: bool
) -> None:
    path, body = API[api]
    refused = whole(error_of(dialect, CONNECTOR), 424)
    async with pair(refused, dialect=dialect) as (router, one, two):
        sent = {"model": "m", "stream": stream, **body}
        async with router.http.post(router.url + path, json=sent) as response:
            said = await response.json()
        assert response.status == 424
        if api == "ollama":
            field = "" if dialect == "ollama" else " (field: tools)"
            assert said == {"error": CONNECTOR["message"] + field}
        elif api == "messages":
            assert said["error"] == {
                "type": "invalid_request_error",
                "message": CONNECTOR["message"],
            }
        elif dialect == "ollama":
            assert said["error"]["message"] == CONNECTOR["message"]
        else:
            assert said["error"] == CONNECTOR
        await check_unharmed(router, one, two, 1)


def events(dialect: Dialect, error: dict[str, Any]) -> list[bytes]:
    """A stream that begins and then reports the error."""
    speech = SPEECH[dialect]
    if dialect == "ollama":
        return [orjson.dumps({"error": error["message"]}) + b"\n"]
    body: dict[str, Any] = {"error": error}
    if dialect == "responses":
        body = {"type": "error", "error": error}
    return [speech.opening, b"data: %b\n\n" % orjson.dumps(body)]


OVERFLOW = {
    "message": "the request exceeds the available context size. try increasing the context size",
    "type": "exceed_context_size_error",
    "code": 400,
}


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "param"),
    [
        (CONNECTOR, 424, "external_connector_error", "http_error", "tools"),
        (OVERFLOW, 400, "invalid_request_error", "context_length_exceeded", "input"),
        ({**BROKE, "code": 402}, 402, "billing_error", None, None),
        ({"message": "no", "type": "invalid_request_error", "code": "bad", "param": "tools"},
         400, "invalid_request_error", "bad", "tools"),
    ],
)  # fmt: skip
async def test_an_event_of_a_stream_is_an_error_like_any_other(
    dialect: Dialect,
    error: dict[str, Any],
    status: int,
    kind: str,
    code: str | None,
    param: str | None,
) -> None:
    if dialect == "ollama" and error is not OVERFLOW:
        pytest.skip("does not apply: Ollama's events have no field that says what they are about")
    script = streamed(*events(dialect, error), kind=SPEECH[dialect].kind)
    async with pair(*[script] * 6, dialect=dialect, max_attempts=1) as (router, one, two):
        for _ in range(6):
            reply = await router.ask(stream=True)
            assert (reply.status, reply.error) == (
                status,
                {"message": error["message"], "type": kind, "code": code, "param": param},
            )
        await check_unharmed(router, one, two, 6)


async def test_what_comes_after_output_is_no_fault_of_the_endpoint_either() -> None:
    """The stream ends as failed, with the endpoint's code."""
    speech = SPEECH["responses"]
    error = b"data: %b\n\n" % orjson.dumps({"type": "error", "error": CONNECTOR})
    script = streamed(speech.opening, *speech.words, error, kind=speech.kind)
    async with pair(script, dialect="responses") as (router, one, two):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert final["status"] == "failed"
        assert final["error"] == {"code": "http_error", "message": CONNECTOR["message"]}
        await check_unharmed(router, one, two, 1)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_what_concerns_the_router_is_tried_elsewhere(
    dialect: Dialect, stream: bool, status: int
) -> None:
    refused = whole(error_of(dialect, {"message": "no luck", "type": "t", "param": "None"}), status)
    async with pair(refused, dialect=dialect) as (router, one, two):
        if stream:
            two.default = streamed(*SPEECH[dialect].pieces, kind=SPEECH[dialect].kind)
        assert by(await router.ask(stream=stream)) == "two"
        assert failures(router) > 0
        assert len(one.requests) == 1


async def test_a_refused_event_about_the_routers_key_says_nothing_of_it() -> None:
    speech = SPEECH["chat"]
    secret = {"message": "wrong key of account acct-1", "type": "authentication_error"}
    script = streamed(*events("chat", secret), kind=speech.kind)
    async with pair(script, script, max_attempts=1) as (router, one, _):
        reply = await router.ask(stream=True)
        assert reply.status == 502
        assert b"acct-1" not in reply.body
        assert len(one.requests) == 1
