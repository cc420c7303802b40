"""The endpoints of the running configuration, and which of them serve a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import random
from typing import Final

from router.balance.capability import Abilities, Feature
from router.balance.deployment_state import DeploymentState
from router.core.key import Key
from router.core.upstream import Adapter, Transport
from router.endpoints.catalogue import serves
from router.endpoints.deployment import LEARNED_FOR, Deployment
from router.endpoints.endpoint import Endpoint
from router.errors import ModelNotFound, RouterError, UpstreamUnavailable
from router.settings.schema import EndpointSettings, Settings

__all__ = ["Group", "Prepared", "Registry"]

_NAMED_IN_ERRORS: Final = 20
_SHOWN_OF_NAME: Final = 200
_MAX_REMEMBERED: Final = 4096
_MAX_NAME_REMEMBERED: Final = 256

Connect = Callable[[EndpointSettings], tuple[Adapter, Transport]]
"""Makes what it takes to speak to an endpoint; raises SettingsError where it cannot be made."""


class Group:
    """Everything that serves one model, in the order of the configuration.

    ``lacks`` are the features that some of it lacks; ``contexts`` says whether the context of
    some of it is known. ``differs``: not every request is for all of it. ``stale``: somebody has
    changed since, or is gone. ``leased``: this process has its share of their slots, where those
    are shared.
    """

    __slots__ = ("contexts", "deployments", "differs", "lacks", "leased", "model", "stale")

    def __init__(self, model: str, deployments: Sequence[Deployment]) -> None:
        self.model = model
        self.deployments = tuple(deployments)
        self.stale = False
        self.leased = False
        self.lacks = Feature(0)
        for deployment in deployments:
            self.lacks |= Feature(deployment.lacks)
        self.contexts = any(deployment.context is not None for deployment in deployments)
        self.differs = self.contexts or bool(self.lacks)

    def at(self, endpoint: str) -> Deployment | None:
        """The deployment at the endpoint of this name."""
        return next((t for t in self.deployments if t.endpoint.name == endpoint), None)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A configuration that can be applied: everything that could fail has been made."""

    settings: Settings
    made: dict[str, tuple[Adapter, Transport]]
    """What is new, by the endpoint's name."""


