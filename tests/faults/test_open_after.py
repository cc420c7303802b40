"""A stream is opened ``server.open_after`` seconds after its request, in the form of its API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH, Speech
from tests.support.sse import check_responses_stream, parse_events
from tests.support.upstream import Script, Upstream, Wire, streamed, whole
from tests.support.waiting import until

AT_ONCE: dict[str, Any] = {"server": {"open_after": 0}}
PATIENT = {"first_byte": 30, "idle": 30, "total": 30}
MESSAGES = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class Api:
    """``opening`` is what a stream begins with, ``error`` what it ends with where it fails."""

    path: str
    body: dict[str, Any]
    opening: bytes
    error: bytes


APIS = {
    "responses": Api(
        "/v1/responses",
        {"model": "m", "input": "hi"},
        b"event: response.created\n",
        b"event: response.failed\n",
    ),
    "chat": Api(
        "/v1/chat/completions",
        {"model": "m", "messages": MESSAGES},
        b": keep-alive\n\n",
        b'data: {"error":',
    ),
    "messages": Api(
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": MESSAGES},
        b"event: message_start\n",
        b"event: error\n",
    ),
    "ollama": Api("/api/chat", {"model": "m", "messages": MESSAGES}, b"", b'{"error":'),
}


@pytest.fixture(params=[*APIS.values()], ids=[*APIS])
def api(request: pytest.FixtureRequest) -> Api:
    """What the client speaks."""
    value: Api = request.param
    return value


@pytest.fixture(params=["off", "always"])
def cache(request: pytest.FixtureRequest) -> dict[str, str]:
    """Whether the call is made for the client alone, or for all who ask the same."""
    return {"mode": request.param}


@pytest.fixture
def speech(api: Api, dialect: Dialect) -> Speech:
    """What the endpoint answers: Chat Completions pass to one that speaks the Responses API."""
    passes = dialect == "responses" and api.path == "/v1/chat/completions"
    return SPEECH["chat" if passes else dialect]


@pytest.fixture
def opens(api: Api, dialect: Dialect, cache: dict[str, str]) -> None:
    """Leaves out what passes as it comes: it has its endpoint's status, and waits for that."""
    if api.path == "/v1/messages" and dialect == "messages" and cache["mode"] == "off":
        pytest.skip("does not apply: see test_what_passes_waits_for_its_endpoint")


def after(go: asyncio.Event, script: Script) -> Script:
    """The same once ``go`` is set."""

    async def held(wire: Wire) -> None:
        await go.wait()
        await script(wire)

    return held


@asynccontextmanager
async def asked(router: Router, api: Api) -> AsyncIterator[aiohttp.ClientResponse]:
    """The beginning of a stream."""
    body = {**api.body, "stream": True}
    async with router.http.post(router.url + api.path, json=body) as response:
        yield response


@pytest.mark.usefixtures("opens")
async def test_it_is_opened_while_the_endpoint_says_nothing(
    api: Api, dialect: Dialect, speech: Speech, cache: dict[str, str]
) -> None:
    go = asyncio.Event()
    script = after(go, streamed(*speech.pieces, kind=speech.kind))
    async with (
        Upstream(script) as upstream,
        routing(endpoint(upstream, dialect, timeouts=PATIENT), cache=cache, **AT_ONCE) as router,
        asked(router, api) as response,
    ):
        assert response.status == 200
        assert await response.content.readexactly(len(api.opening)) == api.opening
        go.set()
        rest = await response.read()
        assert b"Hello" in rest
        assert api.error not in rest
        if api.path == "/v1/responses":
            events = parse_events(api.opening + rest)
            assert check_responses_stream(events)["output_text"] == speech.text


@pytest.mark.usefixtures("opens")
async def test_another_endpoint_takes_over_behind_it(
    api: Api, dialect: Dialect, speech: Speech, cache: dict[str, str]
) -> None:
    go = asyncio.Event()
    scripts = [after(go, whole(b"{}", 500)), streamed(*speech.pieces, kind=speech.kind)]

    async def next_script(wire: Wire) -> None:
        await scripts.pop(0)(wire)

    async with (
        Upstream(default=next_script) as one,
        Upstream(default=next_script) as two,
        routing(
            endpoint(one, dialect, "one", timeouts=PATIENT),
            endpoint(two, dialect, "two", timeouts=PATIENT),
            cache=cache,
            **AT_ONCE,
        ) as router,
        asked(router, api) as response,
    ):
        assert await response.content.readexactly(len(api.opening)) == api.opening
        go.set()
        rest = await response.read()
        assert b"Hello" in rest
        assert api.error not in rest
        assert [len(one.requests), len(two.requests)] == [1, 1]
        if api.path == "/v1/responses":
            events = parse_events(api.opening + rest)
            assert check_responses_stream(events)["status"] == "completed"
            assert [e.type for e in events].count("response.created") == 1
        router.forgive("attempt failed")


