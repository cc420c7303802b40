"""The database that several routers share: PostgreSQL, through asyncpg.

A pooler in front of it (pgbouncer) has to pool by session: statements are prepared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import compress
from typing import Any, Final

from router.errors import InternalError
from router.state.database import Fault, StateError, Unreachable, unavailable
from router.state.link import UNHOLDABLE, DatabaseLink
from router.state.migrate import migrate_postgresql
from router.state.statement import Dialect, Row, Statement, Value, postgresql_at_once
from router.state.watch import PROBE_DOWN, PROBE_UP, DatabaseWatch
from router.state.writer import WriteJob, WrittenDatabase, gathered
from router.telemetry.account_metrics import StateMetrics

__all__ = ["PostgresDatabase"]

_READERS: Final = 4
_PROBE_SECONDS: Final = 2.0
_START_SECONDS: Final = 60.0
_STUCK_SECONDS: Final = 2.0
_MOST_ROWS: Final = 16
"""So many rows of a job are one statement: each number of them is a statement of its own."""


class PostgresDatabase(WrittenDatabase):
    """Implements ``router.state.database.Database`` on a PostgreSQL server.

    ``durable``: what was written survives a power cut of the server; otherwise the server's own
    ``synchronous_commit`` applies. ``patient``: a server that does not answer at the start is no
    reason not to start; it is down until it does.
    """

    dialect: Dialect = "postgresql"

    def __init__(
        self,
        url: str,
        timeout: float,
        *,
        durable: bool,
        patient: bool = False,
        metrics: StateMetrics | None = None,
    ) -> None:
        super().__init__(timeout, metrics)
        self._url = url
        self._patient = patient
        self._current = False
        self._settings = {
            "application_name": "pointsman",
            # Compiling pays for queries that take seconds only.
            "jit": "off",
            # A router that is stopped in mid-transaction must not keep its locks.
            "idle_in_transaction_session_timeout": f"{_STUCK_SECONDS * 1000:.0f}",
        }
        if durable:
            self._settings["synchronous_commit"] = "on"

    async def start(self) -> None:
        """See ``Database.start``."""
        try:
            await self._migrate()
        except (Unreachable, Fault, StateError) as exc:
            if not (self._patient and isinstance(exc, Unreachable)):
                raise StateError(f"The PostgreSQL database cannot be used: {exc}.") from None
            self.lost(str(exc))
        self._link = DatabaseLink(self._url, self._settings, self._connection_lost)
        self._idle: asyncio.LifoQueue[DatabaseLink] = asyncio.LifoQueue()
        self._readers = [
            DatabaseLink(self._url, self._settings, self._connection_lost) for _ in range(_READERS)
        ]
        for link in self._readers:
            self._idle.put_nowait(link)
        self._watch = DatabaseWatch(self._probe, self)
        self._begin()

    async def close(self) -> None:
        """See ``Database.close``."""
        if not self._started:
            return
        await self._end()
        await self._watch.close()
        for link in (self._link, *self._readers):
            if self.down:
                link.give_up()
            else:
                await link.close()

    async def _rows(self, statement: Statement, parameters: Row) -> list[tuple[Any, ...]]:
        if not self.up:
            raise unavailable()
        sql, values = statement.postgresql, statement.values(parameters)
        try:
            return await self._read(sql, values, self._timeout)
        except Unreachable as exc:
            if exc.down:
                self.lost(str(exc))
            raise unavailable() from None
        except Fault as exc:
            raise InternalError("The stored state cannot be read.") from exc

    def _connection_lost(self) -> None:
        if self._started:
            self._watch.look()

    async def _read(
        self, sql: str, values: tuple[Value, ...], timeout: float
    ) -> list[tuple[Any, ...]]:
        async def fetch(connection: Any) -> list[tuple[Any, ...]]:
            try:
                return [tuple(record) for record in await connection.fetch(sql, *values)]
            except UNHOLDABLE:
                return []  # what cannot be stored is not there

        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        link = await self._free(timeout)
        try:
            try:
                return await link.run(fetch, timeout)
            except Unreachable:
                # A connection that waited may have died while it did: one more, if there is time.
                left = deadline - loop.time()
                if left < timeout / 2:
                    raise
                return await link.run(fetch, left)
        finally:
            self._idle.put_nowait(link)

    async def _free(self, timeout: float) -> DatabaseLink:
        if not self._idle.empty():
            return self._idle.get_nowait()
        try:
            async with asyncio.timeout(timeout):
                return await self._idle.get()
        except TimeoutError:
            raise Unreachable(f"no connection was free for {timeout:g} s") from None

    async def _migrate(self) -> None:
        # Not the writer's connection: jobs may wait to be written on that one already.
        link = DatabaseLink(self._url, self._settings, lambda: None)
        try:
            await link.run(migrate_postgresql, _START_SECONDS)
        finally:
            await link.close()
        self._current = True

    async def _probe(self, down: bool) -> None:
        if not self._current:
            try:
                await self._migrate()
            except StateError as exc:
                raise Fault(str(exc)) from None
        await self._read(PROBE_DOWN if down else PROBE_UP, (), _PROBE_SECONDS)

    async def _commit(self, jobs: Sequence[WriteJob]) -> list[bool]:
        async def commit(connection: Any) -> list[bool]:
            if len(jobs) == 1 and (single := _single(jobs[0])) is not None:
                changed = await connection.execute(*single)
                return [not jobs[0].guarded or not changed.endswith(" 0")]
            async with connection.transaction():
                return await _write(jobs, connection)

        if not self._current:
            raise Unreachable("its tables have not been looked at")
        return await self._link.run(commit, self._timeout)


def _single(job: WriteJob) -> tuple[Any, ...] | None:
    """The SQL and values of a job that is one row, or a few that one statement can insert.

    It needs no transaction around it, and one round trip instead of four.
    """
    steps = [step for step in job.steps if step.rows]
    count = sum([len(step.rows) for step in steps])
    if not 0 < count <= _MOST_ROWS:
        return None
    values = [value for s in steps for row in s.rows for value in s.statement.values(row)]
    if count == len(job.steps) == 1:
        return steps[0].statement.postgresql, *values
    if job.guarded or job.shape() is None:
        return None
    inserts = tuple([(step.statement, len(step.rows)) for step in steps])
    return postgresql_at_once(inserts), *values


async def _write(jobs: Sequence[WriteJob], connection: Any) -> list[bool]:
    answers: list[bool] = []
    for group, alike in gathered(jobs):
        run = _together if alike else _alone
        answers += await run(group, connection)
    return answers


async def _together(jobs: list[WriteJob], connection: Any) -> list[bool]:
    """Jobs of the same shape, statement by statement."""
    answers = [True] * len(jobs)
    held = jobs
    for index, step in enumerate(jobs[0].steps):
        values = step.statement.values
        if step.guard:
            rows = [values(job.steps[0].rows[0]) for job in jobs]
            answers = await _holding(step.statement, rows, connection)
            held = [*compress(jobs, answers)]
            continue
        rows = [values(row) for job in held for row in job.steps[index].rows]
        if rows:
            await connection.executemany(step.statement.postgresql, rows)
    return answers


async def _alone(jobs: list[WriteJob], connection: Any) -> list[bool]:
    """One job, step by step."""
    [job] = jobs
    if job.guarded:
        await connection.execute("SAVEPOINT job")
    for step in job.steps:
        rows = [step.statement.values(row) for row in step.rows]
        if not step.guard:
            await connection.executemany(step.statement.postgresql, rows)
        elif not all(await _holding(step.statement, rows, connection)):
            await connection.execute("ROLLBACK TO job; RELEASE job")
            return [False]
    if job.guarded:
        await connection.execute("RELEASE job")
    return [True]


async def _holding(
    statement: Statement, rows: list[tuple[Value, ...]], connection: Any
) -> list[bool]:
    """Which rows of a guard change something; all of them are run, in one round trip."""
    place = len(statement.names) + 1
    sql = f"{statement.postgresql} RETURNING CAST(${place} AS INTEGER)"
    numbered = [(*row, number) for number, row in enumerate(rows)]
    changed = {record[0] for record in await connection.fetchmany(sql, numbered)}
    return [number in changed for number in range(len(rows))]
