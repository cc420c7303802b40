"""The index: what is found, what is not, what is kept, and within which bounds."""

from __future__ import annotations

import asyncio
import gc
import math
import tracemalloc
from collections.abc import Iterator

import pytest

from cache.entry import EVERYTHING, InvalidationRule
from cache.offload import Offload
from cache.store import Change
from tests.support.vectors import EMBEDDER, Clock, Feed, added, entry, near, unit, units
from tests.support.waiting import until

pytest.importorskip("numpy", reason="the semantic tier needs numpy")

from cache.index import VectorIndex

X, Y = unit(1, 0, 0), unit(0, 1, 0)


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload(2)
    yield offload
    offload.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def index(offload: Offload, clock: Clock) -> VectorIndex:
    return VectorIndex(max_bytes=10_000_000, embedder=EMBEDDER, offload=offload, clock=clock)


async def keys(index: VectorIndex, vector: object = X, **options: float) -> list[str]:
    threshold = options.pop("threshold", 0.8)
    found = await index.search("n", vector, threshold=threshold, limit=int(options.pop("limit", 8)))  # type: ignore[arg-type]
    return [candidate.key for candidate in found]


async def test_the_nearest_comes_first(index: VectorIndex) -> None:
    index.apply([added("b", unit(1, 0.3, 0)), added("a", unit(1, 0.1, 0)), added("c", Y)])
    best, second = await index.search("n", X, threshold=0.8)
    assert (best.key, best.text, best.created) == ("a", "text of a", 1.0)
    assert best.similarity == pytest.approx(1 / math.sqrt(1.01), abs=1e-6)
    assert second.key == "b"
    assert await keys(index, limit=1) == ["a"]


async def test_another_namespace_is_another_world(index: VectorIndex) -> None:
    index.apply([added("a", X, "other")])
    assert await keys(index) == []


async def test_an_entry_takes_the_place_of_one_with_its_key(index: VectorIndex) -> None:
    index.apply([added("a", X), added("a", Y, text="new")])
    assert await keys(index) == []
    assert [found.text for found in await index.search("n", Y, threshold=0.8)] == ["new"]
    index.apply([added("a", Y, "elsewhere")])
    assert await keys(index, Y) == []
    assert index.stats().entries == 1


@pytest.mark.parametrize(
    "change",
    [
        added("a", X, embedder="another"),
        added("a", unit(1, 0)),
        added("a", X * 2),
        added("a", X * math.nan),
        added("a", X, expires=1000.0),
        added("a", X, text="x" * 5_000_000),
        Change(added=entry("a", X[:0])),
        Change(removed="never there"),
    ],
)
async def test_what_is_of_no_use_is_ignored(index: VectorIndex, change: Change) -> None:
    index.apply([added("first", Y), change])
    assert await keys(index) == []
    assert await keys(index, Y) == ["first"]


async def test_what_cannot_be_kept_still_replaces(index: VectorIndex) -> None:
    index.apply([added("a", X), added("a", X, embedder="another")])
    assert await keys(index) == []


async def test_the_embedders_word_on_dimensions_counts(index: VectorIndex) -> None:
    index.apply([added("a", unit(1, 0))])
    assert await keys(index, X) == []
    index.apply([added("a", unit(1, 0)), added("b", X)])
    assert await keys(index, X) == ["b"]


async def test_what_expired_is_neither_found_nor_kept(index: VectorIndex, clock: Clock) -> None:
    index.apply([added("a", X, expires=1010.0), added("b", X), added("o", X, "o", expires=1010.0)])
    clock.now = 1010.0
    assert await keys(index) == ["b"]
    assert index.row("a") is None
    index.apply([])  # o's namespace is never searched: swept in passing
    assert index.stats().namespaces == 1


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (EVERYTHING, []),
        (InvalidationRule("namespace", "n"), ["other"]),
        (InvalidationRule("entry", "a"), ["b", "c", "other"]),
        (InvalidationRule("model", "m2"), ["a", "c"]),
        (InvalidationRule("tag", "t"), ["b", "other"]),
        (InvalidationRule("tag", "unknown"), ["a", "b", "c", "other"]),
    ],
)
async def test_invalidations(index: VectorIndex, rule: InvalidationRule, left: list[str]) -> None:
    index.apply(
        [
            added("a", X, tags=("t",)),
            added("b", X, model="m2"),
            added("c", X, tags=("s", "t")),
            added("other", X, "o", model="m2"),
            Change(invalidated=rule),
        ]
    )
    assert [key for key in ("a", "b", "c", "other") if index.row(key)] == left
    assert index.stats().entries == len(left)


