"""Rows of the ledger for tests."""

from __future__ import annotations

import os
from typing import Any

from router.core.usage_record import Kind, Provenance, Tokens, UsageRecord
from router.state.database import Database
from router.state.statement import Statement
from router.state.usage import UsageRows

__all__ = ["recorded", "row", "stored_ids"]

_IDS = Statement("SELECT id FROM usage ORDER BY id")


def row(ident: str | None = None, **more: Any) -> UsageRecord:
    """A row that the endpoint reported; its own id unless one is given."""
    fields: dict[str, Any] = {
        "id": ident or "att_" + os.urandom(10).hex(),
        "at": 1_700_000_000.25,
        "request": "req_1",
        "key": "ann",
        "tags": (),
        "operation": "responses",
        "kind": Kind.FIRST,
        "model": "m",
        "served": "m",
        "endpoint": "one",
        "tokens": Tokens(10, 2, 5, 1),
        "cost": 1500,
        "duration": 1.5,
        "first_token": 0.5,
        "outcome": "ok",
        "error": None,
        "provenance": Provenance.REPORTED,
        "response": "resp_1",
        "stream": True,
    }
    return UsageRecord(**{**fields, **more})


async def recorded(database: Database, *rows: UsageRecord) -> None:
    """Put rows into the database."""
    await UsageRows(database).add([one.values() for one in rows])


async def stored_ids(database: Database) -> list[str]:
    """The ids of the rows that the database has."""
    return [ident for (ident,) in await database.read(_IDS)]
