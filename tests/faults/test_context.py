"""One context of a model at an endpoint, wherever it is known from: what is cut to it, refused by
it, and explained with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.calling import said
from tests.support.pair import by
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Script, Upstream, Wire, json_answer, streamed, whole
from tests.support.waiting import until

CONTEXT = 700
TURNS = [
    {"role": role, "content": f"{number} ".ljust(400, "x")}
    for number in range(6)
    for role in ("user", "assistant")
]
ADMIN = "sk-admin-0123456789"
LISTED: dict[str, dict[str, Any]] = {
    "vLLM": {"id": "m", "max_model_len": CONTEXT},
    "llama.cpp": {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 9999, "n_ctx": 700}},
    "llama.cpp before": {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 9999}},
}
TOO_LONG = whole(
    orjson.dumps(
        {"error": {"message": f"This model's maximum context length is {CONTEXT} tokens"}}
    ),
    400,
)


def listing(entry: dict[str, Any]) -> Script:
    """A list of a model with what is told of it; ``/props`` tells of its context."""
    models = json_answer({"data": [entry], "models": [{"name": "m"}]})
    props = json_answer({"default_generation_settings": {"n_ctx": CONTEXT}})

    async def script(wire: Wire) -> None:
        await (props if wire.request.path == "/props" else models)(wire)

    return script


SOURCES = ["context_length", "capabilities", "num_ctx", *LISTED, "learned"]


@contextlib.asynccontextmanager
async def known_from(source: str, dialect: Dialect) -> AsyncIterator[tuple[Router, Upstream]]:
    """A router that knows the context of ``m`` from this source."""
    fields: dict[str, Any] = {}
    if source == "context_length":
        fields["context_length"] = CONTEXT
    elif source == "capabilities":
        fields["capabilities"] = {"*": {"context_length": CONTEXT}}
    elif source == "num_ctx":
        fields["num_ctx"] = CONTEXT
    entry = LISTED.get(source, {"id": "m"})
    async with (
        Upstream(default=whole(SPEECH[dialect].whole), on_get=listing(entry)) as upstream,
        routing(endpoint(upstream, dialect, **fields), admin={"key": ADMIN}) as router,
    ):
        if source == "learned":
            upstream.scripts.append(TOO_LONG)
            assert (await router.ask(input=TURNS)).status == 400
            upstream.requests.clear()
        await until(lambda: router.deployment().context == CONTEXT)
        yield router, upstream


@pytest.mark.parametrize("source", SOURCES)
async def test_cut_refused_and_explained_alike(source: str) -> None:
    dialect: Dialect = "ollama" if source == "num_ctx" else "chat"
    async with known_from(source, dialect) as (router, upstream):
        reply = await router.ask(input=TURNS, truncation="auto")
        assert by(reply) == "one"
        dropped = int(reply.headers["X-Pointsman-Truncated"])
        sent = upstream.requests[-1].json["messages"]
        assert len(sent) == len(TURNS) - dropped
        assert 0 < len(sent) <= 5
        assert sent[-1]["content"] == TURNS[-1]["content"]

        refused = await router.ask(input=TURNS)
        assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
        assert str(CONTEXT) in refused.error["message"]
        assert len(upstream.requests) == 1

        async with router.http.post(
            router.url + "/admin/explain",
            json={"model": "m", "input": TURNS},
            headers={"Authorization": f"Bearer {ADMIN}"},
        ) as response:
            explained = await response.text()
        assert f"context of {CONTEXT} tokens" in explained


async def test_what_is_learned_by_a_request_serves_the_same_request(dialect: Dialect) -> None:
    """It is cut to the context that the refusal states, and sent once more."""
    if dialect == "responses":
        pytest.skip("does not apply: it cuts by itself")
    async with (
        Upstream(TOO_LONG, default=whole(SPEECH[dialect].whole)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(input=TURNS, truncation="auto")
        assert by(reply) == "one"
        assert reply.headers["X-Pointsman-Attempts"] == "2"
        first, second = (len(request.json["messages"]) for request in upstream.requests)
        assert (first, second < first) == (len(TURNS), True)


async def test_a_cut_request_that_is_still_too_long_is_not_sent_for_ever() -> None:
    async with (
        Upstream(default=TOO_LONG) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        for asked in (2, 3):
            reply = await router.ask(input=TURNS, truncation="auto")
            assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
            assert len(upstream.requests) == asked


CUT_CHATS = {"chat_truncation": "auto"}


async def chat(router: Router, *, stream: bool = False, **fields: Any) -> Reply:
    body = {"model": "m", "stream": stream, "messages": TURNS, **fields}
    async with router.http.post(router.url + "/v1/chat/completions", json=body) as response:
        return Reply(response.status, response.headers, await response.read())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_is_cut_where_the_settings_say_so(dialect: Dialect, stream: bool) -> None:
    """And refused where they do not."""
    speech = SPEECH["chat" if dialect == "responses" else dialect]
    script = streamed(*speech.pieces, kind=speech.kind) if stream else whole(speech.whole)
    async with Upstream(default=script) as upstream:
        one = endpoint(upstream, dialect, context_length=CONTEXT)
        async with routing(one, server=CUT_CHATS) as router:
            reply = await chat(router, stream=stream)
            assert (reply.status, by(reply)) == (200, "one")
            dropped = int(reply.headers["X-Pointsman-Truncated"])
            sent = upstream.requests[-1].json
            assert 0 < len(sent["messages"]) == len(TURNS) - dropped <= 5
            assert said(upstream)[-1] == (TURNS[-1]["role"], TURNS[-1]["content"])
            assert "truncation" not in sent
        async with routing(one) as router:
            refused = await chat(router, stream=stream)
            assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
            assert refused.error["param"] == "messages"
            assert len(upstream.requests) == 1


async def test_a_chat_is_cut_to_what_its_refusal_taught(dialect: Dialect) -> None:
    """By native endpoints, too: they have no field for it in their Chat Completions."""
    speech = SPEECH["chat" if dialect == "responses" else dialect]
    async with (
        Upstream(TOO_LONG, default=whole(speech.whole)) as upstream,
        routing(endpoint(upstream, dialect), server=CUT_CHATS) as router,
    ):
        reply = await chat(router)
        assert by(reply) == "one"
        assert reply.headers["X-Pointsman-Attempts"] == "2"
        first, second = (len(request.json["messages"]) for request in upstream.requests)
        assert (first, second < first) == (len(TURNS), True)


async def test_a_chat_goes_where_it_fits_whole() -> None:
    script = whole(SPEECH["chat"].whole)
    async with (
        Upstream(default=script) as small,
        Upstream(default=script) as large,
        routing(
            endpoint(small, "chat", name="small", context_length=CONTEXT),
            endpoint(large, "chat", name="large", context_length=100 * CONTEXT),
            server=CUT_CHATS,
            admin={"key": ADMIN},
        ) as router,
    ):
        for _ in range(4):
            reply = await chat(router)
            assert by(reply) == "large"
            assert "X-Pointsman-Truncated" not in reply.headers
        async with router.http.post(
            router.url + "/admin/explain",
            json={"model": "m", "messages": TURNS},
            headers={"Authorization": f"Bearer {ADMIN}"},
        ) as response:
            explained = await response.json()
        assert explained["chosen"]["endpoint"] == "large"
        (candidates,) = (plan["candidates"] for plan in explained["plans"])
        left_out = {one["endpoint"]: one["left_out"] for one in candidates}
        assert left_out["small"]["code"] == "context_length_exceeded"
        assert left_out["large"] is None


async def test_what_is_cut_is_explained_and_not_cached() -> None:
    async with (
        Upstream(default=whole(SPEECH["chat"].whole)) as upstream,
        routing(
            endpoint(upstream, "chat", context_length=CONTEXT),
            server=CUT_CHATS,
            admin={"key": ADMIN},
            cache={"mode": "always"},
        ) as router,
    ):
        for asked in (1, 2):
            reply = await chat(router, temperature=0)
            assert reply.headers["X-Pointsman-Truncated"]
            assert len(upstream.requests) == asked
        async with router.http.post(
            router.url + "/admin/explain",
            json={"model": "m", "messages": TURNS},
            headers={"Authorization": f"Bearer {ADMIN}"},
        ) as response:
            explained = await response.json()
        headers = explained["request"]["answer_headers"]
        assert headers["X-Pointsman-Truncated"] == reply.headers["X-Pointsman-Truncated"]
        assert len(explained["request"]["body"]["messages"]) < len(TURNS)
        # What fits is kept.
        for _ in range(2):
            reply = await chat(router, messages=TURNS[-1:], temperature=0)
        assert len(upstream.requests) == 3