async def test_a_reset_empties_it(index: VectorIndex) -> None:
    empty = index.stats().bytes
    index.apply([added(f"k{n}", X, f"n{n % 7}") for n in range(100)])
    index.apply([Change(reset=True)])
    assert index.stats().bytes == empty
    assert index.stats().entries == index.stats().namespaces == 0
    assert index.row("k1") is None


async def test_a_row_can_be_looked_up(index: VectorIndex) -> None:
    index.apply([added("a", X, tags=("t",), epoch=7, expires=2000.0)])
    row = index.row("a")
    assert row is not None
    assert (row.namespace, row.text, row.model, row.tags) == ("n", "text of a", "m", ("t",))
    assert (row.created, row.expires, row.epoch, row.mistake) == (1.0, 2000.0, 7, False)
    assert index.row("b") is None


# -- mistakes


def mistake(key: str, vector: object, demand: str, **fields: object) -> Change:
    tags = (f"requires:{demand}",)
    return added(key, vector, kind="mistake", tags=tags, **fields)  # type: ignore[arg-type]


async def test_near_a_mistake_more_likeness_is_demanded(index: VectorIndex) -> None:
    asked = unit(1, 0.1, 0)
    index.apply([added("good", unit(1, 0.12, 0)), added("so so", unit(1, 0.5, 0))])
    assert await keys(index, asked) == ["good", "so so"]
    index.apply([mistake("m", X, "0.97")])
    assert await keys(index, asked) == ["good"]
    assert index.stats().entries == 2
    assert index.stats().mistakes == 1
    row = index.row("m")
    assert row is not None
    assert row.mistake
    index.apply([Change(removed="m")])
    assert await keys(index, asked) == ["good", "so so"]


async def test_a_mistake_is_no_candidate_and_only_near_ones_count(index: VectorIndex) -> None:
    index.apply([mistake("m", X, "0.999")])
    assert await keys(index) == []
    index.apply([added("a", unit(0, 1, 0.1))])
    assert await keys(index, Y) == ["a"]


async def test_the_strictest_mistake_counts_and_one_without_demand_forbids(
    index: VectorIndex,
) -> None:
    index.apply([added("a", X), mistake("m1", X, "0.9"), mistake("m2", X, "0.99")])
    assert await keys(index, unit(1, 0.3, 0)) == []
    assert await keys(index) == ["a"]
    index.apply([mistake("m3", X, "nonsense")])
    assert await keys(index) == []


async def test_mistakes_are_bounded_expire_and_are_invalidated(
    index: VectorIndex, clock: Clock
) -> None:
    index.apply([mistake(f"m{n}", X, "0.9", created=float(n), expires=2000.0) for n in range(300)])
    assert index.stats().mistakes == 256
    assert index.row("m43") is None
    assert index.row("m44") is not None
    index.apply([added("a", unit(1, 0.6, 0))])
    assert await keys(index) == []
    clock.now = 2000.0
    assert await keys(index) == ["a"]
    index.apply([mistake("m", X, "0.99"), Change(invalidated=InvalidationRule("namespace", "n"))])
    assert index.stats().mistakes == index.stats().entries == 0


# -- bounds


