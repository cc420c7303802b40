"""Endpoints that are probed over real sockets, without a router in front of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from router.balance.deployment_state import GRADES
from router.endpoints.deployment import Deployment
from router.endpoints.endpoint import Endpoint
from router.endpoints.loads import Loads
from router.endpoints.prober import Prober
from router.endpoints.registry import Registry
from router.settings.schema import EndpointSettings, Settings
from router.simulate import create_backend
from router.simulate.backend import BACKEND
from router.simulate.memory import Memory
from router.upstream.adapters import make_adapter
from router.upstream.http1 import HttpTransport
from tests.support.fleet import listening
from tests.support.waiting import until

__all__ = [
    "LATEST",
    "NEVER",
    "Watched",
    "cold_ollama",
    "one",
    "settings_of",
    "state",
    "told",
    "watched",
]

LATEST = "m:latest"

NEVER = 3600.0
"""Seconds that a load takes which goes on until the test lets it end."""


def one(url: str, dialect: str = "chat", name: str = "one", **fields: Any) -> EndpointSettings:
    """An endpoint with short deadlines."""
    timeouts = {"connect": 0.3, "first_byte": 0.3, **fields.pop("timeouts", {})}
    return EndpointSettings.model_validate(
        {"name": name, "url": url, "dialect": dialect, "timeouts": timeouts, **fields}
    )


def settings_of(*endpoints: EndpointSettings, **balance: Any) -> Settings:
    """Settings with these endpoints; breakers are open for a short time only."""
    breaker = {"open_seconds": 0.05, "max_open_seconds": 0.1, "slow_start": 0}
    return Settings.model_validate(
        {
            "endpoints": [endpoint.model_dump(exclude_unset=True) for endpoint in endpoints],
            "balance": {"breaker": breaker, **balance},
        }
    )


@dataclass
class Watched:
    """``told`` is what the prober told after each probe: a name, and whether that one is up."""

    registry: Registry
    prober: Prober
    loads: Loads
    told: list[tuple[str, bool]] = field(default_factory=list)

    def __getitem__(self, name: str) -> Endpoint:
        return next(e for e in self.registry.endpoints if e.name == name)

    def deployment(self, model: str, endpoint: str = "one") -> Deployment:
        """A model at an endpoint."""
        return self[endpoint].deployment(model)

    async def more(self) -> None:
        """Wait for a few more probes."""
        seen = len(self.told)
        await until(lambda: len(self.told) >= seen + 3)


@asynccontextmanager
async def watched(
    *endpoints: EndpointSettings, interval: float = 0.02, **balance: Any
) -> AsyncIterator[Watched]:
    """A registry whose endpoints are probed; ``balance`` are settings."""
    registry = Registry(lambda s: (make_adapter(s), HttpTransport(s)), time.monotonic)
    registry.apply(registry.prepare(settings_of(*endpoints, **balance)))
    probes: list[tuple[str, bool]] = []
    prober = Prober(registry, interval, lambda e: probes.append((e.name, e.host.up)))
    loads = Loads()
    prober.start()
    try:
        yield Watched(registry, prober, loads, probes)
    finally:
        await prober.stop()
        await loads.close()
        await registry.close()


def state(deployment: Deployment) -> tuple[bool, str]:
    """Whether the model is in memory, and its grade."""
    return deployment.loaded, GRADES[deployment.grade]


async def told(deployment: Deployment, *, loaded: bool) -> None:
    """Wait until a probe has told that the model is in memory, or is not."""
    await until(lambda: deployment.loaded is loaded)


@asynccontextmanager
async def cold_ollama(
    *models: str, load_seconds: float = 0.1, max_loaded: int | None = None, **fields: Any
) -> AsyncIterator[tuple[Watched, Memory]]:
    """A simulated Ollama that has nothing in memory, which is known; and its memory."""
    models = models or (LATEST,)
    app = create_backend("ollama", models, pace=0, load_seconds=load_seconds, max_loaded=max_loaded)
    async with listening(app) as url, watched(one(url, "ollama", **fields)) as fleet:
        await until(lambda: fleet["one"].ready)
        for model in models:
            await told(fleet.deployment(model), loaded=False)
        yield fleet, app[BACKEND].memory
