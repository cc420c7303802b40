"""Asks every endpoint, again and again, what it serves and whether it answers at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import uniform
from typing import Final

import orjson

from router.endpoints.registry import Endpoint, Registry
from router.errors import UpstreamError, UpstreamFailure
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.upstream.contract import Adapter, Transport

__all__ = ["Listing", "Prober", "list_models"]

_log = get_logger("router.prober")
_KEY_REFUSED: Final = frozenset({401, 403})
_MAX_MODELS: Final = 10_000
_MAX_NAME: Final = 256


@dataclass(frozen=True, slots=True)
class Listing:
    """What an endpoint said: its models, or why there are none. ``latency`` is in seconds.

    ``answered``: it is up and takes the router's key, whether it lists models or not.
    """

    models: tuple[str, ...]
    error: str | None
    answered: bool
    latency: float


async def list_models(adapter: Adapter, transport: Transport, timeout: float) -> Listing:
    """Ask one endpoint for its models; errors are in the result."""
    began = time.monotonic()
    models: tuple[str, ...] = ()
    error: str | None = None
    answered = False
    try:
        status, body = await transport.get(adapter.models_path(), timeout)
        # A redirect is no answer: requests are not sent after it.
        answered = (status < 300 or 400 <= status < 500) and status not in _KEY_REFUSED
        if status == 200:
            models = _usable(adapter.model_names(orjson.loads(body)))
        elif status in _KEY_REFUSED:
            error = f"HTTP {status} for {adapter.models_path()}: it refuses the api_key"
        else:
            error = f"HTTP {status} for {adapter.models_path()}"
    except orjson.JSONDecodeError:
        error = f"{adapter.models_path()} is not JSON"
    except UpstreamFailure as exc:
        error = exc.message
    except UpstreamError as exc:
        answered, error = False, exc.message
    return Listing(models, error, answered, time.monotonic() - began)


def _usable(names: list[str]) -> tuple[str, ...]:
    """What of a list of models can be asked for by name; its length is bounded."""
    usable = [name for name in names if 0 < len(name) <= _MAX_NAME]
    return tuple(usable[:_MAX_MODELS])


class Prober:
    """Keeps the catalogues and the health of a registry's endpoints up to date.

    ``interval`` is in seconds and jittered by a tenth; ``told(endpoint)`` is called after every
    probe.
    """

    def __init__(
        self, registry: Registry, interval: float, told: Callable[[Endpoint], None]
    ) -> None:
        self._registry = registry
        self._interval = interval
        self._told = told
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin; returns at once."""
        for endpoint in self._registry.endpoints:
            self._tasks.spawn(self._watch(endpoint), f"probe {endpoint.name}")

    async def stop(self) -> None:
        """End every probe."""
        await self._tasks.close()

    async def _watch(self, endpoint: Endpoint) -> None:
        while True:
            endpoint.probe_now.clear()
            try:
                await self._probe(endpoint)
            except Exception:
                # One bad answer must not be the last that is heard of an endpoint.
                _log.exception("probe failed", endpoint=endpoint.name)
                self._registry.probed(endpoint)
            pause = self._interval * uniform(0.9, 1.1)
            try:
                async with asyncio.timeout(pause):
                    await endpoint.probe_now.wait()
                # Somebody found it unreachable just now: do not ask in the same breath.
                await asyncio.sleep(min(1.0, self._interval))
            except TimeoutError:
                continue

    async def _probe(self, endpoint: Endpoint) -> None:
        timeouts = endpoint.settings.timeouts
        seconds = max(timeouts.connect, min(timeouts.first_byte, self._interval))
        listing = await list_models(endpoint.adapter, endpoint.transport, seconds)
        if listing.error is None and endpoint.catalogue.update(listing.models):
            self._registry.catalogue_changed()
        if listing.answered != endpoint.answers or not endpoint.probed.is_set():
            self._say(endpoint, listing)
        endpoint.answers = listing.answered
        self._registry.probed(endpoint)
        self._told(endpoint)

    @staticmethod
    def _say(endpoint: Endpoint, listing: Listing) -> None:
        if listing.error is None:
            _log.info("endpoint answers", endpoint=endpoint.name, models=len(listing.models))
        else:
            _log.warning(
                "endpoint lists no models" if listing.answered else "endpoint cannot be used",
                endpoint=endpoint.name,
                error=listing.error,
            )