class Registry:
    """Knows the endpoints. ``connect`` makes what it takes to speak to one; ``clock`` is in
    seconds. ``changed`` is called when the grade of a deployment has changed, or the list of them.
    ``known_models`` are the names that some endpoint lists or configures (not only by a pattern),
    clients' names for models and endpoints' own; the set is the same one for good.
    """

    def __init__(self, connect: Connect, clock: Callable[[], float]) -> None:
        self.endpoints: tuple[Endpoint, ...] = ()
        self.changed: Callable[[DeploymentState | None], None] = lambda deployment: None
        self._connect = connect
        self._clock = clock
        self._groups: dict[str, Group] = {}
        self.known_models: set[str] = set()
        self._news = asyncio.Event()
        self._first_probe_seconds = 0.0
        self._retired: list[Transport] = []

    def connect(self, settings: EndpointSettings) -> tuple[Adapter, Transport]:
        """What it takes to speak to an endpoint; raises SettingsError where it cannot be made."""
        return self._connect(settings)

    def prepare(self, settings: Settings) -> Prepared:
        """Make what another configuration needs, without touching what runs.

        Raises SettingsError.
        """
        running = {endpoint.name: endpoint for endpoint in self.endpoints}
        return Prepared(
            settings,
            {
                wanted.name: self._connect(wanted)
                for wanted in settings.endpoints
                if (known := running.get(wanted.name)) is None or known.settings != wanted
            },
        )

    def apply(self, prepared: Prepared) -> None:
        """Go on with this configuration. Slots, breakers and averages of what stays survive."""
        running = {endpoint.name: endpoint for endpoint in self.endpoints}
        settings = prepared.settings
        now = self._clock()
        endpoints = []
        for wanted in settings.endpoints:
            known = running.get(wanted.name)
            made = prepared.made.get(wanted.name)
            if known is not None and made is None:
                known.configure_health(settings.balance.breaker, now)
                endpoints.append(known)
            elif made is not None:
                endpoints.append(self._taken_over(known, wanted, made, settings, now))
        for name in running.keys() - {endpoint.name for endpoint in endpoints}:
            self._let_go(running[name], now)
        self.endpoints = tuple(endpoints)
        self._first_probe_seconds = max((e.settings.timeouts.connect for e in endpoints), default=0)
        self.catalogue_changed()

    def _taken_over(
        self,
        known: Endpoint | None,
        wanted: EndpointSettings,
        made: tuple[Adapter, Transport],
        settings: Settings,
        now: float,
    ) -> Endpoint:
        """The endpoint with its new settings: the same one, where it is the same backend."""
        adapter, transport = made
        health = settings.balance.breaker
        if known is not None and _same_backend(known.settings, wanted):
            self._retire(known.transport)
            known.configure(wanted, adapter, transport, health, now)
            return known
        endpoint = Endpoint(wanted, adapter, transport, health, random, self._changed)
        if known is not None:
            endpoint.host.drained = known.host.drained  # it was drained by its name
            self._let_go(known, now)
        return endpoint

    def _changed(self, deployment: DeploymentState) -> None:
        self.changed(deployment)

    def _let_go(self, endpoint: Endpoint, now: float) -> None:
        """What it works on may end; nobody who has planned with it goes there any more."""
        endpoint.host.drained = True
        endpoint.host.refresh(now)
        self._retire(endpoint.transport)

    def _retire(self, transport: Transport) -> None:
        transport.retire()
        self._retired = [old for old in self._retired if old.busy]
        self._retired.append(transport)

    async def close(self) -> None:
        """Close every connection, those of endpoints that are gone included."""
        for transport in [*self._retired, *(e.transport for e in self.endpoints)]:
            await transport.close()

    def named(self, name: str) -> Endpoint | None:
        """The endpoint of this name."""
        return next((one for one in self.endpoints if one.name == name), None)

    def catalogue_changed(self) -> None:
        """Forget what was found: an endpoint serves, or can do, something else now."""
        for group in self._groups.values():
            group.stale = True
            for deployment in group.deployments:
                deployment.kept = False
        self._groups.clear()
        self.known_models.clear()
        self.known_models.update(*(e.catalogue.known_names() for e in self.endpoints))
        self.changed(None)

    def probed(self, endpoint: Endpoint) -> None:
        """A probe of this endpoint is over: who waits for the first one looks again."""
        now = self._clock()
        endpoint.adapter.forget(now - LEARNED_FOR)
        for deployment in endpoint.deployments.values():
            deployment.reassess(now)
        endpoint.probed.set()
        self._news.set()
        self._news = asyncio.Event()

    def public_models(self) -> list[str]:
        """Every model there is to list, each once, in the order of the configuration."""
        names: dict[str, None] = {}
        for endpoint in self.endpoints:
            names.update(dict.fromkeys(endpoint.catalogue.public_names()))
        return list(names)

    def abilities(self, model: str, key: Key | None = None) -> list[Abilities]:
        """What a model can do, by the client's name for it: at each endpoint that serves it, and
        may serve ``key``.
        """
        found = []
        for endpoint in self.endpoints:
            own = endpoint.catalogue.resolve(model)
            if own is not None and (key is None or key.may_reach(endpoint.name)):
                known = endpoint.deployments.get(own)
                found.append(endpoint.abilities(own) if known is None else known.abilities)
        return found

    def may_serve(self, pattern: str) -> bool | None:
        """Whether a client's name, or a pattern of such, is one of a model that is served; None
        where an endpoint that might serve it has never listed its models.
        """
        return serves((endpoint.catalogue for endpoint in self.endpoints), pattern)

    def known(self, model: str) -> Group | None:
        """Who serves this model, where that has been asked before and has not changed."""
        return self._groups.get(model)

    async def group(self, model: str, key: Key | None = None) -> Group:
        """Who serves this model.

        Waits while nobody is known to and an endpoint has not been probed yet, or is still loading
        what it will list (``timeouts.load``). Raises ModelNotFound, or UpstreamUnavailable when an
        endpoint that might serve it has never listed its models; what is said of others is for
        ``key`` to know.
        """
        found = self.find(model)
        if found is None and not self._all_probed():
            found = await self._awaited(
                model, self._first_probe_seconds, lambda: not self._all_probed()
            )
        if found is None and (loading := self._loading()):
            seconds = max(endpoint.settings.timeouts.load for endpoint in loading)
            found = await self._awaited(model, seconds, lambda: bool(self._loading()))
        if found is None:
            raise self._not_found(model, key)
        return found

    async def _awaited(self, model: str, seconds: float, hopes: Callable[[], bool]) -> Group | None:
        """Who serves this model, as soon as anybody does; None past ``seconds``, or where there
        are no more hopes.
        """
        found = None
        with suppress(TimeoutError):  # who has not answered by then is named in the error
            async with asyncio.timeout(seconds):
                while (found := self.find(model)) is None and hopes():
                    await self._news.wait()
        return found

    def _all_probed(self) -> bool:
        return all(endpoint.probed.is_set() for endpoint in self.endpoints)

    def _loading(self) -> list[Endpoint]:
        """Those that have never listed their models, because they are still loading them."""
        return [
            one
            for one in self.endpoints
            if one.loading and one.catalogue.discovers and not one.catalogue.known
        ]

    def find(self, model: str) -> Group | None:
        """Who serves this model as far as is known now; None where nobody does."""
        group = self._groups.get(model)
        if group is None:
            deployments = [
                endpoint.deployment(name)
                for endpoint in self.endpoints
                if (name := endpoint.catalogue.resolve(model)) is not None
            ]
            if not deployments:
                return None
            group = Group(model, deployments)
            if len(model) <= _MAX_NAME_REMEMBERED and len(self._groups) < _MAX_REMEMBERED:
                self._groups[model] = group
                for deployment in deployments:
                    deployment.kept = True
        return group

    def _not_found(self, model: str, key: Key | None) -> RouterError:
        shown = model[:_SHOWN_OF_NAME]
        silent = [e.name for e in self.endpoints if e.catalogue.discovers and not e.catalogue.known]
        if key is not None:
            silent = [name for name in silent if key.may_reach(name)]
        if silent:
            return UpstreamUnavailable(
                f"No endpoint is known to serve the model '{shown}', but these have not listed "
                f"their models yet: {', '.join(silent)}.",
                headers={"Retry-After": "5"},
            )
        served = [name for name in self.public_models() if key is None or key.may_use(name)]
        listed = ", ".join(name[:_SHOWN_OF_NAME] for name in served[:_NAMED_IN_ERRORS]) or "none"
        more = len(served) - _NAMED_IN_ERRORS
        return ModelNotFound(
            f"The model '{shown}' does not exist here. Served: {listed}"
            f"{f' and {more} more' if more > 0 else ''}.",
            param="model",
        )


def _same_backend(one: EndpointSettings, other: EndpointSettings) -> bool:
    """Whether what is known of the one's health is true of the other."""
    return (one.url, one.dialect, one.api_key) == (other.url, other.dialect, other.api_key)
