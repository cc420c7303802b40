"""Answering Responses requests that may belong to something longer than themselves.

A request that is answered at once: resolve what it refers to, pass it on, keep the answer. A run
(``background``, or ``stream_options.durable``) is stored first and executed by ``sessions.runs``,
here or in another router; this client then follows its log like any other.

``TurnRecord`` stores an answer that the client waits for: one row at its end, in one commit with
the items of its conversation. ``RunRecord`` is for a run, whose row is there from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import orjson

from router.core.exchange import Exchange, Sink
from router.core.plugin_hooks import Proceed
from router.core.response_lifecycle import new_builder
from router.dialects.responses.schema import ids_of, refers, stored_items
from router.errors import Conflict, InternalError, RouterError, StateUnavailable
from router.response.builder import ResponseBuilder
from router.response.frame import Frame
from router.sessions.chains import SocketStream, check_outputs
from router.sessions.event_log import RunLog, RunLost
from router.sessions.resolve import (
    HistoryResolver,
    RequestItems,
    conversation_id,
    with_history,
)
from router.sessions.run_credentials import RunCredentials
from router.sessions.runs import Runs
from router.settings.schema import StateSettings
from router.state.database import Database, unavailable
from router.state.items import item_ids
from router.state.responses import ResponseStore, StoredResponse
from router.state.statement import StatementStep
from router.state.turn_lock import Turn

__all__ = ["DEGRADED", "RunRecord", "TurnRecord", "Turns", "is_durable"]

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
        credentials: RunCredentials,
    ) -> None:
        self._credentials = credentials
        self._database = database
        self._responses = responses
        self.resolver = resolver
        self._runs = runs
        self._degrade = settings.on_down == "degrade"

    async def answer(
        self,
        exchange: Exchange,
        sink: Sink,
        socket: SocketStream | None = None,
        proceed: Proceed | None = None,
    ) -> None:
        """Answer a request; raises RouterError as long as nothing has been sent.

        ``socket`` is the stream of a WebSocket that it came by, where what is not stored can be
        continued. ``proceed`` answers it, where that is not to be left to the plugins.
        """
        body = exchange.body
        if body.get("background") or (body.get("stream_options") and is_durable(body)):
            await self._start_run(exchange, sink)
            return
        proceed = proceed or exchange.context.plugin_set.proceed
        looks_up, store = refers(body), body.get("store") is not False
        caller = exchange.context.caller
        in_memory = looks_up and socket is not None and socket.suffices(body, caller)
        if (store or (looks_up and not in_memory)) and not self._database.up:
            store = self._degraded(exchange, looks_up)
        if looks_up:
            await self._continue(exchange, sink, store, socket, proceed)
            return
        own = body.get("input") or []
        if store:
            exchange.record = TurnRecord(
                self._responses, exchange, own, None, True, self._database, self._degrade
            )
        elif socket is not None:
            socket.record(exchange, own)
        await proceed(exchange, sink)

    async def _continue(
        self,
        exchange: Exchange,
        sink: Sink,
        store: bool,
        socket: SocketStream | None,
        proceed: Proceed,
    ) -> None:
        """Answer a request that refers to what was before it."""
        turn = await self.resolver.turn(exchange, _TURN_SECONDS)
        unstored = socket is not None and socket.holds(exchange.body)
        try:
            source = socket.chains if socket else None
            history = await self.resolver.history(exchange, source)
            # Of a chain nothing is listed together; in a conversation no two ids are the same.
            taken = ids_of(history) if turn else ()
            items = await self.resolver.request_items(exchange, taken, source)
            exchange.large = exchange.large or len(history) > _LONG_HISTORY
            if unstored:
                check_outputs(history, items.items)
            exchange.body = await exchange.compute(with_history, exchange.body, history, items)
            if store and unstored:
                items = items.after(history)
            if store or turn is not None:
                exchange.record = TurnRecord(
                    self._responses, exchange, items, turn, store, self._database, self._degrade
                )
            elif socket is not None:
                socket.record(exchange, items)
            await proceed(exchange, sink)
        finally:
            if turn is not None:
                turn.release()

    async def resolve(self, exchange: Exchange, sink: Sink) -> None:
        """Pass on a request that only looks at its history (counting tokens, compacting)."""
        if refers(exchange.body):
            request_items = await self.resolver.request_items(exchange)
            history = await self.resolver.history(exchange)
            exchange.body = with_history(exchange.body, history, request_items)
        await exchange.context.plugin_set.proceed(exchange, sink)

    def _degraded(self, exchange: Exchange, looks_up: bool) -> bool:
        """Have the exchange answered without the database, which is down, so that it is not stored
        (False); raises StateUnavailable where that cannot be.
        """
        if looks_up or not self._degrade:
            raise unavailable()
        exchange.body = {**exchange.body, "store": False}
        exchange.result.headers.update(DEGRADED)
        return False

    async def _start_run(self, exchange: Exchange, sink: Sink) -> None:
        if not self._database.up:
            raise unavailable()
        request_items = await self.resolver.request_items(exchange)
        await self.resolver.check(exchange)
        await exchange.context.plugin_set.chain.accept(exchange)
        body = {**exchange.body, "input": request_items.items}
        if options := body.get("stream_options"):
            body["stream_options"] = {k: v for k, v in options.items() if k != "durable"}
        background = bool(body.get("background"))
        shown = body
        if body.get("enable_response_messages"):
            history = await self.resolver.history(exchange)
            shown = await exchange.compute(with_history, body, history, request_items)
        builder = new_builder(shown)
        opening = builder.queue() if background else builder.open()
        response = builder.snapshot("queued" if background else "in_progress")
        stored = StoredResponse.of(
            response,
            owner=exchange.context.caller,
            request_items=request_items.items,
            encrypted_reasoning=request_items.encrypted_reasoning,
            parent=body.get("previous_response_id"),
            conversation=conversation_id(body),
            account=None,
            background=background,
            resumable=True,
        )
        await self._submit(exchange, builder, body, request_items, opening, stored)
        if exchange.stream:
            await self.follow(exchange, builder.id, -1, sink)
        else:
            sink.finish(200, orjson.dumps(response), exchange.result.headers)

    async def _submit(
        self,
        exchange: Exchange,
        builder: ResponseBuilder,
        body: dict[str, Any],
        request_items: RequestItems,
        opening: Sequence[Frame],
        stored: StoredResponse,
    ) -> None:
        """Store the run as it begins, without the credentials of its tools."""
        background = bool(body.get("background"))
        body = self._credentials.keep(builder.id, body)
        secret = builder.id in self._credentials
        request = {
            "id": exchange.request.id,
            "body": body,
            "secret": secret,
            "hidden": request_items.encrypted_reasoning,
            "orders": request_items.orders,
            "born": builder.created_at,
        }
        try:
            await self._runs.submit(
                builder.id,
                exchange.context.caller,
                conversation_id(body),
                orjson.dumps(request),
                opening,
                self._responses.added(stored),
                at_once=secret or not background,
                counts=background,
            )
        except BaseException:
            self._credentials.forget(builder.id)
            raise

    async def follow(self, exchange: Exchange, ident: str, after: int, sink: Sink) -> None:
        """Send a run's events past ``after``, those to come included."""
        try:
            await self._runs.tail(
                exchange.context.caller,
                ident,
                after,
                sink,
                exchange.result.headers,
                stopping=lambda: exchange.abort is not None,
            )
        except StateUnavailable as error:
            if not sink.opened:
                raise
            exchange.result.fail(error.code)


