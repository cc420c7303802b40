"""The endpoints and everything that decides between them, put together."""

from __future__ import annotations

import time

from router.balance.deployment_state import GRADES
from router.endpoints.deployment import Slot
from router.endpoints.endpoint import Endpoint
from router.endpoints.loads import Loads
from router.endpoints.prober import Prober
from router.endpoints.registry import Connect, Prepared, Registry
from router.endpoints.selector import Selector
from router.fetch.guard import FetchGuard
from router.fetch.images import Images
from router.pipeline.failover import Failover
from router.pipeline.hedging import Hedging
from router.settings.schema import Settings
from router.telemetry.metrics import Metrics

__all__ = ["Fleet"]


class Fleet:
    """What outlives a configuration: slots, breakers, averages, models in memory.

    ``connect`` makes what it takes to speak to an endpoint. Raises SettingsError for what cannot
    be made.
    """

    def __init__(self, settings: Settings, connect: Connect, metrics: Metrics) -> None:
        self._metrics = metrics
        self.registry = Registry(connect, time.monotonic)
        self.registry.apply(self.registry.prepare(settings))
        self.selector = Selector(
            self.registry, settings.balance, self._slots_changed, time.monotonic
        )
        self.loads = Loads()
        self._images = Images(FetchGuard(settings.fetch))
        self.failover = Failover(self.registry, self.selector, self.loads, self._images, metrics)
        self.hedging = Hedging(self.selector, self.failover.judge, metrics)
        self._configure(settings)
        self._watched: dict[str, Endpoint] = {}
        self._prober = Prober(self.registry, settings.balance.health_interval, self._told)
        metrics.fleet.queue_depth(lambda: len(self.selector.queue))

    def prepare(self, settings: Settings) -> Prepared:
        """Make what another configuration needs; raises SettingsError and changes nothing."""
        return self.registry.prepare(settings)

    def apply(self, prepared: Prepared) -> None:
        """Go on with this configuration."""
        settings = prepared.settings
        self.selector.configure(settings.balance)
        self._configure(settings)
        before = set(self.registry.endpoints)
        self.registry.apply(prepared)
        for gone in before - set(self.registry.endpoints):
            self.loads.drop(gone)
            if self._watched.get(gone.name) is gone:
                del self._watched[gone.name]
                self._metrics.fleet.forget_endpoint(gone.name)
        self._prober.interval = settings.balance.health_interval
        self._prober.follow()

    def _configure(self, settings: Settings) -> None:
        self.failover.configure(settings)
        self._images.configure(settings)
        self.hedging.configure(settings.balance.hedge)

    def start(self) -> None:
        """Begin to ask the endpoints what they serve."""
        self._prober.start()

    async def stop(self) -> None:
        """Ask nobody any more, and close every connection."""
        await self._prober.stop()
        await self.loads.close()
        self._images.close()
        await self.registry.close()

    def _slots_changed(self, slot: Slot, in_flight: int) -> None:
        known = self.registry.known_model(slot[1])
        self._metrics.slots_changed(slot, in_flight, known=known)

    def _told(self, endpoint: Endpoint) -> None:
        """It has been asked: from now on there is something to tell of it."""
        if self._watched.get(endpoint.name) is not endpoint:
            self._watched[endpoint.name] = endpoint
            host = endpoint.host
            self._metrics.fleet.watch_endpoint(
                endpoint.name,
                lambda: host.up,
                lambda reason: sum(
                    GRADES[deployment.grade] == reason for deployment in host.deployments
                ),
            )
