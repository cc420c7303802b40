"""Requests that name no model: that of what they continue answers, else the default."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.anthropic import VERSION
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.sockets import connected
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream

KEYS = [
    {"name": "plain", "key": "sk-plain"},
    {"name": "own", "key": "sk-own", "default_model": "c"},
    {"name": "narrow", "key": "sk-narrow", "models": ["a"]},
]
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def router() -> AsyncIterator[Router]:
    async with Upstream(default=SPEECH["chat"].script()) as upstream:
        served = endpoint(upstream, "chat", models=["a", "b", "c"])
        async with routing(served, default_model="b", auth={"keys": KEYS}) as router:
            yield router


async def post(router: Router, path: str, body: dict[str, Any], key: str = "plain") -> Reply:
    headers = {"Authorization": f"Bearer sk-{key}"}
    if path == "/v1/messages":
        headers |= VERSION
    return await fetch(router.http, "POST", router.url + path, json=body, headers=headers)


REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "hi"},
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9},
}


@pytest.mark.parametrize("path", REQUESTS)
async def test_the_default_answers(router: Router, path: str) -> None:
    for missing in ({}, {"model": None}, {"model": ""}):
        reply = await post(router, path, {**REQUESTS[path], **missing})
        assert (reply.status, reply.json["model"]) == (200, "b")
    assert (await post(router, path, REQUESTS[path], "own")).json["model"] == "c"
    reply = await post(router, path, {**REQUESTS[path], "model": "a"}, "own")
    assert reply.json["model"] == "a"


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_key_that_may_not_use_the_default_has_none(router: Router, path: str) -> None:
    reply = await post(router, path, REQUESTS[path], "narrow")
    assert reply.status == 400
    assert "model" in reply.json["error"]["message"]


async def test_a_chain_goes_on_with_its_model(router: Router) -> None:
    first = (await post(router, "/v1/responses", {"model": "a", "input": "hi"})).json
    body = {"input": "go on", "previous_response_id": first["id"]}
    second = (await post(router, "/v1/responses", body, "plain")).json
    assert second["model"] == "a"
    third = {"input": "go on", "previous_response_id": second["id"], "model": "c"}
    assert (await post(router, "/v1/responses", third)).json["model"] == "c"
    stranger = await post(router, "/v1/responses", body, "own")
    assert stranger.error["code"] == "previous_response_not_found"


async def test_a_conversation_goes_on_with_its_last_model(router: Router) -> None:
    conversation = (await post(router, "/v1/conversations", {})).json["id"]
    body: dict[str, Any] = {"input": "hi", "conversation": conversation}
    assert (await post(router, "/v1/responses", body)).json["model"] == "b"
    assert (await post(router, "/v1/responses", {**body, "model": "a"})).json["model"] == "a"
    assert (await post(router, "/v1/responses", body)).json["model"] == "a"


async def test_a_prompt_s_model_counts_before_the_default(router: Router) -> None:
    prompt = (await post(router, "/v1/prompts", {"name": "p", "model": "c"})).json["id"]
    body = {"prompt": {"id": prompt}, "input": "hi"}
    assert (await post(router, "/v1/responses", body)).json["model"] == "c"
    bare = (await post(router, "/v1/prompts", {"name": "q", "instructions": "Be brief."})).json
    body = {"prompt": {"id": bare["id"]}, "input": "hi"}
    assert (await post(router, "/v1/responses", body)).json["model"] == "b"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_without_any_it_is_an_error(path: str) -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, "chat")) as router:
        reply = await post(router, path, REQUESTS[path])
        assert (reply.status, reply.error["param"]) == (400, "model")
        assert reply.error["code"] == "missing_required_parameter"
        assert not upstream.requests


async def test_what_is_compacted_is_that_of_its_model() -> None:
    async with Upstream(default=SPEECH["chat"].script()) as upstream:
        served = endpoint(upstream, "chat", models=["a", "b"])
        async with routing(served, default_model="b") as router:
            first = (await router.ask(model="a", input="hi")).json
            for body, model in (
                ({"previous_response_id": first["id"]}, "a"),
                ({"input": "hi"}, "b"),
            ):
                reply = await post(router, "/v1/responses/compact", body)
                assert (reply.status, reply.json["object"]) == (200, "response.compaction")
                assert upstream.requests[-1].json["model"] == model


async def test_over_a_websocket(router: Router) -> None:
    headers = {"Authorization": "Bearer sk-plain"}
    async with connected(router.url, headers=headers) as socket:
        first = await socket.ask(model=None, input="hi")
        assert first["model"] == "b"
        other = await socket.ask(model="a", input="hi")
        again = await socket.ask(model=None, input="go on", previous_response_id=other["id"])
        assert again["model"] == "a"


async def test_over_a_websocket_without_any() -> None:
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, "chat")) as router,
        connected(router.url) as socket,
    ):
        refused = await socket.refused(model=None, input="hi")
        assert (refused["status"], refused["error"]["param"]) == (400, "model")
