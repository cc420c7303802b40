"""Old rows of the ledger are rolled up: fewer rows, the same sums."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from pydantic import ValidationError

from router.core.usage_record import Kind, Provenance, Tokens, UsageRecord
from router.settings.accounts import AccountsSettings
from router.state.database import Database
from router.state.rollup import roll_up
from router.state.statement import Statement
from router.state.usage import UsageRows
from router.usage.journal import Journal
from router.usage.ledger import UsageLedger
from router.usage.report import COLUMNS, Bucket, spent, usage
from tests.support.children import python
from tests.support.state import database, database_url, opened
from tests.support.usage import row

__all__ = ["database", "database_url"]

DAY = 86_400
START = 20_000 * DAY
COUNT = Statement("SELECT COUNT(*) FROM usage")
BY = tuple(name for name in COLUMNS if name != "tag")

ROLL_UP = """
import asyncio, sys
from router.state.rollup import roll_up
from tests.support.state import opened

async def main():
    async with opened(sys.argv[1]) as database:
        while count := await roll_up(database, 1, float(sys.argv[2]), 20):
            print(count, flush=True)

asyncio.run(main())
"""


def some(number: int, seed: int = 0) -> list[UsageRecord]:
    """Rows of three days that differ in everything that reports tell apart."""
    dice = random.Random(seed)
    return [
        row(
            at=START + dice.uniform(0, 3 * DAY),
            key=dice.choice(["ann", "bob"]),
            tags=dice.choice([(), ("a",), ("a", "b")]),
            kind=dice.choice([Kind.FIRST, Kind.RETRY]),
            tokens=Tokens(*(dice.choice([0, 0, 7, 10**12]) for _ in range(4))),
            cost=dice.choice([None, 0, 1, 123_456_789_012]),
            outcome=dice.choice(["ok", "failed"]),
            provenance=dice.choice([*Provenance]),
        )
        for _ in range(number)
    ]


async def add(database: Database, rows: list[UsageRecord]) -> None:
    await UsageRows(database).add([one.values() for one in rows])


async def told(database: Database, bucket: Bucket) -> list[Any]:
    """What reports say, in groups and in all, of one key and of a tag, and of two days only."""
    found: list[Any] = [await spent(database, key="ann", since=START + DAY)]
    for by in ((), BY, ("tag",), ("key", "kind")):
        report = await usage(database, by=by, bucket=bucket, since=START)
        found.append(report.shown())
    some = await usage(database, since=START + DAY, until=START + 2 * DAY, filters={"tag": "a"})
    return [*found, some.shown()]


async def rows_of(database: Database) -> int:
    ((count,),) = await database.read(COUNT)
    return int(count)


async def all_of_it(database: Database, unit: Any, before: float, limit: int = 97) -> int:
    total = 0
    while count := await roll_up(database, unit, before, limit):
        total += count
    return total


async def test_reports_stay_as_they_were(database: Database) -> None:
    await add(database, some(1500))
    hours, days = await told(database, "hour"), await told(database, "day")
    assert await all_of_it(database, 1, START + 4 * DAY) == 1500
    assert await told(database, "hour") == hours
    by_hour = await rows_of(database)
    assert await all_of_it(database, 2, START + 4 * DAY) == by_hour
    assert await told(database, "day") == days
    assert await rows_of(database) < by_hour < 1500
    # What comes late is added to what is there.
    late = some(400, seed=1)
    await add(database, late)
    days = await told(database, "day")
    await all_of_it(database, 1, START + 4 * DAY)
    await all_of_it(database, 2, START + 4 * DAY)
    assert await told(database, "day") == days


async def test_an_hour_that_is_not_over_is_left(database: Database) -> None:
    await add(database, [row(at=START + 60.0), row(at=START + 3700.0)])
    assert await all_of_it(database, 1, START + 3599) == 0
    assert await all_of_it(database, 1, START + 7199) == 1
    assert await all_of_it(database, 2, START + DAY - 1) == 0


async def test_several_routers_at_once(database: Database, database_url: str) -> None:
    await add(database, some(600))
    before = await told(database, "hour")
    async with opened(database_url) as other:
        done = await asyncio.gather(
            *[all_of_it(one, 1, START + 4 * DAY, 50) for one in (database, other) * 2]
        )
    while (count := await all_of_it(database, 1, START + 4 * DAY, 50)) > 0:
        done.append(count)
    assert sum(done) == 600
    assert await told(database, "hour") == before


async def test_what_was_not_known_to_be_written_is_not_counted_twice(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a commit was not heard: the database's writer hands the same job in again."""
    await add(database, some(50))
    before = await told(database, "hour")
    write = database.write

    async def twice(*steps: Any) -> bool:
        first = await write(*steps)
        assert await write(*steps) is False
        return first

    monkeypatch.setattr(database, "write", twice)
    assert await roll_up(database, 1, START + 4 * DAY, 1000) == 50
    assert await told(database, "hour") == before


@pytest.mark.soak
async def test_killed_in_the_middle(database: Database, database_url: str) -> None:
    await add(database, some(800))
    before = await told(database, "hour")
    for _ in range(3):
        child = await python(ROLL_UP, database_url, str(START + 4 * DAY))
        assert child.stdout is not None
        assert await child.stdout.readline() == b"20\n"
        child.kill()
        await child.communicate()
        assert await told(database, "hour") == before
    await all_of_it(database, 1, START + 4 * DAY)
    assert await told(database, "hour") == before


async def test_the_ledger_does_it_and_exports_say_so(database: Database) -> None:
    ledger = UsageLedger(database, Journal(None), hourly_after_days=2, daily_after_days=3)
    await add(database, [row(at=START + n, key="ann", cost=5) for n in range(10)])
    assert await ledger.roll_up(1, START + DAY) == 10
    assert await ledger.roll_up(2, START + DAY) == 1
    [one] = [exported async for exported in UsageRows(database).export("ann")]
    assert (one["attempts"], one["cost"], one["at"], one["request"]) == (10, 50, START, "")


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"hourly_after_days": 0.5}, "hourly_after_days"),
        ({"daily_after_days": 5}, "daily_after_days"),
        ({"hourly_after_days": 6, "daily_after_days": 5}, "daily_after_days"),
    ],
)
def test_ages_that_make_no_sense(given: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError, match=place):
        AccountsSettings.model_validate(given)
