"""For the people who run it: what the endpoints are doing, and a hand on them.

Routes under ``/admin`` have a key of their own (``admin.key``), which may change while the router
runs. Without one they are closed. No client key opens them, and the admin key opens nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypedDict

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from cache.core import ResponseCache
from router.core.exchange import Exchange
from router.core.key import bearer_token, same_key
from router.dialects.parameters import missing, wrong_type
from router.dialects.responses.schema import parse_object
from router.endpoints.endpoint import Endpoint
from router.endpoints.report import EndpointReport, QueueReport, endpoint_report, queue_report
from router.errors import (
    AuthenticationFailed,
    Forbidden,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    NotFound,
    NotSupported,
    RouterError,
)
from router.http.body import read_body
from router.http.cache_admin import CacheAdmin, TellOthers, alone
from router.http.dispatcher import Handler, RequestDispatcher, json_response
from router.http.explain import ExplainApi
from router.pipeline.hedging import Fleet
from router.settings.schema import Settings
from router.settings.values import KeepAlive
from router.telemetry.log import get_logger
from router.tools.compaction import Compactor
from router.tools.loop import ToolLoop

__all__ = ["AdminApi", "Configuration", "FleetReport", "Reload"]

Route = tuple[str, str, Handler]

_log = get_logger("router.admin")

_MAX_BODY: Final = 64 * 1024
_MAX_KEEP_ALIVE: Final = 10**9
_SHOWN: Final = 200
"""Characters of a value from the request that are repeated, or logged."""

_KEEP_ALIVE: Final[TypeAdapter[str | int]] = TypeAdapter(KeepAlive)
_LOAD_FIELDS: Final = frozenset({"model", "keep_alive"})
_NOT_STORED: Final = {"Cache-Control": "no-store"}


class ReloadOutcome(Protocol):
    """How a reload of the configuration ended."""

    @property
    def at(self) -> float:
        """When, in Unix time."""
        ...

    @property
    def ok(self) -> bool:
        """Whether it was taken over."""
        ...

    @property
    def said(self) -> tuple[str, ...]:
        """What changed, or why it was refused."""
        ...


class Configuration(Protocol):
    """What is in force, and how it is replaced."""

    @property
    def settings(self) -> Settings:
        """Those in force."""
        ...

    @property
    def last(self) -> ReloadOutcome | None:
        """How the last reload ended."""
        ...

    @property
    def again(self) -> Callable[[], Awaitable[None]] | None:
        """Reads the file again and takes it over, or notes in ``last`` why not; None without a
        file.
        """
        ...


class Reload(TypedDict):
    """How the last reload ended; ``said`` is what changed, or why it was refused."""

    at: float
    ok: bool
    said: list[str]


class FleetReport(TypedDict):
    """The answer to ``GET /admin/endpoints``.

    ``retries_left`` is how many requests the retry budget would let be sent again at this moment.
    ``reload`` is null as long as the configuration is the one of the start.
    """

    policy: str
    queue: QueueReport
    retries_left: int
    reload: Reload | None
    endpoints: list[EndpointReport]


class AdminApi:
    """Handlers under ``/admin``; ``more`` are the routes of others there."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        fleet: Fleet,
        configuration: Configuration,
        cache: ResponseCache,
        tools: ToolLoop,
        compactor: Compactor,
        more: Sequence[Route] = (),
    ) -> None:
        self._more = more
        self._tell_others: TellOthers = alone
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._configuration = configuration
        self._cache = CacheAdmin(dispatcher, cache, lambda: configuration.settings)
        self._explain = ExplainApi(
            dispatcher, fleet, lambda: configuration.settings, tools, compactor
        )

    @property
    def tell_others(self) -> TellOthers:
        """Has the other workers of this router do what was done here (``done_elsewhere``)."""
        return self._tell_others

    @tell_others.setter
    def tell_others(self, tell: TellOthers) -> None:
        self._tell_others = self._cache.tell_others = tell

    def done_elsewhere(self) -> dict[str, Callable[[Any], Any]]:
        """What does here what another worker told to have done."""
        return {
            "drained": lambda told: self._set_drained(told["endpoint"], told["drained"]),
            **self._cache.done_elsewhere(),
        }

    def routes(self) -> list[Route]:
        """Method, path and handler of each route."""
        return [
            ("GET", "/endpoints", self.endpoints),
            ("POST", "/endpoints/{name}/drain", self.drain),
            ("POST", "/endpoints/{name}/undrain", self.undrain),
            ("POST", "/endpoints/{name}/load", self.load),
            ("POST", "/reload", self.reload),
            ("POST", "/explain", self._explain.explain),
            *self._cache.routes(),
            *self._more,
        ]

    async def admit(self, exchange: Exchange) -> None:
        """Let a request with the admin key pass; raises Forbidden, or AuthenticationFailed."""
        key = self._configuration.settings.admin.key
        try:
            if key is None:
                raise Forbidden(
                    "The admin routes are closed: set admin.key in the configuration to open them."
                )
            if not self.opens(exchange):
                raise _not_the_key(exchange)
        except RouterError as error:
            _log.warning(
                "admin refused", request_id=exchange.request.id, remote=exchange.request.remote
            )
            error.headers.update(_NOT_STORED)
            raise
        exchange.context.caller = "admin"

    def opens(self, exchange: Exchange) -> bool:
        """Whether a request has the admin key. Who has another one is nobody's concern here."""
        key = self._configuration.settings.admin.key
        given = bearer_token(exchange.request.headers.get("Authorization", ""))
        if key is None or given is None:
            return False
        return same_key(given, key.get_secret_value())

    def private(self, handler: Handler) -> Handler:
        """``handler``, whose answers nobody may keep, and whose POSTs leave a line in the log."""

        async def handle(request: web.Request, exchange: Exchange) -> web.StreamResponse:
            outcome = "failed"
            try:
                response = await handler(request, exchange)
                outcome = "ok"
            except RouterError as error:
                outcome = error.code or type(error).__name__
                error.headers.update(_NOT_STORED)
                raise
            finally:
                if request.method == "POST":
                    _log.info(
                        "admin",
                        request_id=exchange.request.id,
                        remote=exchange.request.remote,
                        route=exchange.request.route,
                        endpoint=request.match_info.get("name", "")[:_SHOWN] or None,
                        outcome=outcome,
                    )
            response.headers.update(_NOT_STORED)
            return response

        return handle

    async def endpoints(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /admin/endpoints: a FleetReport."""
        now = time.monotonic()
        last = self._configuration.last
        report: FleetReport = {
            "policy": self._fleet.selector.selection.policy.name,
            "queue": queue_report(self._fleet.selector),
            "retries_left": int(self._fleet.failover.retries_left(now)),
            "reload": _reload(last) if last is not None else None,
            "endpoints": [endpoint_report(e, now) for e in self._fleet.registry.endpoints],
        }
        return json_response(report)

    async def drain(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/endpoints/{name}/drain: its EndpointReport.

        Nothing new is sent there; what is under way goes on. So it stays until ``undrain``, over
        reloads too, and not over a restart.
        """
        return await self._drained(request, True)

    async def undrain(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/endpoints/{name}/undrain: its EndpointReport. Traffic comes back slowly."""
        return await self._drained(request, False)

    async def _drained(self, request: web.Request, drained: bool) -> web.StreamResponse:
        endpoint = self._endpoint(request)
        self._set_drained(endpoint.name, drained)
        told = {"about": f"endpoint {endpoint.name}", "endpoint": endpoint.name, "drained": drained}
        await self._tell_others("drained", told)
        return _reported(endpoint)

    def _set_drained(self, name: str, drained: bool) -> None:
        endpoint = self._fleet.registry.named(name)
        if endpoint is None or endpoint.host.drained == drained:
            return
        endpoint.host.drained = drained
        if drained:
            endpoint.host.refresh(time.monotonic())
        else:
            endpoint.host.recovered(time.monotonic())

    async def load(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/endpoints/{name}/load: have a model in memory; the EndpointReport, then.

        The body is ``{"model": NAME, "keep_alive"?: SECONDS or "30m"}``; 0 takes the model out of
        memory, -1 keeps it there for ever. The load goes on when the client leaves.
        """
        endpoint = self._endpoint(request)
        model, keep_alive = _load_request(parse_object(await read_body(request, _MAX_BODY)))
        name = endpoint.catalogue.resolve(model)
        if name is None:
            raise ModelNotFound(
                f"The endpoint '{endpoint.name}' does not serve the model '{model[:_SHOWN]}'.",
                param="model",
            )
        await self._fleet.loads.warm(endpoint.deployment(name), keep_alive)
        return _reported(endpoint)

    async def reload(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/reload: take over the configuration's file as it is now; a Reload."""
        again = self._configuration.again
        if again is None:
            raise NotSupported("This router was not started from a configuration file.")
        before = self._configuration.last

        async def see_through() -> None:
            await again()

        await self._dispatcher.see_through(exchange, see_through())
        last = self._configuration.last
        if last is None or last is before:
            raise InternalError("The configuration was not reloaded; the log says why.")
        if not last.ok:
            raise InvalidRequest(
                f"The configuration is refused, and nothing is changed: {'; '.join(last.said)}",
                code="configuration_refused",
            )
        return json_response(_reload(last))

    def _endpoint(self, request: web.Request) -> Endpoint:
        name = request.match_info["name"]
        registry = self._fleet.registry
        found = registry.named(name)
        if found is None:
            known = ", ".join(endpoint.name for endpoint in registry.endpoints)
            raise NotFound(f"There is no endpoint '{name[:_SHOWN]}'. There are: {known}.")
        return found


def _reload(outcome: ReloadOutcome) -> Reload:
    return {"at": outcome.at, "ok": outcome.ok, "said": list(outcome.said)}


def _not_the_key(exchange: Exchange) -> AuthenticationFailed:
    if bearer_token(exchange.request.headers.get("Authorization", "")) is None:
        said = "No admin key was given. Send it as 'Authorization: Bearer KEY'."
    else:
        said = "Incorrect admin key provided."
    return AuthenticationFailed(said, headers={"WWW-Authenticate": "Bearer"})


def _reported(endpoint: Endpoint) -> web.Response:
    return json_response(endpoint_report(endpoint, time.monotonic()))


def _load_request(body: dict[str, Any]) -> tuple[str, str | int | None]:
    """Model and ``keep_alive``; raises InvalidRequest."""
    for name in body:
        if name not in _LOAD_FIELDS:
            raise InvalidRequest(
                f"Unknown parameter: '{name[:_SHOWN]}'.",
                code="unknown_parameter",
                param=name[:_SHOWN],
            )
    model = body.get("model")
    if model is None or model == "":
        raise missing("model")
    if type(model) is not str:
        raise wrong_type("model", "a string", model)
    keep_alive = body.get("keep_alive")
    if keep_alive is None:
        return model, None
    try:
        seconds = _KEEP_ALIVE.validate_python(keep_alive)
    except ValidationError:
        seconds = _MAX_KEEP_ALIVE + 1
    if type(seconds) is int and abs(seconds) > _MAX_KEEP_ALIVE:
        raise InvalidRequest(
            "Invalid 'keep_alive': expected a number of seconds or a duration such as \"30m\"; "
            "0 unloads the model, -1 keeps it for ever.",
            code="invalid_value",
            param="keep_alive",
        )
    return model, seconds
