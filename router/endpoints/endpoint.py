"""One backend at run time: how it is spoken to, what it serves, how it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Final

from cache.breaker import BreakerRules
from router.balance.capability import Abilities, configured
from router.balance.deployment_state import DeploymentState, Host, Share
from router.core.upstream import Adapter, Transport, account_of, redacted
from router.endpoints.catalogue import Catalogue
from router.endpoints.deployment import Deployment
from router.settings.schema import BreakerSettings, EndpointSettings

__all__ = ["Endpoint", "breaker_rules"]

_MAX_DEPLOYMENTS: Final = 4096


def breaker_rules(settings: BreakerSettings) -> BreakerRules:
    """The rules of a breaker as they are configured."""
    return BreakerRules(
        failures=settings.failures,
        ratio=settings.ratio,
        min_requests=settings.min_requests,
        open_seconds=settings.open_seconds,
        max_open_seconds=settings.max_open_seconds,
    )


class Endpoint:
    """One backend. ``deployments`` are the models that were asked for, by the names it has for
    them.

    Its health outlives its settings: ``configure`` gives it others. ``changed(deployment)`` is
    called when a model's grade has changed.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        adapter: Adapter,
        transport: Transport,
        health: BreakerSettings,
        random: Callable[[], float],
        changed: Callable[[DeploymentState], None],
    ) -> None:
        self.name = settings.name
        self.host = Host(breaker_rules(health), health.slow_start, random)
        self.deployments: dict[str, Deployment] = {}
        self.catalogue = Catalogue(settings)
        self.probed = asyncio.Event()
        """Set once the first probe is over, well or badly."""
        self.probe_now = asyncio.Event()
        """Set by whoever wants to know how it is before the next round."""
        self.problem: str | None = None
        """What the last probe found wrong."""
        self.loading = False
        """Whether it said, in the last probe, that it is still bringing its model into memory."""
        self._random = random
        self._changed = changed
        self.host.back = self.forget
        self.configure(settings, adapter, transport, health, 0.0)

    def configure(
        self,
        settings: EndpointSettings,
        adapter: Adapter,
        transport: Transport,
        health: BreakerSettings,
        now: float,
    ) -> None:
        """Take over other settings of the same backend; what is known of it stays."""
        catalogue = Catalogue(settings)
        catalogue.adopt(self.catalogue)
        self.settings = settings
        self.adapter = adapter
        self.transport = transport
        self.catalogue = catalogue
        self.account = account_of(settings)
        self.lacks_route = False
        """Whether a request since then was told that its path is not there."""
        self.forget(now)
        self.configure_health(health, now)

    def forget(self, now: float) -> None:
        """Forget what refusals have taught: it may be another program, or version, by now."""
        self.adapter.forget(inf)
        for deployment in self.deployments.values():
            deployment.forget(now)

    def configure_health(self, health: BreakerSettings, now: float) -> None:
        """Take over other rules for its breakers."""
        self._rules = self.host.breaker.rules = breaker_rules(health)
        self.host.slow_start = health.slow_start
        for deployment in self.deployments.values():
            deployment.breaker.rules = self._rules
            deployment.configure(self._share)
            deployment.reassess(now)
        self.host.refresh(now)

    @property
    def _share(self) -> Share:
        settings = self.settings
        return Share(settings.max_in_flight, settings.weight, settings.priority)

    def deployment(self, model: str) -> Deployment:
        """The deployment for a model under the endpoint's own name."""
        deployment = self.deployments.get(model)
        if deployment is None:
            if len(self.deployments) >= _MAX_DEPLOYMENTS:
                self._forget_idle()
            deployment = Deployment(self, model, self._share, self._rules, self._random)
            deployment.reassess(0.0)
            self.deployments[model] = deployment
            deployment.changed = self._changed
            if self.catalogue.in_memory(model) is False:
                deployment.loaded = False
            deployment.refresh(0.0)
        return deployment

    def abilities(self, model: str) -> Abilities:
        """What is configured, or told by the endpoint, about a model."""
        settings = self.settings
        known = configured(settings.capabilities, model)
        if known.context is not None:
            return known
        context = settings.context_length or settings.num_ctx or self.catalogue.context_of(model)
        return replace(known, context=context)

    def unreachable(self, now: float) -> None:
        """A request found it unreachable: it is left alone until a probe succeeds."""
        self.host.unreachable(now)
        self.probe_now.set()

    def not_found(self, *, route: bool) -> None:
        """A request met 404: for its model or, with ``route``, for its path as it seems. The next
        probe, which is made at once, finds out more.
        """
        self.lacks_route |= route
        self.probe_now.set()

    def redacted(self, text: str) -> str:
        """What the endpoint said, without its key."""
        return redacted(self.settings, text)

    @property
    def in_flight(self) -> int:
        """How many requests it works on."""
        return sum(deployment.in_flight for deployment in self.deployments.values())

    @property
    def ready(self) -> bool:
        """Whether it was asked, answered, and has anything to serve."""
        usable = self.host.up and not self.host.drained
        return usable and self.probed.is_set() and self.catalogue.serves_any

    def _forget_idle(self) -> None:
        """Clients may ask for any number of names that match a pattern."""
        idle = [
            m
            for m, deployment in self.deployments.items()
            if not (deployment.in_flight or deployment.kept)
        ]
        for model in idle:
            self.host.deployments.remove(self.deployments.pop(model))
