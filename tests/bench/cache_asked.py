"""What one request at a time takes, end to end: exact misses and hits, and semantic ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import count
from statistics import median
from typing import Any, Final

from tests.cache.quality.unrelated import unrelated

from .bodies import Request, make_requests
from .cache_door import Told, numbered
from .cache_memory import as_requests
from .cache_setup import Workshop
from .cache_warm import MAX_BYTES
from .children import BenchError
from .measure import Target
from .shapes import Shape

__all__ = ["latencies"]

_ROWS: Final = 10_000
_KNOWN: Final = 200
_PATIENCE: Final = 60.0

Make = Callable[[], Sequence[Request]]


async def latencies(shop: Workshop) -> None:
    """Routers side by side, one measured at a time; adds to the findings."""
    off = await shop.router("asked-off", "responses", None)
    await _exact(shop, off)
    await _semantic(shop, off)
    shop.stop(off)


async def _exact(shop: Workshop, off: Target) -> None:
    known = [
        Request(one.wire, Told(64, 0, one.shape.variant), one.stream)
        for one in make_requests(Shape(64, 0), stream=False, key=shop.bench.key)
    ]
    numbers = count(20_000_000)
    ways: dict[tuple[str, str], tuple[Target, Make]] = {("off", "miss"): (off, lambda: known)}
    targets = []
    for kind, url in (await shop.stores()).items():
        section = {"mode": "always", "store": url}
        target = await shop.router(f"asked-{kind}", "responses", section)
        targets.append(target)
        ways[kind, "hit"] = target, lambda: known
        ways[kind, "miss"] = target, lambda: numbered(known, numbers, 3000)
    for target in (off, *targets):
        await shop.bench.load(target, "priming", known, 4, each=16, upstream=False)
    await asyncio.sleep(0.5)
    _tell(shop, "one request at a time", await _rounds(shop, ways))
    shop.stop(*targets)


async def _semantic(shop: Workshop, off: Target) -> None:
    """With entries in the namespace of what is asked."""
    url = f"disk://{shop.directory / shop.fresh('asked')}"
    await shop.measured("cache_warm", "fill", url, str(_ROWS), "real")
    section: dict[str, Any] = {"mode": "always", "store": url, "max_bytes": MAX_BYTES}
    section["semantic"] = {"enabled": True, "self_check": {"share": 0}}
    target = await shop.router("asked-semantic", "responses", section)
    questions = unrelated(_KNOWN + 20_000)
    key, unkept = shop.bench.key, {"cache": {"store": False}}
    known = as_requests(key, questions[:_KNOWN])
    near = as_requests(key, [f"Please tell me: {q[0].lower()}{q[1:]}" for q in questions[:_KNOWN]])
    await shop.bench.load(target, "priming", known, 4, each=_KNOWN // 4)
    await _ready(shop, target)
    fresh = iter(questions[_KNOWN:])

    def new() -> Sequence[Request]:
        return as_requests(key, [next(fresh) for _ in range(400)], **unkept)

    ways: dict[tuple[str, str], tuple[Target, Make]] = {
        ("off", "miss"): (off, new),
        ("semantic", "miss"): (target, new),
        ("semantic", "hit"): (target, lambda: near),
    }
    calls = await shop.calls(target)
    rounds = await _rounds(shop, ways)
    made = await shop.calls(target) - calls
    _tell(shop, f"one question at a time, {_ROWS:,} entries".replace(",", " "), rounds)
    shop.say(f"asked: {made} upstream calls")
    shop.stop(target)


async def _ready(shop: Workshop, target: Target) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        _, said = await shop.administer(target.port, "/admin/cache")
        index = (said.get("semantic") or {}).get("index") or {}
        if index.get("entries", 0) >= _ROWS + _KNOWN // 2:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"the entries do not come into the index: {said}")
        await asyncio.sleep(0.2)


Rounds = dict[tuple[str, str], list[tuple[float, float]]]


async def _rounds(shop: Workshop, ways: dict[tuple[str, str], tuple[Target, Make]]) -> Rounds:
    """Of each round, all in turn: the median in milliseconds, and the CPU time of a request."""
    found: Rounds = {way: [] for way in ways}
    order = list(ways)
    for number in range(2 * shop.rounds):
        for way in order if number % 2 else order[::-1]:
            target, make = ways[way]
            result, spent = await shop.bench.load(
                target, f"{way}", make(), 1, seconds=2 * shop.bench.plan.first_seconds,
                upstream=False,
            )  # fmt: skip
            cpu = spent["cpu_s"] / max(1, result.answers) * 1000
            found[way].append((median(result.whole_ms), cpu))
    return found


def _tell(shop: Workshop, part: str, rounds: Rounds) -> None:
    base = rounds["off", "miss"]
    cpu = median(cpu for _, cpu in base)
    shop.findings.add(
        part, "cache off: p50", [ms for ms, _ in base], "ms", note=f"CPU {cpu:.2f} ms"
    )
    for (kind, what), values in rounds.items():
        if kind != "off":
            added = [ms - without for (ms, _), (without, _) in zip(values, base, strict=True)]
            more = [cpu - without for (_, cpu), (_, without) in zip(values, base, strict=True)]
            note = f"p50 {median(ms for ms, _ in values):.2f} ms; CPU added {median(more):.2f} ms"
            shop.findings.add(part, f"{what}, {kind}: added", added, "ms", note=note)
