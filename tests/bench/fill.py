"""Fills a database with stored responses, past the router: a million of them in a few minutes."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import asyncpg
import orjson

from router.core.response_lifecycle import new_id
from router.state.connect import SQLITE
from router.state.responses import ResponseStore, StoredResponse
from router.state.statement import Statement, Value

from .databases import opened
from .shapes import MOCK_RESPONSE_ID, VARIANTS, Shape, responses_body

__all__ = ["SHAPE", "Fill"]

Values = tuple[Value, ...]

SHAPE: Final = Shape(64, 0)
"""What has been answered, in all its variants in turn."""

_DAYS: Final = 28.0
_BATCH: Final = 5000
_INPUT: Final = "How does the router choose an endpoint for a request? " * 4
_TABLE = re.compile(r"INTO (\w+)")
_BORN: Final = 1_700_000_000
_ANSWER: Final = "msg_mock0001"
_QUESTION: Final = "msg_mock0002"


class Fill:
    """``count`` responses of the last four weeks; every ``every``-th id gets into ``picked``."""

    def __init__(self, count: int, owner: str, *, every: int = 500) -> None:
        self._count = count
        self._every = every
        self._owner = owner
        self._now = time.time()
        self._templates: list[list[tuple[Statement, Values]]] = []
        self.picked: list[tuple[str, int]] = []
        """Ids, each with the variant of its text."""

    async def run(self, url: str) -> None:
        """Fill the database at ``url``."""
        async with opened(url) as database:  # which makes the tables
            responses = ResponseStore(database)
            self._templates = [_template(responses, self._owner, v) for v in range(VARIANTS)]
        if url.startswith(SQLITE):
            await asyncio.to_thread(self._sqlite, url.removeprefix(SQLITE))
            return
        connection = await asyncpg.connect(url)
        try:
            for batch in self._batches():
                for statement, rows in batch.items():
                    [table] = _TABLE.findall(statement.postgresql)
                    await connection.copy_records_to_table(
                        table, records=rows, columns=statement.names
                    )
            # What a database that has grown by itself has done long ago.
            await connection.execute("VACUUM ANALYZE")
            await connection.execute("CHECKPOINT")
        finally:
            await connection.close()

    def _batches(self) -> Iterator[dict[Statement, list[Values]]]:
        """The INSERTs of the router's own, with their rows, oldest first."""
        for start in range(0, self._count, _BATCH):
            batch: dict[Statement, list[Values]] = {}
            for number in range(start, min(start + _BATCH, self._count)):
                self._add(number, batch)
            yield batch

    def _add(self, number: int, batch: dict[Statement, list[Values]]) -> None:
        at = self._now - _DAYS * 86400 * (1 - number / self._count)
        ids = {
            MOCK_RESPONSE_ID: _dated("resp_", at),
            _ANSWER: _dated("msg_", at),
            _QUESTION: _dated("msg_", at),
        }
        variant = number % VARIANTS
        if number % self._every == 0:
            self.picked.append((ids[MOCK_RESPONSE_ID], variant))
        replaced = [(old.encode(), new.encode()) for old, new in ids.items()]
        replaced.append((b"%d" % _BORN, b"%d" % at))
        for statement, values in self._templates[variant]:
            made: list[Value] = []
            for value in values:
                if isinstance(value, bytes):
                    for old, new in replaced:
                        value = value.replace(old, new)
                elif isinstance(value, str):
                    value = ids.get(value, value)
                elif value == _BORN:
                    value = int(at)
                made.append(value)
            batch.setdefault(statement, []).append(tuple(made))

    def _sqlite(self, path: str) -> None:
        with closing(sqlite3.connect(path)) as connection:
            # Nothing is lost if this is cut short: the file is this run's own.
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("PRAGMA synchronous=OFF")
            for batch in self._batches():
                for statement, rows in batch.items():
                    connection.executemany(statement.sqlite, rows)
                connection.commit()


def _template(responses: ResponseStore, owner: str, variant: int) -> list[tuple[Statement, Values]]:
    """What the router inserts for one response, with the mock's ids in it."""
    shape = Shape(SHAPE.deltas, SHAPE.delay_ms, variant)
    content = [{"type": "input_text", "text": _INPUT}]
    question = {"id": _QUESTION, "type": "message", "role": "user", "content": content}
    stored = StoredResponse.of(
        {**orjson.loads(responses_body(shape)), "store": True},
        owner=owner,
        request_items=[question],
        encrypted_reasoning={},
        parent=None,
        conversation=None,
        account="mock",
        background=False,
        resumable=False,
    )
    steps = responses.added(stored)
    return [(s.statement, s.statement.values(row)) for s in steps for row in s.rows]


def _dated(prefix: str, at: float) -> str:
    """An id as it was given at this time."""
    fresh = new_id(prefix)
    place = len(prefix)
    return f"{prefix}{int(at * 65536):012x}{fresh[place + 12 :]}"