def is_durable(body: dict[str, Any]) -> bool:
    """Whether a stream is to be resumable although it is no background run."""
    options = body.get("stream_options")
    return bool(body.get("stream") and options and options.get("durable"))


DEGRADED: Final = {"X-Pointsman-Store": "degraded"}
"""The header of an answer that is served although it cannot be stored."""

_IN_CONVERSATION: Final = frozenset({"completed", "incomplete"})
"""Answers that become part of their conversation; a failed one leaves no trace there."""


@dataclass(slots=True, eq=False)
class _StoredRecord:
    """What both kinds know of their exchange.

    ``_own`` are the request's items, or its input where there is no more to it. That gets its ids
    when the answer is there: many requests wait for theirs at once. ``_store``: the response is
    kept, and not only its conversation.
    """

    of_run: ClassVar[bool] = False
    """Whether there is a row of it from the start."""

    _responses: ResponseStore
    _exchange: Exchange
    _own: RequestItems | str | list[dict[str, Any]]
    turn: Turn | None
    _store: bool

    def _steps(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]
    ) -> tuple[StatementStep, ...]:
        """What keeps the response, and appends to its conversation if it is in one."""
        steps = self._turn_steps(response, encrypted_reasoning) if self.turn is not None else ()
        if not self._store:
            return steps
        exchange, own = self._exchange, self._own
        parent = exchange.body.get("previous_response_id")
        if isinstance(own, RequestItems):
            items = own.items
            encrypted_reasoning = {**own.encrypted_reasoning, **encrypted_reasoning}
            if own.whole:
                parent = None
        else:
            items = stored_items(own, item_ids(response["id"]))
        stored = StoredResponse.of(
            response,
            owner=exchange.context.caller,
            request_items=items,
            encrypted_reasoning=encrypted_reasoning,
            parent=parent,
            conversation=self.turn.conversation if self.turn is not None else None,
            account=exchange.result.account,
            background=bool(exchange.body.get("background")),
            resumable=self.of_run,
        )
        write = self._responses.finished if self.of_run else self._responses.added
        return (*steps, *write(stored))

    def _turn_steps(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]
    ) -> tuple[StatementStep, ...]:
        """What appends to its conversation, if it is in one."""
        if self.turn is None or response["status"] not in _IN_CONVERSATION:
            return ()
        own = self._own
        assert isinstance(own, RequestItems)  # what is in a conversation has been looked up
        return self.turn.steps(
            [*own.items, *response["output"]], {**own.encrypted_reasoning, **encrypted_reasoning}
        )


