"""The response cache, for the people who run it: ``/admin/cache``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final, get_args

import orjson
from aiohttp import web

from cache.core import ResponseCache
from cache.entry import EVERYTHING, CacheEntry, InvalidationRule, RuleKind
from cache.explain import explain
from cache.request import (
    Bypass,
    CacheRequest,
    FieldRules,
    from_completions,
    from_embeddings,
    from_responses,
    keys,
)
from cache.store import StoreError
from router.core.exchange import Exchange, Operation
from router.dialects.chat.decode_request import decode_chat
from router.dialects.parameters import missing, wrong_type
from router.dialects.responses.fields import CACHE_RULES
from router.dialects.responses.schema import parse_object
from router.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    RouterError,
    StateUnavailable,
)
from router.http.body import read_body
from router.http.detect_api import check_body, operation_of
from router.http.dispatcher import Handler, RequestDispatcher, json_response
from router.settings.schema import Settings

__all__ = ["CacheAdmin"]

_MAX_BODY: Final = 64 * 1024
_SHOWN: Final = 200


def _from_chat(given: Mapping[str, Any], rules: FieldRules) -> CacheRequest | Bypass:
    chat = decode_chat(given)
    return from_responses(chat.body, rules, chat.kept)


_READ: Final[
    Mapping[Operation, Callable[[Mapping[str, Any], FieldRules], CacheRequest | Bypass]]
] = {
    Operation.RESPONSES: from_responses,
    Operation.CHAT: _from_chat,
    Operation.COMPLETIONS: from_completions,
    Operation.EMBEDDINGS: from_embeddings,
}
_KINDS: Final[tuple[RuleKind, ...]] = get_args(RuleKind)


TellOthers = Callable[[str, Any], Awaitable[None]]
"""Has the other workers of a router do what was done here (its name, and with what), and waits
until they have.
"""


async def alone(_: str, __: Any) -> None:
    """There are no other workers."""


class CacheAdmin:
    """Handlers under ``/admin/cache``."""

    def __init__(
        self, dispatcher: RequestDispatcher, cache: ResponseCache, settings: Callable[[], Settings]
    ) -> None:
        self._dispatcher = dispatcher
        self._cache = cache
        self._settings = settings
        self.tell_others: TellOthers = alone

    def done_elsewhere(self) -> dict[str, Callable[[Any], Any]]:
        """What does here what another worker told to have done. The store is theirs together."""
        return {"cache forgive": self._forgive_too}

    def _forgive_too(self, namespace: str) -> None:
        if self._cache.semantic is not None:
            self._cache.semantic.check.forgive(namespace)

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route."""
        return [
            ("GET", "/cache", self.stats),
            ("POST", "/cache/lookup", self.lookup),
            ("POST", "/cache/invalidate", self.invalidate),
            ("POST", "/cache/feedback", self.feedback),
            ("POST", "/cache/forgive", self.forgive),
        ]

    async def stats(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /admin/cache: what is in it, and what the self-check found."""
        settings = self._settings().cache
        store = await self._asked(self._cache.store.stats)
        semantic = self._cache.semantic
        return json_response(
            {
                "mode": settings.mode,
                "scope": settings.scope,
                "store": asdict(store),
                "semantic": None
                if semantic is None
                else {
                    "embedder": semantic.embedder.name,
                    "threshold": settings.semantic.threshold,
                    "index": asdict(semantic.index.stats()),
                    "self_check": asdict(semantic.check.report()),
                },
            }
        )

    async def lookup(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/cache/lookup: what a request would be answered with, and why.

        The body is ``{"entry": KEY}``, or ``{"request": BODY, "caller": NAME}`` with the body of a
        ``POST /v1/responses``, or of another API whose fields it has (see ``operation_of``).
        """
        body = await self._dispatcher.read(request, exchange, parse_object)
        _only(body, "entry", "request", "caller")
        if "entry" in body:
            _only(body, "entry")
            return json_response(await self._entry(_text(body, "entry")))
        given = body.get("request")
        if given is None:
            raise missing("request")
        if type(given) is not dict:
            raise wrong_type("request", "an object", given)
        caller = _text(body, "caller") if "caller" in body else "default"
        return json_response(await self._explained(given, caller))

    async def invalidate(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/cache/invalidate: ``{"entry" | "tag" | "model" | "namespace": VALUE}``, or
        ``{"all": true}``. Once it returns, no router that shares the store serves it any more.
        """
        rule = _rule(parse_object(await read_body(request, _MAX_BODY)))
        removed = await self._asked(lambda: self._cache.invalidate(rule))
        return json_response({"invalidated": {rule.kind: rule.value or True}, "removed": removed})

    async def feedback(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/cache/feedback: ``{"entry": KEY}``, the ``X-Cache-CacheEntry`` of a bad hit.

        The entry goes, and questions near its own have to be more similar from then on.
        """
        body = parse_object(await read_body(request, _MAX_BODY))
        _only(body, "entry")
        key = _text(body, "entry")
        try:
            required = await self._asked(lambda: self._cache.reproach(key))
        except KeyError:
            raise NotFound(f"There is no entry '{key[:_SHOWN]}' in the cache.") from None
        return json_response({"removed": key, "required_similarity": required})

    async def forgive(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/cache/forgive: ``{"namespace": KEY}``: the semantic tier is used there
        again, although the self-check switched it off.
        """
        body = parse_object(await read_body(request, _MAX_BODY))
        _only(body, "namespace")
        namespace = _text(body, "namespace")
        semantic = self._cache.semantic
        if semantic is None or not semantic.check.forgive(namespace):
            raise NotFound(f"The semantic tier is not switched off for '{namespace[:_SHOWN]}'.")
        await self.tell_others("cache forgive", namespace)
        return json_response({"forgiven": namespace})

    async def _entry(self, key: str) -> dict[str, Any]:
        entry = (await self._asked(lambda: self._cache.store.get(key))).entry
        if entry is None:
            raise NotFound(f"There is no entry '{key[:_SHOWN]}' in the cache.")
        return _shown(entry)

    async def _explained(self, given: dict[str, Any], caller: str) -> dict[str, Any]:
        operation = operation_of(given)
        check_body(operation, given)
        read = _READ.get(operation)
        if read is None:
            return {"cacheable": False, "reason": "api"}
        settings = self._settings().cache
        asked = read(given, replace(CACHE_RULES, tools=frozenset(settings.tools)))
        if isinstance(asked, Bypass):
            return {"cacheable": False, "reason": asked.reason}
        scope = "shared" if settings.scope == "shared" else f"key:{caller}"
        keyed = keys(asked, scope=scope)
        explained = await self._asked(
            lambda: explain(self._cache, asked, keyed, settings.semantic.threshold)
        )
        found = explained.pop("entry")
        return {
            "cacheable": True,
            "key": keyed.key,
            "namespace": keyed.namespace,
            **explained,
            "entry": None if found is None else _shown(found),
        }

    async def _asked(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        if self._settings().cache.mode == "off":
            raise NotSupported("The response cache is off (cache.mode).")
        try:
            return await ask()
        except StoreError as error:
            raise _CacheUnavailable(f"The cache's store does not answer: {error}") from None


class _CacheUnavailable(StateUnavailable):
    default_code = "cache_unavailable"


def _shown(entry: CacheEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "namespace": entry.namespace,
        "model": entry.model,
        "question": entry.text or None,
        "answer": orjson.Fragment(entry.body),
        "tags": entry.tags,
        "created": entry.created,
        "expires": entry.expires,
        "age": max(0.0, time.time() - entry.created),
        "semantic": bool(entry.vector),
    }


def _rule(body: dict[str, Any]) -> InvalidationRule:
    _only(body, *_KINDS)
    if len(body) != 1:
        raise InvalidRequest(
            f"Expected exactly one of {', '.join(map(repr, _KINDS))}.", code="invalid_value"
        )
    kind: RuleKind = next(kind for kind in _KINDS if kind in body)
    if kind != "all":
        return InvalidationRule(kind, _text(body, kind))
    if body["all"] is not True:
        raise InvalidRequest("Invalid 'all': expected true.", code="invalid_value", param="all")
    return EVERYTHING


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if value is None or value == "":
        raise missing(name)
    if type(value) is not str:
        raise wrong_type(name, "a string", value)
    return value


def _only(body: dict[str, Any], *known: str) -> None:
    for name in body:
        if name not in known:
            error: RouterError = InvalidRequest(
                f"Unknown parameter: '{name[:_SHOWN]}'.",
                code="unknown_parameter",
                param=name[:_SHOWN],
            )
            raise error
