"""The APIs whose requests are decoded to Responses requests: one handler for all of their routes.

Such a request goes its whole way as a Responses request: plugins, cache, choice of an endpoint,
translation, accounts. Only its last step differs: what passes to its client is encoded anew.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from router.core.exchange import Exchange, PassingSink, Sink
from router.core.plugin_hooks import Proceed
from router.core.plugin_sets import proceed
from router.core.upstream import REASONING_DROPPED
from router.dialects.dialect import ApiRoute, ClientApi, ResponseEncoder
from router.dialects.ollama.schema import timestamp
from router.dialects.responses.schema import parse_object
from router.http.body import expect_later
from router.http.dispatcher import Handler, RequestDispatcher
from router.response.frame import Frame

__all__ = ["ExchangeTimes", "TranslatedApi", "encoded_by"]

_BILLION: Final = 1_000_000_000
_OK: Final = 200


class TranslatedApi:
    """The routes of one API."""

    def __init__(self, dispatcher: RequestDispatcher, api: ClientApi) -> None:
        self._dispatcher = dispatcher
        self._api = api

    def add_routes(self, app: web.Application) -> None:
        """Add them to ``app``."""
        form = self._api.form(None)
        for prefix in self._api.prefixes:
            for route in self._api.routes:
                template = prefix + route.path
                guarded = self._dispatcher.route(
                    route.operation, template, self._handler(route), self._admit, form
                )
                app.router.add_route(route.method, template, guarded, expect_handler=expect_later)

    async def _admit(self, exchange: Exchange) -> None:
        """Ask the guards; whatever they say is said in the form of this API."""
        exchange.context.api_format = self._api.form(exchange.request.id)
        exchange.result.headers |= self._api.headers(exchange.request.id)
        await exchange.context.plugin_set.chain.admit(exchange)

    def _handler(self, route: ApiRoute) -> Handler:
        async def handle(request: web.Request, exchange: Exchange) -> web.StreamResponse:
            asked = await self._dispatcher.read(
                request, exchange, lambda raw: route.decode(self._parsed(exchange, raw))
            )
            exchange.ask(asked.body, asked.dropped)
            if asked.dropped_reasoning:
                exchange.result.headers[REASONING_DROPPED] = str(asked.dropped_reasoning)
            encoder = asked.encoder(ExchangeTimes(exchange))
            return await self._dispatcher.run(request, exchange, encoded_by(encoder))

        return handle

    def _parsed(self, exchange: Exchange, raw: bytes) -> dict[str, Any]:
        body = parse_object(raw)
        if not body.get("model") and (model := self._dispatcher.default_model(exchange)):
            body["model"] = model
        return body


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
        await proceed(exchange, _EncodingSink(sink, encoder))

    return answer


class _EncodingSink(PassingSink):
    """A ``Sink`` for events of a response, which ``encoder`` encodes for another one."""

    def __init__(self, sink: Sink, encoder: ResponseEncoder) -> None:
        super().__init__(sink)
        self._encoder = encoder

    def feed(self, batch: Sequence[Frame]) -> None:
        if frames := self._encoder.frames(batch):
            self._sink.feed(frames)

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if status == _OK:
            body = self._encoder.whole(body)
        self._sink.finish(status, body, headers)
