"""The guard of a store: deadlines, the breaker, and that nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from cache.entry import EVERYTHING, CacheEntry, InvalidationRule
from cache.guarded import GuardedStore
from cache.store import Change, Found, StoreError, StoreStats
from cache.stores.memory import MemoryStore
from tests.support.clock import run_in_virtual_time
from tests.support.stores import an_entry


class Moody(MemoryStore):
    """Does as ``mood`` says, and counts how often it was asked."""

    def __init__(self, mood: str = "well") -> None:
        super().__init__(1 << 24)
        self.mood = mood
        self.asked: list[float] = []
        self.closed = False

    async def _be(self) -> None:
        self.asked.append(asyncio.get_running_loop().time())
        if self.mood == "fails":
            raise StoreError("it is away")
        if self.mood == "breaks":
            raise RuntimeError("a mistake")
        if self.mood == "hangs":
            await asyncio.sleep(1000)

    async def start(self) -> None:
        await self._be()

    async def close(self) -> None:
        self.closed = True

    async def get(self, key: str) -> Found:
        await self._be()
        return await super().get(key)

    async def put(self, entry: CacheEntry) -> bool:
        await self._be()
        return await super().put(entry)

    async def delete(self, key: str) -> bool:
        await self._be()
        return await super().delete(key)

    async def invalidate(self, rule: InvalidationRule) -> int:
        await self._be()
        return await super().invalidate(rule)

    async def epoch(self) -> int:
        await self._be()
        return await super().epoch()

    async def stats(self) -> StoreStats:
        await self._be()
        return await super().stats()

    def changes(self) -> AsyncIterator[Sequence[Change]]:
        return super().changes()


def is_up(store: GuardedStore) -> bool:
    return store.up  # mypy would believe that it stays as it is


async def failing(store: GuardedStore, times: int) -> None:
    for _ in range(times):
        with pytest.raises(StoreError):
            await store.get("k")


def test_what_is_well_is_passed_on() -> None:
    async def main() -> None:
        store = GuardedStore(Moody())
        await store.start()
        entry = an_entry()
        assert await store.put(entry)
        assert await store.get(entry.key) == Found(entry, 0)
        assert await store.delete(entry.key)
        assert await store.invalidate(EVERYTHING) == 0
        assert await store.epoch() == 1
        assert (await store.stats()).entries == 0
        assert [change.reset async for batch in _first(store) for change in batch] == [True]
        assert is_up(store)
        assert store.failures == 0
        await store.close()

    run_in_virtual_time(main())


def test_one_that_is_left_alone_has_nothing_at_hand() -> None:
    async def main() -> None:
        inner = Moody()
        store = GuardedStore(inner)
        entry = an_entry()
        await store.put(entry)
        assert store.at_once(entry.key) == entry
        inner.mood = "fails"
        await failing(store, 3)
        assert store.at_once(entry.key) is None
        await store.close()

    run_in_virtual_time(main())


async def _first(store: GuardedStore) -> AsyncIterator[Sequence[Change]]:
    async for batch in store.changes():
        if not batch:
            return
        yield batch


def test_three_failures_in_a_row_open_it() -> None:
    async def main() -> None:
        inner = Moody("fails")
        heard: list[str] = []
        store = GuardedStore(inner, on_error=heard.append)
        await failing(store, 2)
        inner.mood = "well"
        await store.get("k")
        inner.mood = "fails"
        await failing(store, 2)
        assert is_up(store)
        await failing(store, 1)
        assert not is_up(store)
        await failing(store, 100)
        assert len(inner.asked) == 6
        assert heard == ["error"] * 5
        assert store.failures == 5
        await store.close()

    run_in_virtual_time(main())


def test_an_invalidation_may_take_its_time() -> None:
    async def main() -> None:
        store = GuardedStore(Moody("hangs"), timeout=0.5)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(StoreError):
            await store.invalidate(EVERYTHING)
        assert loop.time() - began == 30
        assert is_up(store)
        await store.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("method", ["get", "put", "delete", "epoch", "stats"])
def test_one_timeout_opens_it(method: str) -> None:
    arguments: dict[str, list[Any]] = {
        "get": ["k"],
        "put": [an_entry()],
        "delete": ["k"],
    }

    async def main() -> None:
        heard: list[str] = []
        store = GuardedStore(Moody("hangs"), timeout=0.5, on_error=heard.append)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(2):
            with pytest.raises(StoreError):
                await getattr(store, method)(*arguments.get(method, []))
            assert loop.time() - began == 0.5
        assert not is_up(store)
        assert heard == ["timeout"]
        await store.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("mood", ["fails", "breaks"])
def test_it_is_asked_less_and_less_often_until_it_answers(mood: str) -> None:
    async def main() -> None:
        inner = Moody("fails")
        store = GuardedStore(inner, random=lambda: 0.5)
        await failing(store, 3)
        inner.mood = mood
        inner.asked.clear()
        await asyncio.sleep(100)
        assert inner.asked == [1, 3, 7, 15, 31, 61, 91]
        assert not is_up(store)
        inner.mood = "well"
        await asyncio.sleep(22)
        assert is_up(store)
        for well, expected in ((0, [30]), (400, [1, 3, 7])):
            inner.mood = "well"
            await asyncio.sleep(40 + well)
            await store.get("k")
            inner.mood = "fails"
            await failing(store, 3)
            inner.asked.clear()
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(expected[-1] + 0.5)
            assert [when - began for when in inner.asked] == expected
        await store.close()

    run_in_virtual_time(main())


def test_nobody_waits_while_it_is_asked() -> None:
    async def main() -> None:
        inner = Moody("hangs")
        store = GuardedStore(inner, timeout=0.25, random=lambda: 0.5)
        await failing(store, 1)
        await asyncio.sleep(1.1)
        assert len(inner.asked) == 2
        began = asyncio.get_running_loop().time()
        await failing(store, 10)
        assert asyncio.get_running_loop().time() == began
        await store.close()
        assert inner.closed

    run_in_virtual_time(main())


@pytest.mark.parametrize("mood", ["fails", "hangs"])
def test_one_that_cannot_be_started_may_still_come(mood: str) -> None:
    async def main() -> None:
        inner = Moody(mood)
        store = GuardedStore(inner)
        with pytest.raises(StoreError):
            await store.start()
        assert not is_up(store)
        inner.mood = "well"
        await asyncio.sleep(2)
        assert is_up(store)
        assert await store.epoch() == 0
        await store.close()

    run_in_virtual_time(main())


def test_closing_it_ends_what_it_does_in_the_background() -> None:
    async def main() -> None:
        inner = Moody("fails")
        store = GuardedStore(inner)
        await failing(store, 3)
        await store.close()
        assert inner.closed
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(main())
