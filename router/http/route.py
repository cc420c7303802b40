"""A route of the API, and the exchange that a request to it begins."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import orjson
from aiohttp import web

from router.core.exchange import ClientRequest, Exchange, ExchangeContext, Operation
from router.core.plugin_chain import PluginSet
from router.core.random_digits import random_digits
from router.dialects.api_format import ApiFormat
from router.errors import ShuttingDown
from router.http.connection import HttpRequest
from router.telemetry.tasks import Worker

__all__ = [
    "UNKNOWN",
    "Admit",
    "DirectHandler",
    "Handler",
    "Route",
    "json_response",
    "new_exchange",
    "shutting_down",
]

UNKNOWN: Final = "other"
"""What stands for every route that there is not, in metrics and logs."""

Handler = Callable[[web.Request, Exchange], Awaitable[web.StreamResponse]]
DirectHandler = Callable[[HttpRequest, Exchange], Awaitable[web.StreamResponse]]
"""A handler that is content with what every kind of request has."""

Admit = Callable[[Exchange], Awaitable[None]]

_MAX_PATH: Final = 200
_ID_DIGITS: Final = 24
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Route(NamedTuple):
    """What ``RequestDispatcher.route`` is given."""

    operation: Operation
    template: str
    handler: Callable[[Any, Exchange], Awaitable[web.StreamResponse]]
    admit: Admit | None
    api_format: ApiFormat


def json_response(value: object, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(
        status=status, body=orjson.dumps(value), headers={"Content-Type": "application/json"}
    )


def new_exchange(
    request: HttpRequest, route: Route, plugin_set: PluginSet, worker: Worker | None
) -> Exchange:
    given = request.headers.get("X-Request-Id", "")
    came_in = ClientRequest(
        id=given if _REQUEST_ID.fullmatch(given) else "req_" + random_digits()[:_ID_DIGITS],
        operation=route.operation,
        route=route.template,
        method=request.method,
        headers=request.headers,
        remote=request.remote,
        started=time.monotonic(),
        path=request.raw_path.partition("?")[0][:_MAX_PATH] if route.template == UNKNOWN else None,
    )
    context = ExchangeContext(route.api_format, worker)
    context.plugin_set = plugin_set
    return Exchange(came_in, context)


def shutting_down(message: str) -> ShuttingDown:
    """The error for what comes too late."""
    return ShuttingDown(message, headers={"Retry-After": "1"})
