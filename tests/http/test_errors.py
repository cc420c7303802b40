"""One envelope for everything that goes wrong before an endpoint is asked."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from router.app import create_app
from router.core.exchange import Exchange
from router.core.plugin_hooks import Guard
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening
from tests.support.router import Reply, Router, endpoint, routing, settings_for
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole

KEYS: dict[str, Any] = {"keys": [{"name": "a", "key": "sk-a"}]}
GOOD = {"Authorization": "Bearer sk-a"}
ASK = {"model": "m", "input": "hi"}
POST = "POST /v1/responses HTTP/1.1\nHost: localhost"


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream(default=whole(SPEECH["chat"].whole)) as upstream:
        yield upstream


@pytest.fixture
async def router(upstream: Upstream) -> AsyncIterator[Router]:
    """An open router whose bodies may have 1 KiB."""
    async with routing(endpoint(upstream, "chat"), server={"max_body_mb": 1 / 1024}) as router:
        yield router


@pytest.fixture
async def locked(upstream: Upstream) -> AsyncIterator[Router]:
    """A router that wants a key."""
    async with routing(endpoint(upstream, "chat"), auth=KEYS) as router:
        yield router


async def send(router: Router, method: str, path: str, **options: Any) -> Reply:
    return await fetch(router.http, method, router.url + path, **options)


@asynccontextmanager
async def connected(
    router: Router, head: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which this head of a request was sent."""
    host, _, port = router.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        async with asyncio.timeout(60):
            yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def status_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and the body of the answer on a connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


@pytest.mark.parametrize(
    "path",
    ["/v1", "/v1/", "/v2/responses", "/v1/responses/", "/v1/uploads", "/v1/nope?a=b",
     "/api/v1", "/api/v1/nope", "/health/", "/%00", "/v1/responses/a/b"],
)  # fmt: skip
async def test_unknown_routes(router: Router, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "PROPFIND"):
        reply = await send(router, method, path)
        assert reply.status == 404
        assert reply.error["type"] == "invalid_request_error"
        assert (reply.error["code"], reply.error["param"]) == ("unknown_url", None)
        assert reply.error["message"].startswith(f"Unknown request URL: {method} /")
        assert reply.headers["X-Request-Id"].startswith("req_")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/responses", "POST"),
        ("PUT", "/api/v1/responses", "POST"),
        ("PATCH", "/v1/responses/resp_1", "DELETE, GET"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/a/b", "GET"),
        ("GET", "/v1/chat/completions", "POST"),
        ("POST", "/v1/responses/resp_1/input_items", "GET"),
        ("POST", "/metrics", "GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
        ("OPTIONS", "/v1/responses", "POST"),
    ],
)
async def test_wrong_methods(router: Router, method: str, path: str, allow: str) -> None:
    reply = await send(router, method, path)
    assert reply.status == 405
    assert reply.headers["Allow"] == allow
    assert reply.error["type"] == "invalid_request_error"
    assert (reply.error["code"], reply.error["param"]) == ("method_not_allowed", None)
    assert method in reply.error["message"]
    assert allow in reply.error["message"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"hello", "invalid_json"),
        (b'{"model": "m"} x', "invalid_json"),
        (b'{"model": "\xff"}', "invalid_json"),
        (b"[1]", "invalid_type"),
        (b'"m"', "invalid_type"),
        (b"null", "invalid_type"),
        (b'{"model": "m", "input": ' + b"[" * 300 + b"]" * 300 + b"}", "invalid_value"),
        (b'{"model": "m", "input": ' + b"[" * 480 + b"]" * 480 + b"}", "invalid_value"),
    ],
)
async def test_malformed_bodies(router: Router, body: bytes, code: str) -> None:
    for path in ("/v1/responses", "/api/v1/chat/completions", "/v1/responses/input_tokens"):
        reply = await send(router, "POST", path, data=body)
        assert (reply.status, reply.error["code"]) == (400, code)


