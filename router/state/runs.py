"""Runs and the log of their events, in SQL.

A run is ``queued``, ``running``, ``ending`` (somebody has taken it over to end it) or ``over``.
Whoever runs or ends it is its holder, and every write of a holder is guarded by the run's fence;
taking a run over raises it, so that whatever the former holder still writes is refused. A guard
also holds when its own job is run a second time, and for no other: state, fence, holder and last
event tell whose doing the row is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from router.state.database import Database
from router.state.schema import ALIVE
from router.state.statement import Row, Statement, StatementStep

__all__ = ["ClaimableRun", "LogRow", "RunRow", "RunState", "RunStore"]

RunState = Literal["queued", "running", "ending", "over"]

_WINDOW: Final = 64
"""So many of an owner's oldest queued runs are looked at to find one that may run."""

_ROWS: Final = 32
"""So many rows of a log are read at once."""

_QUEUED: Final = "state <> 'over' AND state = 'queued'"  # in SQLite's words: in runs_unfinished
_RUNNING: Final = "state <> 'over' AND state = 'running'"

_ADD: Final = Statement(
    """
    INSERT INTO runs (id, owner, state, holder, fence, last_event, queued_at, conversation)
    VALUES (:id, :owner, :state, :holder, 0, :last, {now}, :conversation)
    ON CONFLICT (id) DO NOTHING
    """
)
_ADD_REQUEST: Final = Statement(
    "INSERT INTO run_requests (run, data) VALUES (:id, :request) ON CONFLICT (run) DO NOTHING"
)
_ADD_EVENTS: Final = Statement(
    """
    INSERT INTO events (response, first, last, data) VALUES (:id, :first, :last, :data)
    ON CONFLICT (response, first) DO NOTHING
    """
)
_REQUEST: Final = Statement("SELECT data FROM run_requests WHERE run = :id")
_FORGET_REQUEST: Final = Statement("DELETE FROM run_requests WHERE run = :id")
_COUNT: Final = Statement(
    f"""
    SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE {_QUEUED} LIMIT CAST(:most AS {{int}})
    ) AS queued
    """
)
# The owners are hopped along in the index: one of them may have thousands of runs in the queue.
_CANDIDATES: Final = Statement(
    f"""
    WITH RECURSIVE owners (owner) AS (
        SELECT min(owner) FROM runs WHERE {_QUEUED}
        UNION ALL
        SELECT (SELECT min(runs.owner) FROM runs WHERE {_QUEUED} AND runs.owner > owners.owner)
        FROM owners WHERE owners.owner IS NOT NULL
    ), firsts AS (
        SELECT (
            SELECT oldest.id FROM (
                SELECT id, conversation, queued_at FROM runs
                WHERE {_QUEUED} AND runs.owner = owners.owner
                ORDER BY runs.queued_at LIMIT {_WINDOW}
            ) AS oldest
            WHERE oldest.conversation IS NULL OR NOT EXISTS (
                SELECT 1 FROM runs
                WHERE {_RUNNING} AND runs.owner = owners.owner
                AND runs.conversation = oldest.conversation
            )
            ORDER BY oldest.queued_at LIMIT 1
        ) AS id, (
            SELECT count(*) FROM runs WHERE {_RUNNING} AND runs.owner = owners.owner
        ) AS busy
        FROM owners WHERE owners.owner IS NOT NULL
    )
    SELECT runs.id, runs.owner, runs.fence, runs.last_event, firsts.busy
    FROM firsts JOIN runs ON runs.id = firsts.id
    ORDER BY firsts.busy, runs.queued_at LIMIT CAST(:most AS {{int}})
    """
)
_CLAIM: Final = Statement(
    """
    UPDATE runs SET state = 'running', holder = :holder, fence = CAST(:fence AS {int}) + 1
    WHERE id = :id AND (
        (state = 'running' AND fence = CAST(:fence AS {int}) + 1 AND holder = :holder)
        OR (state = 'queued' AND fence = :fence AND (conversation IS NULL OR NOT EXISTS (
            SELECT 1 FROM runs AS other
            WHERE other.state <> 'over' AND other.state = 'running'
            AND other.owner = runs.owner AND other.conversation = runs.conversation
        )))
    )
    """
)
_TAKE: Final = Statement(
    """
    UPDATE runs SET state = 'ending', holder = :holder, fence = CAST(:fence AS {int}) + 1
    WHERE id = :id AND (
        (state <> 'over' AND fence = :fence)
        OR (state = 'ending' AND fence = CAST(:fence AS {int}) + 1 AND holder = :holder)
    )
    """
)
_REQUEUE: Final = Statement(
    """
    UPDATE runs SET state = 'queued', holder = :holder, fence = CAST(:fence AS {int}) + 1
    WHERE id = :id AND last_event = :last AND (
        (state = 'running' AND fence = :fence)
        OR (state = 'queued' AND fence = CAST(:fence AS {int}) + 1 AND holder = :holder)
    )
    """
)
_LOG: Final = Statement(
    """
    UPDATE runs SET last_event = :last
    WHERE id = :id AND fence = :fence AND state = 'running'
    AND (last_event = CAST(:first AS {int}) - 1 OR last_event = :last)
    """
)
_FINISH: Final = Statement(
    """
    UPDATE runs SET state = 'over', last_event = :last
    WHERE id = :id AND fence = :fence AND (
        (state IN ('running', 'ending') AND last_event = :before)
        OR (state = 'over' AND last_event = :last)
    )
    """
)
_STATUS: Final = Statement(
    "UPDATE responses SET status = :status WHERE id = :id AND status = :before"
)
_RUN: Final = Statement(
    "SELECT id, owner, state, holder, fence, last_event FROM runs WHERE id = :id"
)
_PROGRESS: Final = Statement("SELECT state, last_event FROM runs WHERE id = :id AND owner = :owner")
_EVENTS: Final = Statement(
    f"""
    SELECT first, last, data FROM events WHERE response = :id AND last > CAST(:after AS {{int}})
    ORDER BY first LIMIT {_ROWS}
    """
)
_HELD: Final = Statement(
    f"""
    SELECT id, owner, state, holder, fence, last_event,
        CASE WHEN EXISTS (SELECT 1 FROM routers WHERE routers.id = runs.holder)
        THEN 1 ELSE 0 END
    FROM runs
    WHERE state <> 'over' AND state IN ('running', 'ending')
    AND (holder = :holder OR NOT {ALIVE.replace("{holder}", "runs.holder")})
    """
)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it stands; ``last_event`` is -1 before the first."""

    id: str
    owner: str
    state: RunState
    holder: str | None
    fence: int
    last_event: int


@dataclass(frozen=True, slots=True)
class ClaimableRun:
    """A queued run that may be claimed; ``busy`` counts its owner's runs that are running."""

    id: str
    owner: str
    fence: int
    last_event: int
    busy: int


