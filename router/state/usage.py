"""The rows of the usage ledger in the database: added, shown, and deleted when they are old."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from router.state.database import Database
from router.state.statement import Row, Statement, StatementStep, Value, Values

__all__ = ["COLUMNS", "UsageRows", "as_values", "split_tags"]

COLUMNS: Final = (
    "id", "at", "request", "key", "tags", "operation", "kind", "model", "served", "endpoint",
    "input", "cached", "output", "reasoning", "cost", "duration", "first_token", "outcome",
    "error", "provenance", "response", "stream", "session", "agent", "parent_agent",
)  # fmt: skip

_ADD: Final = Statement(
    f"INSERT INTO usage ({', '.join(COLUMNS)}) "
    f"VALUES ({', '.join(':' + name for name in COLUMNS)}) ON CONFLICT (id) DO NOTHING"
)
_OLD: Final = Statement(
    "SELECT id FROM usage WHERE at < CAST(:before AS {real}) ORDER BY at LIMIT :limit"
)
_REMOVE: Final = Statement("DELETE FROM usage WHERE id = :id")
_PAGE: Final = Statement(
    f"""
    SELECT {", ".join(COLUMNS)}, attempts, unit FROM usage
    WHERE key = :key AND (at, id) > (CAST(:at AS {{real}}), CAST(:id AS TEXT))
    ORDER BY at, id LIMIT :limit
    """
)
_EXPORTED: Final = 200


class UsageRows:
    """The table ``usage``. Everything raises StateUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rows: Sequence[Values], size: int | None = None) -> None:
        """Write rows, in the order of ``COLUMNS``; one that is there already is left as it is.
        ``size`` is about how many bytes they take.

        Raises WriteRefused, and writes none of them, where the database takes one from nobody.
        """
        await self._database.write(StatementStep(_ADD, rows, size=size))

    async def purge(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` rows from before ``before`` (Unix time); how many those were."""
        old: list[Row] = [
            {"id": row[0]} for row in await self._database.read(_OLD, before=before, limit=limit)
        ]
        if old:
            await self._database.write(StatementStep(_REMOVE, old))
        return len(old)

    async def export(self, key: str) -> AsyncIterator[dict[str, Any]]:
        """Every row of one key, from the oldest, as JSON objects; ``tags`` is an array there, and
        rows that were rolled up say how many ``attempts`` they stand for.
        """
        at, ident = 0.0, ""
        while rows := await self._database.read(_PAGE, key=key, at=at, id=ident, limit=_EXPORTED):
            for *values, attempts, unit in rows:
                row = dict(zip(COLUMNS, values, strict=True))
                if unit:
                    row["attempts"] = attempts
                yield {**row, "tags": split_tags(row["tags"]), "stream": bool(row["stream"])}
            ident, at = rows[-1][:2]


def split_tags(stored: str) -> list[str]:
    """The tags of a row; see ``UsageRecord.values``."""
    return stored[1:-1].split(",") if stored else []


_NO_SESSION: Final = ("", "", "")


def as_values(values: Sequence[Value], *, sessions: bool = True) -> Values:
    """Values in the order of ``COLUMNS``; ValueError for another number of them. Without
    ``sessions`` those of a version that knew of none.
    """
    if not sessions:
        values = (*values, *_NO_SESSION)
    if len(values) != len(COLUMNS):
        raise ValueError(f"{len(values)} values are no row")
    return tuple(values)
