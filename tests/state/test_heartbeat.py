"""A router's sign of life."""

from __future__ import annotations

from typing import Any

from router.state.database import Database
from router.state.heartbeat import Heartbeat
from router.state.schema import ALIVE
from router.state.statement import Statement, StatementStep
from tests.support.runs import Unsteady
from tests.support.waiting import until

_ALIVE = Statement(f"SELECT me.id FROM routers AS me WHERE {ALIVE.replace('{holder}', 'me.id')}")
_ALL = Statement("SELECT id FROM routers")
_FORGET = Statement("DELETE FROM routers")
_OLD = Statement("INSERT INTO routers (id, until) VALUES (:id, {now} - CAST(:age AS {real}))")


async def ids(db: Database, statement: Statement = _ALIVE) -> list[Any]:
    return [row[0] for row in await db.read(statement)]


async def test_from_start_to_stop(database: Database) -> None:
    one, two = Heartbeat(database, 60.0), Heartbeat(database, 60.0)
    assert one.id != two.id
    assert not one.alive
    for heartbeat in (one, two):
        await heartbeat.start()
        assert heartbeat.alive
        assert not heartbeat.settled
    assert sorted(await ids(database)) == sorted([one.id, two.id])
    await one.stop()
    assert not one.alive
    assert await ids(database, _ALL) == [two.id]
    await two.stop()


async def test_stop_without_a_start(database: Database) -> None:
    await Heartbeat(database, 60.0).stop()
    assert await ids(database, _ALL) == []


async def test_it_is_renewed_and_comes_back_when_it_was_purged(database: Database) -> None:
    heartbeat = Heartbeat(database, 0.3)
    await heartbeat.start()
    await until(lambda: heartbeat.settled)
    await database.write(StatementStep(_FORGET, ({},)))

    async def is_back() -> bool:
        return await ids(database) == [heartbeat.id]

    await until(is_back)
    await heartbeat.stop()


async def test_a_lease_lapses_in_the_database_and_in_its_own_eyes(database: Database) -> None:
    moods = ["fine"]
    heartbeat = Heartbeat(Unsteady(database, lambda: moods[-1]), 0.3)
    await heartbeat.start()
    await until(lambda: heartbeat.settled)
    moods.append("before")
    await until(lambda: not heartbeat.alive)
    assert not heartbeat.settled

    # Its own eyes are the first to see it: they count from before the write.
    async def lapsed_there_too() -> bool:
        return await ids(database) == []

    await until(lapsed_there_too)
    moods.append("fine")
    await until(lambda: heartbeat.alive)
    # The others may just not have come back yet.
    assert not heartbeat.settled
    await until(lambda: heartbeat.settled)
    await heartbeat.stop()


async def test_a_start_without_the_database_is_made_up_for(database: Database) -> None:
    moods = ["before"]
    heartbeat = Heartbeat(Unsteady(database, lambda: moods[-1]), 0.3)
    await heartbeat.start()
    assert not heartbeat.alive
    assert await ids(database, _ALL) == []
    moods.append("fine")
    await until(lambda: heartbeat.alive)
    assert await ids(database) == [heartbeat.id]
    await heartbeat.stop()


async def test_those_long_dead_are_forgotten(database: Database) -> None:
    for id, age in (("long ago", 3700.0), ("just now", 10.0)):
        await database.write(StatementStep(_OLD, ({"id": id, "age": age},)))
    heartbeat = Heartbeat(database, 60.0)
    await heartbeat.start()
    assert sorted(await ids(database, _ALL)) == sorted(["just now", heartbeat.id])
    assert await ids(database) == [heartbeat.id]
    await heartbeat.stop()
