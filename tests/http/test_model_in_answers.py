"""``model`` in an answer is the name that the client asked for, whatever the endpoint calls it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from router.dialects.model_name import ModelName
from router.settings.schema import Dialect
from tests.support.fetch import fetch
from tests.support.fleet import OPENAI_STYLE
from tests.support.plain import embedding
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import DIALECTS, SPEECH
from tests.support.upstream import Upstream, streamed, whole

THEIRS = "/models/m-Q4_K_M.gguf"
ASKED = "my-model"
SAID = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "hi"},
    "/v1/chat/completions": {"messages": SAID},
    "/v1/messages": {"messages": SAID, "max_tokens": 9},
    "/api/chat": {"messages": SAID},
}


def theirs(data: bytes) -> bytes:
    """What an endpoint says, with its own name for the model."""
    return data.replace(b'"model":"m"', b'"model":' + orjson.dumps(THEIRS))


def speaking(dialect: Dialect, *, stream: bool) -> Upstream:
    speech = SPEECH[dialect]
    if stream:
        return Upstream(default=streamed(*map(theirs, speech.pieces), kind=speech.kind))
    return Upstream(default=whole(theirs(speech.whole)))


async def ask(router: Router, path: str, **fields: Any) -> Reply:
    body = {"model": ASKED, **BODIES.get(path, {}), **fields}
    return await fetch(router.http, "POST", router.url + path, json=body)


def names(body: bytes) -> set[str]:
    """Every ``model`` in an answer's body, in its events or in its lines."""
    found: set[str] = set()
    lines = body.splitlines() if b"\n" in body else [body]
    for line in lines:
        data = line.removeprefix(b"data: ")
        if data[:1] == b"{":
            _collect(orjson.loads(data), found)
    return found


def _collect(value: dict[str, Any], found: set[str]) -> None:
    for holder in (value, value.get("response"), value.get("message")):
        if isinstance(holder, dict) and "model" in holder:
            found.add(holder["model"])


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_name_that_was_asked_for(dialect: Dialect, stream: bool, path: str) -> None:
    """An alias; the endpoint is asked for its own name, and answers with a third one."""
    # Where an endpoint that speaks Responses has Chat Completions, too, it answers as one.
    behind = "chat" if (dialect, path) == ("responses", "/v1/chat/completions") else dialect
    async with (
        speaking(behind, stream=stream) as upstream,
        routing(endpoint(upstream, dialect, models=["m"], aliases={ASKED: "m"})) as router,
    ):
        reply = await ask(router, path, stream=stream)
        assert reply.status == 200, reply.body
        assert upstream.requests[0].json["model"] == "m"
        assert names(reply.body) == {ASKED}
        assert THEIRS.encode() not in reply.body


@pytest.mark.parametrize("stream", [False, True])
async def test_text_completions(stream: bool) -> None:
    choice = {"index": 0, "text": "hello", "finish_reason": "stop"}
    data = orjson.dumps({"id": "c", "model": THEIRS, "choices": [choice]})
    event = b"data: " + data + b"\n\ndata: [DONE]\n\n"
    script = streamed(event, kind="text/event-stream") if stream else whole(data)
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, "chat", aliases={ASKED: "m"})) as router,
    ):
        reply = await ask(router, "/v1/completions", prompt="hi", stream=stream)
        assert (reply.status, names(reply.body)) == (200, {ASKED}), reply.body


