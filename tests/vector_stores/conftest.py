"""Tests that ask for a database are run on SQLite and on PostgreSQL."""

from __future__ import annotations

from tests.support.state import database, database_url

__all__ = ["database", "database_url"]