@pytest.mark.parametrize(
    ("path", "fields", "param", "code"),
    [
        ("/v1/responses", {"input": "hi"}, "model", "missing_required_parameter"),
        ("/v1/responses", {"model": "m"}, "input", "missing_required_parameter"),
        ("/v1/responses", {"model": ["m"], "input": "hi"}, "model", "invalid_type"),
        ("/v1/responses", {**ASK, "stream": "yes"}, "stream", "invalid_type"),
        ("/v1/responses", {**ASK, "stream_options": 1}, "stream_options", "invalid_type"),
        ("/v1/chat/completions", {"messages": []}, "model", "missing_required_parameter"),
        ("/v1/chat/completions", {"model": "", "messages": []}, "model",
         "missing_required_parameter"),
        ("/v1/chat/completions", {"model": "m"}, "messages", "missing_required_parameter"),
        ("/v1/chat/completions", {"model": "m", "messages": ""}, "messages", "invalid_type"),
        ("/v1/chat/completions", {"model": 1, "messages": []}, "model", "invalid_type"),
        ("/v1/chat/completions", {"model": "m", "messages": {}}, "messages", "invalid_type"),
        ("/v1/chat/completions", {"model": "m", "messages": [], "stream": 1}, "stream",
         "invalid_type"),
        ("/v1/chat/completions", {"model": "m", "messages": [], "stream": ""}, "stream",
         "invalid_type"),
        ("/v1/chat/completions", {"model": "m", "messages": [], "stream_options": []},
         "stream_options", "invalid_type"),
        ("/v1/responses/input_tokens", {"input": "hi"}, "model", "missing_required_parameter"),
    ],
)  # fmt: skip
async def test_wrong_fields(
    router: Router, path: str, fields: dict[str, Any], param: str, code: str
) -> None:
    reply = await send(router, "POST", path, json=fields)
    assert reply.status == 400
    assert (reply.error["param"], reply.error["code"]) == (param, code)
    assert param in reply.error["message"]


async def chunks(count: int, sent: list[int]) -> AsyncIterator[bytes]:
    """A body of unknown length; ``sent`` grows with it."""
    for _ in range(count):
        yield b"x" * 512
        sent.append(1)
        await asyncio.sleep(0)


async def test_oversized_bodies(router: Router) -> None:
    fits = orjson.dumps({**ASK, "instructions": ""})
    fits = orjson.dumps({**ASK, "instructions": "x" * (1024 - len(fits))})
    assert (await send(router, "POST", "/v1/responses", data=fits)).status == 200
    sent: list[int] = []
    for data in (fits + b" ", chunks(4, sent)):
        reply = await send(router, "POST", "/v1/responses", data=data)
        assert (reply.status, reply.error["code"]) == (413, "request_too_large")
        assert "MiB" in reply.error["message"]


async def test_a_small_body_that_unpacks_to_a_large_one_is_oversized(router: Router) -> None:
    bomb = gzip.compress(b" " * 5_000_000)
    head = f"{POST}\nContent-Encoding: gzip\nContent-Length: {len(bomb)}"
    async with connected(router, head) as (reader, writer):
        writer.write(bomb)
        status, body = await status_of(reader)
    assert (status, orjson.loads(body)["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_with_a_broken_encoding(router: Router, encoding: str) -> None:
    head = f"{POST}\nContent-Encoding: {encoding}"
    async with connected(router, f"{head}\nContent-Length: 12") as (reader, writer):
        writer.write(b'{"model": 1}')
        status, answer = await status_of(reader)
        assert await reader.read() == b""  # and the connection is closed
    assert (status, orjson.loads(answer)["error"]["code"]) == (400, "invalid_body")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "sk-a"},
        {"Authorization": "Basic sk-a"},
        {"Authorization": "Bearer sk-b"},
        {"Authorization": "Bearer sk-a sk-a"},
        {"Authorization": "Bearer SK-A"},
        {"Authorization": "Bearer schlüssel"},
        {"X-Api-Key": "sk-b"},
    ],
)
async def test_keys_that_are_refused(locked: Router, headers: dict[str, str]) -> None:
    for path in ("/v1/responses", "/v1/models", "/nope", "/v1/responses/resp_1"):
        reply = await send(locked, "GET", path, headers=headers)
        assert reply.status == 401
        assert reply.error["type"] == "invalid_request_error"
        assert reply.error["code"] == "invalid_api_key"
        assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert "sk-a" not in reply.body.decode()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
