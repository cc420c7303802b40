"""Random keys for a long time: does the cache stay within its bounds?

    python -m tests.bench.cache_soak URL PUTS

A process of its own puts so many answers of 0.2 to 20 KB through ``ResponseCache.put``, half of
them with vectors, and looks at every twentieth of the run what has become of the bounds.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any, Final

import uvloop

from cache.controls import Controls
from cache.core import Lookup, ResponseCache
from cache.store import StoreError, StoreStats

from .cache_filling import Pretended, answered, asked, make_cache, plain_controls, resident_mib
from .cache_setup import OwnRedis, Workshop, tell

__all__ = ["soak"]

MAX_BYTES: Final = 64 << 20
_SAMPLES: Final = 20
_AT_ONCE: Final = 8
_PUTS: Final = 60_000
_QUICK_PUTS: Final = 24_000
_FLAT_MIB: Final = 16.0
"""So much may come and go: garbage, arenas that are not given back."""

_DISK_SHARE: Final = 1.25


async def soak(shop: Workshop) -> None:
    """Measure every kind of store; adds to the findings."""
    puts = _QUICK_PUTS if shop.quick else _PUTS
    for kind in ("memory", "disk", "redis"):
        url, redis = await _store(shop, kind)
        if url is None:
            continue
        before = await redis.used_memory() if redis is not None else 0
        found = await shop.measured("cache_soak", url, str(puts))
        part = f"soak of {kind}, {puts:,} answers in {MAX_BYTES >> 20} MiB".replace(",", " ")
        add = shop.findings.add
        add(part, "most bytes of entries at any sample", found["most"] / MAX_BYTES, "x max_bytes",
            at_most=1.0, note=f"{found['evicted']:.0f} evicted, {found['refused']:.0f} not kept",
            )  # fmt: skip
        resident = found["resident"]
        quarters = [resident[_SAMPLES * part // 4 - 1] for part in (1, 2, 3, 4)]
        add(part, "memory grown from half of the run to its end", quarters[3] - quarters[1], "MiB",
            at_most=_FLAT_MIB, note="at each quarter: " + ", ".join(f"{q:.0f}" for q in quarters),
            )  # fmt: skip
        add(part, "index: bytes of its bound", found["index"], "x bound", at_most=1.0)
        if kind == "disk":
            add(part, "most bytes of the directory", found["directory"] / MAX_BYTES,
                "x max_bytes", at_most=_DISK_SHARE)  # fmt: skip
        if redis is not None:
            grown = (await redis.used_memory() - before) / MAX_BYTES
            add(part, "used_memory of Redis, grown", grown, "x max_bytes")
            redis.kill()


async def _store(shop: Workshop, kind: str) -> tuple[str | None, OwnRedis | None]:
    if kind == "memory":
        return "memory://", None
    if kind == "disk":
        return f"disk://{shop.directory / shop.fresh('soak')}", None
    redis = await shop.redis()
    return (None if redis is None else redis.url), redis


async def _soak(url: str, puts: int) -> dict[str, Any]:
    dice, embedder = random.Random(3), Pretended("pretended")
    cache, controls = make_cache(url, MAX_BYTES, embedder), plain_controls()
    directory = Path(url.removeprefix("disk://")) if url.startswith("disk://") else None
    await cache.open()
    try:
        assert cache.semantic is not None
        index = cache.semantic.index
        found: dict[str, Any] = {"resident": [], "most": 0, "directory": 0, "index": 0.0}
        refused = 0
        numbers = iter(range(puts))

        async def work(until: int) -> None:
            nonlocal refused
            for number in numbers:
                kept = await _put(cache, controls, embedder, dice, number)
                refused += not kept
                # As between requests; a store that is left alone for a while is not rushed by.
                await asyncio.sleep(0 if kept else 0.02)
                if number >= until:
                    return

        for sample in range(1, _SAMPLES + 1):
            until = puts * sample // _SAMPLES - _AT_ONCE
            await asyncio.gather(*(work(until) for _ in range(_AT_ONCE)))
            stats = await _stats(cache)
            found["most"] = max(found["most"], stats.bytes)
            found["evicted"] = stats.evicted
            known = index.stats()
            found["index"] = max(found["index"], known.bytes / known.max_bytes)
            found["resident"].append(resident_mib())
            if directory is not None:
                size = sum(file.stat().st_size for file in directory.iterdir())
                found["directory"] = max(found["directory"], size)
        return {**found, "refused": refused}
    finally:
        await cache.close()


async def _stats(cache: ResponseCache) -> StoreStats:
    """Those of the store, which may be too busy to tell at once."""
    while True:
        try:
            return await cache.store.stats()
        except StoreError:
            await asyncio.sleep(0.1)


async def _put(
    cache: ResponseCache, controls: Controls, embedder: Pretended, dice: random.Random, number: int
) -> bool:
    text = f"What is there to know about number {dice.randrange(10**12)} of the list?"
    # Half of them cannot be found by similar questions: those ask for a temperature.
    fields = {} if number % 2 else {"temperature": 0.5}
    request, names = asked(text, **fields)
    answer = answered(int(200 * 100 ** dice.random()))
    vector = (await embedder.embed([text]))[0].tobytes() if number % 2 else b""
    try:
        epoch = await cache.store.epoch()
    except StoreError:
        epoch = None
    kept: bool = await cache.put(
        request, names, answer, Lookup(epoch=epoch, vector=vector), controls
    )
    return kept


if __name__ == "__main__":
    tell(uvloop.run(_soak(sys.argv[1], int(sys.argv[2]))))
