"""The ledger: every row that was recorded is in the database once, whatever happens in between."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.errors import StateUnavailable
from router.state.database import Database
from router.state.statement import Statement, StatementStep
from router.state.usage import COLUMNS
from router.usage import ledger as ledger_module
from router.usage.journal import MANY_ROWS, Journal
from router.usage.ledger import UsageLedger
from tests.support.children import python
from tests.support.damage import executed
from tests.support.state import database, database_url, opened
from tests.support.usage import recorded, row, stored_ids
from tests.support.waiting import until

__all__ = ["database", "database_url"]

ROWS = Statement(f"SELECT {', '.join(COLUMNS)} FROM usage ORDER BY id")
QUICK = 0.02

BOOKS = """
import asyncio, os, sys
from pathlib import Path
from router.usage.journal import Journal
from router.usage.ledger import UsageLedger
from tests.support.state import opened
from tests.support.usage import row

async def main():
    async with opened(sys.argv[1]) as database:
        ledger = UsageLedger(database, Journal(Path(sys.argv[2])), interval=0.01)
        await ledger.start()
        while True:
            for _ in range(20):
                one = row()
                ledger.record(one)
                os.write(1, one.id.encode() + b"\\n")
            await asyncio.sleep(0.001)

asyncio.run(main())
"""


@asynccontextmanager
async def ledger_of(
    database: Database, directory: Path | None, **more: Any
) -> AsyncIterator[UsageLedger]:
    ledger = UsageLedger(database, Journal(directory), **{"interval": QUICK, **more})
    await ledger.start()
    try:
        yield ledger
    finally:
        await ledger.stop()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def test_rows_come_as_they_were_recorded(database: Database, directory: Path) -> None:
    rows = [
        row("a", tags=("y", "x")),
        row("b", cost=None, first_token=None, error="overloaded", response=None, stream=False),
        row("c", cost=10**17, model="naïve \u2028"),
    ]
    async with ledger_of(database, directory) as ledger:
        for one in rows:
            ledger.record(one)
        assert ledger.figures().waiting == 3
        await until(lambda: ledger.figures().waiting == 0)
        assert await database.read(ROWS) == [one.values() for one in rows]
        figures = ledger.figures()
        assert (figures.written, figures.lost) == (3, {})
    assert os.listdir(directory) == []


async def test_the_end_writes_what_is_left(database: Database, directory: Path) -> None:
    async with ledger_of(database, directory, interval=3600.0) as ledger:
        rows = [row() for _ in range(100)]
        for one in rows:
            ledger.record(one)
    assert await stored_ids(database) == sorted(one.id for one in rows)
    assert os.listdir(directory) == []


async def test_many_rows_do_not_wait_for_the_interval(database: Database) -> None:
    async with ledger_of(database, None, interval=3600.0) as ledger:
        for _ in range(MANY_ROWS):
            ledger.record(row())
        await until(lambda: ledger.figures().waiting == 0)
        assert ledger.figures().written == MANY_ROWS


async def test_a_row_that_is_booked_twice_counts_once(database: Database, directory: Path) -> None:
    await recorded(database, row("a"))
    async with ledger_of(database, directory) as ledger:
        for ident in ("a", "b", "b"):
            ledger.record(row(ident, cost=7))
    costs = dict(await database.read(Statement("SELECT id, cost FROM usage")))
    assert costs == {"a": 1500, "b": 7}


def ids(lines: set[bytes]) -> set[str]:
    """Those that were recorded, without what was logged."""
    return {line.decode() for line in lines if line.startswith(b"att_")}


async def test_killed_while_it_writes(database_url: str, directory: Path) -> None:
    """SIGKILL three times over: whatever ``record`` returned for is there in the end, once."""
    said: set[bytes] = set()
    for _ in range(3):
        child = await python(BOOKS, database_url, str(directory))
        assert child.stdout is not None
        said.update([(await child.stdout.readline()).strip() for _ in range(700)])
        child.kill()
        said.update((await child.communicate())[0].split(b"\n")[:-1])
    assert os.listdir(directory)
    async with opened(database_url) as database:
        async with ledger_of(database, directory):
            there = await stored_ids(database)
        assert len(there) == len(set(there))
        assert ids(said) <= set(there)
        assert len(there) - len(ids(said)) <= 3  # recorded, and killed before it could say so
    assert os.listdir(directory) == []


async def test_two_processes_share_a_directory(database_url: str, directory: Path) -> None:
    children = [await python(BOOKS, database_url, str(directory)) for _ in range(2)]
    said: set[bytes] = set()
    for child in children:
        assert child.stdout is not None
        said.update([(await child.stdout.readline()).strip() for _ in range(300)])
    for child in children:
        child.kill()
        said.update((await child.communicate())[0].split(b"\n")[:-1])
    async with opened(database_url) as one, opened(database_url) as other:
        async with ledger_of(one, directory), ledger_of(other, directory):
            pass
        there = await stored_ids(one)
    assert ids(said) <= set(there)
    assert os.listdir(directory) == []


async def test_what_dies_beside_it_is_taken_over(
    database: Database, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_ADOPT_SECONDS", 0.01)
    async with ledger_of(database, directory) as ledger:
        neighbour = Journal(directory)
        neighbour.append(row("theirs"))
        ledger.record(row("ours"))
        await until(lambda: ledger.figures().written == 1)
        neighbour.close()
        await until(lambda: ledger.figures().written == 2)
        assert await stored_ids(database) == ["ours", "theirs"]


class Away:
    """A database that is away at times."""

    def __init__(self, database: Database) -> None:
        self.away = False
        self.asked = 0
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, *steps: StatementStep) -> bool:
        """What the database does, unless it is away."""
        self.asked += 1
        if self.away:
            raise StateUnavailable("away")
        return await self._database.write(*steps)


async def test_the_database_goes_and_comes_back(
    database: Database, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_FIRST_PAUSE", QUICK)
    away = Away(database)
    away.away = True
    async with ledger_of(away, directory) as ledger:
        rows = [row() for _ in range(1000)]
        for number, one in enumerate(rows):
            ledger.record(one)
            if number % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: away.asked >= 3)
        figures = ledger.figures()
        assert (figures.written, figures.waiting, figures.lost) == (0, 1000, {})
        assert figures.journal_bytes > 100_000
        away.away = False
        await until(lambda: ledger.figures().waiting == 0)
        assert await stored_ids(database) == sorted(one.id for one in rows)


async def test_what_could_not_be_written_is_for_the_next(
    database: Database, directory: Path
) -> None:
    away = Away(database)
    away.away = True
    async with ledger_of(away, directory) as ledger:
        ledger.record(row("a"))
    assert await stored_ids(database) == []
    async with ledger_of(database, directory):
        assert await stored_ids(database) == ["a"]  # before anything else goes on


async def test_a_row_that_nobody_takes_blocks_no_other(database: Database, directory: Path) -> None:
    rows = [row(f"{number:03}") for number in range(400)]
    bad = {7, 8, 399}
    for number in bad:
        rows[number].cost = 2**63  # JSON can hold it
    rows[50].at = float("nan")  # JSON has null in its place
    async with ledger_of(database, directory) as ledger:
        for one in rows:
            ledger.record(one)
        await until(lambda: ledger.figures().waiting == 0)
        assert ledger.figures().lost == {"refused": 4}
        assert ledger.figures().written == 396
    kept = [one.id for number, one in enumerate(rows) if number not in {*bad, 50}]
    assert await stored_ids(database) == kept
    [name] = os.listdir(directory)  # for people to look at
    assert name.endswith(".kept")


async def test_a_zero_in_a_text_is_no_trouble(database: Database, directory: Path) -> None:
    async with ledger_of(database, directory) as ledger:
        ledger.record(row("a", model="m\0"))
    assert await database.read(Statement("SELECT model FROM usage")) == [("m\ufffd",)]


async def test_a_fault_of_ours_does_not_end_it(
    database: Database, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_FIRST_PAUSE", QUICK)
    async with ledger_of(database, directory) as ledger:
        with monkeypatch.context() as broken:
            failed = asyncio.Event()

            async def take(self: Journal) -> None:
                failed.set()
                raise RuntimeError("a bug")

            broken.setattr(Journal, "take", take)
            ledger.record(row("a"))
            await failed.wait()
        await until(lambda: ledger.figures().written == 1)


async def test_retention(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "_SWEPT", 10)
    monkeypatch.setattr(ledger_module, "_SWEEP_PAUSE", 0.0)
    now = time.time()
    await recorded(database, *[row(at=now - 86400 * 2 - n) for n in range(25)])
    await recorded(database, row("kept", at=now - 86400 * 2 + 60))
    ledger = UsageLedger(database, Journal(None), retention_days=2.0)
    assert await ledger.purge(now - 2 * 86400 + 30) == 25
    assert await stored_ids(database) == ["kept"]
    monkeypatch.setattr(ledger_module, "_SWEEP_SECONDS", 0.01)
    async with ledger_of(database, None, retention_days=1.0):
        async with asyncio.timeout(60):
            while await stored_ids(database):  # noqa: ASYNC110 (a database has no event)
                await asyncio.sleep(0.01)


async def test_stop_without_start(database: Database) -> None:
    await UsageLedger(database, Journal(None)).stop()


async def test_where_the_table_is_gone_nothing_is_thrown_away(
    database: Database, database_url: str, directory: Path
) -> None:
    await executed(database_url, "ALTER TABLE usage RENAME TO elsewhere")
    async with ledger_of(database, directory) as ledger:
        ledger.record(row("a"))
        await until(lambda: ledger.figures().lost == {"refused": 1})
    [name] = os.listdir(directory)
    assert name.endswith(".kept")
    os.rename(directory / name, directory / name.replace(".kept", ".journal"))
    await executed(database_url, "ALTER TABLE elsewhere RENAME TO usage")
    async with ledger_of(database, directory):
        assert await stored_ids(database) == ["a"]


async def test_it_starts_while_the_database_is_away(database: Database, directory: Path) -> None:
    neighbour = Journal(directory)
    neighbour.append(row("left"))
    neighbour.close()
    away = Away(database)
    away.away = True
    async with ledger_of(away, directory) as ledger:
        assert (ledger.figures().written, ledger.figures().lost) == (0, {})
        away.away = False
        await until(lambda: ledger.figures().written == 1)
