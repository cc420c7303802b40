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
from copy import deepcopy
from typing import Final

from cache.core import Lookup, ResponseCache
from cache.request import HOSTED_TOOLS, keys
from plugins.response_cache.again import Hit, KnownHit, Template, known_hit
from plugins.response_cache.reading import CacheableRequest, RequestReader, not_cached
from plugins.response_cache.shadow import Charge, Shadow, unpaid
from plugins.response_cache.shared_call import SharedCall
from plugins.response_cache.subscriber import Subscriber, TryAgain
from plugins.response_cache.surfaces import SURFACES, Rendering
from plugins.response_cache.telling import tell
from router.plugin import (
    CacheMetrics,
    CacheSettings,
    Exchange,
    Frame,
    Interceptor,
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


class ResponseCachePlugin(Interceptor):
    """Answers from the cache, and keeps answers. ``open_after`` is that of ``server``, in seconds.
    ``charge`` is told what its self-check uses; ``searches`` is the service that web searches go
    to.
    """

    name = "response_cache"
    remembers = True

    def __init__(
        self,
        cache: ResponseCache,
        settings: CacheSettings,
        metrics: CacheMetrics,
        open_after: float,
        saved: Saved,
        charge: Charge = unpaid,
        searches: str = "",
    ) -> None:
        self._saved = saved
        self._cache = cache
        self._metrics = metrics
        self._open_after = open_after
        self._rate = settings.replay_rate
        self._reader = RequestReader(settings, searches)
        self._check = settings.semantic.self_check
        self._shadow = Shadow(cache, self._check.share, metrics, charge=charge)
        self._silent = PluginSet(PluginChain(()), _nobody)
        self._shared_calls: dict[str, SharedCall] = {}
        self._tasks = Tasks()

    @classmethod
    def from_context(cls, context: PluginContext) -> ResponseCachePlugin:
        """The plugin for the cache of an application."""
        settings, services = context.settings, context.services
        search = settings.tools.web_search
        return cls(
            services.cache,
            settings.cache,
            services.metrics.cache,
            settings.server.open_after,
            services.accounts.saved,
            services.accounts.charge,
            "" if search is None else search.provider,
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
        # What one endpoint understands, and nobody here, cannot be told from other requests.
        unknown = exchange.native is not None and exchange.native.refused is not None
        if surface is None or unknown or exchange.request.operation is Operation.RUN:
            await proceed(exchange, sink)
            return
        known, lookup = known_hit(exchange), None
        if known is not None:
            lookup = self._cache.at_once(known.keys, known.controls)
            lookup = lookup or await self._cache.exact(known.keys, known.controls)
            if lookup.entry is not None and lookup.entry.created == known.hit.created:
                self._tell_again(exchange, sink, known)
                return
            exchange.body = deepcopy(exchange.body)  # what is remembered stays as it is
        asked = self._reader.read(exchange, surface, proceed)
        if isinstance(asked, str):
            exchange.known = None
            self._metrics.bypassed(asked)
            exchange.result.cache = "bypass"
            exchange.result.headers["X-Cache"] = "BYPASS"
            exchange.result.headers["X-Cache-Reason"] = asked
            await proceed(exchange, sink)
        else:
            await self._answer(asked, exchange, sink, lookup)

    async def _answer(
        self, asked: CacheableRequest, exchange: Exchange, sink: Sink, lookup: Lookup | None
    ) -> None:
        """Answer a request; ``lookup`` is what came of looking for it, where that was done."""
        for promoted in (False, True):
            lookup = lookup or await self._cache.exact(asked.keys, asked.controls)
            if lookup.entry is None and self._cache.semantic is not None:
                await self._look_for_similar(asked, lookup)
            if lookup.entry is not None and await self._hit(asked, exchange, sink, lookup):
                return
            exchange.known = None  # its bytes need not be held while the endpoint answers
            call = self._under_way(asked, lookup) if asked.place in self._shared_calls else None
            if call is not None:
                subscriber = self._join(asked, exchange, sink, call)
            else:
                subscriber = self._lead(asked, exchange, sink, lookup, promoted=promoted)
            try:
                await subscriber.run()
            except TryAgain as again:
                lookup = None
                exchange.result.headers.pop("X-Cache-Tier", None)
                if again.answered:
                    # To be shared with those who ask in the same form.
                    api_format = "stream" if exchange.stream else "whole"
                    asked.place = f"{asked.place} {exchange.request.operation.value} {api_format}"
                continue
            if not subscriber.leads:
                self._tell_saved(subscriber)
            return
        exchange.result.cache = "miss"
        exchange.result.headers["X-Cache"] = "MISS"
        await asked.proceed(exchange, sink)

    async def _look_for_similar(self, asked: CacheableRequest, lookup: Lookup) -> None:
        """Whoever can share a call for the very same question does without."""
        if self._under_way(asked, lookup) is None:
            await self._cache.similar(lookup, asked.request, asked.keys, asked.controls)

    def _under_way(self, asked: CacheableRequest, lookup: Lookup) -> SharedCall | None:
        """A call for the same that can be shared: nothing was invalidated since it began."""
        call = self._shared_calls.get(asked.place)
        if call is None or not (asked.controls.lookup and call.joinable):
            return None
        return call if lookup.epoch == call.epoch else None

    async def _hit(
        self, asked: CacheableRequest, exchange: Exchange, sink: Sink, lookup: Lookup
    ) -> bool:
        """Tell the answer that was found; False where it cannot be read."""
        entry = lookup.entry
        assert entry is not None
        try:
            answer = self._cache.answer(entry)
        except ValueError:
            _log.warning("an entry of the cache cannot be read", entry=entry.key)
            return False
        headers = {"X-Cache": "HIT", "X-Cache-Tier": lookup.tier, "X-Cache-Entry": entry.key}
        if lookup.similarity is not None:
            headers["X-Cache-Similarity"] = f"{lookup.similarity:.4f}"
        tokens = usage_tokens(answer.usage)
        rendering = asked.surface.rendering(exchange, None)
        response_id = None if rendering.builder is None else rendering.builder.id
        hit = Hit(lookup.tier, headers, entry.created, entry.model, tokens)
        self._note(exchange, hit, response_id)
        told = await tell(
            exchange, sink, rendering, answer, client_headers(exchange, {}), self._rate
        )
        if lookup.tier == "exact":
            self._remember(asked, exchange, hit, rendering, told)
        else:
            call = SharedCall(exchange, asked.surface, self._silent)
            plugin_set = exchange.context.plugin_set
            self._shadow.check(asked.keys.namespace, answer, call, asked.proceed, plugin_set)
        return True

    def _note(self, exchange: Exchange, hit: Hit, response_id: str | None) -> None:
        """Have it known that it is a hit, and what that saves."""
        exchange.result.cache = hit.tier
        exchange.result.headers.update(hit.headers)
        exchange.result.headers["Age"] = str(max(0, int(time.time() - hit.created)))
        self._metrics.saved_input.inc(hit.tokens.input)
        self._metrics.saved_output.inc(hit.tokens.output)
        self._saved(exchange, hit.model, hit.tokens, response_id)

    def _remember(
        self,
        asked: CacheableRequest,
        exchange: Exchange,
        hit: Hit,
        rendering: Rendering,
        told: bytes | list[Frame],
    ) -> None:
        """Have the request remembered, where its answer can be told again as it was."""
        known = exchange.context.plugin_set.chain.known
        if known is None or exchange.known is None or exchange.record is not None:
            return
        if exchange.stream and self._rate:
            return
        template = Template.of(told, rendering)
        if template is not None:
            cache_control = exchange.request.headers.get("Cache-Control")
            notes = KnownHit(
                cache_control, asked.controls, asked.keys, hit, template, rendering.builder is None
            )
            known.keep(exchange, notes, template.size)

    def _tell_again(self, exchange: Exchange, sink: Sink, known: KnownHit) -> None:
        """Tell an answer that is told in the very same way each time."""
        told, ident = known.template.fill()
        self._note(exchange, known.hit, None if known.nameless else ident)
        known.tell(exchange, sink, told)

    def _tell_saved(self, subscriber: Subscriber) -> None:
        """What a client was told that shared somebody else's call has cost nothing."""
        exchange, usage = subscriber.exchange, subscriber.call.carrier.result.usage
        if exchange.result.spent is None and usage is not None:
            builder = subscriber.rendering.builder
            response_id = None if builder is None else builder.id
            self._saved(exchange, exchange.shown_model, usage_tokens(usage), response_id)

    def _join(
        self, asked: CacheableRequest, exchange: Exchange, sink: Sink, call: SharedCall
    ) -> Subscriber:
        """Have the client told what a call under way brings."""
        self._metrics.shared()
        exchange.result.cache = "shared"
        response_headers = exchange.result.headers
        response_headers["X-Cache"], response_headers["X-Cache-Tier"] = "HIT", "shared"
        rendering = asked.surface.rendering(exchange, None)
        return Subscriber(exchange, sink, rendering, call, leads=False, open_after=self._open_after)

    def _lead(
        self,
        asked: CacheableRequest,
        exchange: Exchange,
        sink: Sink,
        lookup: Lookup,
        *,
        promoted: bool,
    ) -> Subscriber:
        """Begin a call for the client, and for others too if they may share it."""
        if asked.controls.only_if_cached:
            raise not_cached("There is no answer to this request in the cache.")
        response_headers = exchange.result.headers
        if lookup.epoch is not None:
            exchange.result.cache = "miss"
            response_headers["X-Cache"] = "MISS"
        else:
            self._metrics.bypassed("store")
            exchange.result.cache = "bypass"
            response_headers["X-Cache"], response_headers["X-Cache-Reason"] = "BYPASS", "store"
        call = SharedCall(
            exchange,
            asked.surface,
            self._silent,
            promoted=promoted,
            epoch=lookup.epoch,
            hosted=asked.request.exact_only == HOSTED_TOOLS,
        )
        if asked.controls.lookup:
            self._shared_calls[asked.place] = call
        # It may outlive the exchange, and so may what it uses.
        plugin_set = exchange.context.plugin_set
        plugin_set.enter()
        name = f"{exchange.request.id} shared"
        self._tasks.spawn(self._fly(call, asked, lookup, plugin_set), name)
        rendering = asked.surface.rendering(exchange, call)
        return Subscriber(exchange, sink, rendering, call, leads=True, open_after=self._open_after)

    async def _fly(
        self, call: SharedCall, asked: CacheableRequest, lookup: Lookup, plugin_set: PluginSet
    ) -> None:
        """Make the call, and keep its answer."""
        place, surface, controls = asked.place, asked.surface, asked.controls
        call.task = asyncio.current_task()  # it has begun before anybody can leave
        error: RouterError | None = None
        try:
            try:
                await asked.proceed(call.carrier, call)
            except RouterError as exc:
                error = exc
            except Exception:
                _log.exception("request failed", request_id=call.carrier.request.id)
                error = internal_error(call.carrier)
            except asyncio.CancelledError:
                error = ShuttingDown("The router is shutting down.")
                raise
            finally:
                if error is not None or not call.complete.is_set():
                    call.fail(error)
                call.done.set()
            if error is not None or not controls.store or lookup.epoch is None:
                return
            many = len(call.frames) > _MANY_EVENTS
            answer = await asyncio.to_thread(surface.answer, call) if many else surface.answer(call)
            if answer is None or call.carrier.result.partial:
                return  # another endpoint might have done better
            request, model = asked.request, call.carrier.result.served_model
            kept = asked.keys if model is None else keys(request, scope=asked.scope, model=model)
            await self._cache.put(request, kept, answer, lookup, controls, model=model)
        finally:
            if self._shared_calls.get(place) is call:
                del self._shared_calls[place]
            plugin_set.leave()


async def _nobody(exchange: Exchange, sink: Sink) -> None:
    """What is behind the plugins of a carrier: none are, since nobody listens to one."""
    raise RuntimeError("a carrier is not to be passed on by its plugin set")
