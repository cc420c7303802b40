"""Ends runs that somebody else has begun, with what their log shows of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Literal

import orjson

from router.errors import RouterError
from router.response.frame import OPENING, Frame
from router.response.partial import DELTAS, PartialOutput
from router.state.database import Database
from router.state.responses import ResponseStore
from router.state.runs import RunRow, RunStore
from router.telemetry.log import get_logger

__all__ = ["Counted", "Endings"]

_log = get_logger("router.runs")

_MAX_FENCE: Final = 10
"""A run that has changed hands so often is not begun again: it may be what ends its routers."""

Counted = Callable[[Literal["requeued", "failed", "cancelled"]], None]
"""Hears of every run that was ended, or put back, by somebody else than its runner."""


class Endings:
    """Takes runs over in the name of the router ``me``, to end them or to have them run again.

    Everything raises StateUnavailable; what is half done then is found in this router's name.
    """

    def __init__(self, db: Database, store: RunStore, me: str, counted: Counted) -> None:
        self._db = db
        self._store = store
        self._responses = ResponseStore(db)
        self._me = me
        self._counted = counted

    async def recover(self, run: RunRow, error: RouterError) -> bool:
        """Put a run back into the queue if nothing of it was seen, else fail it with ``error``.

        True when it is queued. Nothing happens to a run that has moved on.
        """
        again = run.state == "running" and run.fence < _MAX_FENCE
        if not again or await self._has_output(run):
            await self.fail(run, error)
            return False
        if not await self._db.write(*self._store.requeued(run, self._me)):
            return False
        _log.info("run requeued", run=run.id)
        self._counted("requeued")
        return True

    async def fail(self, run: RunRow, error: RouterError) -> None:
        """End a run, and its response, as failed, with the terminal event that says why."""
        taken = await self.take(run)
        if taken and await self._end(taken, "failed", error.response_error()):
            _log.warning("run failed", run=run.id, error=error.message)
            self._counted("failed")

    async def cancel(self, taken: RunRow) -> bool:
        """End a run that ``take`` returned as cancelled, without another event.

        False when that was done already.
        """
        cancelled = await self._end(taken, "cancelled", None)
        if cancelled:
            self._counted("cancelled")
        return cancelled

    async def take(self, run: RunRow) -> RunRow | None:
        """The run as it stands from now on, since only we can write to it; None when somebody
        else was faster.
        """
        if not await self._db.write(*self._store.taken(run.id, run.fence, self._me)):
            return None
        taken = await self._store.run(run.id)
        ours = taken is not None and (taken.state, taken.holder) == ("ending", self._me)
        return taken if ours else None

    async def _end(
        self, run: RunRow, status: Literal["cancelled", "failed"], error: dict[str, str] | None
    ) -> bool:
        stored = await self._responses.get(run.owner, run.id)
        if stored is None:
            return False  # deleted in this moment, and the run with it
        output = await self._output(run.id)
        changes = {"status": status, "completed_at": None, "error": error, "usage": None}
        stored.status = status
        stored.body = orjson.dumps({**orjson.loads(stored.body), **changes})
        stored.output = orjson.dumps(output)
        last = None
        if status == "failed":
            event = {
                "type": "response.failed",
                "sequence_number": run.last_event + 1,
                "response": orjson.Fragment(stored.public()),
            }
            last = Frame("response.failed", orjson.dumps(event)).encode()
        end = self._store.finished(run.id, run.fence, run.last_event, last)
        return await self._db.write(*end, *self._responses.finished(stored))

    async def _has_output(self, run: RunRow) -> bool:
        """Whether the log has more than the events that every run begins with."""
        if run.last_event >= len(OPENING):
            return True
        return any([frame.type not in OPENING async for frame in self._frames(run.id)])

    async def _output(self, id: str) -> list[dict[str, Any]]:
        """What there is of the output; an item that is not done is marked as broken off."""
        output = PartialOutput()
        async for frame in self._frames(id):
            field = DELTAS.get(frame.type)
            if field is None:
                output.follow(frame.type, frame.json())
            else:
                output.delta(field, frame.json())
        return output.so_far()

    async def _frames(self, id: str) -> AsyncIterator[Frame]:
        after = -1
        while rows := await self._store.events(id, after):
            for row in rows:
                for frame in Frame.all_of(row.data):
                    yield frame
            after = rows[-1].last