@pytest.mark.usefixtures("opens")
async def test_what_fails_behind_it_ends_the_stream(
    api: Api, dialect: Dialect, cache: dict[str, str]
) -> None:
    go = asyncio.Event()
    fails = after(go, whole(b'{"error": {"message": "no such thing"}}', 400))
    async with (
        Upstream(fails) as upstream,
        routing(endpoint(upstream, dialect, timeouts=PATIENT), cache=cache, **AT_ONCE) as router,
        asked(router, api) as response,
    ):
        assert response.status == 200
        assert await response.content.readexactly(len(api.opening)) == api.opening
        go.set()
        rest = await response.read()
        assert api.error in rest
        assert b"no such thing" in rest
        router.forgive("attempt failed")


@pytest.mark.parametrize("status", [200, 400, 529])
async def test_what_passes_waits_for_its_endpoint(status: int) -> None:
    """Messages in front of an endpoint that speaks it: its status is the client's."""
    speech, api, go = SPEECH["messages"], APIS["messages"], asyncio.Event()
    said = streamed(*speech.pieces, kind=speech.kind)
    fails = whole(b'{"type":"error","error":{"type":"x","message":"no such thing"}}', status)
    async with (
        Upstream(after(go, said if status == 200 else fails)) as upstream,
        routing(endpoint(upstream, "messages", timeouts=PATIENT), **AT_ONCE) as router,
        asyncio.TaskGroup() as tasks,
    ):

        async def answer() -> tuple[int, bytes]:
            async with asked(router, api) as response:
                return response.status, await response.read()

        answered = tasks.create_task(answer())
        await until(lambda: upstream.requests)  # a stream would have been opened by now
        go.set()
        told, body = await answered
        assert told == status
        assert (api.opening if status == 200 else b"no such thing") in body
        router.forgive("attempt failed")


async def test_what_fails_before_it_is_an_http_error(
    api: Api, dialect: Dialect, cache: dict[str, str]
) -> None:
    fails = whole(b'{"error": {"message": "no such thing"}}', 400)
    async with (
        Upstream(fails) as upstream,
        routing(endpoint(upstream, dialect), cache=cache, server={"open_after": 15}) as router,
        asked(router, api) as response,
    ):
        assert response.status == 400
        assert response.content_type == "application/json"
        assert b"no such thing" in await response.read()
        router.forgive("attempt failed")


async def test_the_router_owns_what_a_native_stream_began_with(cache: dict[str, str]) -> None:
    """Its id, its time and its echo stay, whatever the endpoint says afterwards."""
    go = asyncio.Event()
    theirs = {"id": "resp_theirs", "object": "response", "created_at": 1_500_000_000}
    begun = {**theirs, "status": "in_progress", "output": [], "instructions": "reworded"}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    text = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    done = {**item, "content": [text]}
    ended = {**begun, "status": "completed", "output": [done]}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**text, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": "Hello", "logprobs": []},
        {"type": "response.output_text.done", **place, "text": "Hello", "logprobs": []},
        {"type": "response.content_part.done", **place, "part": text},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": ended},
    ]
    pieces = [
        b"data: %b\n\n" % orjson.dumps({"sequence_number": number, **event})
        for number, event in enumerate(events)
    ]
    async with (
        Upstream(after(go, streamed(*pieces))) as upstream,
        routing(
            endpoint(upstream, "responses", timeouts=PATIENT), cache=cache, **AT_ONCE
        ) as router,
    ):
        body = {"model": "m", "input": "hi", "instructions": "Be brief.", "stream": True}
        async with router.http.post(router.url + "/v1/responses", json=body) as response:
            head = await response.content.readuntil(b"\n\n")
            go.set()
            seen = parse_events(head + await response.read())
        final = check_responses_stream(seen)
        assert seen[0].data is not None
        created = seen[0].data["response"]
        for name in ("id", "created_at", "instructions"):
            assert final[name] == created[name]
        assert created["created_at"] != theirs["created_at"]
        assert created["instructions"] == "Be brief."
