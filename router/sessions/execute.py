"""What a run does when its time has come: the same as a request, but into its log."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import orjson

from router.core.exchange import (
    ClientGone,
    ClientRequest,
    Exchange,
    ExchangeContext,
    Operation,
    Outcome,
    internal_error,
)
from router.core.key import Key
from router.core.plugin_chain import PluginSet
from router.core.plugin_sets import PluginSets, proceed
from router.core.response_lifecycle import new_builder, show_messages
from router.dialects.responses.schema import ids_of
from router.errors import RouterError, StateUnavailable
from router.sessions.event_log import RunLog
from router.sessions.resolve import HistoryResolver, RequestItems, with_history
from router.sessions.run_credentials import RunCredentials
from router.sessions.runs import Claimed
from router.sessions.turns import RunRecord
from router.state.responses import ResponseStore
from router.telemetry.log import get_logger
from router.telemetry.tasks import Worker, most_values, takes_long

__all__ = ["Executor"]

_log = get_logger("router.turns")

_TURN_SECONDS: Final = 600.0
"""So long a run waits for the turn before it in its conversation: nobody waits for the run."""


class Executor:
    """Executes runs, each with the plugins that are current when it begins."""

    def __init__(
        self,
        plugin_sets: PluginSets,
        responses: ResponseStore,
        resolver: HistoryResolver,
        key_named: Callable[[str], Awaitable[Key | None]],
        worker: Worker,
        credentials: RunCredentials,
    ) -> None:
        self._credentials = credentials
        self._worker = worker
        self._key_named = key_named
        self._plugin_sets = plugin_sets
        self._responses = responses
        self._resolver = resolver

    async def execute(self, claimed: Claimed, log: RunLog) -> None:
        """Run it to its end.

        Raises RunLost when the run is somebody else's by now, StateUnavailable when what it
        refers to could not be read.
        """
        plugin_set = self._plugin_sets.current.enter()
        try:
            await self._execute(plugin_set, claimed, log)
        finally:
            plugin_set.leave()

    async def _execute(self, plugin_set: PluginSet, claimed: Claimed, log: RunLog) -> None:
        raw = claimed.request
        large = takes_long(len(raw), most_values(raw))
        load = partial(orjson.loads, raw)
        request = await self._worker.run(load) if large else load()
        exchange = _exchange(claimed, request, self._worker)
        exchange.large = large
        exchange.context.plugin_set = plugin_set
        exchange.context.key = await self._key_named(claimed.owner)
        items = exchange.body["input"]
        request_items = RequestItems(items, request["hidden"], request["orders"])
        exchange.builder = new_builder(
            exchange.body,
            created=(claimed.id, request["born"]),
            first_sequence=claimed.last_event + 1,
        )
        plugin_set.chain.started(exchange)
        outcome = Outcome.CANCELLED
        try:
            secret = request.get("secret", False)  # an older router did not say
            outcome = await self._outcome(exchange, request_items, log, secret=secret)
        finally:
            plugin_set.chain.ended(exchange, outcome)

    async def _outcome(
        self, exchange: Exchange, request_items: RequestItems, log: RunLog, *, secret: bool
    ) -> Outcome:
        record = exchange.record = RunRecord(
            self._responses, exchange, request_items, None, True, log
        )
        turn = None
        try:
            exchange.body = self._credentials.restore(log.id, exchange.body, had=secret)
            turn = record.turn = await self._resolver.turn(exchange, _TURN_SECONDS)
            history = await self._resolver.history(exchange)
            if turn is not None:
                # Ids that were free when the run was submitted: others had their turns since.
                request_items.rename(ids_of(history))
            exchange.body = await exchange.compute(
                with_history, exchange.body, history, request_items
            )
            if exchange.builder is not None and exchange.body.get("enable_response_messages"):
                show_messages(exchange.builder, exchange.body)
            await proceed(exchange, log)
        except StateUnavailable:
            # Without its history nothing has begun: it is recovered, and queued again.
            self._credentials.keep(log.id, exchange.body)
            raise
        except ClientGone:
            raise
        except RouterError as error:
            await _fail(exchange, error, log)
            return Outcome.FAILED
        except Exception:
            _log.exception("run failed", request_id=exchange.request.id)
            await _fail(exchange, internal_error(exchange), log)
            return Outcome.FAILED
        finally:
            if turn is not None:
                turn.release()
        return exchange.result.outcome or Outcome.OK


async def _fail(exchange: Exchange, error: RouterError, log: RunLog) -> None:
    """End a run that failed outside of the pipeline, which ends its own."""
    exchange.result.fail(error.code)
    builder, record = exchange.builder, exchange.record
    if builder is None or record is None or not (frames := builder.fail(error, [])):
        return
    assert builder.final is not None
    *opening, last = frames
    log.feed(opening)
    await record.finish(builder.final, {}, last)
    log.feed([last])
    log.end()


def _exchange(claimed: Claimed, request: dict[str, Any], worker: Worker) -> Exchange:
    body = request["body"]
    exchange = Exchange(
        ClientRequest(
            id=request["id"],
            operation=Operation.RUN,
            route="run",
            method="RUN",
            headers={},
            remote=None,
            started=time.monotonic(),
        ),
        ExchangeContext(worker=worker),
    )
    exchange.context.caller = claimed.owner
    exchange.body = body
    exchange.model = body["model"]
    exchange.stream = True
    exchange.result.status = 200
    return exchange
