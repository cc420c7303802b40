"""Putting SQL past everything that would refuse it."""

from __future__ import annotations

import sqlite3

import asyncpg

from router.state.statement import Statement

__all__ = ["executed"]


async def executed(url: str, *texts: str) -> None:
    """Run these in the database of ``url``, whatever they leave behind."""
    statements = [Statement(text) for text in texts]
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        try:
            for statement in statements:
                connection.execute(statement.sqlite)
        finally:
            connection.close()
        return
    server = await asyncpg.connect(url, timeout=5)
    try:
        await server.execute("SET session_replication_role = replica")  # no foreign keys
        for statement in statements:
            await server.execute(statement.postgresql)
    finally:
        await server.close()
