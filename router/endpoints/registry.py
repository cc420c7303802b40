"""The endpoints of one configuration: what they serve, whether they answer, what they work on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from random import random
from typing import Final

from router.balance.policy import Candidate, least_loaded
from router.endpoints.catalogue import Catalogue
from router.endpoints.slots import SlotKey, Slots
from router.errors import ModelNotFound, RouterError, UpstreamUnavailable
from router.settings.schema import Balance, EndpointSettings
from router.upstream.contract import Adapter, Transport, account_of, redacted

__all__ = ["Endpoint", "Registry", "Target"]

_NAMED_IN_ERRORS: Final = 20
_SHOWN_OF_NAME: Final = 200
_MAX_REMEMBERED: Final = 4096
_MAX_NAME_REMEMBERED: Final = 256


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

    def redacted(self, text: str) -> str:
        """What the endpoint said, without its key."""
        return redacted(self.settings, text)

    @property
    def ready(self) -> bool:
        """Whether it was asked, answered, and has anything to serve."""
        return self.probed.is_set() and self.answers and self.catalogue.serves_any


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
    """Finds and reserves an endpoint for a model.

    ``slots_changed(slot, in_flight)`` is told how many requests an endpoint works on for a model.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        balance: Balance,
        slots_changed: Callable[[SlotKey, int], None],
    ) -> None:
        self.endpoints = tuple(endpoints)
        self.slots = Slots(balance.queue_size, balance.queue_timeout, slots_changed)
        self._first_probe_seconds = max(
            (endpoint.settings.timeouts.connect for endpoint in endpoints), default=0.0
        )
        self._targets: dict[str, tuple[Target, ...]] = {}
        self._known: frozenset[str] | None = None
        self._news = asyncio.Event()

    def catalogue_changed(self) -> None:
        """Forget what was found: an endpoint serves something else now."""
        self._targets.clear()
        self._known = None

    def probed(self, endpoint: Endpoint) -> None:
        """A probe of this endpoint is over: who waits for the first one looks again."""
        if not endpoint.probed.is_set():
            endpoint.probed.set()
            self._news.set()
            self._news = asyncio.Event()

    def known_model(self, model: str) -> bool:
        """Whether some endpoint lists or configures this very name (not only by a pattern).

        It may be a client's name for the model or the endpoint's own.
        """
        if self._known is None:
            self._known = frozenset().union(*(e.catalogue.known_names() for e in self.endpoints))
        return model in self._known

    def public_models(self) -> list[str]:
        """Every model there is to list, each once, in the order of the configuration."""
        names: dict[str, None] = {}
        for endpoint in self.endpoints:
            names.update(dict.fromkeys(endpoint.catalogue.public_names()))
        return list(names)

    async def targets(self, model: str) -> tuple[Target, ...]:
        """Who serves this model.

        Waits while nobody is known to and an endpoint has not been probed yet. Raises
        ModelNotFound, or UpstreamUnavailable when an endpoint that might serve it has never
        listed its models.
        """
        found = self._find(model)
        if not found and not self._all_probed():
            with suppress(TimeoutError):  # who has not answered by then is named below
                async with asyncio.timeout(self._first_probe_seconds):
                    while not (found := self._find(model)) and not self._all_probed():
                        await self._news.wait()
        if not found:
            raise self._not_found(model)
        return found

    def _all_probed(self) -> bool:
        return all(endpoint.probed.is_set() for endpoint in self.endpoints)

    @asynccontextmanager
    async def reserve(
        self, targets: Sequence[Target], preferred: Sequence[Target] = ()
    ) -> AsyncIterator[Target]:
        """Take a slot at the best of these targets, waiting for one if need be.

        One of them that is ``preferred`` wins if it answers and has a free slot. Raises
        Overloaded. The slot is given back whatever happens inside.
        """
        target = await self._take(targets, preferred)
        try:
            yield target
        finally:
            self.slots.give_back(target.slot)

    async def _take(self, targets: Sequence[Target], preferred: Sequence[Target]) -> Target:
        first = [t for t in preferred if t.endpoint.answers and t in targets]
        for group in (first, targets):
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
            rememberable = len(model) <= _MAX_NAME_REMEMBERED
            if found and rememberable and len(self._targets) < _MAX_REMEMBERED:
                self._targets[model] = found
        return found

    def _not_found(self, model: str) -> RouterError:
        shown = model[:_SHOWN_OF_NAME]
        silent = [e.name for e in self.endpoints if e.catalogue.discovers and not e.catalogue.known]
        if silent:
            return UpstreamUnavailable(
                f"No endpoint is known to serve the model '{shown}', but these have not listed "
                f"their models yet: {', '.join(silent)}.",
                headers={"Retry-After": "5"},
            )
        served = self.public_models()
        listed = ", ".join(name[:_SHOWN_OF_NAME] for name in served[:_NAMED_IN_ERRORS]) or "none"
        more = len(served) - _NAMED_IN_ERRORS
        return ModelNotFound(
            f"The model '{shown}' does not exist here. Served: {listed}"
            f"{f' and {more} more' if more > 0 else ''}.",
            param="model",
        )
