"""From ``state.url`` to a database."""

from __future__ import annotations

from typing import Final

from router.settings.schema import StateSettings
from router.settings.words import install_extra
from router.state.database import Database, StateError
from router.state.sqlite import SqliteDatabase
from router.telemetry.account_metrics import StateMetrics

__all__ = ["SQLITE", "open_database", "require_asyncpg"]

SQLITE: Final = "sqlite:///"
"""What the URL of a SQLite database begins with."""


def open_database(settings: StateSettings, metrics: StateMetrics | None = None) -> Database:
    """The database of ``state.url``, not started yet; what it does is counted in ``metrics``.

    Raises StateError where what it needs is not installed.
    """
    url = settings.url.get_secret_value()
    durable = settings.durability == "power"
    if url.startswith(SQLITE):
        path = url.removeprefix(SQLITE)
        return SqliteDatabase(path, settings.timeout, durable=durable, metrics=metrics)
    require_asyncpg()
    from router.state.postgres import PostgresDatabase

    patient = settings.on_down == "degrade"
    return PostgresDatabase(
        url, settings.timeout, durable=durable, patient=patient, metrics=metrics
    )


def require_asyncpg() -> None:
    """Raises StateError where it is not installed."""
    try:
        import asyncpg  # noqa: F401
    except ModuleNotFoundError as exc:
        if exc.name != "asyncpg":
            raise
        raise StateError(
            "state.url is a PostgreSQL database, and asyncpg is not installed; "
            + install_extra("postgres")
        ) from None
