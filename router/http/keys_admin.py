"""Keys, for the people who run the router: ``/admin/keys``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from router.core.exchange import Exchange
from router.dialects.paging import parse_limit
from router.dialects.parameters import (
    integer,
    missing,
    wrong_type,
)
from router.dialects.responses.schema import parse_object
from router.endpoints.plan import Fallbacks
from router.errors import Conflict, InvalidRequest, NotFound
from router.http.body import only, read_body
from router.http.dispatcher import Handler, RequestDispatcher, json_response
from router.settings.accounts import ApiKey
from router.settings.schema import Settings
from router.telemetry.log import get_logger
from router.usage.key_lint import Served, hints
from router.usage.keys import Issued, KeyStore
from router.usage.keys_json import shown_configured, shown_virtual

__all__ = ["KeysAdmin"]

_log = get_logger("router.admin")

_MAX_BODY: Final = 64 * 1024
_SHOWN: Final = 200
_DEFAULT_LIMIT: Final = "100"
_check_limit = integer(1, 1000)


def _not_known(pattern: str) -> bool | None:
    return None


class KeysAdmin:
    """Handlers under ``/admin/keys``.

    Keys of the configuration are shown, and changed where they are configured. Where there is none
    of them the router asks nobody for a key: then none is made, since it would open nothing.

    What may be a slip, such as a model that nobody serves (``served``), is done all the same, and
    told in ``warnings`` of the answer.
    """

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        store: KeyStore,
        settings: Callable[[], Settings],
        served: Served = _not_known,
    ) -> None:
        self._dispatcher = dispatcher
        self._store = store
        self._settings = settings
        self._served = served

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route."""
        return [
            ("POST", "/keys", self.create),
            ("GET", "/keys", self.index),
            ("GET", "/keys/{name}", self.get),
            ("PATCH", "/keys/{name}", self.update),
            ("DELETE", "/keys/{name}", self.revoke),
            ("POST", "/keys/{name}/rotate", self.rotate),
        ]

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/keys: ``{"name": NAME, …}`` with fields of a configured key; its secret is
        ``key`` in this answer, and in no other.
        """
        body = await self._body(request)
        name = body.pop("name", None)
        if name is None or name == "":
            raise missing("name")
        if type(name) is not str:
            raise wrong_type("name", "a string", name)
        configured = self._configured()
        if not configured:
            raise Conflict(
                "This router asks nobody for a key, since auth.keys is empty: a virtual key would "
                "open nothing. Configure a key first.",
                code="keys_not_in_use",
            )
        work = self._store.create(name, body, reserved=configured, endpoints=self._endpoints())
        issued = await self._dispatcher.see_through(exchange, work)
        self._tell("virtual key created", name, exchange)
        return json_response({**_shown_once(issued), **self._warnings(body)}, 201)

    async def index(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /admin/keys: configured keys first, then virtual ones by name. ``limit`` is up to
        1000; ``after`` is the name of the last one that the client has.
        """
        only(request.query, "limit", "after")
        limit = _limit(request.query)
        after = request.query.get("after", "")
        configured = self._configured()
        names = list(configured)
        first = names.index(after) + 1 if after in configured else 0
        keys = []
        if not after or after in configured:
            keys = [shown_configured(configured[name], time.time()) for name in names[first:]]
        if len(keys) <= limit:
            start = "" if after in configured else after
            found = await self._store.page(start, limit + 1 - len(keys))
            keys += [shown_virtual(key, time.time()) for key in found]
        return json_response(
            {"object": "list", "data": keys[:limit], "has_more": len(keys) > limit}
        )

    async def get(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /admin/keys/{name}."""
        name = request.match_info["name"]
        configured = self._configured().get(name)
        if configured is not None:
            return json_response(shown_configured(configured, time.time()))
        key = await self._store.get(name)
        if key is None:
            raise NotFound(f"There is no key '{name[:_SHOWN]}'.")
        return json_response(shown_virtual(key, time.time()))

    async def update(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """PATCH /admin/keys/{name}: change these fields; null is as if it was never given, and
        within ``limits`` and ``model_limits`` what is not named stays.
        """
        name = self._virtual(request)
        changes = await self._body(request)
        work = self._store.update(name, changes, endpoints=self._endpoints())
        key = await self._dispatcher.see_through(exchange, work)
        self._tell("virtual key changed", name, exchange)
        return json_response({**shown_virtual(key, time.time()), **self._warnings(changes)})

    async def revoke(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /admin/keys/{name}: refused from now on, by other routers within seconds. The
        name stays taken.
        """
        name = self._virtual(request)
        key = await self._dispatcher.see_through(exchange, self._store.revoke(name))
        self._tell("virtual key revoked", name, exchange)
        return json_response(shown_virtual(key, time.time()))

    async def rotate(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/keys/{name}/rotate: another secret; with ``{"grace": SECONDS}`` the one
        that it has is good for so long, too.
        """
        name = self._virtual(request)
        grace = 0.0
        if request.body_exists:
            body = await self._body(request)
            grace = _grace(body)
        issued = await self._dispatcher.see_through(exchange, self._store.rotate(name, grace))
        self._tell("virtual key rotated", name, exchange)
        return json_response(_shown_once(issued))

    def _configured(self) -> dict[str, ApiKey]:
        return {key.name: key for key in self._settings().auth.keys}

    def _endpoints(self) -> list[str]:
        return [endpoint.name for endpoint in self._settings().endpoints]

    def _warnings(self, fields: Mapping[str, Any]) -> dict[str, list[str]]:
        """``warnings`` for the answer, where there are some."""
        settings = self._settings()
        fallbacks = Fallbacks(settings.fallbacks)

        def served(model: str) -> bool | None:
            return True if fallbacks.has(model) else self._served(model)

        found = hints(fields, served, settings.accounts.tags)
        return {"warnings": found} if found else {}

    def _virtual(self, request: web.Request) -> str:
        """The name in the path, which is no configured key's."""
        name = request.match_info["name"]
        names = [key.name for key in self._settings().auth.keys]
        if name in names:
            raise Conflict(
                f"The key '{name}' is configured, and changed there: auth.keys[{names.index(name)}]"
                " of the router's configuration.",
                code="configured_key",
            )
        return name

    async def _body(self, request: web.Request) -> dict[str, Any]:
        return parse_object(await read_body(request, _MAX_BODY))

    @staticmethod
    def _tell(event: str, name: str, exchange: Exchange) -> None:
        _log.info(event, key=name, request_id=exchange.request.id, remote=exchange.request.remote)


def _limit(query: Mapping[str, str]) -> int:
    limit = parse_limit(query, _DEFAULT_LIMIT)
    _check_limit(limit, "limit")
    return limit


def _grace(body: dict[str, Any]) -> float:
    grace = body.pop("grace", None)
    for name in body:
        shown = name[:_SHOWN]
        raise InvalidRequest(
            f"Unknown parameter: '{shown}'.", code="unknown_parameter", param=shown
        )
    if grace is None:
        return 0.0
    if type(grace) is not int and type(grace) is not float:
        raise wrong_type("grace", "a number of seconds", grace)
    return float(grace)


def _shown_once(issued: Issued) -> dict[str, Any]:
    return {**shown_virtual(issued.key, time.time()), "key": issued.secret.get_secret_value()}
