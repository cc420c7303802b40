"""Asks every endpoint, again and again, whether it is there, what it serves and what is loaded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from math import inf
from random import uniform
from typing import Final

from router.endpoints.beside import hint, is_a_slip, request_hint
from router.endpoints.deployment import Deployment
from router.endpoints.endpoint import Endpoint
from router.endpoints.listing import Listing, list_models, list_resident
from router.endpoints.registry import Registry
from router.settings.schema import EndpointSettings
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["Prober"]

_log = get_logger("router.prober")

_BREATH: Final = 1.0
"""However often somebody wants to know, an endpoint is asked again after so many seconds."""


class Prober:
    """Keeps the catalogues and the health of a registry's endpoints up to date.

    ``interval`` is in seconds, jittered down by up to a fifth. An endpoint that is away is asked
    again when its breaker becomes half-open, if that is sooner; and at once when somebody sets its
    ``probe_now``. ``told(endpoint)`` is called after every probe.
    """

    def __init__(
        self, registry: Registry, interval: float, told: Callable[[Endpoint], None]
    ) -> None:
        self.interval = self._paused_for = interval
        self._registry = registry
        self._told = told
        self._tasks = Tasks()
        self._watched: dict[Endpoint, asyncio.Task[None]] = {}
        self._asked_with: dict[Endpoint, EndpointSettings] = {}
        self._answered: dict[Endpoint, bool] = {}
        self._began: dict[Endpoint, float] = {}
        self._hints: dict[Endpoint, tuple[EndpointSettings, str]] = {}
        self._asked_beside: dict[Endpoint, EndpointSettings] = {}

    def start(self) -> None:
        """Begin; returns at once."""
        self.follow()

    def follow(self) -> None:
        """Watch the registry's endpoints as they are now, and no others; returns at once.

        Called at the start and whenever they have changed, or ``interval`` has. Those with other
        settings are asked at once.
        """
        paces_anew = self.interval != self._paused_for
        self._paused_for = self.interval
        now = set(self._registry.endpoints)
        for gone in self._watched.keys() - now:
            self._watched.pop(gone).cancel()
            self._asked_with.pop(gone, None)
            self._answered.pop(gone, None)
            self._began.pop(gone, None)
            self._hints.pop(gone, None)
            self._asked_beside.pop(gone, None)
        for endpoint in self._registry.endpoints:
            if endpoint not in self._watched:
                watch = self._tasks.spawn(self._watch(endpoint), f"probe {endpoint.name}")
                self._watched[endpoint] = watch
            elif paces_anew or self._asked_with.get(endpoint) is not endpoint.settings:
                endpoint.probe_now.set()

    async def stop(self) -> None:
        """End every probe."""
        await self._tasks.close()
        self._watched.clear()

    async def _watch(self, endpoint: Endpoint) -> None:
        while True:
            endpoint.probe_now.clear()
            try:
                await self._probe(endpoint)
            except Exception:
                # One bad answer must not be the last that is heard of an endpoint.
                _log.exception("probe failed", endpoint=endpoint.name)
                self._registry.probed(endpoint)
            await self._pause(endpoint)

    async def _pause(self, endpoint: Endpoint) -> None:
        """Wait for the next round, or for somebody who wants to know before."""
        began = time.monotonic()
        pause = self.interval * uniform(0.8, 1.0)
        half_open = endpoint.host.breaker.opens_until - began
        if half_open > 0:
            pause = min(pause, half_open)
        if endpoint.loading:
            pause = min(pause, _BREATH)
        try:
            async with asyncio.timeout(pause):
                await endpoint.probe_now.wait()
        except TimeoutError:
            return
        breath = min(_BREATH, self.interval) - (time.monotonic() - began)
        if breath > 0:
            await asyncio.sleep(breath)

    async def _probe(self, endpoint: Endpoint) -> None:
        self._asked_with[endpoint] = settings = endpoint.settings
        timeouts = settings.timeouts
        seconds = max(timeouts.connect, min(timeouts.first_byte, self.interval))
        adapter, transport = endpoint.adapter, endpoint.transport
        before = {deployment: _thought(deployment) for deployment in endpoint.deployments.values()}
        began = time.monotonic()
        listing = await list_models(adapter, transport, seconds)
        resident = None
        if listing.error is None:
            resident = await list_resident(adapter, transport, seconds)
        if endpoint.transport is not transport:
            return  # it has other settings by now, with which it is asked at once
        if listing.unasked:
            endpoint.probe_now.set()
            return
        if listing.error is None:
            changed = endpoint.catalogue.update(listing.names)
            changed |= endpoint.catalogue.describe(listing.models, resident)
            if changed:
                self._registry.catalogue_changed()
            _tell_memory(endpoint, before)
        self._judge(endpoint, listing, began)
        self._began[endpoint] = began
        self._registry.probed(endpoint)
        self._told(endpoint)
        if is_a_slip(listing):
            await self._hint(endpoint, settings)
        elif endpoint.lacks_route:
            await self._hint_of_requests(endpoint, settings)

    async def _hint(self, endpoint: Endpoint, settings: EndpointSettings) -> None:
        """Find out, once for its settings, what would have answered beside an endpoint's URL."""
        if self._hints.get(endpoint, (None, ""))[0] is settings:
            return
        said = await hint(settings, self._registry.connect)
        if endpoint.settings is settings:
            self._hints[endpoint] = (settings, said)
            if endpoint.problem is not None:
                endpoint.problem += f"; {said}"
            _say_hint(endpoint, said)

    async def _hint_of_requests(self, endpoint: Endpoint, settings: EndpointSettings) -> None:
        """Find out, once for its settings, where requests would not have met 404."""
        if self._asked_beside.get(endpoint) is settings:
            return
        self._asked_beside[endpoint] = settings
        said = await request_hint(settings, self._registry.connect)
        if said and endpoint.settings is settings:
            _say_hint(endpoint, said)

    def _judge(self, endpoint: Endpoint, listing: Listing, began: float) -> None:
        """Tell the endpoint's health, and the log where that is news."""
        now = time.monotonic()
        before = self._answered.get(endpoint)
        usable = listing.answered or _is_of_use(
            endpoint, listing, began, self._began.get(endpoint, began)
        )
        self._answered[endpoint] = usable
        endpoint.loading = listing.loading
        error = listing.error
        endpoint.problem = error if error is None else endpoint.redacted(error)
        known, said = self._hints.get(endpoint, (None, ""))
        if error is not None and is_a_slip(listing) and known is endpoint.settings:
            endpoint.problem = f"{endpoint.problem}; {said}"
        if not usable:
            endpoint.host.unreachable(now)
            if before is not False:
                _log.warning("endpoint cannot be used", endpoint=endpoint.name, error=listing.error)
            return
        was_away = endpoint.host.reachable(now)
        if was_away or before is not True:  # a request may have found out first
            _say_answers(endpoint, listing, back=before is not None)