async def test_keys_that_are_taken(locked: Router, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} sk-a"}
    assert (await send(locked, "GET", "/v1/models", headers=headers)).status == 200
    reply = await send(locked, "POST", "/v1/responses", headers=headers, json=ASK)
    assert reply.json["output_text"] == "Hello, wörld!"


async def test_what_needs_no_key(locked: Router) -> None:
    for path in ("/health", "/ready", "/metrics"):
        assert (await send(locked, "GET", path)).status == 200


@pytest.mark.parametrize("expect", ["", "\nExpect: 100-continue"])
async def test_a_wrong_key_is_refused_before_the_body_comes(locked: Router, expect: str) -> None:
    head = f"{POST}\nContent-Length: 100000{expect}"
    async with connected(locked, head) as (reader, _):
        status, body = await status_of(reader)  # not 100: no body is asked for
    assert (status, orjson.loads(body)["error"]["code"]) == (401, "invalid_api_key")


async def test_an_oversized_body_is_refused_before_it_comes(router: Router) -> None:
    head = f"{POST}\nContent-Length: 1025\nExpect: 100-continue"
    async with connected(router, head) as (reader, _):
        status, _ = await status_of(reader)
    assert status == 413


async def test_a_client_that_waits_is_told_to_go_on(router: Router) -> None:
    body = orjson.dumps(ASK)
    head = f"{POST}\nContent-Length: {len(body)}\nExpect: 100-continue"
    async with connected(router, head) as (reader, writer):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        status, answer = await status_of(reader)
    assert (status, orjson.loads(answer)["output_text"]) == (200, "Hello, wörld!")


async def test_other_expectations_are_disregarded(router: Router) -> None:
    body = orjson.dumps(ASK)
    head = f"{POST}\nContent-Length: {len(body)}\nExpect: wonders"
    async with connected(router, head) as (reader, writer):
        writer.write(body)
        assert (await status_of(reader))[0] == 200


async def test_a_body_that_stops_coming(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.http.body.IDLE_SECONDS", 0.05)
    head = f"{POST}\nContent-Length: 1000"
    async with connected(router, head) as (reader, writer):
        writer.write(b'{"model":')
        status, body = await status_of(reader)
    error = orjson.loads(body)["error"]
    assert (status, error["code"]) == (400, "incomplete_body")
    assert "9 bytes" in error["message"]


async def test_a_client_that_leaves_in_the_midst_of_its_body(router: Router) -> None:
    head = f"{POST}\nContent-Length: 1000"
    async with connected(router, head) as (_, writer):
        writer.write(b'{"model":')
        await writer.drain()
    assert (await send(router, "GET", "/v1/models")).status == 200
    labels = {"operation": "responses", "outcome": "cancelled"}
    async with asyncio.timeout(60):
        while not await router.metric(  # noqa: ASYNC110 (there is no event for it)
            "pointsman_requests_total", **labels, status="499"
        ):
            await asyncio.sleep(0.01)
    assert not await router.metric("pointsman_requests_total", status="0")


class Broken(Guard):
    """A guard with a bug."""

    async def admit(self, exchange: Exchange) -> None:
        if exchange.request.operation.value == "models":
            raise ZeroDivisionError("a secret: sk-a")


@pytest.mark.parametrize("where", ["guard", "handler"])
async def test_an_internal_error_tells_nothing(
    upstream: Upstream, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = [f"{__name__}:Broken"] if where == "guard" else []
    app = create_app(settings_for(endpoint(upstream, "chat"), plugins=plugins))
    if where == "handler":
        monkeypatch.delattr("router.endpoints.registry.Registry.public_models")
    with capture_logs() as log:
        async with listening(app) as url, http_client() as http:
            reply = await fetch(http, "GET", f"{url}/v1/models")
    assert reply.status == 500
    assert (reply.error["type"], reply.error["code"]) == ("server_error", "internal_error")
    told = "Broken" if where == "guard" else reply.headers["X-Request-Id"]
    assert told in reply.error["message"]
    for secret in ("sk-a", "public_models", "Error:"):
        assert secret not in reply.body.decode()
    (line,) = [line for line in log if line["log_level"] == "error"]
    assert line["request_id"] == reply.headers["X-Request-Id"]