@dataclass(slots=True, eq=False)
class TurnRecord(_StoredRecord):
    """Implements ``router.core.exchange.ExchangeRecord`` for an answer that the client waits for.

    ``_degrade``: it may be served without being kept when the database is down.
    """

    _database: Database
    _degrade: bool
    _begun: bool = False

    async def finish(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> bool:
        """See ``ExchangeRecord.finish``."""
        self._begun = True
        exchange = self._exchange
        try:
            steps = await exchange.compute(self._steps, response, encrypted_reasoning)
        except asyncio.CancelledError:
            if exchange.abort is None:
                raise
            # The router stops, and nothing is written yet: the answer is complete all the same.
            steps = await exchange.compute(self._steps, response, encrypted_reasoning)
        if not steps:
            return True
        try:
            answer = self._database.submit(*steps)
            try:
                written = await answer
            except asyncio.CancelledError:
                if self._exchange.abort is None:
                    raise  # it is written all the same
                # The router stops: the client is to hear how it ended.
                written = await self._database.hear_again(answer)
        except StateUnavailable:
            if self._degrade and self.turn is None:
                self._exchange.result.headers.update(DEGRADED)
                return False
            raise
        if not written:
            raise Conflict(
                "The conversation went on without this answer, which took too long to come.",
                param="conversation",
            )
        return True

    def abandon(self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> None:
        """See ``ExchangeRecord.abandon``."""
        if self._begun or not self._store:
            return
        self._begun = True
        self._database.submit(*self._steps(response, encrypted_reasoning), heard=False)


@dataclass(slots=True, eq=False)
class RunRecord(_StoredRecord):
    """Implements ``router.core.exchange.ExchangeRecord`` for a run."""

    of_run = True

    _log: RunLog

    async def finish(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> bool:
        """See ``ExchangeRecord.finish``."""
        try:
            await self._complete(response, encrypted_reasoning, last)
        except (Conflict, InternalError) as error:
            # Nobody may store this answer, or not in this conversation: that there was one we may.
            await self._complete_as_failed(response, error)
        except StateUnavailable as error:
            # Whoever recovers the run ends it, once the database is back.
            raise RunLost(error.message) from error
        return True

    async def _complete(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> None:
        steps = await self._exchange.compute(self._steps, response, encrypted_reasoning)
        await self._log.complete(steps, last)

    async def _complete_as_failed(self, response: dict[str, Any], error: RouterError) -> None:
        exchange = self._exchange
        exchange.result.fail(error.code)
        failed = {
            **response,
            "status": "failed",
            "error": error.response_error(),
            "completed_at": None,
            "output": [],
            "output_text": "",
        }
        last = exchange.builder.end_otherwise(failed) if exchange.builder is not None else None
        await self._complete(failed, {}, last)

    def abandon(self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> None:
        """See ``ExchangeRecord.abandon``: who ended the run has already written what there is."""