@dataclass(frozen=True, slots=True)
class LogRow:
    """Events ``first`` to ``last`` of a run, as they stand on the wire."""

    first: int
    last: int
    data: bytes


class RunStore:
    """The tables ``runs``, ``run_requests`` and ``events``. Reads raise StateUnavailable."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # What is read

    async def run(self, id: str) -> RunRow | None:
        """The run, whoever owns it."""
        rows = await self._db.read(_RUN, id=id)
        return RunRow(*rows[0]) if rows else None

    async def progress(self, owner: str, id: str) -> tuple[RunState, int] | None:
        """The state and the last event of one of the owner's runs."""
        rows = await self._db.read(_PROGRESS, id=id, owner=owner)
        return (rows[0][0], rows[0][1]) if rows else None

    async def request(self, id: str) -> bytes | None:
        """What was to be run; None for a run that is over or gone."""
        rows = await self._db.read(_REQUEST, id=id)
        return bytes(rows[0][0]) if rows else None

    async def events(self, id: str, after: int) -> list[LogRow]:
        """The next rows of the log with events after this number; some of the first row's
        events may be before it.
        """
        rows = await self._db.read(_EVENTS, id=id, after=after)
        return [LogRow(first, last, bytes(data)) for first, last, data in rows]

    async def queued(self, most: int) -> int:
        """How many runs are queued; no more than ``most`` are counted."""
        rows = await self._db.read(_COUNT, most=most)
        count: int = rows[0][0]
        return count

    async def candidates(self, most: int) -> list[ClaimableRun]:
        """Queued runs, one per owner: first of the owners with the fewest running runs, then the
        oldest. Runs whose conversation has a run that is running are left out.

        Only an owner's oldest runs are looked at: many of them for one conversation may delay
        his other runs, and nobody else's.
        """
        rows = await self._db.read(_CANDIDATES, most=most)
        return [ClaimableRun(*row) for row in rows]

    async def held(self, holder: str) -> list[tuple[RunRow, bool]]:
        """Every run that ``holder`` runs or ends, or whose holder is not alive.

        With each whether its holder left without taking leave, or lives on.
        """
        rows = await self._db.read(_HELD, holder=holder)
        return [(RunRow(*run), bool(known)) for *run, known in rows]

    # What is written

    def added(
        self,
        id: str,
        owner: str,
        conversation: str | None,
        request: bytes,
        opening: bytes,
        events: int,
        holder: str | None = None,
    ) -> list[StatementStep]:
        """A new run of an existing response, with its first ``events`` events.

        It is queued, or running with fence 0 where it has a ``holder`` from the start.
        """
        row: Row = {
            "id": id,
            "owner": owner,
            "state": "running" if holder else "queued",
            "holder": holder,
            "conversation": conversation,
            "request": request,
            "first": 0,
            "last": events - 1,
            "data": opening,
        }
        steps = [StatementStep(_ADD, (row,)), StatementStep(_ADD_REQUEST, (row,))]
        return [*steps, StatementStep(_ADD_EVENTS, (row,))] if events else steps

    def claimed(self, id: str, fence: int, holder: str) -> list[StatementStep]:
        """A queued run becomes ``holder``'s, with fence + 1."""
        row: Row = {"id": id, "fence": fence, "holder": holder}
        status: Row = {"id": id, "before": "queued", "status": "in_progress"}
        return [StatementStep(_CLAIM, (row,), guard=True), StatementStep(_STATUS, (status,))]

    def taken(self, id: str, fence: int, holder: str) -> list[StatementStep]:
        """A run that is not over becomes ``holder``'s, with fence + 1, to be ended by it."""
        return [StatementStep(_TAKE, ({"id": id, "fence": fence, "holder": holder},), guard=True)]

    def requeued(self, run: RunRow, holder: str) -> list[StatementStep]:
        """``holder`` puts a running run back, with fence + 1, unless it has moved on."""
        row: Row = {
            "id": run.id,
            "fence": run.fence,
            "last": run.last_event,
            "holder": holder,
        }
        status: Row = {"id": run.id, "before": "in_progress", "status": "queued"}
        return [StatementStep(_REQUEUE, (row,), guard=True), StatementStep(_STATUS, (status,))]

    def logged(self, id: str, fence: int, rows: Sequence[LogRow]) -> list[StatementStep]:
        """Rows that follow the last event, without a gap between them."""
        guard: Row = {"id": id, "fence": fence, "first": rows[0].first, "last": rows[-1].last}
        return [
            StatementStep(_LOG, (guard,), guard=True),
            StatementStep(_ADD_EVENTS, [_event(id, row) for row in rows]),
        ]

    def finished(self, id: str, fence: int, before: int, last: bytes | None) -> list[StatementStep]:
        """The run is over; ``last`` is its event after number ``before``, where it has one."""
        number = before if last is None else before + 1
        guard: Row = {"id": id, "fence": fence, "before": before, "last": number}
        steps = [
            StatementStep(_FINISH, (guard,), guard=True),
            StatementStep(_FORGET_REQUEST, ({"id": id},)),
        ]
        if last is not None:
            event = LogRow(number, number, last)
            steps.append(StatementStep(_ADD_EVENTS, (_event(id, event),)))
        return steps


def _event(id: str, row: LogRow) -> Row:
    return {"id": id, "first": row.first, "last": row.last, "data": row.data}