@pytest.mark.parametrize("falls_back", [False, True])
async def test_compacted_conversations(falls_back: bool) -> None:
    """Another name only where a model of ``fallbacks`` answers instead."""
    compaction = {"object": "response.compaction", "model": THEIRS, "output": []}
    answers = whole(orjson.dumps(compaction))
    async with (
        Upstream(default=whole(b"{}", 500) if falls_back else answers) as first,
        Upstream(default=answers) as second,
        routing(
            endpoint(first, "responses", models=["m"], aliases={ASKED: "m"}),
            endpoint(second, "responses", name="two", models=["spare"]),
            fallbacks={ASKED: ["spare"]},
        ) as router,
    ):
        reply = await ask(router, "/v1/responses/compact", input="hi")
        assert reply.status == 200, reply.body
        assert reply.json["model"] == ("spare" if falls_back else ASKED)
        assert first.requests[0].json["model"] == "m"
        assert len(second.requests) == falls_back


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize("dialect", OPENAI_STYLE)
async def test_embeddings(dialect: Dialect, encoding: str) -> None:
    async with (
        Upstream(default=embedding(dialect, [0.5, 1.0])) as upstream,
        routing(endpoint(upstream, dialect, aliases={ASKED: "m"})) as router,
    ):
        reply = await ask(router, "/v1/embeddings", input="hi", encoding_format=encoding)
        assert (reply.status, reply.json["model"]) == (200, ASKED)
        assert len(reply.json["data"]) == 1


@pytest.mark.parametrize("form", ["object", "list"])
async def test_rerankings(form: str) -> None:
    results = [{"index": 0, "relevance_score": 1.0}]
    ranked = (
        {"model": THEIRS, "results": results} if form == "object" else [{"index": 0, "score": 1.0}]
    )
    async with (
        Upstream(default=whole(orjson.dumps(ranked))) as upstream,
        routing(endpoint(upstream, "chat", aliases={ASKED: "m"})) as router,
    ):
        reply = await ask(router, "/v1/rerank", query="q", documents=["a"])
        assert (reply.status, reply.json["model"]) == (200, ASKED)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_answers_from_the_cache(path: str) -> None:
    """The model is known by two aliases, and each client is told the one that it asked for."""
    dialect: Dialect = "chat" if path.endswith("completions") else "responses"
    async with (
        speaking(dialect, stream=False) as upstream,
        routing(
            endpoint(upstream, dialect, aliases={ASKED: "m", "other": "m"}),
            cache={"mode": "always"},
        ) as router,
    ):
        for name in (ASKED, "other", ASKED):
            reply = await ask(router, path, model=name)
            assert (reply.status, names(reply.body)) == (200, {name})
        assert reply.headers["X-Cache"] == "HIT"


async def test_background_and_stored_answers() -> None:
    async with (
        speaking("responses", stream=True) as upstream,
        routing(endpoint(upstream, "responses", aliases={ASKED: "m"})) as router,
    ):
        reply = await ask(router, "/v1/responses", background=True)
        assert (reply.status, reply.json["model"]) == (200, ASKED)
        while reply.json["status"] in ("queued", "in_progress"):
            await asyncio.sleep(0)
            url = f"{router.url}/v1/responses/{reply.json['id']}"
            reply = await fetch(router.http, "GET", url)
        assert (reply.json["status"], reply.json["model"]) == ("completed", ASKED)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"model":"up","x":1.50}', b'{"model":"mine","x":1.50}'),
        (b'{"model" : "up","x":1.50}', b'{"model":"mine","x":1.50}'),
        (rb'{"x":"\"model\":\"up\"","model":"up"}', rb'{"x":"\"model\":\"up\"","model":"mine"}'),
        (b'{"x":{"model":"up"},"model":"up"}', b'{"x":{"model":"up"},"model":"mine"}'),
        (b'{"x":"model","model":"up"}', b'{"x":"model","model":"mine"}'),
        (rb'{"model":"\/a\"b\\"}', b'{"model":"mine"}'),
        (b'{"model":7}', b'{"model":"mine"}'),
        (b'{"model":null}', b'{"model":null}'),
        (b'{"x":{"model":"up"}}', b'{"x":{"model":"up"}}'),
        (b'{"model":"mine","x":1.50}', b'{"model":"mine","x":1.50}'),
    ],
)
def test_the_name_is_replaced_in_bytes(data: bytes, told: bytes) -> None:
    name = ModelName("mine")
    for _ in range(2):
        decoded = orjson.loads(data)
        assert name.put(data, decoded) == told
        assert decoded == orjson.loads(told)
