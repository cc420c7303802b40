"""Large requests: bounded by what is in them, and worked on beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest

from router.dialects.responses import schema
from router.sessions import turns
from router.telemetry import tasks
from router.telemetry.tasks import Worker
from router.upstream.chat import ChatAdapter
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole
from tests.support.waiting import until

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


@pytest.mark.parametrize(
    ("given", "large"),
    [
        (messages(5), False),
        ("x" * 200_000, False),  # as a coding agent sends it with each turn
        (messages(1_000), False),
        ("x" * 600_000, True),
        (messages(2_500), True),
    ],
)
async def test_what_is_done_with_a_large_request_is_done_by_another_thread(
    given: Any, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}
    steps = 0

    def watched(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            seen[name] = threading.current_thread().name
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    watched(schema, "parse_object")
    watched(schema, "validate_create")
    watched(ChatAdapter, "respond")
    watched(turns.TurnRecord, "_steps")
    run = Worker.run

    async def counted(worker: Worker, work: Callable[[], Any]) -> Any:
        nonlocal steps
        steps += 1
        return await run(worker, work)

    monkeypatch.setattr(Worker, "run", counted)
    async with (
        Upstream(default=whole(SPEECH["chat"].whole)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        reply = await post(router, "/v1/responses", {"model": "m", "input": given})
    assert reply.status == 200
    assert list(seen) == ["parse_object", "validate_create", "respond", "_steps"]
    here = threading.current_thread().name
    for name in seen.values():
        assert name.startswith("large-requests") if large else name == here
    assert steps == (3 if large else 0)  # read, sent, stored


async def test_a_run_of_a_large_request_is_worked_on_by_another_thread(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    respond = ChatAdapter.respond

    def call(*args: Any, **kwargs: Any) -> Any:
        seen.append(threading.current_thread().name)
        return respond(*args, **kwargs)

    monkeypatch.setattr(ChatAdapter, "respond", call)
    body = {"model": "m", "input": "x" * 600_000, "background": True}
    ident = (await post(router, "/v1/responses", body)).json["id"]
    async with asyncio.timeout(60):
        while not seen:
            reply = await fetch(router.http, "GET", f"{router.url}/v1/responses/{ident}")
            assert reply.status == 200
    assert seen[0].startswith("large-requests")


async def test_no_further_large_request_is_let_in_where_too_many_wait(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MAX_WAITING", 0)
    reply = await post(router, "/v1/responses", {"model": "m", "input": "x" * 600_000})
    assert (reply.status, reply.error["code"]) == (503, "overloaded")
    assert reply.headers["Retry-After"] == "1"
    assert (await post(router, "/v1/responses", {"model": "m", "input": "x"})).status == 200


async def test_each_application_has_a_thread_of_its_own_which_ends_with_it() -> None:
    def threads() -> int:
        return sum(each.name.startswith("large-requests") for each in threading.enumerate())

    large = {"model": "m", "input": "x" * 600_000}
    before = threads()
    async with (
        Upstream(default=whole(SPEECH["chat"].whole)) as upstream,
        routing(endpoint(upstream, "chat")) as one,
    ):
        assert (await post(one, "/v1/responses", large)).status == 200
        async with routing(endpoint(upstream, "chat")) as other:
            assert (await post(other, "/v1/responses", large)).status == 200
            assert threads() == before + 2
        assert (await post(one, "/v1/responses", large)).status == 200
    await until(lambda: threads() == before)


async def test_mistakes_in_large_requests_are_told_as_in_others(router: Router) -> None:
    items = [*messages(900), {"role": "nobody", "content": "x"}]
    reply = await post(router, "/v1/responses", {"model": "m", "input": items})
    assert (reply.status, reply.error["param"]) == (400, "input[900].role")
    reply = await fetch(
        router.http, "POST", router.url + "/v1/responses", data=b'{"input": "' + b"x" * 99_999
    )
    assert (reply.status, reply.error["code"]) == (400, "invalid_json")
