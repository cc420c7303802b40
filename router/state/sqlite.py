"""The database of a single machine: SQLite in WAL mode, through the standard library.

``Workers`` are the threads that own a connection and do one piece of work after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain, compress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from router.errors import InternalError
from router.state.database import Fault, StateError, Unreachable, unavailable
from router.state.files import DatabaseFiles
from router.state.migrate import migrate_sqlite
from router.state.statement import Dialect, Row, Statement, StatementStep, Value
from router.state.watch import PROBE_DOWN, PROBE_UP, DatabaseWatch
from router.state.writer import WriteJob, WrittenDatabase, gathered
from router.telemetry.account_metrics import StateMetrics
from router.telemetry.log import get_logger

__all__ = ["SqliteDatabase", "Workers"]

_log = get_logger("router.state")
_OLDEST: Final = (3, 35)
_READERS: Final = 2
_MEMORY: Final = ":memory:"
_BUSY_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 2.0
_START_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.01
_FEW_ROWS: Final = 16
_MOST_ROWS: Final = 128
"""Rows of one statement: up to 16 any number, then multiples of that. Each number is another
statement to SQLite, which keeps them prepared.
"""
_TROUBLE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
    }
)
"""What is no fault of the row or the statement."""

_UNHOLDABLE: Final = (OverflowError, UnicodeEncodeError)
"""Values that SQLite has no place for: integers past 64 bits, lone surrogates."""


class SqliteDatabase(WrittenDatabase):
    """Implements ``router.state.database.Database`` on the file ``path``, or on ``:memory:``.

    One thread writes and two read, each with a connection of its own; a database in memory is
    one connection, and nobody else's. Reads are answered even while the file cannot be written.
    ``durable``: what was written survives a power cut, not just the end of the process.

    A file that was deleted, moved or replaced counts as down until it is back: nothing is
    acknowledged that only an open file without a name would have. No other file is opened in its
    place; that takes a restart.
    """

    dialect: Dialect = "sqlite"

    def __init__(
        self, path: str, timeout: float, *, durable: bool, metrics: StateMetrics | None = None
    ) -> None:
        super().__init__(timeout, metrics)
        self._path = path
        self._durable = durable
        self._files = DatabaseFiles(path)

    async def start(self) -> None:
        """See ``Database.start``."""
        if sqlite3.sqlite_version_info < _OLDEST:
            raise StateError(f"SQLite {sqlite3.sqlite_version} is too old: at least 3.35 is needed")
        self._writing = Workers("state writer", 1, self._connect)
        try:
            await self._writing.run(self._prepare, _START_SECONDS)
        except (sqlite3.Error, Unreachable, StateError) as exc:
            await self._writing.close(_CLOSE_SECONDS)
            raise StateError(f"The database {self._path} cannot be used: {exc}.") from None
        self._reading = self._writing
        if self._path != _MEMORY:
            self._reading = Workers("state reader", _READERS, self._connect)
        self._watch = DatabaseWatch(self._probe, self)
        self._begin()

    async def close(self) -> None:
        """See ``Database.close``."""
        if not self._started:
            return
        await self._end()
        await self._watch.close()
        await self._reading.close(_CLOSE_SECONDS)
        if self._writing is not self._reading:
            await self._writing.close(_CLOSE_SECONDS)

    async def _rows(self, statement: Statement, parameters: Row) -> list[tuple[Any, ...]]:
        if not self._started:
            raise unavailable()
        work = partial(_fetch, statement.sqlite, statement.sqlite_values(parameters))
        try:
            return await self._reading.run(work, self._timeout)
        except Unreachable as exc:
            _log.warning("a read failed", error=str(exc))
            raise unavailable() from None
        except Fault as exc:
            raise InternalError("The stored state cannot be read.") from exc

    def _prepare(self, connection: sqlite3.Connection) -> None:
        _prepare(self._timeout, connection)
        if self._path != _MEMORY:
            self._files.note()

    def _commit(self, jobs: Sequence[WriteJob]) -> Awaitable[list[bool]]:
        return self._writing.run(partial(_commit, jobs, self._files), None)

    async def _probe(self, down: bool) -> None:
        sql = PROBE_DOWN if down else PROBE_UP
        await self._writing.run(partial(_ask, sql, self._files), None)

    def _connect(self) -> sqlite3.Connection:
        self._files.check()
        connection = self._opened()
        try:
            self._files.check()  # it may have been replaced just before it was opened
        except BaseException:
            connection.close()
            raise
        return connection

    def _opened(self) -> sqlite3.Connection:
        try:
            if self._path != _MEMORY and not self._files.noted:
                _create(self._path)
            connection = sqlite3.connect(
                self._path,
                timeout=min(_BUSY_SECONDS, self._timeout / 4),
                isolation_level=None,
                cached_statements=256,
            )
        except (sqlite3.Error, OSError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else str(exc)
            raise Unreachable(reason or str(exc)) from None
        try:
            # No mmap: an error of the disk would be a SIGBUS.
            connection.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA cache_size=-16384")
            connection.execute("PRAGMA journal_size_limit=67108864")
        except BaseException:
            connection.close()  # the first of them opens the file
            raise
        return connection


def _create(path: str) -> None:
    """The file holds people's conversations: nobody else may read it."""
    if not os.path.exists(path):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _prepare(timeout: float, connection: sqlite3.Connection) -> None:
    # Two processes that start at once: SQLite does not wait for the other's change of mode.
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            migrate_sqlite(connection)
            return
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)


