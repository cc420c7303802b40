"""What one look-up takes, in process: ``ResponseCache.lookup`` and ``SemanticTier.judge``.

    python -m tests.bench.cache_lookup exact URL
    python -m tests.bench.cache_lookup semantic

A process of its own, pinned by the runner; one look-up at a time. All figures are in milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import uvloop

from cache.core import Lookup, ResponseCache
from cache.index import NearEntry
from cache.request import CacheKeys, CacheRequest
from cache.semantic import Judgement, SemanticTier
from tests.cache.quality.unrelated import unrelated

from .cache_filling import (
    asked,
    covered,
    entries,
    fill,
    local_embedder,
    make_cache,
    plain_controls,
    questions,
)
from .cache_setup import STORES, Workshop, tell

if TYPE_CHECKING:
    from cache.semantic import Vector

__all__ = ["lookups"]

T = TypeVar("T")

_STORED: Final = 2000
_LOOKUPS: Final = 2000
_MAX_BYTES: Final = 1 << 30
_ROWS: Final = 10_000
_PATIENCE: Final = 60.0
_KNOWN: Final = 200
_QUESTIONS: Final = 400
_EXACT_MS: Final = {"memory": 0.2, "disk": 0.2, "redis": 0.5}
_SEMANTIC_MS: Final = 3.0
_TITLES: Final = {"hit": "hit", "miss": "miss", "cold": "hit, the first since the start"}


async def lookups(shop: Workshop) -> None:
    """Measure both tiers; adds to the findings."""
    for kind, url in (await shop.stores()).items():
        rounds = [await shop.measured("cache_lookup", "exact", url) for _ in range(shop.rounds)]
        for what in ("hit", "cold", "miss"):
            if what == "cold" and kind != "disk":
                continue
            shop.findings.add(
                "one exact look-up, in process",
                f"{_TITLES[what]}, {kind}: p50",
                [one[what]["p50"] for one in rounds],
                "ms",
                at_most=_EXACT_MS[kind],
                note=_note(rounds, what),
            )
    rounds = [await shop.measured("cache_lookup", "semantic") for _ in range(shop.rounds)]
    for what, title in (
        ("judge_new", "judge, a question that is new: p50"),
        ("judge_known", "judge, a question that is near a stored one: p50"),
        ("lookup_new", "the whole look-up, new: p50"),
        ("lookup_mixed", "the whole look-up, every second one near a stored one: p50"),
        ("embed", "  of it the embedding: p50"),
        ("search", "  of it the search: p50"),
        ("refuses", "  of it gates and tokens: p50"),
        ("veto", "  of it the guard, where something is near: p50"),
    ):
        bound = _SEMANTIC_MS if what.startswith(("judge", "lookup")) else None
        shop.findings.add(
            "one semantic look-up, in process, 10 000 entries",
            title,
            [one[what]["p50"] for one in rounds],
            "ms",
            at_most=bound,
            note=_note(rounds, what),
        )
    assert set(_EXACT_MS) == set(STORES)


def _note(rounds: list[dict[str, Any]], what: str) -> str:
    p95 = median(one[what]["p95"] for one in rounds)
    cpu = median(one[what].get("cpu", 0.0) for one in rounds)
    return f"p95 {p95:.3f}" + (f"; CPU {cpu:.3f}" if cpu else "")


async def _timed(call: Callable[[T], Awaitable[object]], inputs: Sequence[T]) -> dict[str, float]:
    """One after the other, with a turn of the loop in between."""
    spent, cpu = [], time.process_time()
    for each in inputs:
        began = time.perf_counter()
        await call(each)
        spent.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0)
    return {**_quantiles(spent), "cpu": (time.process_time() - cpu) / len(inputs) * 1000}


def _quantiles(spent: list[float]) -> dict[str, float]:
    return {"p50": float(np.median(spent)), "p95": float(np.quantile(spent, 0.95))}


async def _exact(url: str) -> dict[str, Any]:
    """Hits, misses, and hits of a cache that has just been opened, where it outlives a process."""
    texts, _ = questions(_STORED + _LOOKUPS)
    stored, new = [[asked(text) for text in some] for some in (texts[:_STORED], texts[_STORED:])]
    found = {}
    cache = make_cache(url, _MAX_BYTES)
    await cache.open()
    try:
        await fill(cache.store, entries(texts[:_STORED], None, "", await cache.store.epoch()))
        for what, requests in (("hit", stored), ("miss", new)):
            found[what] = await _looking(cache, requests, hit=what == "hit")
    finally:
        await cache.close()
    if url != "memory://":
        cache = make_cache(url, _MAX_BYTES)
        await cache.open()
        try:
            found["cold"] = await _looking(cache, stored, hit=True)
        finally:
            await cache.close()
    return found


async def _looking(
    cache: ResponseCache, requests: list[tuple[CacheRequest, CacheKeys]], *, hit: bool
) -> dict[str, float]:
    controls = plain_controls()
    first = await cache.lookup(*requests[0], controls)
    assert (first.entry is not None) == hit

    async def look(one: tuple[CacheRequest, CacheKeys]) -> Lookup:
        return await cache.lookup(*one, controls)

    return await _timed(look, requests)


async def _semantic() -> dict[str, Any]:
    embedder = local_embedder()
    cache, controls = make_cache("memory://", _MAX_BYTES, embedder), plain_controls()
    await cache.open()
    tier = cache.semantic
    if tier is None:
        raise SystemExit("the local embedder cannot be used: is it installed?")
    try:
        asks = unrelated(_KNOWN + 2 * _QUESTIONS)
        known, new, others = asks[:_KNOWN], asks[_KNOWN:][:_QUESTIONS], asks[-_QUESTIONS:]
        mixed = [
            text for pair in zip(map(_asked_kindly, known), new, strict=False) for text in pair
        ]
        texts, vectors = questions(_ROWS - _KNOWN)
        own = np.concatenate([await embedder.embed([text]) for text in known])
        epoch, name = await cache.store.epoch(), embedder.name
        await fill(cache.store, entries(texts, vectors, name, epoch))
        await fill(cache.store, entries(known, own, name, epoch))
        space = asked(new[0])[1].namespace
        async with asyncio.timeout(_PATIENCE):
            while tier.index.stats().entries < _ROWS:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await covered(tier.index)

        async def judge(text: str) -> Judgement:
            return await tier.judge(space, text, 0.8)

        async def look(text: str) -> Lookup:
            return await cache.lookup(*asked(text), controls)

        async def search(vector: Vector) -> list[NearEntry]:
            return await tier.index.search(space, vector, threshold=0.8)

        await judge(new[0])
        near = [_reworded(text) for text in known]
        made = [await tier.embedded(text) for text in new]
        return {
            "judge_new": await _timed(judge, new),
            "judge_known": await _timed(judge, near),
            "lookup_new": await _timed(look, others),
            "lookup_mixed": await _timed(look, mixed),
            "embed": await _timed(tier.embedded, new),
            "search": await _timed(search, made),
            "refuses": _quantiles([_refusing(tier, space, text) for text in new]),
            # Of texts that were not judged above: profiles are remembered.
            "veto": _quantiles([_guarding(_reworded(text), text) for text in new]),
        }
    finally:
        await cache.close()


def _reworded(text: str) -> str:
    return f"Please tell me: {text[0].lower()}{text[1:]}"


def _asked_kindly(text: str) -> str:
    return f"{text.rstrip('?.')}, please?"


def _refusing(tier: SemanticTier, space: str, text: str) -> float:
    began = time.perf_counter()
    tier.refuses(space, text)
    return (time.perf_counter() - began) * 1000


def _guarding(one: str, other: str) -> float:
    from cache.guard import profile, veto

    began = time.perf_counter()
    veto(profile(one), profile(other))
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    tell(uvloop.run(_exact(sys.argv[2]) if sys.argv[1] == "exact" else _semantic()))
