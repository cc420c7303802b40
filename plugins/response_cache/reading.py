"""What a request asks of the cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cache.controls import CachePolicy, Controls, ControlsError, read_controls
from cache.request import HOSTED_TOOLS, Bypass, CacheKeys, CacheRequest, keys
from plugins.response_cache.surfaces import Surface
from router.plugin import (
    CACHE_RULES,
    REASONING_DROPPED,
    CacheSettings,
    Exchange,
    InvalidRequest,
    NotCached,
    Proceed,
    hosted_tool_name,
)

__all__ = ["CacheableRequest", "RequestReader", "not_cached"]


@dataclass(slots=True)
class CacheableRequest:
    """One request, as the cache sees it. ``place`` is where calls for it that can be shared are
    known by.
    """

    surface: Surface
    controls: Controls
    request: CacheRequest
    keys: CacheKeys
    proceed: Proceed
    scope: str
    place: str


class RequestReader:
    """Reads requests by the settings. ``searches`` is the service that web searches go to."""

    def __init__(self, settings: CacheSettings, searches: str) -> None:
        assert settings.mode != "off"
        self._shared = settings.scope == "shared"
        self._policy = CachePolicy(
            mode=settings.mode,
            ttl=settings.ttl,
            threshold=settings.semantic.threshold,
            semantic=settings.semantic.enabled,
            sampled=settings.semantic.sampled,
        )
        self._unasked = read_controls(self._policy, None, None, None)
        self._rules = replace(CACHE_RULES, tools=frozenset(settings.tools))
        self._searches = searches

    def read(
        self, exchange: Exchange, surface: Surface, proceed: Proceed
    ) -> CacheableRequest | str:
        """What is asked of the cache, or why it has nothing to do with it; raises InvalidRequest,
        and NotCached where nobody else may be asked.
        """
        body, header = exchange.body, exchange.request.headers.get("Cache-Control")
        controls = self._unasked
        if header is not None or "cache" in body or "nomyo" in body:
            controls = self._controls(header, body)
        if not (controls.lookup or controls.store):
            by_itself = self._policy.mode == "always" or controls.asked
            return "refused" if by_itself else "not_asked"
        lost = (exchange.dropped or exchange.native is not None) and exchange.incomplete
        if lost or REASONING_DROPPED in exchange.result.headers:
            # The answer is to less than what was asked.
            controls = replace(controls, store=False)
        if surface.decoded:
            chat = exchange.decoded
            request = surface.request(chat.body, self._rules, chat.kept)
        else:
            request = surface.request(body, self._rules)
        if (
            isinstance(request, CacheRequest)
            and request.exact_only == HOSTED_TOOLS
            and not self._may_run_tools(exchange)
        ):
            request = Bypass("server_tools")
        if isinstance(request, Bypass):
            if controls.only_if_cached:
                raise not_cached(f"Requests like this one are never cached ({request.reason}).")
            return request.reason
        if self._policy.sampled and request.exact_only == "sampled":
            request = replace(request, exact_only=None)
        scope = "shared" if self._shared else f"key:{exchange.context.caller}"
        keyed = keys(request, scope=scope)
        place = keyed.key
        key = exchange.context.key
        if self._shared and key is not None and key.models is not None:
            # Another model may answer a call: only keys with the same models share one.
            place = f"{place} {sorted(key.models)}"
        return CacheableRequest(surface, controls, request, keyed, proceed, scope, place)

    def _may_run_tools(self, exchange: Exchange) -> bool:
        """Whether the key may use the hosted tools of its request. Where it may not, it is for the
        pipeline to say so.
        """
        key = exchange.context.key
        if key is None or key.tools is None:
            return True
        names = filter(None, map(hosted_tool_name, exchange.body["tools"]))
        servers = ((kind, server) for kind, _, server in (name.partition(":") for name in names))
        return all(key.may_run(kind, server or self._searches) for kind, server in servers)

    def _controls(self, header: str | None, body: dict[str, Any]) -> Controls:
        try:
            controls = read_controls(self._policy, header, body.get("cache"), body.get("nomyo"))
        except ControlsError as error:
            raise InvalidRequest(str(error), code="invalid_value", param=error.param) from None
        if controls.only_if_cached and not controls.lookup:
            raise not_cached("The request itself does not let the cache answer.")
        return controls


def not_cached(why: str) -> NotCached:
    """The error for who asks for nobody's answer but the cache's; ``why`` there is none."""
    return NotCached(f"{why} It asks for 'only-if-cached', so no endpoint was asked.")
