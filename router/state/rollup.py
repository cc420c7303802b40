"""Rows of the usage ledger rolled up: all alike of an hour, or of a day, become one row.

Alike are rows that no report tells apart: key, tags, operation, kind, models, endpoint, outcome and
provenance, and whether they have a price and used tokens. Tokens, costs and counts are added up
exactly; ids of requests, responses and sessions, errors, and the time of each attempt are not
kept.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, Literal

import orjson

from router.state.database import Database
from router.state.statement import Statement, StatementStep
from router.state.usage import COLUMNS

__all__ = ["SECONDS", "Unit", "roll_up"]

Unit = Literal[1, 2]
"""An hour, a day: the column ``unit``."""

SECONDS: Final[dict[Unit, int]] = {1: 3600, 2: 86_400}
"""How long each is; days are those of UTC."""

_APART: Final = (
    "key", "tags", "operation", "kind", "model", "served", "endpoint", "outcome", "provenance",
)  # fmt: skip
_ADDED: Final = ("input", "cached", "output", "reasoning", "cost", "duration", "attempts")
_READ: Final = ("id", "at", *_APART, *_ADDED)
_WRITTEN: Final = (*COLUMNS, "attempts", "unit")

_VERSION: Final = Statement("SELECT version FROM usage_rollups WHERE id = 1")
_CLAIM: Final = Statement(
    "UPDATE usage_rollups SET version = version + 1 WHERE id = 1 AND version = :version"
)
_OLD: Final = Statement(
    f"SELECT {', '.join(_READ)} FROM usage "
    "WHERE unit = :unit AND at < CAST(:before AS {real}) ORDER BY at LIMIT :limit"
)
_REMOVE: Final = Statement("DELETE FROM usage WHERE id = :id")
_MERGE: Final = Statement(
    f"INSERT INTO usage ({', '.join(_WRITTEN)}) "
    f"VALUES ({', '.join(':' + name for name in _WRITTEN)}) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = usage.{name} + excluded.{name}" for name in _ADDED)
)


async def roll_up(database: Database, unit: Unit, before: float, limit: int) -> int:
    """Roll up to ``limit`` rows of the next smaller unit, of hours or days that were over
    ``before`` (Unix time); how many those were, 0 where another router was sooner.

    It is one transaction, which fails where anybody has rolled up rows since these were read: so
    none counts twice or is lost, whoever is killed meanwhile. Raises StateUnavailable.
    """
    ((version,),) = await database.read(_VERSION)
    whole = before // SECONDS[unit] * SECONDS[unit]
    found = await database.read(_OLD, unit=unit - 1, before=whole, limit=limit)
    if not found:
        return 0
    groups: dict[str, dict[str, Any]] = {}
    for values in found:
        _add(groups, dict(zip(_READ, values, strict=True)), unit)
    done = await database.write(
        StatementStep(_CLAIM, [{"version": version}], guard=True),
        StatementStep(_REMOVE, [{"id": values[0]} for values in found]),
        StatementStep(_MERGE, [*groups.values()]),
    )
    return len(found) if done else 0


def _add(groups: dict[str, dict[str, Any]], row: dict[str, Any], unit: Unit) -> None:
    start = int(row["at"] // SECONDS[unit]) * SECONDS[unit]
    alike = [row[name] for name in _APART]
    # Reports count attempts without a price, and of those the ones that used something.
    alike += [row["cost"] is None, row["input"] + row["output"] > 0]
    ident = f"{start:012d}-{unit}-{sha256(orjson.dumps(alike)).hexdigest()[:32]}"
    group = groups.get(ident)
    if group is None:
        groups[ident] = {
            **dict.fromkeys(_WRITTEN), **row,
            "id": ident, "at": float(start), "request": "", "stream": 0, "unit": unit,
            "session": "", "agent": "", "parent_agent": "",
        }  # fmt: skip
        return
    for name in _ADDED:
        if row[name] is not None:
            group[name] += row[name]
