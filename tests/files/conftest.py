"""Every test that asks for a database is run on SQLite and on PostgreSQL."""

from __future__ import annotations

from tests.support.state import database, database_url

__all__ = ["database", "database_url"]
