"""A router, its backends and the load; scenarios make them sick and well."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from router.settings.schema import Dialect
from tests.chaos.faults import HEALTHY, Fault
from tests.chaos.fleet import Box
from tests.chaos.load import Load
from tests.chaos.records import Api, Episode, Evidence, Limits, Reload
from tests.crash.client import Client
from tests.support.processes import Processes, RouterProcess
from tests.support.waiting import until

__all__ = ["BOXES", "EXTRA", "Plan", "Stage", "staged"]

BOXES: Final = ("one", "two", "three")
EXTRA: Final = "extra"
"""A backend that the router only knows of after some reloads."""

_REFUSED: Final = "configuration refused"
_SETTLE_SECONDS: Final = 60.0
_RETURNS_WITHIN: Final = 60.0
_PATIENCE_BEYOND: Final = 30.0
_COUNTED: Final = ("pointsman_requests_in_flight", "pointsman_queue_depth")


@dataclass(frozen=True)
class Plan:
    """What is to be run; times are in seconds.

    ``pause`` is the time between two pieces of an answer, ``calm`` how long all is well at first,
    ``sick`` how long something is not. Each endpoint has ``room`` for that share of the clients.
    The dictionaries replace some of the settings.
    """

    clients: int
    seed: int
    pause: float = 0.1
    calm: float = 1.5
    sick: float = 5.0
    dialects: Sequence[Dialect] = ("chat", "responses", "ollama")
    apis: Sequence[Api] = ("responses", "chat")
    room: float = 1.0
    timeouts: dict[str, float] = field(default_factory=dict)
    breaker: dict[str, float] = field(default_factory=dict)
    server: dict[str, float] = field(default_factory=dict)

    def adapted(self, settings: Mapping[str, Any]) -> Plan:
        """The same with other fields; of the dictionaries, only what is named is replaced."""
        merged: dict[str, Any] = {
            name: {**getattr(self, name), **value} if isinstance(value, dict) else value
            for name, value in settings.items()
        }
        return replace(self, **merged)

    def limits(self) -> Limits:
        """The limits, with those that are short enough for a test where nothing else is said."""
        # Answers in one piece that a sick endpoint owes are given up just when it is well again.
        total = self.sick + 1.8
        timeouts = {"connect": 1.0, "first_byte": 1.0, "idle": 2.0, "total": total, **self.timeouts}
        breaker = {
            "open_seconds": 1.0, "max_open_seconds": 2.0, "slow_start": 3.0, **self.breaker
        }  # fmt: skip
        return Limits(**timeouts, **breaker, queue_timeout=5.0, max_attempts=3)


class Stage:
    """What a scenario works with; ``evidence`` is complete after ``close``."""

    def __init__(
        self, plan: Plan, router: RouterProcess, boxes: dict[str, Box], load: Load
    ) -> None:
        self.plan = plan
        self.router = router
        self.boxes = boxes
        self.rng = random.Random(plan.seed)
        self.evidence = Evidence(plan.limits(), BOXES, began=time.monotonic(), records=load.records)
        self._load = load
        self._nonsense = False

    # Sickness

    async def sicken(self, name: str, fault: Fault) -> Episode:
        """From now on, requests to this backend meet the fault."""
        await self.boxes[name].take(fault)
        return self._begin(name, fault)

    async def kill(self, name: str) -> Episode:
        """End its process with SIGKILL."""
        self.boxes[name].kill()
        return self._begin(name, None)

    async def cure(self, episode: Episode) -> None:
        """It is well again: started, where it was killed."""
        box = self.boxes[episode.box]
        episode.ended = time.monotonic()
        if episode.fault is None:
            box.start()
            await box.ready()
        else:
            await box.take(HEALTHY)
        episode.well = time.monotonic()

    def _begin(self, name: str, fault: Fault | None) -> Episode:
        episode = Episode(name, fault, time.monotonic())
        self.evidence.episodes.append(episode)
        return episode

    # Time

    async def wait(self, seconds: float) -> None:
        """Let the load run."""
        await asyncio.sleep(seconds)

    async def back(self, *episodes: Episode) -> None:
        """Wait until traffic comes to them again, and then until all of it should be back."""
        for episode in episodes:
            box = self.boxes[episode.box]
            with suppress(TimeoutError):  # which the audit will see
                await until(partial(box.asked_since, episode.well), timeout=_RETURNS_WITHIN)
        await self.wait(2.2 * self.evidence.limits.slow_start)

    # The router

    def reload(self, endpoints: list[dict[str, Any]]) -> None:
        """Give it these endpoints."""
        config = json.loads(self.router.config.read_text())
        names = frozenset(endpoint["name"] for endpoint in endpoints)
        self.evidence.reloads.append(Reload(time.monotonic(), names))
        self._reconfigure(json.dumps({**config, "endpoints": endpoints}))

    def reload_nonsense(self) -> None:
        """Give it a configuration that it has to refuse."""
        config = json.loads(self.router.config.read_text())
        self._reconfigure(json.dumps({**config, "endpoints": []}))
        self._nonsense = True

    def _reconfigure(self, text: str) -> None:
        # In one step: half a file must not be read.
        fresh = self.router.config.with_suffix(".fresh")
        fresh.write_text(text)
        os.replace(fresh, self.router.config)
        self.router.signal(signal.SIGHUP)

    # The end

    async def close(self, working: asyncio.Task[None]) -> None:
        """End the load and note what is left."""
        self._load.stop()
        await working
        evidence = self.evidence
        evidence.ended = time.monotonic()
        left: list[str] = []
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                while left := await self._left():  # noqa: ASYNC110 (there is nothing to wait on)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            evidence.left += left
        evidence.arrivals = sorted(
            (a for box in self.boxes.values() for a in box.read()), key=lambda arrival: arrival.at
        )
        for process in (self.router, *self.boxes.values()):
            evidence.left += [line for line in process.complaints() if _REFUSED not in line]
        refusals = self.router.complaints(of=(_REFUSED,))
        if bool(refusals) != self._nonsense:
            evidence.left.append(f"of nonsense as a configuration the router says: {refusals}")

    async def _left(self) -> list[str]:
        """What the router and the backends are still working on."""
        async with (
            aiohttp.ClientSession() as http,
            http.get(self.router.url + "/metrics") as response,
        ):
            lines = (await response.text()).splitlines()
        counts = [line for line in lines if line.startswith(_COUNTED)]
        left = [line for line in counts if float(line.rsplit(" ", 1)[1]) != 0]
        for name in _COUNTED:
            if not any(line.startswith(name) for line in counts):
                left.append(f"{name} is not among the metrics")
        for box in self.boxes.values():
            box.read()
            if box.working_on:
                left.append(f"{box.name} is still answering {box.working_on} requests")
        return left


def endpoint(box: Box, plan: Plan, **more: Any) -> dict[str, Any]:
    """A backend as an endpoint of the router."""
    limits = plan.limits()
    names = ("connect", "first_byte", "idle", "total")
    timeouts = {name: getattr(limits, name) for name in names}
    return box.settings(timeouts=timeouts, max_in_flight=round(plan.room * plan.clients), **more)


@asynccontextmanager
async def staged(plan: Plan, directory: Path) -> AsyncIterator[Stage]:
    """The stage, under load; the evidence is complete when the context is left."""
    rng = random.Random(plan.seed)
    limits = plan.limits()
    async with AsyncExitStack() as stack:
        processes = stack.enter_context(Processes(directory))
        boxes = {}
        for number, name in enumerate((*BOXES, EXTRA)):
            dialect = plan.dialects[number % len(plan.dialects)]
            box = Box(name, dialect, directory, pause=plan.pause, seed=rng.randrange(10**6))
            stack.callback(box.kill)
            box.start()
            boxes[name] = box
        await asyncio.gather(*(box.ready() for box in boxes.values()))
        router = await processes.router("router", _settings(plan, boxes, directory))
        client = await stack.enter_async_context(Client([router.url], rng))
        attempt = limits.connect + limits.total
        patience = limits.queue_timeout + limits.max_attempts * attempt + _PATIENCE_BEYOND
        think = 2 * plan.pause
        load = Load(client, rng, plan.apis, clients=plan.clients, think=think, patience=patience)
        stage = Stage(plan, router, boxes, load)
        working = asyncio.ensure_future(load.run())
        try:
            yield stage
            await stage.close(working)
        finally:
            working.cancel()
            await asyncio.wait([working])


def _settings(plan: Plan, boxes: dict[str, Box], directory: Path) -> dict[str, Any]:
    limits = plan.limits()
    breaker = {
        name: getattr(limits, name) for name in ("open_seconds", "max_open_seconds", "slow_start")
    }
    return {
        "endpoints": [endpoint(boxes[name], plan) for name in BOXES],
        "balance": {
            "health_interval": 0.5,
            "queue_timeout": limits.queue_timeout,
            "max_attempts": limits.max_attempts,
            "breaker": breaker,
        },
        "state": {"url": f"sqlite:///{directory / 'state.db'}"},
        "server": plan.server,
    }
