"""Endpoints that nothing is sent to, and who chooses among them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from router.balance.deployment_state import OPEN
from router.core.exchange import Exchange
from router.core.upstream import Adapter, LoadRequest, Transport, UpstreamRequest, UpstreamResponse
from router.endpoints.deployment import Deployment
from router.endpoints.endpoint import Endpoint
from router.endpoints.plan import Plan
from router.endpoints.registry import Registry
from router.endpoints.selector import Selector, SlotReservation
from router.settings.schema import EndpointSettings, Settings
from router.upstream.adapters import make_adapter
from tests.support.exchanges import an_exchange

__all__ = [
    "Depot",
    "Idle",
    "asking",
    "backend",
    "depot_of",
    "now",
    "settings_of",
    "sick",
    "take",
    "turns",
    "waiting",
]


class Idle:
    """A transport that nobody uses. Implements ``Transport``."""

    def __init__(self) -> None:
        self.retired = False
        self.closed = False
        self.busy = False

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        raise AssertionError("nothing is to be sent")

    async def get(
        self, path: str, timeout: float, *, unversioned: bool = False
    ) -> tuple[int, bytes]:
        raise AssertionError("nothing is to be asked")

    async def post(self, request: LoadRequest, timeout: float) -> tuple[int, bytes]:
        raise AssertionError("nothing is to be sent")

    def retire(self) -> None:
        self.retired = True

    async def close(self) -> None:
        self.closed = True


def backend(name: str, *models: str, **fields: Any) -> dict[str, Any]:
    """The settings of an endpoint that serves these models; without one it is to be asked."""
    configured = {"models": list(models)} if models else {}
    return {"name": name, "url": f"http://{name}:1", "dialect": "chat", **configured, **fields}


def settings_of(*backends: dict[str, Any], **balance: Any) -> Settings:
    return Settings.model_validate({"endpoints": list(backends), "balance": balance})


def asking(caller: str = "default", model: str = "m", **body: Any) -> Exchange:
    """A request for a model."""
    return an_exchange(caller=caller, model=model, body={"model": model, "input": "hi", **body})


class Depot:
    """A registry and a selector.

    ``made`` are the transports in the order in which they were made, by the endpoint's name;
    ``in_flight`` is the selector's.
    """

    def __init__(
        self, *backends: dict[str, Any], clock: Callable[[], float] = time.monotonic, **balance: Any
    ) -> None:
        settings = settings_of(*backends, **balance)
        self.made: list[tuple[str, Idle]] = []
        self.registry = Registry(self._connect, clock)
        self.registry.apply(self.registry.prepare(settings))
        self.selector = Selector(self.registry, settings.balance, clock)
        self.in_flight = self.selector.in_flight

    def _connect(self, settings: EndpointSettings) -> tuple[Adapter, Transport]:
        transport = Idle()
        self.made.append((settings.name, transport))
        return make_adapter(settings), transport

    def __getitem__(self, name: str) -> Endpoint:
        return next(e for e in self.registry.endpoints if e.name == name)

    def deployment(self, endpoint: str, model: str = "m") -> Deployment:
        """A model at an endpoint."""
        return self[endpoint].deployment(model)

    def apply(self, *backends: dict[str, Any], **balance: Any) -> None:
        """Go on with another configuration."""
        settings = settings_of(*backends, **balance)
        prepared = self.registry.prepare(settings)
        self.selector.configure(settings.balance)
        self.registry.apply(prepared)

    def lists(self, endpoint: str, *models: str) -> None:
        """The endpoint was probed and listed these models."""
        if self[endpoint].catalogue.update(models):
            self.registry.catalogue_changed()
        self.registry.probed(self[endpoint])

    async def plan(self, exchange: Exchange | None = None) -> Plan:
        """Where a request may go."""
        exchange = exchange or asking()
        group = await self.registry.group(exchange.model or "")
        return self.selector.plan(group, exchange)


async def turns(number: int = 10) -> None:
    """Let everybody do what can be done now."""
    for _ in range(number):
        await asyncio.sleep(0)


def now() -> float:
    return asyncio.get_running_loop().time()


def depot_of(*slots: int, **balance: Any) -> Depot:
    """Endpoints a, b, and so on, with so many slots for ``m``; who waits does so for 5 s."""
    backends = (
        backend(name, "m", max_in_flight=count)
        for name, count in zip("abcdefgh", slots, strict=False)
    )
    return Depot(*backends, clock=now, **{"queue_timeout": 5.0, **balance})


async def take(depot: Depot, **body: Any) -> SlotReservation:
    return await depot.selector.reserve(await depot.plan(asking(**body)))


async def waiting(depot: Depot, plan: Plan | None = None) -> asyncio.Task[SlotReservation]:
    """A request that waits for a slot."""
    task = asyncio.create_task(depot.selector.reserve(plan or await depot.plan()))
    before = len(depot.selector.queue)
    await turns()
    assert len(depot.selector.queue) == before + 1
    return task


def sick(depot: Depot, name: str) -> None:
    """Its breaker is open."""
    for _ in range(9):
        depot.deployment(name).failed(now())
    assert depot.deployment(name).grade == OPEN