def _fetch(
    sql: str, values: tuple[Value, ...], connection: sqlite3.Connection
) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(sql, values).fetchall()
    except _UNHOLDABLE:
        return []  # what cannot be stored is not there
    except sqlite3.Error as exc:
        raise _sorted(exc) from None


def _ask(sql: str, files: DatabaseFiles, connection: sqlite3.Connection) -> None:
    files.check()
    try:
        connection.execute(sql).fetchall()
    except sqlite3.Error as exc:
        raise _sorted(exc) from None


def _commit(
    jobs: Sequence[WriteJob], files: DatabaseFiles, connection: sqlite3.Connection
) -> list[bool]:
    files.check()
    try:
        connection.execute("BEGIN IMMEDIATE")
        if any(job.over for job in jobs):
            # This has waited for a lock, and callers were told meanwhile that it is not written.
            raise Unreachable("some jobs are overdue", down=False)
        answers: list[bool] = []
        for group, alike in gathered(jobs):
            answers += _together(group, connection) if alike else _alone(group, connection)
        connection.execute("COMMIT")
    except Exception as exc:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise _sorted(exc) from None
    files.check()  # only what is in the file that has the name was written
    return answers


def _together(jobs: list[WriteJob], connection: sqlite3.Connection) -> list[bool]:
    """Jobs of the same shape, statement by statement."""
    answers = [True] * len(jobs)
    held = jobs
    for index, step in enumerate(jobs[0].steps):
        if step.guard:
            answers = [_holds(job.steps[0], connection) for job in jobs]
            held = [*compress(jobs, answers)]
            continue
        values = step.statement.sqlite_values
        rows = [values(row) for job in held for row in job.steps[index].rows]
        _insert(step.statement, rows, connection)
    return answers


def _alone(jobs: list[WriteJob], connection: sqlite3.Connection) -> list[bool]:
    """One job, step by step."""
    [job] = jobs
    connection.execute("SAVEPOINT job")
    for step in job.steps:
        if step.guard and not _holds(step, connection):
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            return [False]
        if not step.guard:
            rows = [step.statement.sqlite_values(row) for row in step.rows]
            connection.executemany(step.statement.sqlite, rows)
    connection.execute("RELEASE job")
    return [True]


def _holds(step: StatementStep, connection: sqlite3.Connection) -> bool:
    """Whether each row of a guard changed something; ends with the first that did not."""
    sql, values = step.statement.sqlite, step.statement.sqlite_values
    return all(connection.execute(sql, values(row)).rowcount > 0 for row in step.rows)


