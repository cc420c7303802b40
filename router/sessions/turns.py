"""Answering Responses requests that may belong to something longer than themselves.

A request that is answered at once: resolve what it refers to, pass it on, keep the answer. A run
(``background``, or ``stream_options.durable``) is stored first and executed by ``sessions.runs``,
here or in another router; this client then follows its log like any other.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from router.core.exchange import Exchange, Outcome, Sink
from router.core.new_response import new_builder
from router.core.plugin_set import proceed
from router.dialects.responses.stored_items import ids_of
from router.errors import StateUnavailable
from router.sessions.record import DEGRADED, TurnRecord
from router.sessions.resolve import HistoryResolver, conversation_id, refers, with_history
from router.sessions.runs import Runs
from router.settings.schema import StateSettings
from router.state.database import Database
from router.state.health import unavailable
from router.state.responses import ResponseStore, StoredResponse

__all__ = ["Turns", "is_durable"]

_TURN_SECONDS: Final = 60.0
"""So long a request waits for the turn before it in its conversation."""

_LONG_HISTORY: Final = 500
"""Items; what is done with more takes long."""


class Turns:
    """Answers ``POST /responses``."""

    def __init__(
        self,
        database: Database,
        responses: ResponseStore,
        resolver: HistoryResolver,
        runs: Runs,
        settings: StateSettings,
    ) -> None:
        self._database = database
        self._responses = responses
        self._resolver = resolver
        self._runs = runs
        self._degrade = settings.on_down == "degrade"

    async def answer(self, exchange: Exchange, sink: Sink) -> None:
        """Answer a request; raises RouterError as long as nothing has been sent."""
        body = exchange.body
        if body.get("background") or is_durable(body):
            await self._start_run(exchange, sink)
            return
        looks_up = refers(body)
        store = self._stores(exchange, looks_up)
        if not store and not looks_up:
            await proceed(exchange, sink)
            return
        turn = await self._resolver.turn(exchange, _TURN_SECONDS)
        try:
            history = await self._resolver.history(exchange)
            # Of a chain nothing is listed together; in a conversation no two ids are the same.
            request_items = await self._resolver.request_items(
                exchange, ids_of(history) if turn else ()
            )
            if looks_up:
                exchange.large = exchange.large or len(history) > _LONG_HISTORY
                exchange.body = await exchange.compute(
                    with_history, exchange.body, history, request_items
                )
            if store or turn is not None:
                exchange.record = TurnRecord(
                    self._database,
                    self._responses,
                    exchange,
                    request_items,
                    turn,
                    store=store,
                    degrade=self._degrade,
                )
            await proceed(exchange, sink)
        finally:
            if turn is not None:
                turn.release()

    async def resolve(self, exchange: Exchange, sink: Sink) -> None:
        """Pass on a request that only looks at its history (counting tokens, compacting)."""
        if refers(exchange.body):
            request_items = await self._resolver.request_items(exchange)
            history = await self._resolver.history(exchange)
            exchange.body = with_history(exchange.body, history, request_items)
        await proceed(exchange, sink)

    def _stores(self, exchange: Exchange, looks_up: bool) -> bool:
        """Whether the response is to be kept; raises StateUnavailable where that cannot be."""
        body = exchange.body
        store = body.get("store") is not False
        if self._database.up or not (store or looks_up):
            return store
        if looks_up or not self._degrade:
            raise unavailable()
        exchange.body = {**body, "store": False}
        exchange.response_headers.update(DEGRADED)
        return False

    async def _start_run(self, exchange: Exchange, sink: Sink) -> None:
        if not self._database.up:
            raise unavailable()
        request_items = await self._resolver.request_items(exchange)
        await self._resolver.check(exchange)
        await exchange.plugin_set.chain.accept(exchange)
        body = {**exchange.body, "input": request_items.items}
        if options := body.get("stream_options"):
            body["stream_options"] = {k: v for k, v in options.items() if k != "durable"}
        background = bool(body.get("background"))
        builder = new_builder(body)
        opening = builder.queue() if background else builder.open()
        response = builder.snapshot("queued" if background else "in_progress")
        stored = StoredResponse.of(
            response,
            owner=exchange.caller,
            request_items=request_items.items,
            encrypted_reasoning=request_items.encrypted_reasoning,
            parent=body.get("previous_response_id"),
            conversation=conversation_id(body),
            account=None,
            background=background,
            resumable=True,
        )
        request = {
            "id": exchange.id,
            "body": body,
            "hidden": request_items.encrypted_reasoning,
            "orders": request_items.orders,
            "born": builder.created_at,
        }
        await self._runs.submit(
            builder.id,
            exchange.caller,
            conversation_id(body),
            orjson.dumps(request),
            opening,
            self._responses.added(stored),
            at_once=not background,
        )
        if exchange.stream:
            await self.follow(exchange, builder.id, -1, sink)
        else:
            sink.finish(200, orjson.dumps(response), exchange.response_headers)

    async def follow(self, exchange: Exchange, ident: str, after: int, sink: Sink) -> None:
        """Send a run's events past ``after``, those to come included."""
        try:
            await self._runs.tail(
                exchange.caller,
                ident,
                after,
                sink,
                exchange.response_headers,
                stopping=lambda: exchange.abort is not None,
            )
        except StateUnavailable as error:
            if not sink.opened:
                raise
            exchange.outcome = Outcome.FAILED
            exchange.error_code = error.code


def is_durable(body: dict[str, Any]) -> bool:
    """Whether a stream is to be resumable although it is no background run."""
    options = body.get("stream_options")
    return bool(body.get("stream") and options and options.get("durable"))
