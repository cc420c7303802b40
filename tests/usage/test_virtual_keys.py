"""Virtual keys as routers know them: at once here, soon elsewhere, and without the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog

from router.core.key import AccountKeyResolver
from router.errors import StateUnavailable
from router.state.database import Database, unavailable
from router.state.statement import Statement, StatementStep, Value
from router.usage.keys import KeyRow, KeyStore
from router.usage.virtual_keys import VirtualKeys
from tests.support.keys import Here, configured, here, made_by, secret_of
from tests.support.state import database, database_url, opened
from tests.support.waiting import until

__all__ = ["database", "database_url"]

MADE_UP = "sk-sy-" + "x" * 43
DELETE = Statement("DELETE FROM virtual_keys WHERE name = :name")
BREAK = Statement("UPDATE virtual_keys SET spec = :spec WHERE name = :name")
BACK = Statement(
    "UPDATE virtual_keys SET changed_at = changed_at - CAST(:by AS {real}) WHERE name = :name"
)


class Telling:
    """A database that counts its reads, and is away when told so."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.dialect = inner.dialect
        self.reads = 0
        self.away = False
        self.held: asyncio.Event | None = None
        """What was read is handed out once it is set."""

    @property
    def up(self) -> bool:
        return not self.away

    async def start(self) -> None:
        await self._inner.start()

    async def close(self) -> None:
        await self._inner.close()

    async def read(self, statement: Statement, **parameters: Value) -> list[tuple[Any, ...]]:
        self.reads += 1
        if self.away:
            raise unavailable()
        rows = await self._inner.read(statement, **parameters)
        if self.held is not None:
            await self.held.wait()
        return rows

    async def write(self, *steps: StatementStep) -> bool:
        if self.away:
            raise unavailable()
        return await self._inner.write(*steps)

    def submit(self, *steps: StatementStep, heard: bool = True) -> asyncio.Future[bool]:
        return self._inner.submit(*steps, heard=heard)

    def hear_again(self, answer: asyncio.Future[bool]) -> asyncio.Future[bool]:
        return self._inner.hear_again(answer)


@pytest.fixture
async def telling() -> AsyncIterator[Telling]:
    async with opened("sqlite:///:memory:") as inner:
        yield Telling(inner)


async def test_what_is_changed_here_counts_at_once(database: Database) -> None:
    async with here(database) as one:
        secret = await made_by(one, "ann", {"models": ["a"]})
        assert await one.name(secret) == "ann"
        key = await one.key_resolver.find(secret, 0.0)
        assert key is not None
        assert (key.virtual, key.models) == (True, ("a",))
        await one.store.update("ann", {"models": ["b"]})
        key = await one.key_resolver.find(secret, 0.0)
        assert key is not None
        assert key.models == ("b",)
        second = secret_of(await one.store.rotate("ann", 100))
        third = secret_of(await one.store.rotate("ann", 100))
        assert [await one.name(s) for s in (secret, second, third)] == [None, "ann", "ann"]
        assert [await one.name(s, later=99) for s in (second, third)] == ["ann", "ann"]
        assert [await one.name(s, later=101) for s in (second, third)] == [None, "ann"]
        fourth = secret_of(await one.store.rotate("ann", 0))
        assert [await one.name(s) for s in (second, third, fourth)] == [None, None, "ann"]
        await one.store.revoke("ann")
        assert await one.name(fourth) is None
        assert len(one.virtual) == 0


async def test_what_is_changed_elsewhere_counts_after_a_look(database: Database) -> None:
    async with here(database) as one, here(database) as other:
        secret = await made_by(other, "ann")
        assert await one.name(secret) == "ann"  # looked up
        new = secret_of(await other.store.rotate("ann", 0))
        assert await one.name(new) == "ann"
        assert await one.name(secret) is None  # this name was looked up since
        await other.store.revoke("ann")
        assert await one.name(new) == "ann"
        await one.virtual.refresh()
        assert await one.name(new) is None


async def test_the_database_is_looked_at_again_and_again(database: Database) -> None:
    async with here(database) as other, here(database, every=0.01) as one:
        secret = await made_by(other, "ann")
        await until(lambda: len(one.virtual) == 1)
        assert await one.name(secret) == "ann"
        await other.store.revoke("ann")
        await until(lambda: len(one.virtual) == 0)
        assert await one.name(secret) is None


