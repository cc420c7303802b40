"""The APIs whose requests are decoded to Responses requests: one handler for all of their routes.

Such a request goes its whole way as a Responses request: plugins, cache, choice of an endpoint,
translation, accounts. Only its last step differs: what passes to its client is encoded anew. Where
an endpoint speaks the API itself, the request as it came goes along (``Exchange.native``), and what
that endpoint answers passes as it is.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from router.core.exchange import Exchange, PassingSink, Sink
from router.core.native_request import NativeRequest
from router.core.plugin_hooks import Proceed
from router.core.plugin_sets import proceed
from router.core.upstream import REASONING_DROPPED
from router.dialects.dialect import ApiRequest, ApiRoute, ClientApi, ResponseEncoder
from router.dialects.ollama.schema import timestamp
from router.dialects.responses.schema import parse_object
from router.endpoints.plan import reached
from router.endpoints.registry import Registry
from router.errors import InvalidRequest, RouterError, UpstreamError
from router.http.body import expect_later
from router.http.connection import HttpRequest
from router.http.dispatcher import DirectHandler, RequestDispatcher
from router.response.frame import Frame, PassedFrame

__all__ = ["ExchangeTimes", "TranslatedApi", "encoded_by"]

_BILLION: Final = 1_000_000_000
_OK: Final = 200
_QUERY: Final = re.compile(r"[!-~]{0,1024}")
"""A query that may be repeated to an endpoint."""


class TranslatedApi:
    """The routes of one API."""

    def __init__(self, dispatcher: RequestDispatcher, api: ClientApi, registry: Registry) -> None:
        self._dispatcher = dispatcher
        self._api = api
        self._registry = registry

    def add_routes(self, app: web.Application) -> None:
        """Add them to ``app``."""
        form = self._api.form(None)
        for prefix in self._api.prefixes:
            for route in self._api.routes:
                template = prefix + route.path
                add = (
                    self._dispatcher.route_direct
                    if route.method == "POST"
                    else self._dispatcher.route
                )
                guarded = add(route.operation, template, self._handler(route), self._admit, form)
                app.router.add_route(route.method, template, guarded, expect_handler=expect_later)

    async def _admit(self, exchange: Exchange) -> None:
        """Ask the guards; whatever they say is said in the form of this API."""
        exchange.context.api_format = self._api.form(exchange.request.id)
        exchange.result.headers |= self._api.headers(exchange.request.id)
        await exchange.context.plugin_set.chain.admit(exchange)

    def _handler(self, route: ApiRoute) -> DirectHandler:
        async def handle(request: HttpRequest, exchange: Exchange) -> web.StreamResponse:
            given, asked = await self._dispatcher.read(
                request, exchange, lambda raw: decode(self._parsed(exchange, raw))
            )
            native = await self._native(request, exchange, given)
            if isinstance(asked, InvalidRequest):
                if native is None or route.outline is None:
                    raise asked
                native.refused, asked = asked, route.outline(given)
            exchange.native = native
            exchange.ask(asked.body, asked.dropped)
            if native is not None:
                native.decoded = asked.body
                native.dropped_reasoning = asked.dropped_reasoning
            elif asked.dropped_reasoning:
                exchange.result.headers[REASONING_DROPPED] = str(asked.dropped_reasoning)
            encoder = asked.encoder(ExchangeTimes(exchange))
            return await self._dispatcher.run(request, exchange, encoded_by(encoder))

        def decode(body: dict[str, Any]) -> tuple[dict[str, Any], ApiRequest | InvalidRequest]:
            try:
                return body, route.decode(body)
            except InvalidRequest as error:
                return body, error

        return handle

    def _parsed(self, exchange: Exchange, raw: bytes) -> dict[str, Any]:
        body = parse_object(raw)
        if not body.get("model") and (model := self._dispatcher.default_model(exchange)):
            body["model"] = model
        return body

    async def _native(
        self, request: HttpRequest, exchange: Exchange, body: dict[str, Any]
    ) -> NativeRequest | None:
        """The request as it came, where an endpoint that serves its model speaks this API."""
        dialect, model, key = self._api.dialect, body.get("model"), exchange.context.key
        endpoints = self._registry.endpoints
        if not isinstance(model, str) or all(e.settings.dialect != dialect for e in endpoints):
            return None
        try:
            group = await self._registry.group(model, key)
        except RouterError:
            return None  # which is said once the request is known to be well
        if all(one.endpoint.settings.dialect != dialect for one in reached(group, key)):
            return None
        query = request.raw_path.partition("?")[2]
        return NativeRequest(
            dialect or "",
            body,
            self._api.passes(exchange.request.headers),
            query if _QUERY.fullmatch(query) else "",
        )


class ExchangeTimes:
    """Implements ``router.dialects.dialect.RequestTimes`` for an exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.id = exchange.request.id

    def stamp(self) -> str:
        """See ``RequestTimes.stamp``."""
        return timestamp(time.time_ns())

    def since(self) -> int:
        """See ``RequestTimes.since``."""
        return int((time.monotonic() - self._exchange.request.started) * _BILLION)

    def waited(self) -> int:
        """See ``RequestTimes.waited``."""
        return int(self._exchange.result.queue_seconds * _BILLION)

    def replaced(self) -> str | None:
        """See ``RequestTimes.replaced``."""
        return self._exchange.result.served_model


def encoded_by(encoder: ResponseEncoder) -> Proceed:
    """What answers an exchange whose body is a Responses request through ``encoder``."""

    async def answer(exchange: Exchange, sink: Sink) -> None:
        try:
            await proceed(exchange, _EncodingSink(sink, encoder, exchange))
        except UpstreamError as error:
            if exchange.native is not None and error.said is not None:
                error.status = error.said.status
                known = {name.lower() for name in error.headers}
                more = {n: v for n, v in error.said.headers.items() if n.lower() not in known}
                error.headers = {**more, **error.headers}
            raise

    return answer


class _EncodingSink(PassingSink):
    """A ``Sink`` for events of a response, which ``encoder`` encodes for another one."""

    def __init__(self, sink: Sink, encoder: ResponseEncoder, exchange: Exchange) -> None:
        super().__init__(sink)
        self._encoder = encoder
        self._exchange = exchange

    def feed(self, batch: Sequence[Frame]) -> None:
        if batch and isinstance(batch[-1], PassedFrame):
            # Only a beginning that was made before an endpoint spoke is to be encoded.
            begun = [frame for frame in batch if not isinstance(frame, PassedFrame)]
            frames = [*self._encoder.frames(begun), *batch[len(begun) :]]
        else:
            frames = self._encoder.frames(batch)
        if frames:
            self._sink.feed(frames)

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if status == _OK and not self._exchange.result.passed:
            body = self._encoder.whole(body)
        self._sink.finish(status, body, headers)
