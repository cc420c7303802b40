"""What becomes of an answer in the end: the records behind ``exchange.record``.

``TurnRecord`` is for an answer that the client waits for: one row at its end, in one commit with
the items of its conversation. ``RunRecord`` is for a run, whose row is there from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from router.core.exchange import Exchange, Outcome
from router.errors import Conflict, InternalError, RouterError, StateUnavailable
from router.response.frame import Frame
from router.sessions.event_log import RunLog, RunLost
from router.sessions.resolve import RequestItems, conversation_id
from router.state.database import Database
from router.state.responses import ResponseStore, StoredResponse
from router.state.statement import StatementStep
from router.state.turn_lock import Turn

__all__ = ["DEGRADED", "RunRecord", "TurnRecord"]

DEGRADED: Final = {"X-Pointsman-Store": "degraded"}
"""The header of an answer that is served although it cannot be stored."""

_IN_CONVERSATION: Final = frozenset({"completed", "incomplete"})
"""Answers that become part of their conversation; a failed one leaves no trace there."""


class _StoredRecord:
    """What both kinds know of their exchange."""

    def __init__(
        self,
        responses: ResponseStore,
        exchange: Exchange,
        request_items: RequestItems,
        turn: Turn | None,
    ) -> None:
        self._responses = responses
        self._exchange = exchange
        self._request_items = request_items
        self.turn = turn

    def _stored(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], *, resumable: bool
    ) -> StoredResponse:
        exchange = self._exchange
        body = exchange.body
        return StoredResponse.of(
            response,
            owner=exchange.caller,
            request_items=self._request_items.items,
            encrypted_reasoning={**self._request_items.encrypted_reasoning, **encrypted_reasoning},
            parent=body.get("previous_response_id"),
            conversation=conversation_id(body),
            account=exchange.account,
            background=bool(body.get("background")),
            resumable=resumable,
        )

    def _turn_steps(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]
    ) -> tuple[StatementStep, ...]:
        if self.turn is None or response["status"] not in _IN_CONVERSATION:
            return ()
        items = [*self._request_items.items, *response["output"]]
        return self.turn.steps(
            items, {**self._request_items.encrypted_reasoning, **encrypted_reasoning}
        )


class TurnRecord(_StoredRecord):
    """Implements ``router.core.exchange.ExchangeRecord`` for an answer that the client waits for.

    ``store``: the response is kept, and not only its conversation. ``degrade``: it may be served
    without being kept when the database is down.
    """

    def __init__(
        self,
        database: Database,
        responses: ResponseStore,
        exchange: Exchange,
        request_items: RequestItems,
        turn: Turn | None,
        *,
        store: bool,
        degrade: bool,
    ) -> None:
        super().__init__(responses, exchange, request_items, turn)
        self._database = database
        self._store = store
        self._degrade = degrade
        self._begun = False

    async def finish(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> bool:
        """See ``ExchangeRecord.finish``."""
        self._begun = True
        steps = await self._exchange.compute(self._steps, response, encrypted_reasoning)
        if not steps:
            return True
        try:
            written = await self._written(steps)
        except StateUnavailable:
            if self._degrade and self.turn is None:
                self._exchange.response_headers.update(DEGRADED)
                return False
            raise
        if not written:
            raise Conflict(
                "The conversation went on without this answer, which took too long to come.",
                param="conversation",
            )
        return True

    def _steps(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]
    ) -> tuple[StatementStep, ...]:
        steps = self._turn_steps(response, encrypted_reasoning)
        if self._store:
            stored = self._stored(response, encrypted_reasoning, resumable=False)
            steps = (*steps, *self._responses.added(stored))
        return steps

    async def _written(self, steps: Sequence[StatementStep]) -> bool:
        """Commit them. A router that stops waits for it: the client is to hear how it ended."""
        answer = self._database.submit(*steps)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if self._exchange.abort is None:
                answer.cancel()  # it is written all the same
                raise
        return await answer

    def abandon(self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> None:
        """See ``ExchangeRecord.abandon``."""
        if self._begun or not self._store:
            return
        self._begun = True
        stored = self._stored(response, encrypted_reasoning, resumable=False)
        self._database.submit(*self._responses.added(stored))


class RunRecord(_StoredRecord):
    """Implements ``router.core.exchange.ExchangeRecord`` for a run."""

    def __init__(
        self,
        responses: ResponseStore,
        exchange: Exchange,
        request_items: RequestItems,
        turn: Turn | None,
        log: RunLog,
    ) -> None:
        super().__init__(responses, exchange, request_items, turn)
        self._log = log

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

    def _steps(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]
    ) -> tuple[StatementStep, ...]:
        stored = self._stored(response, encrypted_reasoning, resumable=True)
        return (*self._turn_steps(response, encrypted_reasoning), *self._responses.finished(stored))

    async def _complete_as_failed(self, response: dict[str, Any], error: RouterError) -> None:
        exchange = self._exchange
        exchange.outcome = Outcome.FAILED
        exchange.error_code = error.code
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
