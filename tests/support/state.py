"""Real databases for tests: SQLite files, databases in memory, and PostgreSQL.

``from tests.support.state import database, database_url`` gives a test module the fixtures.
``TEST_POSTGRES_URL`` names a server (and a database of it to connect to first); without it that
is the one on 127.0.0.1. Where none answers those tests are skipped.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio
from pydantic import SecretStr

from router.settings.schema import StateSettings
from router.state.connect import open_database
from router.state.database import Database

__all__ = [
    "database",
    "database_url",
    "english_postgresql_url",
    "opened",
    "postgresql_url",
    "state_settings",
]

MAINTENANCE = os.environ.get("TEST_POSTGRES_URL", "postgresql://127.0.0.1:5432/postgres")


_spare: list[str] = []
"""Databases of tests that are over: emptying one takes a tenth of the time of making one."""


@asynccontextmanager
async def postgresql_url() -> AsyncIterator[str]:
    """The URL of an empty database that nobody else uses."""
    name = _spare.pop() if _spare else await _created()
    url = urlsplit(MAINTENANCE)._replace(path=f"/{name}").geturl()
    yield url
    await _emptied(name, url)
    _spare.append(name)


@asynccontextmanager
async def english_postgresql_url() -> AsyncIterator[str]:
    """The same for a database that sorts as English does: signs come before letters and digits."""
    name = await _created(
        "TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
    )
    yield urlsplit(MAINTENANCE)._replace(path=f"/{name}").geturl()


async def _created(options: str = "") -> str:
    name = f"pointsman_test_{secrets.token_hex(8)}"
    try:
        server = await asyncpg.connect(MAINTENANCE, timeout=5)
    except (OSError, TimeoutError, asyncpg.PostgresError) as exc:
        pytest.skip(f"no PostgreSQL server answers: {type(exc).__name__}")
    try:
        await server.execute(f"CREATE DATABASE {name} {options}")
    finally:
        await server.close()
    atexit.register(_drop, name)
    return name


async def _emptied(name: str, url: str) -> None:
    """Whoever is still connected is thrown out first."""
    connection = await asyncpg.connect(url, timeout=5)
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        )
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    finally:
        await connection.close()


def _drop(name: str) -> None:
    """At the end of the process, whether its tests went well or not."""

    async def drop() -> None:
        server = await asyncpg.connect(MAINTENANCE, timeout=5)
        try:
            await server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        finally:
            await server.close()

    asyncio.run(drop())


def state_settings(url: str, **more: Any) -> StateSettings:
    """The settings of a database at ``url``."""
    return StateSettings(url=SecretStr(url), **more)


@asynccontextmanager
async def opened(url: str, **more: Any) -> AsyncIterator[Database]:
    """A started database, closed at the end."""
    database = open_database(state_settings(url, **more))
    await database.start()
    try:
        yield database
    finally:
        await database.close()


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'state.db'}"
        return
    async with postgresql_url() as url:
        yield url


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A started database of each kind."""
    async with opened(database_url) as database:
        yield database
