"""Embeddings, completions and rerankings: what breaks, who is asked next, and what is recorded."""

from __future__ import annotations

import base64
import contextlib
import struct
import threading
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from router.core.usage_record import Provenance
from router.dialects.embeddings import decode_response as embeddings
from router.settings.schema import Dialect
from tests.support.fleet import OPENAI_STYLE
from tests.support.plain import EMBEDDING, PATHS, embedding, post, reranking
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.sse import parse_events
from tests.support.upstream import Script, Upstream, reset_now, streamed, whole

DONE = b"data: [DONE]\n\n"
NO_ROUTE = whole(b'{"detail":"Not Found"}', 404)
NO_METHOD = whole(b"", 405)


def piece(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return b"data: %b\n\n" % orjson.dumps({"object": "text_completion", "choices": [choice]})


@contextlib.asynccontextmanager
async def two(
    first: Script, second: Script, dialect: Dialect = "chat", **sections: Any
) -> AsyncIterator[tuple[Router, Upstream, Upstream]]:
    """Two endpoints, of which the first is preferred."""
    async with Upstream(default=first) as one, Upstream(default=second) as other:
        endpoints = [
            endpoint(one, dialect, "one"),
            endpoint(other, dialect, "two", priority=2),
        ]
        balance = {"policy": "priority", "breaker": {"min_requests": 1}}
        balance |= sections.pop("balance", {})
        async with routing(*endpoints, balance=balance, **sections) as router:
            yield router, one, other


def by(reply: Reply) -> tuple[str, str]:
    assert reply.status == 200, reply.body
    return reply.headers["X-Pointsman-Endpoint"], reply.headers["X-Pointsman-Attempts"]


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize("dialect", OPENAI_STYLE)
async def test_what_is_large_is_read_beside_the_event_loop(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    vectors = [[n + 0.5, *[0.123456789] * 400] for n in range(count)]
    packed = embeddings._packed
    on_loop = []

    def noted(vector: bytes) -> str:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return packed(vector)

    monkeypatch.setattr(embeddings, "_packed", noted)
    async with (
        Upstream(default=embedding(dialect, *vectors)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        texts = [f"text {n}" for n in range(count)]
        reply = await post(router, EMBEDDING, input=texts, encoding_format="base64")
        assert reply.status == 200, reply.body
    told = [base64.b64decode(one["embedding"]) for one in reply.json["data"]]
    assert [struct.unpack("<401f", one)[0] for one in told] == [n + 0.5 for n in range(count)]
    assert on_loop == [count == 1] * count


@pytest.mark.parametrize("dialect", OPENAI_STYLE)
async def test_what_is_sent_and_recorded(dialect: Dialect) -> None:
    async with Upstream(default=embedding(dialect, [0.5, 1.0], [0.25, 2.0])) as upstream:
        fields: dict[str, Any] = {"keep_alive": "9m", "num_ctx": 512} if dialect == "ollama" else {}
        async with routing(endpoint(upstream, dialect, **fields)) as router:
            wanted: dict[str, Any] = {"input": ["a", "b"], "dimensions": 2}
            reply = await post(router, EMBEDDING, **wanted, user="u", cache=False)
            assert reply.status == 200, reply.body
            assert [one["embedding"] for one in reply.json["data"]] == [[0.5, 1], [0.25, 2]]
            assert reply.json["model"] == "m"
            assert reply.json["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
            asked = upstream.requests[-1]
            assert (asked.path, asked.headers["authorization"]) == (
                PATHS[dialect],
                "Bearer sk-upstream-secret",
            )
            sent = {"model": "m", **wanted}
            if dialect == "ollama":
                more = {"truncate": False, "keep_alive": "9m", "options": {"num_ctx": 512}}
                assert asked.json == {**sent, **more}
            else:
                assert asked.json == {**sent, "user": "u"}
            [row] = router.rows
            assert (row.operation, row.tokens.input, row.tokens.output, row.outcome) == (
                "embeddings",
                3,
                0,
                "ok",
            )
            assert row.provenance is Provenance.REPORTED
            labels = {"operation": "embeddings"}
            await router.metric_becomes(1, "pointsman_requests_total", **labels)


async def test_what_is_not_counted_is_estimated() -> None:
    async with (
        Upstream(default=embedding("chat", [1.0], tokens=None)) as upstream,
        routing(endpoint(upstream, "chat", context_length=4)) as router,
    ):
        assert (await post(router, EMBEDDING, input="12345678")).status == 200
        upstream.default = embedding("chat", *[[1.0]] * 9, tokens=None)
        assert (await post(router, EMBEDDING, input=["12345678"] * 9)).status == 200
        assert [row.tokens.input for row in router.rows] == [2, 18]
        assert {row.provenance for row in router.rows} == {Provenance.ESTIMATED}


async def test_every_text_of_a_batch_has_a_context_of_its_own() -> None:
    async with (
        Upstream(default=embedding("chat", *[[1.0]] * 50)) as upstream,
        routing(endpoint(upstream, "chat", context_length=10)) as router,
    ):
        assert (await post(router, EMBEDDING, input=["a" * 40] * 50)).status == 200
        long = await post(router, EMBEDDING, input=["a", "b" * 100])
        assert (long.status, long.error["code"]) == (400, "context_length_exceeded")
        tokens = await post(router, EMBEDDING, input=[1] * 40)
        assert (tokens.status, tokens.error["param"]) == (400, "input")
        completion = await post(router, "/v1/completions", prompt=[1] * 40)
        assert (completion.status, completion.error["param"]) == (400, "prompt")
        upstream.default = reranking(0.1, 0.2)
        ranked = await post(router, "/v1/rerank", documents=["a" * 999, "b"])
        assert ranked.status == 200, ranked.body


@pytest.mark.parametrize(
    "broken",
    [
        whole(b'{"data":[{"index":0,"embedding":[0.1,'),
        whole(b'{"data":[{"index":0,"embedding":[0.1,NaN]}]}'),
        embedding("chat", [1.0], [2.0]),
        embedding("chat"),
        whole(b"{}"),
        whole(b"<html>"),
        whole(b"{}", 500),
        reset_now,
    ],
    ids=["cut", "nan", "too many", "none", "empty", "html", "500", "reset"],
)
async def test_an_answer_that_is_broken_is_asked_of_another(broken: Script) -> None:
    async with two(broken, embedding("chat", [0.5])) as (router, one, other):
        reply = await post(router, EMBEDDING)
        assert by(reply) == ("two", "2")
        assert reply.json["data"][0]["embedding"] == [0.5]
        assert [len(one.requests), len(other.requests)] == [1, 1]
        other.default = broken
        failed = await post(router, EMBEDDING)
        assert failed.status in (502, 503), failed.body
        assert "sk-upstream" not in failed.error["message"]


@pytest.mark.parametrize(
    "lacking",
    [
        NO_ROUTE,
        NO_METHOD,
        whole(b"404 page not found", 404, kind="text/plain"),
        whole(b'{"error":{"code":501,"message":"This server does not support reranking."}}', 501),
        whole(b'{"error":{"code":501,"message":"Not here.","type":"not_supported_error"}}', 501),
        whole(b'{"error":"this model does not support embeddings"}', 500),
        whole(b'{"error":{"message":"The model does not support Rerank API"}}', 404),
    ],
)
@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v2/rerank", "/api/v1/rerank"])
async def test_who_cannot_is_not_asked_again(lacking: Script, path: str) -> None:
    async with two(lacking, reranking(0.5, 1)) as (router, one, other):
        for attempts in ("2", "1"):
            assert by(await post(router, path)) == ("two", attempts)
        assert [len(one.requests), len(other.requests)] == [1, 2]
        assert one.requests[0].path == "/v1/rerank"
        rows = [(row.endpoint, row.tokens.input, row.outcome) for row in router.rows]
        assert rows == [("one", 0, "failed"), ("two", 9, "ok"), ("two", 9, "ok")]
        with router.occupied("one"):
            pass  # its slot is free again
        assert router.deployment("one").breaker.state(0.0).value == "closed"
        other.default = lacking
        reply = await post(router, path)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (
            501,
            "not_supported",
            "model",
        )
        assert "'m' can rerank documents" in reply.error["message"]


async def test_a_model_that_is_not_for_embeddings_is_named() -> None:
    refused = b'{"error":{"message":"You are not allowed to generate embeddings from this model"}}'
    async with (
        Upstream(default=whole(refused, 403)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        for _ in range(2):
            reply = await post(router, EMBEDDING)
            assert (reply.status, reply.error["code"]) == (501, "not_supported")
            assert "'m' can make embeddings" in reply.error["message"]
        assert len(upstream.requests) == 1
        upstream.default = whole(b'{"error":{"message":"No embeddings for m."}}', 400)


@pytest.mark.parametrize("path", [EMBEDDING, "/v1/completions", "/v1/rerank"])
async def test_endpoints_of_messages_are_not_asked(path: str) -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, "messages")) as router:
        reply = await post(router, path)
        assert (reply.status, reply.error["code"]) == (501, "not_supported")
        assert reply.error["param"] == "model"
        assert not upstream.requests


async def test_a_model_that_is_missing_is_not_one_that_cannot() -> None:
    missing = whole(b'{"error":{"message":"The model `m` does not exist."}}', 404)
    async with Upstream(default=missing) as upstream, routing(endpoint(upstream, "chat")) as router:
        reply = await post(router, EMBEDDING)
        assert (reply.status, reply.error["code"]) == (404, "model_not_found")
        upstream.default = embedding("chat", [1.0])
        assert (await post(router, EMBEDDING)).status == 200


async def test_what_its_dialect_cannot_carry_goes_to_another() -> None:
    async with (
        Upstream(default=embedding("ollama", [1.0])) as one,
        Upstream(default=embedding("chat", [0.5])) as other,
    ):
        endpoints = [endpoint(one, "ollama", "one"), endpoint(other, "chat", "two", priority=2)]
        async with routing(*endpoints, balance={"policy": "priority"}) as router:
            assert by(await post(router, EMBEDDING)) == ("one", "1")
            assert by(await post(router, EMBEDDING, input=[1, 2])) == ("two", "1")
            other.default = reranking(1, 2)
            assert by(await post(router, "/v1/rerank")) == ("two", "1")
            reply = await post(router, EMBEDDING, input_type="query")
            assert reply.headers["X-Pointsman-Dropped-Parameters"] == "input_type"
        alone = routing(endpoint(one, "ollama"), server={"unsupported": "strict"})
        async with alone as router:
            tokens = await post(router, EMBEDDING, input=[1, 2])
            assert (tokens.status, tokens.error["code"]) == (400, "unsupported_value")
            strict = await post(router, EMBEDDING, input_type="query")
            assert (strict.status, strict.error["param"]) == (400, "input_type")


async def test_a_completion_moves_on_until_it_has_output() -> None:
    begun = streamed(piece(""), then=reset_now)
    well = streamed(piece("A"), piece("", "stop"), DONE)
    async with two(begun, well, balance={"breaker": {"min_requests": 99}}) as fleet:
        router, one, other = fleet
        reply = await post(router, "/v1/completions", stream=True)
        assert by(reply) == ("two", "2")
        assert reply.body == piece("A") + piece("", "stop") + DONE
        assert one.requests[0].json["stream_options"] == {"include_usage": True}
        one.default = streamed(piece("A"), then=reset_now)
        broken = await post(router, "/v1/completions", stream=True)
        assert by(broken)[0] == "one"
        events = parse_events(broken.body)
        assert "error" in orjson.loads(broken.body.rpartition(b"data: ")[2])
        assert len(events) == 2
        assert len(other.requests) == 1
        assert router.rows[-1].tokens.output == 1
        assert router.rows[-1].outcome == "failed"


async def test_a_stream_whose_usage_cannot_be_asked_for_is_asked_again() -> None:
    refusal = whole(b'{"error":{"message":"stream_options is not supported"}}', 400)
    async with (
        Upstream(refusal, default=streamed(piece("A", "stop"), DONE)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        for _ in range(2):
            reply = await post(router, "/v1/completions", stream=True)
            assert reply.body == piece("A", "stop") + DONE
        assert ["stream_options" in asked.json for asked in upstream.requests] == [
            True,
            False,
            False,
        ]


@pytest.mark.parametrize("path", [EMBEDDING, "/v1/completions", "/v1/rerank"])
async def test_keys_may_do_what_they_may(path: str) -> None:
    keys = [
        {"name": "a", "key": "sk-aaaaaaaaaaaaaaaa", "models": ["other"]},
        {"name": "b", "key": "sk-bbbbbbbbbbbbbbbb", "limits": {"requests_per_minute": 1}},
    ]
    answer = {"data": [{"embedding": [1]}], "results": [], "choices": [{"text": "."}]}
    async with (
        Upstream(default=whole(orjson.dumps(answer))) as upstream,
        routing(endpoint(upstream, "chat"), auth={"keys": keys}) as router,
    ):
        none = await post(router, path)
        assert none.status == 401
        one = await post(router, path, {"Authorization": "Bearer sk-aaaaaaaaaaaaaaaa"})
        assert (one.status, one.error["code"]) == (404, "model_not_found")
        other = {"Authorization": "Bearer sk-bbbbbbbbbbbbbbbb"}
        assert (await post(router, path, other)).status == 200
        assert (await post(router, path, other)).status == 429
        assert len(upstream.requests) == 1


async def test_tokens_of_embeddings_are_limited_by_what_is_read() -> None:
    keys = [{"name": "a", "key": "sk-aaaaaaaaaaaaaaaa", "limits": {"tokens_per_minute": 100}}]
    headers = {"Authorization": "Bearer sk-aaaaaaaaaaaaaaaa"}
    async with (
        Upstream(default=embedding("chat", [1.0], tokens=60)) as upstream,
        routing(endpoint(upstream, "chat"), auth={"keys": keys}) as router,
    ):
        long = await post(router, EMBEDDING, headers, input="a" * 404)
        assert long.status == 429
        for status in (200, 429):
            reply = await post(router, EMBEDDING, headers, input="a" * 240)
            assert reply.status == status, reply.body
