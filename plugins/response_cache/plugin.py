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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from cache.controls import CachePolicy, Controls, ControlsError, read_controls
from cache.core import Lookup, ResponseCache
from cache.request import Bypass, CachedAnswer, CacheKeys, CacheRequest, keys
from plugins.response_cache.shadow import Charge, Shadow, unpaid
from plugins.response_cache.shared_call import CapturedOutput, SharedCall
from plugins.response_cache.subscriber import Subscriber, TryAgain, tell
from plugins.response_cache.surfaces import SURFACES, CallResult, Rendering, Surface
from router.plugin import (
    REASONING_DROPPED,
    CacheMetrics,
    CacheSettings,
    Exchange,
    Interceptor,
    InvalidRequest,
    NotCached,
    Operation,
    PluginChain,
    PluginContext,
    PluginSet,
    Proceed,
    RouterError,
    Saved,
    ShuttingDown,
    Sink,
    Tasks,
    client_headers,
    get_logger,
    internal_error,
    usage_tokens,
)

__all__ = ["ResponseCachePlugin"]

_log = get_logger("plugins.response_cache")

_PUT_SECONDS: Final = 2.0
"""What answers that are being kept are given when the plugin stops."""

_MANY_EVENTS: Final = 1000
"""To make one answer of so many takes longer than the event loop may be held up."""


@dataclass(slots=True)
class _CacheableRequest:
    """One request, as the cache sees it."""

    surface: Surface
    controls: Controls
    request: CacheRequest
    keys: CacheKeys
    proceed: Proceed
    scope: str
    silent: PluginSet


