"""Attempts that fail as they are told to, and the errors with which they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from router.core.exchange import Exchange
from router.endpoints.deployment import Deployment
from router.endpoints.loads import Loads
from router.endpoints.selector import Selector, SlotReservation
from router.errors import (
    ModelLoadFailed,
    RouterError,
    UpstreamError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from router.fetch.guard import FetchGuard
from router.fetch.images import Images
from router.pipeline.failover import Failover
from router.settings.fetch import FetchSettings
from router.settings.schema import Settings
from router.telemetry.metrics import Metrics
from tests.support.depot import Depot, asking, backend

__all__ = [
    "NO_TOOLS",
    "TOOLS",
    "Outcome",
    "Scene",
    "Scripted",
    "away",
    "busy",
    "failed",
    "late",
    "limited",
    "missing",
    "not_loaded",
    "of_error",
    "refused",
    "reset",
]

TOOLS = [{"type": "function", "name": "f", "parameters": {}}]
NO_TOOLS = UpstreamRejected("This model does not support tools.")

refused = UpstreamRejected("temperature must be a number", param="temperature")
failed = UpstreamFailure("HTTP 500")
reset = UpstreamFailure("the connection broke", again=True)
away = UpstreamUnavailable("no connection", again=True)
busy = UpstreamUnavailable("HTTP 503")
late = UpstreamTimeout("too late")
limited = UpstreamRateLimited("slow down")
missing = UpstreamModelMissing("no such model")
not_loaded = ModelLoadFailed("out of memory")

Outcome = RouterError | type[BaseException] | None


class Scripted:
    """Implements ``Work``: attempts end as they are told to, and the rest well."""

    def __init__(
        self, outcomes: Sequence[Outcome], selector: Selector, output: bool = False
    ) -> None:
        self.outcomes = iter(outcomes)
        self.asked: list[str] = []
        """The endpoint and the model of each attempt."""
        self.models: list[str] = []
        self.has_output = False
        self._output = output
        self._selector = selector

    async def attempt(self, reservation: SlotReservation) -> None:
        deployment = reservation.deployment
        assert deployment.in_flight > 0
        self.asked.append(f"{deployment.endpoint.name} {deployment.model}")
        outcome = next(self.outcomes, None)
        self.has_output = self._output
        if outcome is not None:
            raise outcome
        self._selector.answered(reservation, None)

    def rewind(self, model: str) -> None:
        self.models.append(model)


class Loading(Loads):
    """Loads what it is asked to, or fails to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Deployment] = []
        self.error: RouterError | None = None

    async def ensure(self, deployment: Deployment) -> None:
        self.asked.append(deployment)
        if self.error is not None:
            raise self.error
        deployment.in_memory(time.monotonic(), True)


class Scene:
    """Endpoints that serve ``m`` (and ``n``), and who goes from one to the next."""

    def __init__(
        self,
        endpoints: str | Sequence[dict[str, Any]] = "a",
        fallbacks: dict[str, list[str]] | None = None,
        **balance: Any,
    ) -> None:
        backends = (
            [backend(name, "m", "n", api_key="sk-key") for name in endpoints]
            if isinstance(endpoints, str)
            else list(endpoints)
        )
        balance = {"queue_size": 0, "max_attempts": 9, **balance}
        self.depot = Depot(*backends, **balance)
        self.metrics = Metrics("test")
        self.loads = Loading()
        self.failover = Failover(
            self.depot.registry,
            self.depot.selector,
            self.loads,
            Images(FetchGuard(FetchSettings())),
            self.metrics,
        )
        sections = {"endpoints": backends, "balance": balance, "fallbacks": fallbacks or {}}
        self.failover.configure(Settings.model_validate(sections))
        self.exchange = asking()

    async def run(
        self, *outcomes: Outcome, output: bool = False, exchange: Exchange | None = None
    ) -> Scripted:
        """Answer a request; what it was told is ``self.error``."""
        work = Scripted(outcomes, self.depot.selector, output)
        self.exchange = exchange or asking()
        self.error: BaseException | None = None
        try:
            await self.failover.run(self.exchange, work)
        except (RouterError, ValueError, asyncio.CancelledError) as error:
            self.error = error
        finally:
            assert not any(self.depot.in_flight.values())
        return work

    def count(self, name: str, **labels: str) -> float:
        """The value of a counter."""
        return self.metrics.registry.get_sample_value(f"{name}_total", labels) or 0.0


def of_error(error: object) -> str:
    if isinstance(error, UpstreamError) and error.again:
        return f"{error.code} again"
    return str(getattr(error, "code", None))