async def test_a_start_brings_all_keys(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.usage.virtual_keys._PAGE", 3)
    maker = Here(database)
    secrets = {name: await made_by(maker, name) for name in "abcdefgh"}
    await maker.store.revoke("d")
    async with here(database) as one:
        assert len(one.virtual) == 7
        for name, secret in secrets.items():
            assert await one.name(secret) == (None if name == "d" else name)


async def test_commits_that_come_late_are_seen(database: Database) -> None:
    async with here(database) as one:
        await one.virtual.refresh()
        maker = Here(database)
        await made_by(maker, "ann")
        await made_by(maker, "ida")
        await database.write(StatementStep(BACK, ({"name": "ann", "by": 30.0},)))
        await database.write(StatementStep(BACK, ({"name": "ida", "by": 300.0},)))
        await one.virtual.refresh()
        assert len(one.virtual) == 1


async def test_now_and_then_everything_is_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.usage.virtual_keys._LOOKS_TO_ALL", 3)
    async with here(database) as one:
        secret = await made_by(one, "ann")
        assert await one.name(secret) == "ann"
        await database.write(StatementStep(DELETE, ({"name": "ann"},)))
        await one.virtual.refresh()
        assert await one.name(secret) == "ann"
        await one.virtual.refresh()
        await one.virtual.refresh()
        assert await one.name(secret) is None


async def test_without_the_database_what_is_known_goes_on(telling: Telling) -> None:
    async with here(telling) as one, here(telling) as other:
        secret = await made_by(one, "ann")
        assert await one.name(secret) == "ann"
        unseen = await made_by(other, "bob")
        telling.away = True
        await one.virtual._look()
        assert await one.name(secret) == "ann"
        assert await one.name("sk-cfg") == "cfg"
        reads = telling.reads
        for odd in ("", "sk-nobody", "sk-sy-short", MADE_UP + "x", MADE_UP[:-1] + "\u00e9"):
            assert await one.name(odd) is None
        assert telling.reads == reads
        with pytest.raises(StateUnavailable) as caught:
            await one.name(unseen)
        assert caught.value.headers == {"Retry-After": "1"}
        assert unseen not in caught.value.message
        with pytest.raises(StateUnavailable):
            await one.key_resolver.named("bob")
        telling.away = False
        assert await one.name(unseen) == "bob"


async def test_started_without_the_database(telling: Telling) -> None:
    secret = await made_by(Here(telling), "ann")
    telling.away = True
    async with here(telling, every=0.01) as one:
        assert await one.name("sk-cfg") == "cfg"
        with pytest.raises(StateUnavailable):
            await one.name(secret)
        telling.away = False
        await until(lambda: len(one.virtual) == 1)


async def test_guesses_are_no_load(telling: Telling) -> None:
    now = [0.0]
    async with here(telling, clock=lambda: now[0]) as one:
        before = telling.reads
        for _ in range(1000):
            assert await one.name(MADE_UP) is None
        assert telling.reads == before + 1
        refused = 0
        for n in range(1000):
            try:
                assert await one.name(f"sk-sy-{n:043}") is None
            except StateUnavailable:
                refused += 1
        assert telling.reads == before + 100
        assert refused == 901
        assert await one.name("sk-cfg") == "cfg"
        now[0] += 1.0
        for n in range(1000, 1050):
            assert await one.name(f"sk-sy-{n:043}") is None
        with pytest.raises(StateUnavailable):
            await one.name(f"sk-sy-{9999:043}")
        now[0] += 60.0
        assert await one.name(MADE_UP) is None
        assert telling.reads == before + 151


async def test_what_is_remembered_of_guesses_is_bounded(
    telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.usage.virtual_keys._MOST_UNKNOWN", 5)
    async with here(telling) as one:
        for n in range(50):
            assert await one.name(f"sk-sy-{n:043}") is None
        assert len(one.virtual._unknown._until) == 5


async def test_so_many_are_held_and_the_others_looked_up(telling: Telling) -> None:
    with structlog.testing.capture_logs() as log:
        async with here(telling, most=2) as one:
            secrets = {name: await made_by(one, name) for name in "abcd"}
            await one.virtual.refresh()
            assert len(one.virtual) == 2
            for name, secret in secrets.items():
                assert await one.name(secret) == name
            assert len(one.virtual._digests) == 2
    assert [line["event"] for line in log] == ["too many virtual keys to hold them all"]


@pytest.mark.parametrize("look_up", [True, False])
async def test_a_read_that_was_overtaken_by_a_change(telling: Telling, look_up: bool) -> None:
    """What was read before a revocation does not bring the key back after it."""
    async with here(telling) as one:
        secret = await made_by(one, "ann")
        telling.held = asyncio.Event()
        reading = asyncio.ensure_future(one.name(secret) if look_up else one.virtual.refresh())
        await until(lambda: one.virtual._fences._readers == 1)
        before = telling.reads
        if not look_up:  # its first read was of the clock
            telling.held.set()
            await until(lambda: telling.reads > before)
            telling.held = asyncio.Event()
        held, telling.held = telling.held, None
        await one.store.revoke("ann")
        held.set()
        await reading
        assert await one.name(secret) is None
        assert len(one.virtual) == 0
        assert not one.virtual._fences._raised


async def test_a_key_that_cannot_be_read_is_refused_and_the_others_are_not(
    telling: Telling,
) -> None:
    maker = Here(telling)
    bad, good = await made_by(maker, "ann"), await made_by(maker, "bob")
    await telling.write(StatementStep(BREAK, ({"name": "ann", "spec": b'{"tomorrow": 1}'},)))
    with structlog.testing.capture_logs() as log:
        async with here(telling) as one:
            for _ in range(3):
                assert await one.name(bad) is None
                assert await one.name(good) == "bob"
    assert [line["key"] for line in log] == ["ann"]


async def test_a_look_that_breaks_is_not_the_last(telling: Telling) -> None:
    class Broken(KeyStore):
        broken = False

        async def changes(
            self, after: tuple[float, str], limit: int, *, revoked: bool
        ) -> list[KeyRow]:
            if self.broken:
                raise ZeroDivisionError
            return await super().changes(after, limit, revoked=revoked)

    store = Broken(telling)
    virtual = VirtualKeys(store, every=0.01)
    with structlog.testing.capture_logs() as log:
        await virtual.start()
        store.broken = True
        await until(lambda: len(log) > 1)
        store.broken = False
        await Here(telling).store.create("ann", {})
        await until(lambda: len(virtual) == 1)
        await virtual.stop()
    assert {line["event"] for line in log} == {"virtual keys are not read"}


async def test_a_configured_key_goes_before_a_virtual_one_of_its_name(telling: Telling) -> None:
    async with here(telling) as one:
        secret = await made_by(one, "ann")
        later = AccountKeyResolver([configured("ann"), configured("cfg")], one.virtual)
        with structlog.testing.capture_logs() as log:
            for _ in range(3):
                assert await later.find(secret, 0.0) is None
            found = await later.find("sk-ann", 0.0)
        assert found is not None
        assert not found.virtual
        assert found == await later.named("ann")
        assert [line["key"] for line in log] == ["ann"]


async def test_a_name_that_was_taken_is_told_at_once_and_once(telling: Telling) -> None:
    async with here(telling) as one:
        secret = await made_by(one, "ann")
        await made_by(one, "bob")
        await one.virtual.refresh()
        one.key_resolver.warn()
        with structlog.testing.capture_logs() as log:
            for _ in range(2):  # at the start, and when the configuration is read again
                later = AccountKeyResolver([configured("ann"), configured("cfg")], one.virtual)
                later.warn()
                assert await later.find(secret, 0.0) is None
        assert [(line["log_level"], line["key"]) for line in log] == [("warning", "ann")]
        AccountKeyResolver([configured("cfg")], one.virtual).warn()
        with structlog.testing.capture_logs() as log:  # it came back
            AccountKeyResolver([configured("ann")], one.virtual).warn()
        assert [line["key"] for line in log] == ["ann"]
        await one.store.revoke("bob")
        with structlog.testing.capture_logs() as log:
            AccountKeyResolver([configured("bob")], one.virtual).warn()
        assert log == []


async def test_keys_by_name(telling: Telling) -> None:
    async with here(telling) as one:
        await made_by(one, "ann")
        await made_by(Here(telling), "bob")
        for name in ("ann", "bob", "cfg"):
            key = await one.key_resolver.named(name)
            assert key is not None
            assert key.name == name
        assert await one.key_resolver.named("nobody") is None
        await one.store.revoke("ann")
        assert await one.key_resolver.named("ann") is None
        assert await AccountKeyResolver([configured("x")]).named("ann") is None


async def test_an_open_router_with_virtual_keys_says_so(telling: Telling) -> None:
    async with here(telling) as one:
        with structlog.testing.capture_logs() as log:
            AccountKeyResolver([], one.virtual).warn()
            await one.virtual.refresh()
            await made_by(one, "ann")
            await one.virtual.refresh()
            one.key_resolver.warn()
            AccountKeyResolver([]).warn()
            assert log == []
            AccountKeyResolver([], one.virtual).warn()
        assert [line["log_level"] for line in log] == ["warning"]


async def test_stopped_without_a_start(telling: Telling) -> None:
    await Here(telling).virtual.stop()


async def test_no_secret_in_what_is_printed(telling: Telling) -> None:
    async with here(telling) as one:
        secret = await made_by(one, "ann")
        assert await one.name(secret) == "ann"
        row = await one.store.named("ann")
        assert row is not None
        entry = one.virtual._names["ann"]
        for thing in (
            one.key_resolver,
            one.virtual,
            one.store,
            row,
            entry,
            await one.key_resolver.named("ann"),
        ):
            for text in (repr(thing), str(thing)):
                assert secret[6:-4] not in text
                assert "sk-cfg" not in text
                assert row.digest.hex() not in text
                assert repr(row.digest) not in text
