"""The semantic tier through the whole router, with an endpoint as its embedder."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import orjson
import pytest

from router.app import ACCOUNTING
from router.core.usage_record import Kind, UsageRecord
from tests.plugins.response_cache.conftest import ALWAYS
from tests.support.admin import ADMIN, call_admin
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Received, Upstream, Wire, whole
from tests.support.waiting import until

pytest.importorskip("numpy", reason="the extra 'semantic' is not installed")

QUESTION = "How do I reset my password?"
ALIKE = "How can I reset my password?"
OTHER = "How do I reset my router?"
FAR = "What is the capital city of France?"
ANGLES = {QUESTION: 0.0, ALIKE: 0.1, OTHER: 0.2, FAR: 1.5}
"""Where these questions lie on a circle: the cosine of what is between two is their similarity."""


def vector(text: str) -> list[float]:
    """Where a question lies, or an answer; not of length 1, which is the router's to see to."""
    angle = ANGLES.get(text.removeprefix("This answers: "), 1.4)
    return [3 * math.cos(angle), 3 * math.sin(angle)]


def answer_to(question: str) -> bytes:
    """An answer that repeats its question."""
    response = orjson.loads(SPEECH["responses"].whole)
    response["output"][0]["content"][0]["text"] = f"This answers: {question}"
    return orjson.dumps(response)


class Model(Upstream):
    """Answers questions with ``answers``, or else by repeating them, and embeds them.

    ``embeds`` is what it says to a request for embeddings instead.
    """

    def __init__(self) -> None:
        super().__init__(default=self._play)
        self.answers: dict[str, str] = {}
        self.embeds: bytes | None = None
        self.status = 200

    @property
    def asked(self) -> list[str]:
        """The questions that the model was asked."""
        return [r.json["input"] for r in self.requests if r.path == "/v1/responses"]

    async def _play(self, wire: Wire) -> None:
        request = wire.request
        if request.path == "/v1/embeddings":
            body = self.embeds or self._embedded(request)
            await whole(body, self.status)(wire)
            return
        question = request.json["input"]
        await whole(answer_to(self.answers.get(question, question)))(wire)

    def _embedded(self, request: Received) -> bytes:
        texts = request.json["input"]
        rows = [{"index": i, "embedding": vector(text)} for i, text in enumerate(texts)]
        return orjson.dumps({"object": "list", "data": rows[::-1]})


def semantic(**fields: Any) -> dict[str, Any]:
    """The section ``cache`` with a semantic tier."""
    embedder = {"endpoint": "one", "model": "embed"}
    check = {"self_check": {"share": 0}}
    return {**ALWAYS, "semantic": {"enabled": True, "embedder": embedder, **check, **fields}}


@contextlib.asynccontextmanager
async def matching(model: Model, **fields: Any) -> AsyncIterator[Router]:
    """A router with a semantic tier that knows ``QUESTION``."""
    one = endpoint(model, "responses", models=["m", "embed"])
    async with routing(one, cache=semantic(**fields), admin=ADMIN) as router:
        await ask(router, QUESTION)
        await _indexed(router, 1)
        yield router


def _reached(model: Model, count: int) -> bool:
    return len(model.asked) >= count


async def _indexed(router: Router, count: int) -> None:
    for _ in range(400):
        stats = (await call_admin(router, "GET", "/cache")).json
        if stats["semantic"]["index"]["entries"] >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the index was not told")


async def ask(router: Router, question: str, **fields: Any) -> Reply:
    """Ask a question; the answer has to be one of the model's."""
    reply = await router.ask(input=question, store=False, **fields)
    assert reply.status == 200, reply.body
    return reply


async def test_the_same_question_in_other_words() -> None:
    async with Model() as model, matching(model) as router:
        hit = await ask(router, ALIKE)
        assert (hit.headers["X-Cache"], hit.headers["X-Cache-Tier"]) == ("HIT", "semantic")
        assert float(hit.headers["X-Cache-Similarity"]) == pytest.approx(math.cos(0.1), abs=1e-3)
        assert hit.json["output_text"] == f"This answers: {QUESTION}"
        stream = await ask(router, ALIKE, stream=True)
        assert stream.headers["X-Cache-Tier"] == "semantic"
        assert model.asked == [QUESTION]
        assert await router.metric("pointsman_cache_lookups_total", tier="semantic", result="hit")


async def test_another_question_that_looks_alike() -> None:
    async with Model() as model, matching(model) as router:
        reply = await ask(router, OTHER)
        assert reply.headers["X-Cache"] == "MISS"
        assert reply.json["output_text"] == f"This answers: {OTHER}"
        explained = await call_admin(
            router, "POST", "/cache/lookup", {"request": {"model": "m", "input": OTHER}}
        )
        near = {one["question"]: one for one in explained.json["semantic"]["considered"]}
        assert near[QUESTION]["veto"]
        assert near[QUESTION]["similarity"] == pytest.approx(math.cos(0.2), abs=1e-3)
        assert sum(await router.metric("pointsman_cache_vetoes_total")) >= 1


