"""One measurement of one target: load on it, its CPU and memory meanwhile, its answers checked."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from . import procfs
from .bodies import Request, make_requests
from .check import Checker
from .children import BenchError, Child
from .load import Load, Result, fetch
from .shapes import Shape

__all__ = ["AT_ONCE", "HELD_STREAMS", "Bench", "Measure", "Plan", "Target", "Values"]

Values = dict[str, float]
"""Figures of one measurement by name; the unit is the end of the name."""

AT_ONCE: Final = 64
PACED_STREAMS: Final = 100
UNPACED_STREAMS: Final = 32
HELD_STREAMS: Final = 500

_WHOLE: Final = Shape(64, 0)
_PACED: Final = Shape(64, 20)
_UNPACED: Final = Shape(64, 0)
_SHORT: Final = Shape(2, 2)
_HELD: Final = Shape(64, 100)

_SLACK: Final = 30.0
_SETTLE: Final = 0.1
_MOSTLY_QUIET: Final = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each measurement takes, in seconds or streams per client."""

    whole_seconds: float
    paced_each: int
    unpaced_seconds: float
    first_seconds: float
    stored_seconds: float

    @classmethod
    def quick(cls) -> Plan:
        return cls(0.35, 1, 0.3, 0.25, 0.4)

    @classmethod
    def full(cls) -> Plan:
        return cls(1.0, 2, 0.8, 0.6, 0.8)


@dataclass(frozen=True, slots=True)
class Target:
    """Something that serves a model's API on ``port`` and asks the mock on ``upstream_path``.

    ``form`` makes a request of that API of one for /v1/responses.
    """

    name: str
    port: int
    upstream_path: str
    child: Child
    checker: Checker
    form: Callable[[Request], Request] | None = None


Measure = Callable[[Target], Awaitable[Values]]


