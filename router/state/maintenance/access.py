"""A connection for whoever looks after a database: nothing is migrated, nothing runs beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from router.errors import RouterError, StateUnavailable
from router.settings.schema import StateSettings
from router.state.connect import SQLITE, require_asyncpg
from router.state.database import StateError
from router.state.migrate import newer
from router.state.schema import SCHEMA_VERSION
from router.state.statement import Statement

__all__ = ["Access", "Damaged", "given_up", "is_current", "open_access", "place_of", "shown_url"]

_HOST: Final = r"(\[[0-9a-fA-F:.]+\]|[\w.-]*)(:\d+)?"
_HOSTS: Final = re.compile(rf"{_HOST}(,{_HOST})*")


class Damaged(StateError):
    """The file is a database, and broken."""


class Access(Protocol):
    """One connection. Everything raises StateError, and Damaged where a file is broken."""

    async def version(self) -> int:
        """The version of the schema; 0 where none of our tables are there."""
        ...

    async def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        """The rows of a SELECT without parameters, as they stand in one moment."""
        ...

    async def scan(self, statement: Statement, visit: Callable[[tuple[Any, ...]], None]) -> None:
        """``rows`` for many of them: calls ``visit`` with each, maybe in another thread."""
        ...

    async def size(self) -> int:
        """What the database takes up on disk, in bytes."""
        ...

    async def damage(self) -> list[str]:
        """What the database itself finds wrong with its files; the first few lines."""
        ...

    async def reusable(self) -> int:
        """Bytes of the file that hold nothing; 0 where the database does not tell."""
        ...

    async def compact(self) -> None:
        """Give room back: for new rows, and with SQLite to the file system."""
        ...

    async def fold(self) -> None:
        """Put what a write-ahead log of SQLite's holds into the file, and empty the log."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


def open_access(settings: StateSettings, *, writing: bool = False) -> Access | None:
    """The database of ``state.url`` as it is; None where its file is not there yet.

    Raises StateError where there can be none.
    """
    url = settings.url.get_secret_value()
    if not url.startswith(SQLITE):
        require_asyncpg()
        from router.state.maintenance.postgres import PostgresAccess

        return PostgresAccess(url, writing=writing)
    path = url.removeprefix(SQLITE)
    if path == ":memory:":
        raise StateError("it is kept in the router's memory, where nobody else can see it")
    if not os.path.exists(path):
        if os.access(os.path.dirname(path) or ".", os.W_OK | os.X_OK):
            return None
        raise StateError(f"{path}: its directory is not there, or cannot be written to")
    from router.state.maintenance.sqlite import SqliteAccess

    return SqliteAccess(path, writing=writing)


def place_of(settings: StateSettings) -> str:
    """Where the database is, for people: of SQLite the whole path."""
    path = settings.url.get_secret_value().removeprefix(SQLITE)
    shown = shown_url(settings)
    return os.path.abspath(path) if shown.startswith(SQLITE) and path != ":memory:" else shown


async def is_current(settings: StateSettings) -> bool:
    """Whether there is a database with the schema of this code; False where it is still empty.

    Raises StateError for any other schema, which is not ours to change here.
    """
    access = open_access(settings)
    if access is None:
        return False
    try:
        version = await access.version()
    finally:
        await access.close()
    if version > SCHEMA_VERSION:
        raise newer(version)
    if 0 < version < SCHEMA_VERSION:
        raise StateError(
            f"it has schema version {version}, and this Pointsman works with version "
            f"{SCHEMA_VERSION}; 'pointsman serve' brings it up to date"
        )
    return version == SCHEMA_VERSION


def given_up(error: RouterError) -> StateError:
    """What ended a command that worked through the stores."""
    if isinstance(error, StateUnavailable):
        return StateError("it does not answer any more")
    return StateError(error.message)


def shown_url(settings: StateSettings) -> str:
    """``state.url`` for people: without password and options."""
    url = settings.url.get_secret_value()
    if url.startswith(SQLITE):
        return url
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme}://..."
    account, at, hosts = parts.netloc.rpartition("@")
    # A password with an unescaped / ? or # in it ends up in what follows the host.
    if "@" in parts.path + parts.query + parts.fragment or not _HOSTS.fullmatch(hosts):
        return f"{scheme}://..."
    return f"{scheme}://{account.partition(':')[0]}{at}{hosts}{parts.path}"