async def test_the_least_recently_used_namespace_goes_first(offload: Offload) -> None:
    index = VectorIndex(max_bytes=60_000, embedder=EMBEDDER, offload=offload)
    for name in ("old", "used", "new"):
        index.apply([added(f"{name}{n}", X, name, created=float(n)) for n in range(40)])
    assert index.stats().evicted == 0
    await index.search("old", X, threshold=0.8)
    index.apply([added(f"more{n}", X, "more") for n in range(60)])
    assert index.stats().evicted > 0
    assert index.stats().bytes <= 60_000
    kept = {name: index.row(f"{name}39") is not None for name in ("old", "used", "new", "more")}
    assert kept["old"]
    assert kept["new"]
    gone = [index.row(f"used{n}") is None for n in range(40)]
    assert gone == sorted(gone, reverse=True)  # its oldest rows
    assert gone[0]


async def test_one_namespace_loses_its_oldest_rows(offload: Offload) -> None:
    index = VectorIndex(max_bytes=60_000, embedder=EMBEDDER, offload=offload)
    index.apply([added(f"k{n}", X, created=float(n)) for n in range(1000)])
    stats = index.stats()
    assert stats.bytes <= 60_000
    assert stats.entries + stats.evicted == 1000
    gone = [index.row(f"k{n}") is None for n in range(1000)]
    assert gone == sorted(gone, reverse=True)


@pytest.mark.parametrize("rows", [1, 3, 700])
async def test_the_bytes_are_counted_honestly(offload: Offload, rows: int) -> None:
    total = 2100
    index = VectorIndex(max_bytes=1 << 30, embedder=EMBEDDER, offload=offload)
    vectors = units(total, 384, 1)
    index.apply([added("warm", vectors[0]), Change(reset=True)])
    gc.collect()
    tracemalloc.start()
    try:
        for n in range(total):
            text, key, name = f"{n:064}" + "x" * (n % 90), f"{n:064x}", f"{n // rows:064x}"
            index.apply([added(key, vectors[n], name, text=text, tags=(f"tag{n}",))])
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.9 < index.stats().bytes / taken < 1.15


async def test_a_namespace_of_one_row_is_cheap(index: VectorIndex) -> None:
    index.apply([added("a", units(1, 384, 1)[0])])
    assert index.stats().bytes < 384 * 4 + 2000


# -- following a store


async def test_it_follows_a_store(index: VectorIndex) -> None:
    feed = Feed()
    feed.put([Change(reset=True), added("a", X)])
    task = asyncio.create_task(index.follow(feed))
    try:
        async with asyncio.timeout(60):
            await until(lambda: index.row("a") is not None)
            assert not index.ready.is_set()
            feed.put([])
            await index.ready.wait()
            feed.put([Change(reset=True)], [added("b", X)], [])
            await until(lambda: index.row("b") is not None)
            await index.ready.wait()
        assert index.row("a") is None
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_others_have_their_turn_while_a_large_batch_is_applied(index: VectorIndex) -> None:
    vectors = units(3000, 64, 3)
    feed = Feed()
    feed.put([added(f"k{n}", vector) for n, vector in enumerate(vectors)], [])
    task = asyncio.create_task(index.follow(feed))
    seen = set()
    async with asyncio.timeout(30):
        while not index.ready.is_set():
            await asyncio.sleep(0)
            seen.add(index.stats().entries)
    task.cancel()
    await asyncio.wait([task])
    assert len(seen) > 5


async def test_what_expires_unsearched_is_swept(index: VectorIndex, clock: Clock) -> None:
    index.apply([added(f"k{n}", X, f"n{n % 50}", expires=1010.0) for n in range(5000)])
    index.apply([added("kept", X)])
    clock.now = 1010.0
    task = asyncio.create_task(index.follow(Feed()))
    async with asyncio.timeout(30):
        await until(lambda: index.stats().entries == 1)
    task.cancel()
    await asyncio.wait([task])
    assert index.row("kept") is not None


async def test_large_namespaces_are_searched_in_a_thread(index: VectorIndex) -> None:
    vectors = units(5000, 384, 4)
    index.apply([added(f"k{n}", vector) for n, vector in enumerate(vectors)])
    for n in range(0, 5000, 500):
        found = await index.search("n", near(vectors[n], n), threshold=0.8)
        assert found[0].key == f"k{n}"
