"""The databases of a run: made for it, and gone with it."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg
from pydantic import SecretStr

from router.settings.schema import StateSettings
from router.state.connect import SQLITE, open_database
from router.state.database import Database

__all__ = ["Databases", "opened", "size_mib"]

_SERVER: Final = os.environ.get("TEST_POSTGRES_URL", "postgresql://127.0.0.1:5432/postgres")
_LIMIT: Final = 60.0
_CONNECT_LIMIT: Final = 5.0


class Databases:
    """Makes databases; what it made on a PostgreSQL server is dropped on leaving the context.

    ``server`` is the URL of a PostgreSQL server and of a database of it to connect to first; the
    variable ``TEST_POSTGRES_URL`` names another than the one on 127.0.0.1.
    """

    def __init__(self, directory: Path, server: str = _SERVER) -> None:
        self._directory = directory
        self._url = server
        self._server: asyncpg.Connection | None = None
        self._made: list[str] = []

    async def __aenter__(self) -> Databases:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            for name in self._made:
                await self._server.execute(f"DROP DATABASE {name} WITH (FORCE)", timeout=_LIMIT)
            await self._server.close(timeout=_CONNECT_LIMIT)

    async def make(self, kind: str, name: str) -> str | None:
        """The URL of an empty database, ``sqlite`` or ``postgresql``; None without a server."""
        if kind == "sqlite":
            return f"{SQLITE}{self._directory / name}.db"
        if self._server is None:
            try:
                self._server = await asyncpg.connect(self._url, timeout=_CONNECT_LIMIT)
            except (OSError, TimeoutError, asyncpg.PostgresError):
                return None
        own = f"pointsman_bench_{secrets.token_hex(8)}"
        await self._server.execute(f"CREATE DATABASE {own}", timeout=_LIMIT)
        self._made.append(own)
        return urlsplit(self._url)._replace(path=f"/{own}").geturl()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """The database at ``url``, with its tables, as a router sees it; StateError if it cannot be."""
    database = open_database(StateSettings(url=SecretStr(url)))
    await database.start()
    try:
        yield database
    finally:
        await database.close()


async def size_mib(url: str) -> float:
    """What it takes on disk, its log of changes left out."""
    if url.startswith(SQLITE):
        return os.stat(url.removeprefix(SQLITE)).st_size / 2**20
    async with asyncio.timeout(_LIMIT):
        connection = await asyncpg.connect(url)
        try:
            size: int = await connection.fetchval("SELECT pg_database_size(current_database())")
        finally:
            await connection.close()
    return size / 2**20
