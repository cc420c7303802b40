"""Large requests: bounded by what is in them, and worked on beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from router.turns import record
from router.upstream.chat import ChatAdapter
from router.web import responses
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole

LIMIT = 5_000


@pytest.fixture
async def router() -> AsyncIterator[Router]:
    """An open router that takes bodies of so many values."""
    async with (
        Upstream(default=whole(SPEECH["chat"].whole)) as upstream,
        routing(endpoint(upstream, "chat"), server={"max_body_values": LIMIT}) as router,
    ):
        yield router


async def post(router: Router, path: str, body: object) -> Reply:
    return await fetch(router.http, "POST", router.url + path, data=orjson.dumps(body))


def messages(count: int) -> list[dict[str, str]]:
    """As many messages, of five values each, 100 bytes at least."""
    return [{"role": "user", "content": f"{number:070}"} for number in range(count)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": messages(1_001)}),
        ("/v1/responses/input_tokens", {"input": messages(1_001)}),
        (
            "/v1/responses",
            {"input": "x", "tools": [{"type": "function", "name": "n"}] * 2_500},
        ),
        ("/v1/responses", {"input": "x", "metadata": {f"{n:070}": "" for n in range(2_600)}}),
        ("/v1/responses", {"input": "x", "unknown": [0] * 60_000}),
        ("/v1/responses", {"input": "x", "unknown": [[[[]]]] * 10_000}),
        ("/v1/chat/completions", {"messages": messages(1_001)}),
        ("/v1/chat/completions", {"messages": [], "stop": ["x" * 20] * 5_001}),
        ("/v1/completions", {"prompt": ["x" * 20] * 5_001}),
        ("/v1/embeddings", {"input": ["x" * 20] * 5_001}),
        ("/v1/messages", {"max_tokens": 9, "messages": messages(1_001)}),
        ("/v1/messages/count_tokens", {"messages": messages(1_001)}),
        ("/api/chat", {"messages": messages(1_001)}),
        ("/api/embed", {"input": ["x" * 20] * 5_001}),
        ("/v1/conversations", {"items": messages(1_001)}),
        ("/v1/prompts", {"template": messages(1_001)}),
    ],
)
async def test_more_values_than_are_allowed(router: Router, path: str, body: Any) -> None:
    reply = await post(router, path, {"model": "m", **body})
    assert reply.status == 413
    assert "server.max_body_values" in str(reply.json)
    assert str(LIMIT) in str(reply.json)


async def test_long_texts_and_many_numbers_are_not_many_values(router: Router) -> None:
    text = 'def f(x):\n    return {"a": [x, "b"]}, \\"\n' * 10_000
    assert (await post(router, "/v1/responses", {"model": "m", "input": text})).status == 200
    numbers = [list(range(1_000))] * 40
    reply = await post(router, "/v1/embeddings", {"model": "m", "input": numbers})
    assert reply.status != 413


async def test_what_is_done_with_a_large_request_is_done_by_another_thread(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}

    def watched(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            seen[name] = threading.current_thread().name
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    watched(responses, "parse_object")
    watched(responses, "validate_create")
    watched(ChatAdapter, "respond")
    watched(record.TurnRecord, "_steps")
    here = threading.current_thread().name
    for count, large in ((5, False), (900, True)):
        seen.clear()
        reply = await post(router, "/v1/responses", {"model": "m", "input": messages(count)})
        assert reply.status == 200
        assert list(seen) == ["parse_object", "validate_create", "respond", "_steps"]
        for name in seen.values():
            assert name.startswith("large-requests") if large else name == here


async def test_mistakes_in_large_requests_are_told_as_in_others(router: Router) -> None:
    items = [*messages(900), {"role": "nobody", "content": "x"}]
    reply = await post(router, "/v1/responses", {"model": "m", "input": items})
    assert (reply.status, reply.error["param"]) == (400, "input[900].role")
    reply = await fetch(
        router.http, "POST", router.url + "/v1/responses", data=b'{"input": "' + b"x" * 99_999
    )
    assert (reply.status, reply.error["code"]) == (400, "invalid_json")
