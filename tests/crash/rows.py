"""What stands in the database itself: also what no client was ever told of."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import asyncpg

__all__ = ["broken_rows", "unfinished"]

_UNFINISHED = """
    SELECT id FROM responses WHERE status IN ('queued', 'in_progress')
    UNION SELECT id FROM runs WHERE state <> 'over'
"""
_RULES = {
    "a finished run of a response without an end": """
        SELECT runs.id FROM runs JOIN responses ON responses.id = runs.id
        WHERE runs.state = 'over'
        AND responses.status NOT IN ('completed', 'incomplete', 'failed', 'cancelled')
    """,
    "a resumable response without its run": """
        SELECT id FROM responses WHERE resumable = 1 AND status <> 'deleted'
        AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = responses.id)
    """,
    "events that do not begin with 0, or do not end with the last one of the run": """
        SELECT runs.id FROM runs LEFT JOIN events ON events.response = runs.id
        GROUP BY runs.id, runs.last_event
        HAVING min(events.first) <> 0 OR max(events.last) <> runs.last_event
    """,
    "a gap between events, or a repetition": """
        SELECT events.response FROM events WHERE events.first > 0 AND NOT EXISTS (
            SELECT 1 FROM events AS before
            WHERE before.response = events.response AND before.last = events.first - 1
        )
    """,
    "a request of a run that is over": """
        SELECT run FROM run_requests JOIN runs ON runs.id = run WHERE state = 'over'
    """,
    "a response with neither input nor deletion": """
        SELECT id FROM responses WHERE status <> 'deleted' AND length(input) <= 2
    """,
}


async def unfinished(url: str) -> list[str]:
    """The ids of responses and runs that have not come to their end."""
    return [row[0] for row in await _read(url, _UNFINISHED)]


async def broken_rows(url: str) -> list[str]:
    """What contradicts itself."""
    found = []
    for rule, query in _RULES.items():
        found += [f"{row[0]}: {rule}" for row in await _read(url, query)]
    if url.startswith("sqlite:"):
        for check in ("integrity_check", "foreign_key_check"):
            rows = await _read(url, f"PRAGMA {check}")
            found += [f"{check}: {row}" for row in rows if row != ("ok",)]
    return found


async def _read(url: str, query: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite:"):
        return await asyncio.to_thread(_read_sqlite, url.removeprefix("sqlite:///"), query)
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


def _read_sqlite(path: str, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path, timeout=10)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()
