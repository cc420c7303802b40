"""What a client gets when an endpoint answers with an HTTP error."""

from __future__ import annotations

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.router import API_KEY, endpoint, routing
from tests.support.upstream import Upstream, whole

BEARER = ("authorization", f"Bearer {API_KEY}")
HEADERS = ("authorization", "x-api-key")
SECRET = f"invalid key {API_KEY} for account acct-123"


def error_body(dialect: Dialect, message: str, **fields: str) -> bytes:
    """An error as servers of this dialect write it."""
    if dialect == "ollama":
        return orjson.dumps({"error": message})
    return orjson.dumps({"error": {"message": message, "type": "whatever", **fields}})


@pytest.mark.parametrize(
    ("status", "expected", "code", "kind"),
    [
        (401, 502, "upstream_error", "server_error"),
        (403, 502, "upstream_error", "server_error"),
        (404, 404, "model_not_found", "invalid_request_error"),
        (408, 504, "upstream_timeout", "server_error"),
        (429, 429, "rate_limit_exceeded", "rate_limit_error"),
        (500, 502, "upstream_error", "server_error"),
        (503, 503, "upstream_unavailable", "server_error"),
        (302, 502, "upstream_error", "server_error"),
        (204, 502, "upstream_error", "server_error"),
    ],
)
async def test_status(
    dialect: Dialect, stream: bool, status: int, expected: int, code: str, kind: str
) -> None:
    body = b"" if status == 204 else error_body(dialect, "no luck")
    headers = {"Retry-After": "7", "Location": "http://127.0.0.1:1/elsewhere"}
    async with (
        Upstream(whole(body, status, headers)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=stream)
        assert reply.status == expected
        assert reply.headers["Content-Type"] == "application/json"
        assert reply.headers["X-Pointsman-Attempts"] == "1"
        assert (reply.error["code"], reply.error["type"]) == (code, kind)
        assert reply.headers.get("Retry-After") == ("7" if status == 429 else None)
        assert len(upstream.requests) == 1, "an answer, whatever it says, is not asked for again"


async def test_a_fault_of_the_request_is_passed_on(dialect: Dialect, stream: bool) -> None:
    body = error_body(dialect, "'temperature' is too hot", param="temperature", code="too_hot")
    async with (
        Upstream(*[whole(body, status) for status in (400, 413, 422)]) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        for status in (400, 413, 422):
            reply = await router.ask(stream=stream)
            assert reply.status == status
            assert reply.error == {
                "message": "'temperature' is too hot",
                "type": "invalid_request_error" if dialect == "ollama" else "whatever",
                "param": None if dialect == "ollama" else "temperature",
                "code": None if dialect == "ollama" else "too_hot",
            }


@pytest.mark.parametrize("status", [401, 403])
async def test_credentials_stay_between_router_and_endpoint(
    dialect: Dialect, stream: bool, status: int
) -> None:
    async with (
        Upstream(whole(error_body(dialect, SECRET), status)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=stream)
        name, key = ("x-api-key", API_KEY) if dialect == "messages" else BEARER
        sent = upstream.requests[0].headers
        assert {header: sent.get(header) for header in HEADERS} == {
            **dict.fromkeys(HEADERS),
            name: key,
        }
        for secret in (API_KEY, "acct-123"):
            assert secret not in reply.body.decode()
            assert secret not in repr(dict(reply.headers))
            assert secret not in repr(router.log)
        assert "'one'" in reply.error["message"]
        assert "api_key" in reply.error["message"]


@pytest.mark.parametrize("status", [400, 429, 404, 503])
async def test_a_key_in_the_endpoints_own_words_is_blanked(dialect: Dialect, status: int) -> None:
    async with (
        Upstream(whole(error_body(dialect, SECRET), status)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask()
        assert API_KEY not in reply.body.decode()
        assert API_KEY not in repr(router.log)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad Gateway</html>",
        b"\xff\xfe\x00",
        b"[1, 2]",
        b'"text"',
        b'{"error": null}',
        b'{"error": {"message": {"deep": 1}, "code": 7, "param": []}}',
        b'{"detail": [{"loc": ["body", "model"], "msg": "field required"}]}',
        b"{" * 100_000,
    ],
)
@pytest.mark.parametrize("status", [400, 429, 500])
async def test_any_error_body(body: bytes, status: int) -> None:
    async with (
        Upstream(whole(body, status)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        reply = await router.ask()
        assert reply.status == {400: 400, 429: 429, 500: 502}[status]
        assert reply.error["message"]
        assert reply.error["param"] is None


async def test_chat_completions_get_the_same_envelope(dialect: Dialect, stream: bool) -> None:
    async with (
        Upstream(
            whole(error_body("chat", "too long", code="context_length_exceeded"), 400),
            whole(b"", 500),
            whole(b"", 429, {"Retry-After": "3"}),
        ) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(chat=True, stream=stream)
        assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
        reply = await router.ask(chat=True, stream=stream)
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        reply = await router.ask(chat=True, stream=stream)
        assert (reply.status, reply.headers["Retry-After"]) == (429, "3")
