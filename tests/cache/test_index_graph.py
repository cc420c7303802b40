"""Large namespaces: an approximate index, as good as the exact one where it matters."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from cache.entry import EVERYTHING
from cache.offload import Offload
from cache.store import Change
from tests.support.vectors import EMBEDDER, Feed, added, near, units
from tests.support.waiting import until

pytest.importorskip("numpy", reason="the semantic tier needs numpy")

import numpy as np

from cache.index import VectorIndex
from cache.index_graph import NeighbourGraph

if TYPE_CHECKING:
    from tests.support.vectors import Vector

ROWS, BIG = 3000, 1000


@pytest.fixture(autouse=True)
def usearch(request: pytest.FixtureRequest) -> None:
    if "without" not in request.node.name:
        pytest.importorskip("usearch", reason="approximate indexes need usearch")


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload(2)
    yield offload
    offload.close()


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def index(offload: Offload, heard: list[str]) -> VectorIndex:
    return VectorIndex(
        max_bytes=1 << 30, embedder=EMBEDDER, offload=offload, big=BIG, say=heard.append
    )


@asynccontextmanager
async def tended(index: VectorIndex) -> AsyncIterator[None]:
    task = asyncio.create_task(index.follow(Feed()))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def covered(index: VectorIndex) -> bool:
    """Whether no row has to be compared any more."""
    shelves = index._shelves.large()
    return bool(shelves) and all(shelf.graph is not None and not shelf.views() for shelf in shelves)


def fill(index: VectorIndex, vectors: Vector, prefix: str = "k") -> None:
    index.apply([added(f"{prefix}{n}", vector) for n, vector in enumerate(vectors)])


async def recall(index: VectorIndex, vectors: Vector, prefix: str = "k") -> float:
    """Of the eight best rows above the threshold, the share that is found."""
    wanted = found = 0
    for n in range(0, len(vectors), 10):
        asked = near(vectors[n], n)
        similarities = vectors @ asked
        order = np.argsort(-similarities)[:8]
        best = {f"{prefix}{row}" for row in order if similarities[row] >= 0.6}
        answer = await index.search("n", asked, threshold=0.6)
        wanted += len(best)
        found += len(best & {candidate.key for candidate in answer})
        for candidate in answer:
            similarity = float(similarities[int(candidate.key[len(prefix) :])])
            assert candidate.similarity == pytest.approx(similarity, abs=1e-5)
    assert wanted > len(vectors) / 10
    return found / wanted


async def test_what_is_above_the_threshold_is_found(index: VectorIndex) -> None:
    vectors = units(ROWS, 384, 1)
    fill(index, vectors)
    assert await recall(index, vectors) == 1.0
    async with tended(index):
        await until(lambda: covered(index), timeout=120)
    assert index.stats().approximate == 1
    assert await recall(index, vectors) >= 0.98


async def test_it_stays_good_when_all_rows_are_replaced(index: VectorIndex) -> None:
    old, new = units(2000, 128, 1), units(2000, 128, 2)
    fill(index, old, "old")
    async with tended(index):
        await until(lambda: covered(index), timeout=120)
        for n in range(2000):
            index.apply([Change(removed=f"old{n}"), added(f"new{n}", new[n])])
            if n % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: covered(index), timeout=120)
    assert await recall(index, new, "new") >= 0.98
    assert index.row("old7") is None


def test_what_went_from_the_same_place_again_and_again_is_not_in_the_way() -> None:
    vectors = units(500, 64, 1)
    graph = NeighbourGraph(64)
    nodes, gone = graph.claim(range(500))
    graph.grow(nodes, vectors, gone)
    graph.settle(gone)
    node = nodes[7]
    for _ in range(300):
        graph.removed(node)
        [node], gone = graph.claim([7])
        graph.grow([node], vectors[7:8], gone)
        graph.settle(gone)
    assert [graph.slot(found) for found in graph.near(vectors[7], -1, 64)].count(7) == 1
    assert len(graph.near(vectors[7], -1, 64)) == 64


@pytest.mark.parametrize("dimensions", [16, 384, 3072])
def test_what_a_graph_rules_out_is_not_near(dimensions: int) -> None:
    vectors = units(400, dimensions, 1)
    vectors[200:] = [near(vector, n) for n, vector in enumerate(vectors[:200])]
    graph = NeighbourGraph(dimensions)
    nodes, gone = graph.claim(range(400))
    graph.grow(nodes, vectors, gone)
    graph.settle(gone)
    ruled_out = 0
    for row in range(0, 200, 2):
        asked = vectors[row]
        similarity = vectors @ asked
        threshold = float(similarity[200 + row])  # exactly as near as one of them
        found = graph.near(asked, threshold, 32)
        gone = sorted(set(graph.near(asked, -1, 32)) - set(found))
        assert row in found
        assert (similarity[gone] < threshold).all()
        ruled_out += len(gone)
    assert ruled_out > 1000


async def test_a_graph_that_fails_is_done_without(
    index: VectorIndex, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NeighbourGraph, "grow", lambda *_: 1 // 0)
    vectors = units(1100, 64, 1)
    fill(index, vectors)
    async with tended(index):
        await until(lambda: bool(heard))
    assert index.stats().approximate == 0
    assert await recall(index, vectors) == 1.0
    assert heard == ["large namespaces of the cache are searched whole: ZeroDivisionError"]


async def test_new_rows_are_found_before_the_graph_has_them(index: VectorIndex) -> None:
    vectors = units(1100, 64, 1)
    fill(index, vectors[:1050])
    async with tended(index):
        await until(lambda: covered(index), timeout=120)
    fill(index, vectors[1050:], "late")
    found = await index.search("n", vectors[1060], threshold=0.99)
    assert [candidate.key for candidate in found] == ["late10"]


async def test_rows_that_come_and_go_while_it_grows(index: VectorIndex) -> None:
    vectors = units(2500, 64, 1)
    fill(index, vectors[:2000])
    async with tended(index):
        for n in range(500):
            index.apply([Change(removed=f"k{n}"), added(f"k{2000 + n}", vectors[2000 + n])])
            asked = near(vectors[n + 1000], n)
            for candidate in await index.search("n", asked, threshold=0.8):
                similarity = float(vectors[int(candidate.key[1:])] @ asked)
                assert candidate.text == f"text of {candidate.key}"
                assert candidate.similarity == pytest.approx(similarity, abs=1e-5)
                assert int(candidate.key[1:]) > n
        await until(lambda: covered(index), timeout=120)
    for n in range(500, 2500, 50):
        found = await index.search("n", vectors[n], threshold=0.99)
        assert f"k{n}" in [candidate.key for candidate in found]


async def test_it_goes_back_to_the_matrix(index: VectorIndex) -> None:
    vectors = units(1100, 64, 1)
    fill(index, vectors)
    async with tended(index):
        await until(lambda: covered(index), timeout=120)
        index.apply([Change(removed=f"k{n}") for n in range(550)])
        assert index.stats().approximate == 1
        index.apply([Change(removed=f"k{n}") for n in range(550, 610)])
        assert index.stats().approximate == 0
        found = await index.search("n", vectors[700], threshold=0.99)
        assert "k700" in [candidate.key for candidate in found]
        index.apply([Change(invalidated=EVERYTHING)])
        assert await index.search("n", vectors[700], threshold=0.99) == []


async def test_the_graph_counts_against_the_bound(offload: Offload) -> None:
    vectors = units(1500, 64, 1)
    index = VectorIndex(
        max_bytes=1_400_000, embedder=EMBEDDER, offload=offload, big=500, say=pytest.fail
    )
    fill(index, vectors)
    before = index.stats()
    async with tended(index):
        await until(lambda: covered(index), timeout=120)
    assert index.stats().bytes > before.bytes
    index.apply([added("one more", vectors[0])])
    assert index.stats().bytes <= 1_400_000


async def test_without_usearch_it_is_exact_and_says_so_once(
    index: VectorIndex, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    vectors = units(1500, 64, 1)
    fill(index, vectors)
    async with tended(index):
        await until(lambda: bool(heard))
        await asyncio.sleep(0.05)
    assert index.stats().approximate == 0
    assert await recall(index, vectors) == 1.0
    assert len(heard) == 1
    assert "usearch is not installed" in heard[0]
