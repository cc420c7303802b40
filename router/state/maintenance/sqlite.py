"""A SQLite file under maintenance: read-only, or to be made smaller, beside a running router
too.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from router.state.database import StateError, Unreachable
from router.state.maintenance.access import Damaged
from router.state.migrate import sqlite_version
from router.state.sqlite import Workers
from router.state.statement import Statement

__all__ = ["SqliteAccess"]

T = TypeVar("T")

_PATIENCE: Final = 3600.0
_BUSY_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.05
_CLOSE_SECONDS: Final = 2.0
_LINES: Final = 20


class SqliteAccess:
    """Implements ``Access``. Reading does not hold up a router, and leaves no lock behind."""

    def __init__(self, path: str, *, writing: bool) -> None:
        self._path = path
        self._mode = "rw" if writing else "ro"
        self._workers = Workers("state maintenance", 1, self._connect)

    async def version(self) -> int:
        """See ``Access.version``."""
        return await self._run(sqlite_version)

    async def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        """See ``Access.rows``."""
        return await self._run(partial(_fetch, statement.sqlite))

    async def scan(self, statement: Statement, visit: Callable[[tuple[Any, ...]], None]) -> None:
        """See ``Access.scan``."""

        def work(connection: sqlite3.Connection) -> None:
            for row in connection.execute(statement.sqlite):
                visit(row)

        await self._run(work)

    async def size(self) -> int:
        """See ``Access.size``."""
        files = (Path(self._path + suffix) for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    async def damage(self) -> list[str]:
        """See ``Access.damage``."""
        found = await self._run(partial(_fetch, f"PRAGMA integrity_check({_LINES})"))
        return [line for (line,) in found if line != "ok"]

    async def reusable(self) -> int:
        """See ``Access.reusable``."""
        (free,), (size,) = [
            (await self._run(partial(_fetch, f"PRAGMA {name}")))[0]
            for name in ("freelist_count", "page_size")
        ]
        return int(free) * int(size)

    async def compact(self) -> None:
        """See ``Access.compact``."""
        await self._run(partial(_fetch, "VACUUM"))
        await self.fold()

    async def fold(self) -> None:
        """See ``Access.fold``."""
        # SQLite itself does not wait for another's checkpoint to be over.
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            ((blocked, *_),) = await self._run(partial(_fetch, "PRAGMA wal_checkpoint(TRUNCATE)"))
            if not blocked:
                return
            if time.monotonic() > deadline:
                raise StateError(_busy(self._path))
            await asyncio.sleep(_PAUSE_SECONDS)

    async def close(self) -> None:
        """See ``Access.close``."""
        await self._workers.close(_CLOSE_SECONDS)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._workers.run(work, _PATIENCE)
        except sqlite3.Error as exc:
            raise self._meaning(exc) from None
        except Unreachable as exc:
            raise StateError(f"{self._path}: {exc}") from None

    def _meaning(self, exc: sqlite3.Error) -> StateError:
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CORRUPT:
            return Damaged(
                f"{self._path}: the file is damaged ({exc}); take a backup, or save what can be "
                f"saved: sqlite3 {self._path} .recover"
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StateError(_busy(self._path))
        if code == sqlite3.SQLITE_FULL:
            return StateError(
                f"{self._path}: the disk is full; as much again as the file is needed meanwhile"
            )
        return StateError(f"{self._path}: {exc}")

    def _connect(self) -> sqlite3.Connection:
        # A path that begins with two slashes would be read as a host.
        uri = f"file:{quote(os.path.abspath(self._path))}?mode={self._mode}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=True
        )
        # What is broken should be seen, not stumbled over.
        connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
        return connection


def _fetch(sql: str, connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


def _busy(path: str) -> str:
    return (
        f"{path}: another process did not let go of it for {_BUSY_SECONDS:g} s; try again when it "
        "is quieter, or stop what uses it meanwhile (to see what that is: lsof, fuser)"
    )