class ResponseCachePlugin(Interceptor):
    """Answers from the cache, and keeps answers. ``open_after`` is that of ``server``, in seconds.
    ``charge`` is told what its self-check uses.
    """

    name = "response_cache"

    def __init__(
        self,
        cache: ResponseCache,
        settings: CacheSettings,
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
        self._policy = CachePolicy(
            mode=settings.mode,
            ttl=settings.ttl,
            threshold=settings.semantic.threshold,
            semantic=settings.semantic.enabled,
            sampled=settings.semantic.sampled,
        )
        self._check = settings.semantic.self_check
        self._shadow = Shadow(cache, self._check.share, metrics, charge=charge)
        self._silent = PluginSet(PluginChain(()), _nobody)
        self._shared_calls: dict[str, SharedCall] = {}
        self._tasks = Tasks()

    @classmethod
    def from_context(cls, context: PluginContext) -> ResponseCachePlugin:
        """The plugin for the cache of an application."""
        settings, services = context.settings, context.services
        return cls(
            services.cache,
            settings.cache,
            services.metrics.cache,
            settings.server.open_after,
            services.accounts.saved,
            services.accounts.charge,
        )

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
        surface = SURFACES.get(exchange.request.operation.kind)
        if surface is None or exchange.request.operation is Operation.RUN:
            await proceed(exchange, sink)
            return
        asked = self._read(exchange, surface, proceed)
        if isinstance(asked, str):
            self._metrics.bypassed(asked)
            exchange.result.cache = "bypass"
            exchange.result.headers["X-Cache"] = "BYPASS"
            exchange.result.headers["X-Cache-Reason"] = asked
            await proceed(exchange, sink)
            return
        place = asked.keys.key
        if (
            self._shared
            and exchange.context.key is not None
            and exchange.context.key.models is not None
        ):
            # Another model may answer a call: only keys with the same models share one.
            place = f"{place} {sorted(exchange.context.key.models)}"
        for promoted in (False, True):
            try:
                await self._answer(asked, exchange, sink, place, promoted=promoted)
                return
            except TryAgain as again:
                exchange.result.headers.pop("X-Cache-Tier", None)
                if again.answered:
                    # To be shared with those who ask in the same form.
                    api_format = "stream" if exchange.stream else "whole"
                    place = f"{place} {exchange.request.operation.value} {api_format}"
        _says(exchange, "miss", "MISS")
        await proceed(exchange, sink)

    def _read(
        self, exchange: Exchange, surface: Surface, proceed: Proceed
    ) -> _CacheableRequest | str:
        """What is asked of the cache, or why it has nothing to do with it; raises InvalidRequest,
        and NotCached where nobody else may be asked.
        """
        body = exchange.body
        try:
            controls = read_controls(
                self._policy,
                exchange.request.headers.get("Cache-Control"),
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
        if exchange.dropped or REASONING_DROPPED in exchange.result.headers:
            # The answer is to less than what was asked.
            controls = replace(controls, store=False)
        request = surface.request(body)
        if isinstance(request, Bypass):
            if controls.only_if_cached:
                raise _not_cached(f"Requests like this one are never cached ({request.reason}).")
            return request.reason
        if self._policy.sampled and request.exact_only == "sampled":
            request = replace(request, exact_only=None)
        scope = "shared" if self._shared else f"key:{exchange.context.caller}"
        keyed = keys(request, scope=scope)
        return _CacheableRequest(surface, controls, request, keyed, proceed, scope, self._silent)

    async def _answer(
        self,
        asked: _CacheableRequest,
        exchange: Exchange,
        sink: Sink,
        place: str,
        *,
        promoted: bool,
    ) -> None:
        """Answer from the cache, with a call that others make, or with one of its own.

        ``place`` is where calls that can be shared are known by. Raises TryAgain where the call
        of others failed.
        """
        cache, request, controls = self._cache, asked.request, asked.controls
        lookup = await cache.exact(asked.keys, controls)
        shared_call = self._under_way(place, lookup, controls)
        if shared_call is None and lookup.entry is None:
            await cache.similar(lookup, request, asked.keys, controls)
            shared_call = self._under_way(place, lookup, controls)  # somebody may have been sooner
        if lookup.entry is not None and await self._hit(asked, exchange, sink, lookup):
            return
        if shared_call is None and controls.only_if_cached:
            raise _not_cached("There is no answer to this request in the cache.")
        leads = shared_call is None
        if shared_call is None:
            self._tell_of_miss(exchange, lookup)
            shared_call = self._begin(asked, exchange, lookup, place, promoted=promoted)
            rendering = asked.surface.leading(exchange, shared_call.carrier)
        else:
            self._metrics.shared()
            _says(exchange, "shared", "HIT", "shared")
            rendering = asked.surface.rendering(exchange)
        await Subscriber(
            exchange, sink, rendering, shared_call, leads=leads, open_after=self._open_after
        ).run()
        usage = shared_call.carrier.result.usage
        if (
            not leads and exchange.result.spent is None and usage is not None
        ):  # somebody else's call
            self._saved(exchange, exchange.shown_model, usage_tokens(usage), _id_of(rendering))

    def _tell_of_miss(self, exchange: Exchange, lookup: Lookup) -> None:
        if lookup.epoch is not None:
            _says(exchange, "miss", "MISS")
            return
        _says(exchange, "bypass", "BYPASS")
        exchange.result.headers["X-Cache-Reason"] = "store"
        self._metrics.bypassed("store")

    def _under_way(self, place: str, lookup: Lookup, controls: Controls) -> SharedCall | None:
        """A call for the same that can be shared: nothing was invalidated since it began."""
        shared_call = self._shared_calls.get(place)
        if shared_call is None or not (controls.lookup and shared_call.joinable):
            return None
        return shared_call if lookup.epoch == shared_call.epoch else None

    async def _hit(
        self, asked: _CacheableRequest, exchange: Exchange, sink: Sink, lookup: Lookup
    ) -> bool:
        """Tell the answer that was found; False where it cannot be read."""
        entry = lookup.entry
        assert entry is not None
        try:
            answer = self._cache.answer(entry)
        except ValueError:
            _log.warning("an entry of the cache cannot be read", entry=entry.key)
            return False
        _says(exchange, lookup.tier, "HIT", lookup.tier)
        response_headers = exchange.result.headers
        response_headers["X-Cache-Entry"] = entry.key
        response_headers["Age"] = str(max(0, int(time.time() - entry.created)))
        if lookup.similarity is not None:
            response_headers["X-Cache-Similarity"] = f"{lookup.similarity:.4f}"
        self._metrics.saved(*answer.tokens)
        rendering = asked.surface.rendering(exchange)
        self._saved(exchange, entry.model, usage_tokens(answer.usage), _id_of(rendering))
        await tell(exchange, sink, rendering, answer, client_headers(exchange, {}), self._rate)
        if lookup.tier == "semantic":
            shared_call = _shared_call(asked, exchange)
            plugin_set = exchange.context.plugin_set
            self._shadow.check(asked.keys.namespace, answer, shared_call, asked.proceed, plugin_set)
        return True

    def _begin(
        self,
        asked: _CacheableRequest,
        exchange: Exchange,
        lookup: Lookup,
        place: str,
        *,
        promoted: bool,
    ) -> SharedCall:
        """Begin a call, for others too if they may share it."""
        shared_call = _shared_call(asked, exchange, promoted=promoted, epoch=lookup.epoch)
        if asked.controls.lookup:
            self._shared_calls[place] = shared_call
        # It may outlive the exchange, and so may what it uses.
        plugin_set = exchange.context.plugin_set
        plugin_set.enter()
        name = f"{exchange.request.id} shared"
        shared_call.task = self._tasks.spawn(self._fly(shared_call, asked, lookup, place), name)

        def over(task: asyncio.Task[None]) -> None:
            self._withdraw(place, shared_call)
            if not shared_call.done.is_set():
                shared_call.landed(ShuttingDown("The router is shutting down."))
            plugin_set.leave()

        shared_call.task.add_done_callback(over)
        return shared_call

    def _withdraw(self, place: str, shared_call: SharedCall) -> None:
        """Nobody can share this call any more."""
        if self._shared_calls.get(place) is shared_call:
            del self._shared_calls[place]

    async def _fly(
        self, shared_call: SharedCall, asked: _CacheableRequest, lookup: Lookup, place: str
    ) -> None:
        """Make the call, and keep its answer."""
        error: RouterError | None = None
        try:
            await asked.proceed(shared_call.carrier, shared_call)
        except RouterError as exc:
            error = exc
        except asyncio.CancelledError:
            self._withdraw(place, shared_call)
            raise
        except Exception:
            _log.exception("request failed", request_id=shared_call.carrier.request.id)
            error = internal_error(shared_call.carrier)
        if error is not None:
            self._withdraw(place, shared_call)  # who tries again makes another call
        shared_call.landed(error)
        if error is None and asked.controls.store and lookup.epoch is not None:
            await self._put(shared_call, asked, lookup)

    async def _put(self, shared_call: SharedCall, asked: _CacheableRequest, lookup: Lookup) -> None:
        if len(shared_call.whole) > _MANY_EVENTS:
            answer = await asyncio.to_thread(shared_call.canonical)
        else:
            answer = shared_call.canonical()
        if answer is None or shared_call.carrier.result.partial:
            return  # another endpoint might have done better
        request, model = asked.request, shared_call.carrier.result.served_model
        kept = asked.keys if model is None else keys(request, scope=asked.scope, model=model)
        await self._cache.put(request, kept, answer, lookup, asked.controls, model=model)


async def _nobody(exchange: Exchange, sink: Sink) -> None:
    """What is behind the plugins of a carrier: none are, since nobody listens to one."""
    raise RuntimeError("a carrier is not to be passed on by its plugin set")


def _shared_call(
    asked: _CacheableRequest,
    exchange: Exchange,
    *,
    promoted: bool = False,
    epoch: int | None = None,
) -> SharedCall:
    carrier = exchange.derive(asked.surface.carried(exchange.body), asked.silent)
    if exchange.record is not None:
        carrier.record = CapturedOutput()
    capture = partial(_captured, asked.surface)
    return SharedCall(carrier, capture, promoted=promoted, epoch=epoch)


def _captured(surface: Surface, shared_call: SharedCall) -> CachedAnswer | None:
    """The canonical answer of a call that is over."""
    carrier = shared_call.carrier
    final: dict[str, Any] | None = None
    encrypted_reasoning: dict[str, str] = {}
    if isinstance(carrier.record, CapturedOutput):
        final, encrypted_reasoning = carrier.record.final, dict(carrier.record.encrypted_reasoning)
    told = CallResult(
        final,
        encrypted_reasoning,
        shared_call.body,
        shared_call.whole,
        carrier.result.usage,
        carrier.shown_model,
    )
    return surface.answer(told)


def _id_of(rendering: Rendering) -> str | None:
    return rendering.builder.id if rendering.builder is not None else None


def _says(exchange: Exchange, known_as: str, told: str, tier: str | None = None) -> None:
    """Tell the client, and the log, what the cache did."""
    exchange.result.cache = known_as
    exchange.result.headers["X-Cache"] = told
    if tier is not None:
        exchange.result.headers["X-Cache-Tier"] = tier


def _not_cached(why: str) -> NotCached:
    return NotCached(f"{why} It asks for 'only-if-cached', so no endpoint was asked.")