def _insert(
    statement: Statement, rows: list[tuple[Value, ...]], connection: sqlite3.Connection
) -> None:
    """Run a plain statement for all rows, many at a time.

    Each call into SQLite gives the interpreter's lock away, and getting it back from a busy event
    loop takes up to 5 ms: what counts is how many calls there are, not how much each does.
    """
    done = 0
    while left := min(len(rows) - done, _MOST_ROWS):
        size = left if left <= _FEW_ROWS else left - left % _FEW_ROWS
        values = chain.from_iterable(rows[done : done + size])
        connection.execute(statement.sqlite_rows(size), [*values])
        done += size


def _sorted(exc: Exception) -> Exception:
    """What ``exc`` means: the database's trouble, or a row's fault."""
    if isinstance(exc, Unreachable):
        return exc
    if isinstance(exc, sqlite3.OperationalError):
        code = exc.sqlite_errorcode & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return Unreachable(str(exc), down=False, locked=True)
        if code in _TROUBLE:
            return Unreachable(str(exc))
    # SQLite names tables and columns, never a value.
    return Fault(str(exc) if isinstance(exc, sqlite3.Error) else type(exc).__name__)


T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]

_MAX_WAITING: Final = 10_000
_LATE_SECONDS: Final = 0.005
_ASIDE_SECONDS: Final = 0.002
_LONGEST_PAUSE: Final = 0.25


class Workers:
    """``count`` threads behind one queue, each with a connection from ``connect``.

    What ``connect`` raises is the answer to whoever needed the connection.

    They are daemons: one that hangs in the operating system does not keep the process alive.

    An event loop that never rests starves threads of the interpreter's lock: a commit of 2 ms
    then takes a second. So the loop stands aside for a moment when work is late, less and less
    often where that does not help.
    """

    def __init__(self, name: str, count: int, connect: Callable[[], sqlite3.Connection]) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect = connect
        self._queue: SimpleQueue[tuple[Work, asyncio.Future[Any]] | None] = SimpleQueue()
        self._under_way = 0
        self._done = threading.Event()
        self._patience: asyncio.TimerHandle | None = None
        self._ended = [self._loop.create_future() for _ in range(count)]
        for number, ended in enumerate(self._ended):
            called = f"{name} {number}"
            threading.Thread(target=self._live, args=(ended,), name=called, daemon=True).start()

    async def run(self, work: Callable[[sqlite3.Connection], T], timeout: float | None) -> T:
        """What ``work`` returns or raises, done in a thread.

        Raises Unreachable past ``timeout`` (seconds): then it may still be done.
        """
        if self._queue.qsize() >= _MAX_WAITING:
            raise Unreachable("too many statements wait for the database")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((work, answer))
        self._under_way += 1
        if self._patience is None:
            self._patience = self._loop.call_later(_LATE_SECONDS, self._late, _LATE_SECONDS)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise Unreachable(f"no answer within {timeout:g} s") from None

    async def close(self, timeout: float) -> None:
        """End the threads and their connections; one that hangs is left behind."""
        for _ in self._ended:
            self._queue.put(None)
        await asyncio.wait(self._ended, timeout=timeout)
        if self._patience is not None:
            self._patience.cancel()

    def _late(self, pause: float) -> None:
        self._patience = None
        if not self._under_way:
            return
        self._done.clear()
        pause = _LATE_SECONDS if self._done.wait(_ASIDE_SECONDS) else min(2 * pause, _LONGEST_PAUSE)
        self._patience = self._loop.call_later(pause, self._late, pause)

    def _settle(self, answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._under_way -= 1
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _live(self, ended: asyncio.Future[None]) -> None:
        connection: sqlite3.Connection | None = None
        while (item := self._queue.get()) is not None:
            work, answer = item
            result: Any = None
            error: Exception | None = None
            try:
                connection = connection or self._connect()
                result = work(connection)
            except Exception as exc:
                error = exc
            self._tell(self._settle, answer, result, error)
            self._done.set()
            del item, work, answer, result, error
        if connection is not None:
            connection.close()
        self._tell(ended.set_result, None)

    def _tell(self, what: Callable[..., object], *arguments: Any) -> None:
        # The loop is closed when the application was: then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *arguments)
