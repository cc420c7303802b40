"""Bringing the tables up to date at start, whoever else starts at the same moment.

``pointsman_schema`` has one row, the version. Each version is one transaction under a lock, so
that one which fails leaves the version before it.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from router.state.database import StateError
from router.state.schema import SCHEMA_VERSION, VERSIONS
from router.state.statement import Statement

__all__ = [
    "migrate_postgresql",
    "migrate_sqlite",
    "newer",
    "postgresql_version",
    "sqlite_version",
]

_LOCK: Final = 0x73776974636879  # "switchy"
_TABLE: Final = "CREATE TABLE IF NOT EXISTS pointsman_schema (version INTEGER NOT NULL)"
_VERSION: Final = "SELECT max(version) FROM pointsman_schema"


def migrate_sqlite(connection: sqlite3.Connection) -> None:
    """Run what is missing. Raises StateError for a schema that is newer than this code."""
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = sqlite_version(connection)
            if _is_current(version):
                return
            for text in (_TABLE, *VERSIONS[version], *_mark(version + 1)):
                connection.execute(Statement(text).sqlite)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


async def migrate_postgresql(connection: Any) -> None:
    """Run what is missing. Raises StateError for a schema that is newer than this code."""
    while True:
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            version = await postgresql_version(connection)
            if _is_current(version):
                return
            for text in (_TABLE, *VERSIONS[version], *_mark(version + 1)):
                await connection.execute(Statement(text).postgresql)


def sqlite_version(connection: sqlite3.Connection) -> int:
    """The version of the schema; 0 where there is none."""
    tables = "SELECT 1 FROM sqlite_master WHERE name = 'pointsman_schema'"
    there = connection.execute(tables).fetchone() is not None
    return connection.execute(_VERSION).fetchone()[0] or 0 if there else 0


async def postgresql_version(connection: Any) -> int:
    """The version of the schema; 0 where there is none."""
    there = await connection.fetchval("SELECT to_regclass('pointsman_schema') IS NOT NULL")
    return (await connection.fetchval(_VERSION) or 0) if there else 0


def newer(version: int) -> StateError:
    """The error for a schema of this version, which is past what this code knows."""
    return StateError(
        f"it has schema version {version}, and this Pointsman knows versions up to "
        f"{SCHEMA_VERSION}; upgrade Pointsman (nothing was changed)"
    )


def _mark(version: int) -> tuple[str, str]:
    return (
        "DELETE FROM pointsman_schema",
        f"INSERT INTO pointsman_schema (version) VALUES ({version})",
    )


def _is_current(version: int) -> bool:
    if version > SCHEMA_VERSION:
        raise newer(version)
    return version == SCHEMA_VERSION