@dataclass(slots=True)
class Bench:
    """Measures targets, one at a time, and gathers what was wrong in ``failures``.

    Every method takes at most the time of its load and ``_SLACK`` seconds, and raises BenchError
    where a target has ended or does not end its answers in that time.
    """

    plan: Plan
    key: str
    mock_port: int
    proxies: list[Child]
    core: int
    failures: Counter[str] = field(default_factory=Counter)
    foreign_shares: list[float] = field(default_factory=list)
    _requests: dict[tuple[Shape, bool, Any], list[Request]] = field(default_factory=dict)

    async def warm_up(self, target: Target) -> None:
        """Let the target load what it loads lazily; check every answer."""
        for shape, stream in ((_WHOLE, False), (_UNPACED, True)):
            await self.load(
                target, "warm-up", self._make(target, shape, stream), 8, sample_every=1, each=6
            )

    async def quiet(self, measure: Measure, target: Target) -> Values:
        """A measurement, repeated once if foreign work took more than a tenth of the core."""
        values = await measure(target)
        if values["foreign_share"] > _MOSTLY_QUIET:
            again = await measure(target)
            values = min(values, again, key=lambda each: each["foreign_share"])
        self.foreign_shares.append(values["foreign_share"])
        return values

    async def whole(self, target: Target) -> Values:
        """Answers that are not streamed."""
        seconds = self.plan.whole_seconds
        result, spent = await self.load(
            target,
            "non-stream",
            self._make(target, _WHOLE, False),
            AT_ONCE,
            sample_every=11,
            seconds=seconds,
        )
        return {
            "whole_per_s": result.answers / result.seconds,
            "whole_cpu_us": spent["cpu_s"] / max(1, result.answers) * 1e6,
            "foreign_share": spent["foreign_share"],
        }

    async def paced(self, target: Target) -> Values:
        """Streams at the pace of a model, all open at once."""
        result, spent = await self.load(
            target,
            "paced streams",
            self._make(target, _PACED, True),
            PACED_STREAMS,
            sample_every=3,
            each=self.plan.paced_each,
            spread=0.1,
        )
        return {
            "paced_events_per_s": result.events / result.seconds,
            "paced_cpu_us": spent["cpu_s"] / max(1, result.events) * 1e6,
            "foreign_share": spent["foreign_share"],
        }

    async def unpaced(self, target: Target) -> Values:
        """Streams as fast as they go."""
        seconds = self.plan.unpaced_seconds
        result, spent = await self.load(
            target,
            "unpaced streams",
            self._make(target, _UNPACED, True),
            UNPACED_STREAMS,
            seconds=seconds,
        )
        return {
            "unpaced_events_per_s": result.events / result.seconds,
            "unpaced_cpu_us": spent["cpu_s"] / max(1, result.events) * 1e6,
            "foreign_share": spent["foreign_share"],
        }

    async def first(self, target: Target) -> Values:
        """The time to the first delta, one request at a time: the median."""
        seconds = self.plan.first_seconds
        result, _ = await self.load(
            target, "first event", self._make(target, _SHORT, True), 1, seconds=seconds
        )
        times = sorted(result.first_ms)
        if not times:
            raise BenchError(f"{target.name}: no stream had a first delta")
        return {"first_ms": times[len(times) // 2]}

    async def idle(self, target: Target) -> Values:
        """Resident memory before any request."""
        return {"idle_mib": self._resident(target) / 1024}

    async def held(self, target: Target) -> Values:
        """How much resident memory grows with many slow streams open at once."""
        self._still_there(target)
        requests, calls = (
            self._make(target, _HELD, True),
            await self._calls(target),
        )
        before, peak = self._resident(target), 0
        limit = _HELD.deltas * _HELD.delay_ms / 1000 + _SLACK
        async with Load(
            ("127.0.0.1", target.port), requests, HELD_STREAMS, sample_every=20
        ) as load:
            running = asyncio.ensure_future(load.run(limit=limit, each=1, spread=0.5))
            try:
                while not running.done():
                    await asyncio.sleep(0.2)
                    if load.streaming == HELD_STREAMS:
                        peak = max(peak, self._resident(target))
                result = await running
            except TimeoutError:
                raise self._endless(target, "held streams", limit) from None
            finally:
                running.cancel()
        await self._check(target, "held streams", result, calls)
        if not peak:
            raise BenchError(
                f"{target.name}: {HELD_STREAMS} streams were never open at the same time; "
                f"{len(result.failures)} of them failed: {result.failures[:1]}"
            )
        return {"held_kib": max(0, peak - before) / HELD_STREAMS}

    async def load(
        self,
        target: Target,
        what: str,
        requests: Sequence[Request],
        concurrency: int,
        *,
        sample_every: int = 7,
        seconds: float | None = None,
        each: int | None = None,
        spread: float = 0.0,
        upstream: bool = True,
    ) -> tuple[Result, Values]:
        """One load; its result, the target's CPU seconds and the share of foreign work.

        ``upstream``: every answer takes a call of the upstream.
        """
        self._still_there(target)
        calls = await self._calls(target) if upstream else None
        limit = (seconds or 0.0) + _SLACK
        address = ("127.0.0.1", target.port)
        async with Load(address, requests, concurrency, sample_every=sample_every) as load:
            before = self._clocks(target)
            try:
                result = await load.run(limit=limit, seconds=seconds, each=each, spread=spread)
            except TimeoutError:
                raise self._endless(target, what, limit) from None
            # What a target does after the last byte (a log line, a metric) belongs to it.
            await asyncio.sleep(_SETTLE)
            self._still_there(target)
            wall, core, proxies, own = (
                now - then for now, then in zip(self._clocks(target), before, strict=True)
            )
        await self._check(target, what, result, calls)
        return result, {"cpu_s": own, "foreign_share": max(0.0, core - proxies) / wall}

    def _clocks(self, target: Target) -> tuple[float, float, float, float]:
        """Seconds so far: by the clock, of the core, of all proxies, of the target."""
        return (
            time.perf_counter(),
            procfs.core_seconds(self.core),
            procfs.cpu_seconds(*(child.pid for child in self.proxies)),
            procfs.cpu_seconds(target.child.pid),
        )

    async def _check(self, target: Target, what: str, result: Result, calls: int | None) -> None:
        """Note what is wrong; ``calls``: how many upstream calls there had been before, if any."""
        for failure in result.failures:
            self.failures[f"{target.name}, {what}: {failure}"] += 1
        checker = target.checker
        for sample in result.samples:
            check = checker.stream if sample.request.stream else checker.body
            if fault := check(sample.body, sample.request.shape):
                self.failures[f"{target.name}, {what}: {fault}"] += 1
        made = 0 if calls is None else await self._calls(target) - calls
        if calls is not None and made < result.answers:
            self.failures[f"{target.name}, {what}: {made} upstream calls, more answers"] += 1
        if not result.answers:
            first = result.failures[0] if result.failures else "none came"
            raise BenchError(
                f"{target.name}, {what}: not one good answer: {first}\n{target.child.last_words()}"
            )

    async def _calls(self, target: Target) -> int:
        """How many answers the mock has begun on the target's path so far."""
        try:
            status, body = await fetch(("127.0.0.1", self.mock_port), "/counts")
        except OSError as error:
            raise BenchError(f"the mock does not answer: {error}") from None
        if status != 200:
            raise BenchError(f"the mock answers GET /counts with status {status}")
        return int(orjson.loads(body)[target.upstream_path])

    def _make(self, target: Target, shape: Shape, stream: bool) -> list[Request]:
        form = target.form
        requests = self._requests.get((shape, stream, form))
        if requests is None:
            requests = make_requests(shape, stream=stream, key=self.key)
            if form is not None:
                requests = [form(request) for request in requests]
            self._requests[shape, stream, form] = requests
        return requests

    def _resident(self, target: Target) -> int:
        self._still_there(target)
        return procfs.resident_kib(target.child.pid)

    def _still_there(self, target: Target) -> None:
        target.child.check()

    def _endless(self, target: Target, what: str, limit: float) -> BenchError:
        return BenchError(
            f"{target.name}, {what}: answers were still missing after {limit:.0f} s\n"
            f"{target.child.last_words()}"
        )
