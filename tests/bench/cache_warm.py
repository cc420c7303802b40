"""How long a cache takes that begins with what an earlier process has left.

    python -m tests.bench.cache_warm fill URL COUNT [real]
    python -m tests.bench.cache_warm start URL COUNT

``real``: as if the local embedder had made the vectors. ``start`` is a process of its own: from
opening the store until everything is in the index.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, Final

import uvloop

from cache.embedders.installed import NAME

from .cache_filling import Pretended, entries, fill, make_cache, questions, resident_mib
from .cache_setup import Workshop, tell

__all__ = ["MAX_BYTES", "warm_start"]

MAX_BYTES: Final = 1 << 30
"""Room for the entries, and in a quarter of it for their vectors."""

_EMBEDDER: Final = "pretended"
_ENTRIES: Final = 50_000
_FEW: Final = 10_000
_SECONDS: Final = 3.0
_PATIENCE: Final = 120.0


async def warm_start(shop: Workshop) -> None:
    """Measure stores that outlive a process; adds to the findings."""
    counts = (_FEW, _ENTRIES)
    for count in counts:
        for kind, url in (await shop.stores()).items():
            if kind == "memory":
                continue
            filled = await shop.measured("cache_warm", "fill", url, str(count))
            shop.say(f"warm start: {count} entries in {kind}, put in {filled['seconds']:.0f} s")
            rounds = [
                await shop.measured("cache_warm", "start", url, str(count))
                for _ in range(shop.rounds)
            ]
            part = f"warm start with {count:,} entries".replace(",", " ")
            bound = _SECONDS if count == _ENTRIES else None
            shop.findings.add(
                part, f"{kind}: until all is found", [r["ready"] for r in rounds], "s",
                at_most=bound, note=f"the store open after {rounds[0]['opened']:.2f} s",
            )  # fmt: skip
            shop.findings.add(
                part, f"{kind}: CPU of it", [r["cpu"] for r in rounds], "s",
                note=f"memory +{rounds[0]['grown']:.0f} MiB, {rounds[0]['entries']:.0f} entries",
            )  # fmt: skip


async def _fill(url: str, count: int, embedder: str = _EMBEDDER) -> dict[str, float]:
    cache = make_cache(url, MAX_BYTES)
    await cache.open()
    try:
        began = time.perf_counter()
        texts, vectors = questions(count)
        store = cache.store
        kept = await fill(store, entries(texts, vectors, embedder, await store.epoch()))
        if kept != count:
            raise SystemExit(f"{kept} of {count} entries were kept")
        return {"seconds": time.perf_counter() - began}
    finally:
        await cache.close()


async def _start(url: str, count: int) -> dict[str, Any]:
    before = resident_mib()
    cache = make_cache(url, MAX_BYTES, Pretended(_EMBEDDER))
    began, cpu = time.perf_counter(), time.process_time()
    await cache.open()
    opened = time.perf_counter() - began
    try:
        assert cache.semantic is not None
        index = cache.semantic.index
        async with asyncio.timeout(_PATIENCE):
            await index.ready.wait()
        figures = {
            "ready": time.perf_counter() - began,
            "opened": opened,
            "cpu": time.process_time() - cpu,
            "grown": resident_mib() - before,
            "entries": index.stats().entries,
        }
        if figures["entries"] != count:
            raise SystemExit(f"{figures['entries']} of {count} entries are found")
        return figures
    finally:
        await cache.close()


if __name__ == "__main__":
    url, count = sys.argv[2], int(sys.argv[3])
    if sys.argv[1] == "start":
        tell(uvloop.run(_start(url, count)))
    else:
        tell(uvloop.run(_fill(url, count, NAME if sys.argv[4:] == ["real"] else _EMBEDDER)))
