"""The response cache, as a plugin: who is answered from it, who shares a call, what is kept.

request ─▶ controls ─▶ canonical request ─▶ a call under way for it?  ─ yes ─▶ share its answer
              │               │                      │ no
           BYPASS          BYPASS              look it up ─ hit ─▶ replay
                                                     │ miss
                                               a call of its own, that others may share,
                                               and whose answer is kept afterwards
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from cache.answer import Answer
from cache.controls import Controls, ControlsError, Policy, read_controls
from cache.core import Lookup, ResponseCache
from cache.keys import Keys, keys
from cache.request import Bypass, CacheRequest
from plugins.response_cache.flight import Flight, Overheard
from plugins.response_cache.participant import Participant, TryAgain
from plugins.response_cache.shadow import Charge, Shadow, unpaid
from plugins.response_cache.surfaces import SURFACES, Rendering, Surface, Told
from plugins.response_cache.telling import tell
from router.core.exchange import Exchange, Sink, internal_error
from router.core.plugin_set import Generation
from router.core.response_headers import client_headers
from router.core.upstream import REASONING_DROPPED
from router.core.usage_record import Tokens, tokens_of
from router.errors import InvalidRequest, NotCached, RouterError, ShuttingDown
from router.plugin import Chain, Interceptor, Proceed
from router.settings.cache import Cache
from router.telemetry.cache_metrics import CacheMetrics
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["ResponseCachePlugin", "Saved"]

_log = get_logger("plugins.response_cache")

_PUT_SECONDS: Final = 2.0
"""What answers that are being kept are given when the plugin stops."""

_MANY_EVENTS: Final = 1000
"""To make one answer of so many takes longer than the event loop may be held up."""


@dataclass(slots=True)
class _Asked:
    """One request, as the cache sees it."""

    surface: Surface
    controls: Controls
    request: CacheRequest
    keys: Keys
    proceed: Proceed
    scope: str
    silent: Generation


Saved = Callable[[Exchange, str, Tokens, str | None], None]
"""Is told of an exchange that no endpoint was asked for: (exchange, the model that had answered,
what was not used, the response's id).
"""


class ResponseCachePlugin(Interceptor):
    """Answers from the cache, and keeps answers. ``open_after`` is that of ``server``, in seconds.
    ``charge`` is told what its self-check uses.
    """

    name = "response_cache"

    def __init__(
        self,
        cache: ResponseCache,
        settings: Cache,
        metrics: CacheMetrics,
        open_after: float,
        saved: Saved,
        charge: Charge = unpaid,
    ) -> None:
        assert settings.mode != "off"
        self._saved = saved
        self._cache = cache
        self._metrics = metrics
        self._open_after = open_after
        self._shared = settings.scope == "shared"
        self._rate = settings.replay_rate
        self._policy = Policy(
            mode=settings.mode,
            ttl=settings.ttl,
            threshold=settings.semantic.threshold,
            semantic=settings.semantic.enabled,
            sampled=settings.semantic.sampled,
        )
        self._check = settings.semantic.self_check
        self._shadow = Shadow(cache, self._check.share, metrics, charge=charge)
        self._silent = Generation(Chain(()), _nobody)
        self._flights: dict[str, Flight] = {}
        self._tasks = Tasks()

    async def start(self) -> None:
        """See ``Plugin.start``."""
        await self._cache.open()
        if self._cache.semantic is not None:
            self._cache.semantic.check.limit = self._check.limit

    async def stop(self) -> None:
        """See ``Plugin.stop``. The cache itself outlives it."""
        await self._tasks.wait(_PUT_SECONDS)
        await self._tasks.close()
        await self._shadow.stop()

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        """See ``Interceptor.intercept``."""
        surface = SURFACES.get(exchange.operation)
        if surface is None:
            await proceed(exchange, sink)
            return
        asked = self._read(exchange, surface, proceed)
        if isinstance(asked, str):
            self._metrics.bypassed(asked)
            exchange.cache = "bypass"
            exchange.notes["X-Cache"] = "BYPASS"
            exchange.notes["X-Cache-Reason"] = asked
            await proceed(exchange, sink)
            return
        place = asked.keys.key
        if self._shared and exchange.key is not None and exchange.key.models is not None:
            # Another model may answer a call: only keys with the same models share one.
            place = f"{place} {sorted(exchange.key.models)}"
        for promoted in (False, True):
            try:
                await self._answer(asked, exchange, sink, place, promoted=promoted)
                return
            except TryAgain as again:
                exchange.notes.pop("X-Cache-Tier", None)
                if again.answered:
                    # To be shared with those who ask in the same form.
                    form = "stream" if exchange.stream else "whole"
                    place = f"{place} {exchange.operation.value} {form}"
        _says(exchange, "miss", "MISS")
        await proceed(exchange, sink)

    def _read(self, exchange: Exchange, surface: Surface, proceed: Proceed) -> _Asked | str:
        """What is asked of the cache, or why it has nothing to do with it; raises InvalidRequest,
        and NotCached where nobody else may be asked.
        """
        body = exchange.body
        try:
            controls = read_controls(
                self._policy,
                exchange.headers.get("Cache-Control"),
                body.get("cache"),
                body.get("nomyo"),
            )
        except ControlsError as error:
            raise InvalidRequest(str(error), code="invalid_value", param=error.param) from None
        if controls.only_if_cached and not controls.lookup:
            raise _not_cached("The request itself does not let the cache answer.")
        if not (controls.lookup or controls.store):
            by_itself = self._policy.mode == "always" or controls.asked
            return "refused" if by_itself else "not_asked"
        if exchange.unsent or REASONING_DROPPED in exchange.notes:
            # The answer is to less than what was asked.
            controls = replace(controls, store=False)
        request = surface.request(body)
        if isinstance(request, Bypass):
            if controls.only_if_cached:
                raise _not_cached(f"Requests like this one are never cached ({request.reason}).")
            return request.reason
        if self._policy.sampled and request.exact_only == "sampled":
            request = replace(request, exact_only=None)
        scope = "shared" if self._shared else f"key:{exchange.caller}"
        keyed = keys(request, scope=scope)
        return _Asked(surface, controls, request, keyed, proceed, scope, self._silent)

    async def _answer(
        self, asked: _Asked, exchange: Exchange, sink: Sink, place: str, *, promoted: bool
    ) -> None:
        """Answer from the cache, with a call that others make, or with one of its own.

        ``place`` is where calls that can be shared are known by. Raises TryAgain where the call
        of others failed.
        """
        cache, request, controls = self._cache, asked.request, asked.controls
        lookup = await cache.exact(asked.keys, controls)
        flight = self._under_way(place, lookup, controls)
        if flight is None and lookup.entry is None:
            await cache.similar(lookup, request, asked.keys, controls)
            flight = self._under_way(place, lookup, controls)  # somebody may have been sooner
        if lookup.entry is not None and await self._hit(asked, exchange, sink, lookup):
            return
        if flight is None and controls.only_if_cached:
            raise _not_cached("There is no answer to this request in the cache.")
        leads = flight is None
        if flight is None:
            self._tell_of_miss(exchange, lookup)
            flight = self._begin(asked, exchange, lookup, place, promoted=promoted)
            rendering = asked.surface.leading(exchange, flight.carrier)
        else:
            self._metrics.shared()
            _says(exchange, "shared", "HIT", "shared")
            rendering = asked.surface.rendering(exchange)
        await Participant(
            exchange, sink, rendering, flight, leads=leads, open_after=self._open_after
        ).run()
        usage = flight.carrier.usage
        if not leads and exchange.spent is None and usage is not None:  # somebody else's call
            self._saved(exchange, exchange.shown_model, tokens_of(usage), _id_of(rendering))

    def _tell_of_miss(self, exchange: Exchange, lookup: Lookup) -> None:
        if lookup.epoch is not None:
            _says(exchange, "miss", "MISS")
            return
        _says(exchange, "bypass", "BYPASS")
        exchange.notes["X-Cache-Reason"] = "store"
        self._metrics.bypassed("store")

    def _under_way(self, place: str, lookup: Lookup, controls: Controls) -> Flight | None:
        """A call for the same that can be shared: nothing was invalidated since it began."""
        flight = self._flights.get(place)
        if flight is None or not (controls.lookup and flight.joinable):
            return None
        return flight if lookup.epoch == flight.epoch else None

    async def _hit(self, asked: _Asked, exchange: Exchange, sink: Sink, lookup: Lookup) -> bool:
        """Tell the answer that was found; False where it cannot be read."""
        entry = lookup.entry
        assert entry is not None
        try:
            answer = self._cache.answer(entry)
        except ValueError:
            _log.warning("an entry of the cache cannot be read", entry=entry.key)
            return False
        _says(exchange, lookup.tier, "HIT", lookup.tier)
        notes = exchange.notes
        notes["X-Cache-Entry"] = entry.key
        notes["Age"] = str(max(0, int(time.time() - entry.created)))
        if lookup.similarity is not None:
            notes["X-Cache-Similarity"] = f"{lookup.similarity:.4f}"
        self._metrics.saved(*answer.tokens)
        rendering = asked.surface.rendering(exchange)
        self._saved(exchange, entry.model, tokens_of(answer.usage), _id_of(rendering))
        await tell(exchange, sink, rendering, answer, client_headers(exchange, {}), self._rate)
        if lookup.tier == "semantic":
            flight = _flight(asked, exchange)
            generation = exchange.generation
            self._shadow.check(asked.keys.namespace, answer, flight, asked.proceed, generation)
        return True

    def _begin(
        self, asked: _Asked, exchange: Exchange, lookup: Lookup, place: str, *, promoted: bool
    ) -> Flight:
        """Begin a call, for others too if they may share it."""
        flight = _flight(asked, exchange, promoted=promoted, epoch=lookup.epoch)
        if asked.controls.lookup:
            self._flights[place] = flight
        # It may outlive the exchange, and so may what it uses.
        generation = exchange.generation
        generation.enter()
        name = f"{exchange.id} shared"
        flight.task = self._tasks.spawn(self._fly(flight, asked, lookup, place), name)

        def over(task: asyncio.Task[None]) -> None:
            self._withdraw(place, flight)
            if not flight.done.is_set():
                flight.landed(ShuttingDown("The router is shutting down."))
            generation.leave()

        flight.task.add_done_callback(over)
        return flight

    def _withdraw(self, place: str, flight: Flight) -> None:
        """Nobody can share this call any more."""
        if self._flights.get(place) is flight:
            del self._flights[place]

    async def _fly(self, flight: Flight, asked: _Asked, lookup: Lookup, place: str) -> None:
        """Make the call, and keep its answer."""
        error: RouterError | None = None
        try:
            await asked.proceed(flight.carrier, flight)
        except RouterError as exc:
            error = exc
        except asyncio.CancelledError:
            self._withdraw(place, flight)
            raise
        except Exception:
            _log.exception("request failed", request_id=flight.carrier.id)
            error = internal_error(flight.carrier)
        if error is not None:
            self._withdraw(place, flight)  # who tries again makes another call
        flight.landed(error)
        if error is None and asked.controls.store and lookup.epoch is not None:
            await self._put(flight, asked, lookup)

    async def _put(self, flight: Flight, asked: _Asked, lookup: Lookup) -> None:
        if len(flight.whole) > _MANY_EVENTS:
            answer = await asyncio.to_thread(flight.canonical)
        else:
            answer = flight.canonical()
        if answer is None or flight.carrier.partial:
            return  # another endpoint might have done better
        request, model = asked.request, flight.carrier.served_model
        kept = asked.keys if model is None else keys(request, scope=asked.scope, model=model)
        await self._cache.put(request, kept, answer, lookup, asked.controls, model=model)


async def _nobody(exchange: Exchange, sink: Sink) -> None:
    """What is behind the plugins of a carrier: none are, since nobody listens to one."""
    raise RuntimeError("a carrier is not to be passed on by its generation")


def _flight(
    asked: _Asked, exchange: Exchange, *, promoted: bool = False, epoch: int | None = None
) -> Flight:
    carrier = exchange.derive(asked.surface.carried(exchange.body), asked.silent)
    if exchange.record is not None:
        carrier.record = Overheard()
    capture = partial(_captured, asked.surface)
    return Flight(carrier, capture, promoted=promoted, epoch=epoch)


def _captured(surface: Surface, flight: Flight) -> Answer | None:
    """The canonical answer of a call that is over."""
    carrier = flight.carrier
    final: dict[str, Any] | None = None
    hidden: dict[str, str] = {}
    if isinstance(carrier.record, Overheard):
        final, hidden = carrier.record.final, dict(carrier.record.hidden)
    told = Told(final, hidden, flight.body, flight.whole, carrier.usage, carrier.shown_model)
    return surface.answer(told)


def _id_of(rendering: Rendering) -> str | None:
    return rendering.draft.id if rendering.draft is not None else None


def _says(exchange: Exchange, known_as: str, told: str, tier: str | None = None) -> None:
    """Tell the client, and the log, what the cache did."""
    exchange.cache = known_as
    exchange.notes["X-Cache"] = told
    if tier is not None:
        exchange.notes["X-Cache-Tier"] = tier


def _not_cached(why: str) -> NotCached:
    return NotCached(f"{why} It asks for 'only-if-cached', so no endpoint was asked.")
