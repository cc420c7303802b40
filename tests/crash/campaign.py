"""Routers under load are killed with SIGKILL at random moments and started again at once."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.audit import Audit
from tests.crash.client import Client
from tests.crash.ledger import Ledger
from tests.crash.load import Load
from tests.crash.rows import broken_rows, unfinished
from tests.support.processes import MODELS, Processes, RouterProcess

__all__ = ["Campaign", "Report"]

_SETTLE_SECONDS = 90.0
_TERMINAL_WITHIN = 10.0
"""Every run is terminal so many seconds after the last restart: what is promised."""

_OF_RUNS = re.compile(r'"event":"(run [^"]+)"')

_SHOWN = 40
"""Violations that are printed."""

_SAMPLE = 1500
"""So much of everything ever acknowledged is looked at once more in the end."""


@dataclass
class Report:
    """What came out."""

    seed: int
    kills: int
    seconds: float
    ledger: Ledger

    def lines(self) -> list[str]:
        """The figures, for people."""
        ledger = self.ledger
        recovery = sorted(ledger.recovery)
        lines = [f"seed {self.seed}: {self.kills} kills in {self.seconds:.0f} s"]
        lines += [f"  {count:6}  {name}" for name, count in sorted(ledger.counts.items())]
        if recovery:
            middle = recovery[len(recovery) // 2]
            lines.append(
                f"  restart to the end of a run begun before: median {middle:.2f} s, slowest "
                f"{recovery[-1]:.2f} s, of {len(recovery)}"
            )
        lines.append(f"  {len(ledger.violations):6}  violations")
        return lines + [f"    {violation}" for violation in ledger.violations[:_SHOWN]]


class Campaign:
    """``routers`` routers on the database ``url``; everything random comes from ``seed``.

    ``workers`` ask at the same time. ``stops`` is the share of kills that are none: SIGTERM, and
    the router stops cleanly.
    """

    def __init__(
        self,
        url: str,
        directory: Path,
        *,
        routers: int,
        seed: int,
        lease: float = 5.0,
        stops: float = 0.0,
        workers: int = 24,
    ) -> None:
        self._url = url
        self._directory = directory
        self._count = routers
        self._seed = seed
        self._lease = lease
        self._stops = stops
        self._workers = workers
        self._rng = random.Random(seed)
        self._ledger = Ledger()
        self._routers: list[RouterProcess] = []
        self._kills = 0

    async def run(self, rounds: list[int], told: Callable[[str], None] = print) -> Report:
        """So many kills in each round; after each, everything of that round is checked.

        In the end, all of it is checked once more.
        """
        began = time.monotonic()
        told(f"seed {self._seed}")
        async with AsyncExitStack() as stack:
            processes = stack.enter_context(Processes(self._directory))
            endpoints = await asyncio.gather(*map(processes.backend, MODELS))
            self._routers = await asyncio.gather(
                *(
                    processes.router(f"router-{number}", self._settings(endpoints))
                    for number in range(self._count)
                )
            )
            urls = [router.url for router in self._routers]
            client = await stack.enter_async_context(Client(urls, self._rng))
            self._load = Load(client, self._ledger, list(MODELS.values()), self._rng)
            self._audit = Audit(client, self._ledger, self._rng)
            for number, kills in enumerate(rounds):
                await self._round(kills, last=number == len(rounds) - 1)
                broken = len(self._ledger.violations)
                told(f"{self._kills} kills, {len(self._ledger.kept)} responses, {broken} broken")
            await self._finale()
            self._ledger.counts["told to come again"] = client.refused
        return Report(self._seed, self._kills, time.monotonic() - began, self._ledger)

    def _settings(self, endpoints: list[dict[str, Any]]) -> dict[str, Any]:
        return {"endpoints": endpoints, "state": {"url": self._url, "lease": self._lease}}

    async def _round(self, kills: int, *, last: bool) -> None:
        ledger = self._ledger
        known, talks = set(ledger.kept), len(ledger.talks)
        working = asyncio.ensure_future(self._load.run(self._workers))
        try:
            for _ in range(kills):
                await self._kill()
            self._load.stop()
            try:
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await working
            except TimeoutError:
                ledger.broken("the load does not come to its end")
        finally:
            working.cancel()
            await asyncio.wait([working])
        await self._all_over()
        if last:
            return
        fresh = [kept for ident, kept in ledger.kept.items() if ident not in known]
        await self._audit.everything(fresh, ledger.talks[talks:])

    async def _kill(self) -> None:
        """Kill one router, or all of them, at a random moment, and start them again."""
        rng = self._rng
        await asyncio.sleep(rng.uniform(0, 0.4) if rng.random() < 0.3 else rng.uniform(0.2, 3.0))
        together = rng.random() < 0.15
        for router in self._routers if together else [rng.choice(self._routers)]:
            assert router.running, f"{router.name} ended by itself:\n{router.last_words()}"
            if rng.random() < self._stops:
                await router.ready()  # before, nobody listens to signals
                router.signal(signal.SIGTERM)
                if code := await router.ended():
                    self._ledger.broken(f"{router.name} stopped with exit code {code}")
                self._ledger.counts["clean stops"] += 1
            else:
                router.kill()
                self._kills += 1
            router.start()
            self._ledger.restarts.append(router.started)
        if rng.random() < 0.1:
            await asyncio.sleep(rng.uniform(0, 1.0))  # and the next one may die while it starts
        else:
            for router in self._routers:
                await router.ready()

    async def _all_over(self) -> None:
        """Wait until nothing is unfinished, also of what no client knows."""
        for router in self._routers:
            await router.ready()
        deadline = self._ledger.restarts[-1] + _TERMINAL_WITHIN
        while left := await unfinished(self._url):
            if time.monotonic() > deadline:
                self._ledger.broken(f"unfinished {_TERMINAL_WITHIN} s after the restart: {left}")
                return
            await asyncio.sleep(0.1)

    async def _finale(self) -> None:
        """Look at everything once more: nothing may have changed since."""
        ledger = self._ledger
        everything = list(ledger.kept.values())
        sample = self._rng.sample(everything, min(_SAMPLE, len(everything)))
        await self._audit.everything(sample, ledger.talks)
        for what in ("degraded", "failed in mid-stream", "failed in mid-stream with history"):
            if ledger.counts[what] and not self._stops:
                ledger.broken(f"{ledger.counts[what]} {what}: the database was never down")
        for what in await broken_rows(self._url):
            ledger.broken(what)
        late = [seconds for seconds in ledger.recovery if seconds > _TERMINAL_WITHIN]
        if late:
            ledger.broken(f"runs ended late, so many seconds after the restart: {late}")
        for router in self._routers:
            for event in _OF_RUNS.findall(router.log.read_text()):
                ledger.counts[f"logged: {event}"] += 1
            for line, times in Counter(map(_without_time, router.complaints())).most_common(20):
                ledger.broken(f"logged {times} times: {line}")


def _without_time(line: str) -> str:
    return line.split(',"timestamp":', maxsplit=1)[0]
