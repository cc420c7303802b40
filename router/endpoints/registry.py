"""The endpoints of one configuration: what they serve, whether they answer, what they work on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import random
from typing import Final

from router.balance.policy import Candidate, least_loaded
from router.endpoints.catalogue import Catalogue
from router.endpoints.slots import SlotKey, Slots
from router.errors import ModelNotFound, UpstreamUnavailable
from router.settings.schema import Balance, EndpointSettings
from router.upstream.contract import Adapter, Transport, account_of

__all__ = ["Endpoint", "Registry", "Target"]

_NAMED_IN_ERRORS: Final = 20
_MAX_REMEMBERED: Final = 4096


class Endpoint:
    """One backend at run time."""

    def __init__(self, settings: EndpointSettings, adapter: Adapter, transport: Transport) -> None:
        self.settings = settings
        self.name = settings.name
        self.adapter = adapter
        self.transport = transport
        self.catalogue = Catalogue(settings)
        self.account = account_of(settings)
        self.answers = True
        """Whether it answered the last time it was asked; assumed until it was."""
        self.probed = asyncio.Event()
        """Set once the first probe is over, well or badly."""
        self.probe_now = asyncio.Event()
        """Set by whoever wants to know how it is before the next round."""

    def failed_to_connect(self) -> None:
        """A request found it unreachable: others go first until a probe succeeds."""
        self.answers = False
        self.probe_now.set()


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint and the name it has for the model."""

    endpoint: Endpoint
    model: str

    @property
    def slot(self) -> SlotKey:
        """The slot this target takes."""
        return (self.endpoint.name, self.model)


class Registry:
    """Finds and reserves an endpoint for a model."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        balance: Balance,
        slots_changed: Callable[[SlotKey, int, int], None],
    ) -> None:
        self.endpoints = tuple(endpoints)
        self.slots = Slots(balance.queue_size, balance.queue_timeout, slots_changed)
        self._first_probe_seconds = max(
            (endpoint.settings.timeouts.connect for endpoint in endpoints), default=0.0
        )
        self._targets: dict[str, tuple[Target, ...]] = {}

    def catalogue_changed(self) -> None:
        """Forget which targets were found: an endpoint serves something else now."""
        self._targets.clear()

    def known_model(self, model: str) -> bool:
        """Whether some endpoint lists or configures this very name (not only by a pattern)."""
        return any(model in e.catalogue.public_names() for e in self.endpoints)

    def public_models(self) -> list[str]:
        """Every model there is to list, each once, in the order of the configuration."""
        names: dict[str, None] = {}
        for endpoint in self.endpoints:
            names.update(dict.fromkeys(endpoint.catalogue.public_names()))
        return list(names)

    async def targets(self, model: str) -> tuple[Target, ...]:
        """Who serves this model.

        Waits for the first probe when nobody is known to. Raises ModelNotFound, or
        UpstreamUnavailable when an endpoint that might serve it has never answered.
        """
        found = self._find(model)
        if found:
            return found
        unprobed = [e.probed.wait() for e in self.endpoints if not e.probed.is_set()]
        if unprobed:
            try:
                async with asyncio.timeout(self._first_probe_seconds):
                    await asyncio.gather(*unprobed)
            except TimeoutError:
                pass  # who has not answered by now is named below
            found = self._find(model)
            if found:
                return found
        raise self._not_found(model)

    @asynccontextmanager
    async def reserve(
        self, targets: Sequence[Target], preferred: Sequence[Target] = ()
    ) -> AsyncIterator[Target]:
        """Take a slot at the best of these targets, waiting for one if need be.

        One of the ``preferred`` wins if it answers and has a free slot. Raises Overloaded. The
        slot is given back whatever happens inside.
        """
        target = await self._take(targets, preferred)
        try:
            yield target
        finally:
            self.slots.give_back(target.slot)

    async def _take(self, targets: Sequence[Target], preferred: Sequence[Target]) -> Target:
        for group in ([t for t in preferred if t.endpoint.answers], targets):
            best = least_loaded((self._candidate(target) for target in group), random)
            if best is not None:
                self.slots.take(best.key.slot)
                return best.key
        by_slot = {target.slot: target for target in targets}
        return by_slot[await self.slots.wait(by_slot)]

    def _candidate(self, target: Target) -> Candidate[Target]:
        settings = target.endpoint.settings
        return Candidate(
            target,
            self.slots.in_flight(target.slot),
            settings.max_in_flight,
            settings.weight,
            target.endpoint.answers,
        )

    def _find(self, model: str) -> tuple[Target, ...]:
        found = self._targets.get(model)
        if found is None:
            found = tuple(
                Target(endpoint, name)
                for endpoint in self.endpoints
                if (name := endpoint.catalogue.resolve(model)) is not None
            )
            if found and len(self._targets) < _MAX_REMEMBERED:
                self._targets[model] = found
        return found

    def _not_found(self, model: str) -> Exception:
        silent = [e.name for e in self.endpoints if e.catalogue.discovers and not e.catalogue.known]
        if silent:
            return UpstreamUnavailable(
                f"No endpoint is known to serve the model '{model}', and not all could be asked: "
                f"{', '.join(silent)} did not answer.",
                headers={"Retry-After": "5"},
            )
        served = self.public_models()
        listed = ", ".join(served[:_NAMED_IN_ERRORS]) or "none"
        more = (
            f" and {len(served) - _NAMED_IN_ERRORS} more" if len(served) > _NAMED_IN_ERRORS else ""
        )
        return ModelNotFound(
            f"The model '{model[:200]}' does not exist here. Served: {listed}{more}.", param="model"
        )
