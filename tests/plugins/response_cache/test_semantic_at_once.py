"""The same question at the same time, while the embedder is slow or full: one call, one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from router.app import CACHE
from tests.plugins.response_cache.test_semantic import ALIKE, FAR, QUESTION, Model, ask, matching
from tests.support.router import Reply, Router
from tests.support.waiting import until

np = pytest.importorskip("numpy", reason="the extra 'semantic' is not installed")

if TYPE_CHECKING:
    from cache.embedder import Embedder, Vectors

MANY = 100


class Narrow:
    """An embedder that is done with nothing before ``go``, and has room for so many calls."""

    def __init__(self, embedder: Embedder, room: int = 64) -> None:
        self.name, self.dimensions = embedder.name, embedder.dimensions
        self.go = asyncio.Event()
        self.waiting = 0
        self.embedded: list[str] = []
        self._embedder = embedder
        self._room = room

    async def start(self) -> None:
        await self._embedder.start()

    async def close(self) -> None:
        await self._embedder.close()

    def refuses(self, text: str) -> str | None:
        return self._embedder.refuses(text)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        from cache.embedder import EmbedderError

        if self.waiting >= self._room:
            raise EmbedderError("too many calls wait for the embedder")
        self.waiting += 1
        try:
            await self.go.wait()
            self.embedded += texts
            return await self._embedder.embed(texts)
        finally:
            self.waiting -= 1


def narrowed(router: Router, room: int = 64) -> Narrow:
    tier = router.app[CACHE].semantic
    assert tier is not None
    tier.embedder = narrow = Narrow(tier.embedder, room)
    return narrow


async def all_at_once(router: Router, narrow: Narrow, question: str) -> list[Reply]:
    """The answers to this question, asked while the embedder is at it."""
    tasks = [asyncio.create_task(ask(router, question)) for _ in range(MANY)]
    # Those who are turned away have had their answer by the time the embedder goes on.
    await until(lambda: router.running == sum(not t.done() for t in tasks) == MANY)
    await until(lambda: narrow.waiting)
    narrow.go.set()
    return await asyncio.gather(*tasks)


async def test_they_are_one_call() -> None:
    async with Model() as model, matching(model) as router:
        narrow = narrowed(router)
        replies = await all_at_once(router, narrow, FAR)
        assert model.asked == [QUESTION, FAR]
        assert narrow.embedded == [FAR]
    assert {reply.json["output_text"] for reply in replies} == {f"This answers: {FAR}"}


async def test_they_are_given_one_answer_where_there_is_one() -> None:
    async with Model() as model, matching(model) as router:
        replies = await all_at_once(router, narrowed(router), ALIKE)
        assert model.asked == [QUESTION]
    assert {reply.json["output_text"] for reply in replies} == {f"This answers: {QUESTION}"}
    assert {reply.headers["X-Cache-Tier"] for reply in replies} == {"semantic"}


async def test_what_was_kept_while_the_embedder_was_at_it_is_found() -> None:
    async with Model() as model, matching(model) as router:
        narrow = narrowed(router)
        slow = asyncio.create_task(ask(router, FAR))
        await until(lambda: narrow.waiting)
        quick = await ask(router, FAR, cache={"semantic": False})
        assert quick.headers["X-Cache"] == "MISS"
        await until(lambda: router.app[CACHE].store is not None and router.running == 1)
        narrow.go.set()
        reply = await slow
        assert reply.headers["X-Cache-Tier"] in ("exact", "shared")
        assert model.asked == [QUESTION, FAR]


async def test_who_leaves_does_not_end_it_for_the_others() -> None:
    async with Model() as model, matching(model) as router:
        narrow = narrowed(router)
        first = asyncio.create_task(ask(router, ALIKE))
        await until(lambda: narrow.waiting)
        second = asyncio.create_task(ask(router, ALIKE))
        await until(lambda: router.running == 2)
        first.cancel()
        await until(lambda: router.running == 1)
        narrow.go.set()
        assert (await second).headers["X-Cache-Tier"] == "semantic"