async def test_what_is_far_is_not_even_judged() -> None:
    async with Model() as model, matching(model) as router:
        assert (await ask(router, FAR)).headers["X-Cache"] == "MISS"
        assert not sum(await router.metric("pointsman_cache_vetoes_total"))


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": "Be brief."},
        {"temperature": 0.7},
        {"cache": {"semantic": False}},
        {"cache": {"threshold": 0.999}},
        {"tools": [{"type": "function", "name": "f", "parameters": {}}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_everything_else_has_to_be_the_same(fields: dict[str, Any]) -> None:
    async with Model() as model, matching(model) as router:
        assert (await ask(router, ALIKE, **fields)).headers["X-Cache"] == "MISS"


async def test_sampled_requests_take_part_where_that_is_configured() -> None:
    async with Model() as model, matching(model, sampled=True) as router:
        await ask(router, QUESTION, temperature=0.7)
        await _indexed(router, 2)
        assert (await ask(router, ALIKE, temperature=0.7)).headers["X-Cache-Tier"] == "semantic"


async def test_a_bad_hit_is_not_repeated() -> None:
    async with Model() as model, matching(model) as router:
        hit = await ask(router, ALIKE)
        entry = hit.headers["X-Cache-Entry"]
        told = (await call_admin(router, "POST", "/cache/feedback", {"entry": entry})).json
        assert told["required_similarity"] == 0.995
        assert (await ask(router, QUESTION)).headers["X-Cache"] == "MISS"
        await _indexed(router, 1)
        again = await ask(router, ALIKE, cache={"store": False})
        assert again.headers.get("X-Cache-Tier") == "semantic"  # 0.995 of 0.995: as near as asked


async def test_what_was_invalidated_matches_nothing() -> None:
    async with Model() as model, matching(model) as router:
        await call_admin(router, "POST", "/cache/invalidate", {"model": "m"})
        assert (await ask(router, ALIKE)).headers["X-Cache"] == "MISS"


@pytest.mark.parametrize(
    ("status", "embeds"),
    [(500, b"{}"), (200, b"nonsense"), (200, b'{"data":[{"index":0,"embedding":[0,0]}]}')],
)
async def test_without_an_embedding_it_is_a_miss(status: int, embeds: bytes) -> None:
    async with Model() as model, matching(model) as router:
        model.status, model.embeds = status, embeds
        reply = await ask(router, ALIKE)
        assert reply.headers["X-Cache"] == "MISS"
        assert await router.metric("pointsman_cache_semantic_skips_total", reason="embedder")


async def test_hits_are_compared_with_the_truth() -> None:
    check = {"share": 1, "limit": 0.05}
    async with Model() as model, matching(model, self_check=check) as router:
        model.answers[ALIKE] = QUESTION
        for _ in range(2):
            assert (await ask(router, ALIKE)).headers["X-Cache-Tier"] == "semantic"
        await until(lambda: model.asked == [QUESTION, ALIKE, ALIKE])
        await asyncio.sleep(0.1)
        name = "pointsman_cache_comparisons_total"
        assert await router.metric(name, result="agreed") == [2]


async def test_what_a_comparison_uses_is_in_the_budget_as_in_the_ledger() -> None:
    key = {"name": "a", "key": "sk-a", "budgets": [{"period": "day", "tokens": 10**6}]}
    async with Model() as model:
        one = endpoint(model, "responses", models=["m", "embed"])
        cache = semantic(self_check={"share": 1})
        async with routing(one, cache=cache, admin=ADMIN, auth={"keys": [key]}) as router:
            router.http.headers["Authorization"] = "Bearer sk-a"
            await ask(router, QUESTION)
            await _indexed(router, 1)
            assert (await ask(router, ALIKE)).headers["X-Cache-Tier"] == "semantic"
            accounts = router.app[ACCOUNTING]
            found = await accounts.named("a")
            assert found is not None
            await until(lambda: len(_paid(router)) == 2)  # a miss, and what a hit is held to
            used = sum(row.tokens.total for row in _paid(router))
            async with asyncio.timeout(60):
                while (await accounts.rate_limiter.standing(found))[0].spent != used:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


def _paid(router: Router) -> list[UsageRecord]:
    return [row for row in router.rows if row.kind is not Kind.CACHE and row.model == "m"]


async def test_too_many_wrong_hits_switch_it_off() -> None:
    check = {"share": 1, "limit": 0.05}
    async with Model() as model, matching(model, self_check=check) as router:
        model.answers[ALIKE] = "Something else altogether, which is about 7 other things."
        off = None
        for number in range(40):
            reply = await ask(router, ALIKE, cache={"store": False})
            if reply.headers["X-Cache"] == "MISS":
                off = number
                break
            await until(partial(_reached, model, number + 2))
            await asyncio.sleep(0.01)
        assert off is not None
        assert off >= 20
        report = (await call_admin(router, "GET", "/cache")).json["semantic"]["self_check"]
        [namespace] = report["off"]
        assert report["overall"]["wrong"] == off
        assert await router.metric("pointsman_cache_semantic_off") == [1]
        assert any("switched off" in line["event"] for line in router.log)
        body = {"namespace": namespace}
        assert (await call_admin(router, "POST", "/cache/forgive", body)).status == 200
        assert (await ask(router, ALIKE)).headers["X-Cache-Tier"] == "semantic"
