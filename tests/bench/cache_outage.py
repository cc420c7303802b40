"""A Redis that is killed under load, and comes back: empty, then with what it held long ago.

What a client would notice: errors, time, and above all an answer that was taken back.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass, field
from itertools import count
from statistics import median, quantiles
from typing import Final

import aiohttp

from tests.cache.quality.unrelated import unrelated

from .bodies import Request, make_requests
from .cache_door import numbered
from .cache_memory import as_requests
from .cache_setup import OwnRedis, Workshop
from .children import BenchError
from .load import Load
from .measure import Target
from .shapes import Shape

__all__ = ["outage"]

_AT_ONCE: Final = 16
_ADDED_MS: Final = 1.0
_OPEN_SECONDS: Final = 2.0
_BACK_SECONDS: Final = 45.0
_QUESTIONS: Final = 200


async def outage(shop: Workshop) -> None:
    """Kill, restart, look for what is stale; adds to the findings."""
    redis = await shop.redis()
    if redis is None:
        return
    section = {"mode": "always", "store": redis.url}
    target = await shop.router("outage", "responses", section)
    other = await shop.router("outage-other", "responses", section)
    off = await shop.router("outage-off", "responses", None)
    known = make_requests(Shape(64, 0), stream=False, key=shop.bench.key)
    for each in (target, other, off):
        await shop.bench.load(each, "warm-up", known, 8, sample_every=1, each=8, upstream=False)
    await _killed(shop, redis, target)
    await _added(shop, target, off)
    await _returned(shop, redis, [target, other])
    shop.stop(target, other, off)
    redis.kill()


PART: Final = "Redis killed under load"


async def _killed(shop: Workshop, redis: OwnRedis, target: Target) -> None:
    """Load, half of it hits, of which Redis is gone in the middle."""
    seconds = 3.0 if shop.quick else 8.0
    known = make_requests(Shape(64, 0), stream=False, key=shop.bench.key)
    new = numbered(known, count(10_000_000), 20_000)
    mixed = [one for pair in zip(known * 400, new, strict=False) for one in pair]
    async with Load(("127.0.0.1", target.port), mixed, _AT_ONCE) as load:
        running = asyncio.ensure_future(load.run(limit=seconds + 30, seconds=seconds))
        await asyncio.sleep(seconds / 2)
        redis.kill()
        result = await running
    for failure in result.failures:
        shop.bench.failures[f"outage: {failure}"] += 1
    note = f"of {result.answers} requests; the slowest took {max(result.whole_ms):.0f} ms"
    shop.findings.add(PART, "client errors", len(result.failures), "errors", at_most=0, note=note)


async def _added(shop: Workshop, target: Target, off: Target) -> None:
    """One request at a time, with Redis away for good, beside a router without a cache."""
    await asyncio.sleep(_OPEN_SECONDS)
    seconds = 4 * shop.bench.plan.first_seconds
    known = make_requests(Shape(64, 0), stream=False, key=shop.bench.key)
    added: dict[str, list[float]] = {"p50": [], "p99": []}
    for _ in range(max(4, 2 * shop.rounds)):
        spent = {}
        for each in (off, target):
            result, _ = await shop.bench.load(each, "breaker open", known, 1, seconds=seconds)
            spent[each.name] = {
                "p50": median(result.whole_ms),
                "p99": quantiles(result.whole_ms, n=100)[98],
            }
        for what, values in added.items():
            values.append(spent[target.name][what] - spent[off.name][what])
    for what, values in added.items():
        title = f"added to a request once the breaker is open: {what}"
        shop.findings.add(PART, title, values, "ms", at_most=_ADDED_MS)


@dataclass(slots=True)
class _Answers:
    """What clients are told: answers by when they were stored, as far as their age says."""

    shop: Workshop
    client: aiohttp.ClientSession
    asked: list[Request]
    stale: int = 0
    hits: int = 0
    seen: list[str] = field(default_factory=list)

    async def ask(self, target: Target, since: float) -> int:
        """Ask everything; how many hits, and note those older than ``since`` (Unix seconds)."""
        hits = 0
        for request in self.asked:
            body = request.wire.partition(b"\r\n\r\n")[2]
            headers = {"Authorization": f"Bearer {self.shop.bench.key}",
                       "Content-Type": "application/json"}  # fmt: skip
            url = f"http://127.0.0.1:{target.port}/v1/responses"
            async with self.client.post(url, data=body, headers=headers) as response:
                await response.read()
                if response.status != 200:
                    self.shop.bench.failures[f"outage: status {response.status}"] += 1
                if response.headers.get("X-Cache") == "HIT":
                    hits += 1
                    # The age is in whole seconds, so what was stored just before may look older.
                    stored = time.time() - float(response.headers.get("Age", "0"))
                    self.stale += stored < since - 1
        self.hits += hits
        return hits


async def _returned(shop: Workshop, redis: OwnRedis, targets: list[Target]) -> None:
    """Redis comes back empty; then everything is invalidated, and it comes back with what it held
    before that.
    """
    started = time.monotonic()
    await redis.start()
    asked = as_requests(shop.bench.key, unrelated(_QUESTIONS))
    async with aiohttp.ClientSession() as client:
        answers = _Answers(shop, client, asked)
        for target in targets:
            await _until_kept(shop, target)
        waited = time.monotonic() - started
        shop.findings.add(PART, "empty again: until answers are kept", waited, "s")
        began = time.time()
        await answers.ask(targets[0], began)
        await asyncio.sleep(0.5)
        hits = [await answers.ask(target, began) for target in targets]
        shop.findings.add(PART, "hits on both routers afterwards", sum(hits), "answers",
                          at_least=2 * _QUESTIONS)  # fmt: skip
        await redis.command("SAVE")
        shutil.copy(redis.dump, redis.dump.with_suffix(".old"))
        await asyncio.sleep(2.0)
        invalidated = time.time()
        await _invalidate(shop, targets[0])
        redis.kill()
        await asyncio.sleep(0.5)
        shutil.copy(redis.dump.with_suffix(".old"), redis.dump)
        await redis.start()
        for target in targets:
            await _until_kept(shop, target)
        old = [await answers.ask(target, invalidated) for target in targets]
    note = f"{sum(old)} hits, all of them younger" if not answers.stale else ""
    shop.findings.add(PART, "stale answers after old data came back", answers.stale, "answers",
                      at_most=0, note=note)  # fmt: skip


async def _invalidate(shop: Workshop, target: Target) -> None:
    status, said = await shop.administer(target.port, "/admin/cache/invalidate", {"all": True})
    if status != 200:
        raise BenchError(f"invalidation: status {status}: {said}")


async def _until_kept(shop: Workshop, target: Target) -> None:
    """Wait until the router uses its store again."""
    deadline = time.monotonic() + _BACK_SECONDS
    while True:
        status, said = await shop.administer(target.port, "/admin/cache")
        if status == 200 and said.get("store") is not None:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"{target.name} does not use its store again: status {status}")
        await asyncio.sleep(0.1)