def _is_of_use(endpoint: Endpoint, listing: Listing, began: float, last: float) -> bool:
    """Whether an endpoint serves requests although its list failed, in the probe that ``began``.

    Requests that succeeded since the ``last`` probe say more than a list; while nothing came in
    time, those that did since this one began. What has its models configured does not need the
    list: transformers serve answers 500, and some keys may do all but list. A redirect, or a key
    that is not known, will be met by requests, too.
    """
    heard = max((deployment.heard for deployment in endpoint.host.deployments), default=-inf)
    if listing.status is None:
        return listing.late and heard > began
    if heard > last:
        return True
    of_all = 300 <= listing.status < 400 or listing.status == 401
    return endpoint.settings.models is not None and not of_all


def _thought(deployment: Deployment) -> bool | None:
    """Whether its model is thought to be in memory; None while the router does something about it:
    Ollama lists a model from the moment it begins to load it.
    """
    return deployment.loaded if deployment.load_began is None else None


def _tell_memory(endpoint: Endpoint, before: Mapping[Deployment, bool | None]) -> None:
    """Tell every model whether it is in memory, but those of which something else became known
    since the endpoint was asked.
    """
    now = time.monotonic()
    for deployment in list(endpoint.deployments.values()):
        told = endpoint.catalogue.in_memory(deployment.model)
        thought = _thought(deployment)
        if told is None or thought is None:
            continue
        if before.get(deployment, thought) == thought:
            deployment.in_memory(now, told)


def _say_hint(endpoint: Endpoint, said: str) -> None:
    _log.warning("endpoint may be configured wrongly", endpoint=endpoint.name, hint=said)


def _say_answers(endpoint: Endpoint, listing: Listing, *, back: bool) -> None:
    if listing.error is not None:
        _log.warning("endpoint lists no models", endpoint=endpoint.name, error=listing.error)
    else:
        event = "endpoint is back" if back else "endpoint answers"
        _log.info(event, endpoint=endpoint.name, models=len(listing.models))
