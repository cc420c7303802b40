"""What every store promises (``cache.store``), asked of each of them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache.entry import EVERYTHING, CacheEntry, InvalidationRule
from cache.store import Found, Store
from cache.stores.redis_store import RedisStore
from router.workers.cache import WorkerStore
from tests.support.stores import KINDS, Clock, Kind, an_entry, following, name, opened_store
from tests.support.waiting import until


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture(params=KINDS)
async def store(request: Any, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with opened_store(request.param, tmp_path, clock=clock) as store:
        yield store


async def test_what_was_put_is_found_whole(store: Store) -> None:
    epoch = await store.epoch()
    entry = an_entry(epoch=epoch, tags=("a", "ü\n\0"), text="¿qué? 🙂\n", body=bytes(range(256)))
    assert await store.get(entry.key) == Found(None, epoch)
    assert await store.put(entry)
    assert await store.get(entry.key) == Found(entry, epoch)
    newer = replace(entry, body=b"newer", vector=b"", text="", embedder="")
    assert await store.put(newer)
    assert await store.get(entry.key) == Found(newer, epoch)
    assert (await store.stats()).entries == 1


async def test_what_is_found_at_once_is_what_would_be_found(store: Store, clock: Clock) -> None:
    entry = an_entry(epoch=await store.epoch(), expires=clock.now + 60)
    assert store.at_once(entry.key) is None
    await store.put(entry)
    # One that others share cannot tell without asking.
    there = None if isinstance(store, RedisStore | WorkerStore) else entry
    assert store.at_once(entry.key) == there
    clock.now += 61
    assert store.at_once(entry.key) is None
    clock.now -= 61
    assert store.at_once(entry.key) == there
    await store.invalidate(EVERYTHING)
    assert store.at_once(entry.key) is None


async def test_a_removed_entry_is_gone(store: Store) -> None:
    entry = an_entry(epoch=await store.epoch())
    assert not await store.delete(entry.key)
    await store.put(entry)
    assert await store.delete(entry.key)
    assert (await store.get(entry.key)).entry is None
    assert not await store.delete(entry.key)
    stats = await store.stats()
    assert stats.entries == 0


async def test_an_expired_entry_is_neither_found_nor_kept(store: Store, clock: Clock) -> None:
    entry = an_entry(epoch=await store.epoch(), expires=clock.now + 60)
    assert await store.put(entry)
    clock.now += 59
    assert (await store.get(entry.key)).entry == entry
    clock.now += 1
    assert (await store.get(entry.key)).entry is None
    assert not await store.put(entry)


RULES = [
    EVERYTHING,
    InvalidationRule("model", "m"),
    InvalidationRule("namespace", name("n")),
    InvalidationRule("entry", name("k")),
    InvalidationRule("tag", "t"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.kind))
async def test_an_invalidation_is_about_what_it_names(store: Store, rule: InvalidationRule) -> None:
    epoch = await store.epoch()
    named = an_entry(epoch=epoch, tags=("s", "t"))
    others = [
        an_entry("other", epoch=epoch, namespace=name("other"), model="other", tags=("tt",)),
        an_entry("m", epoch=epoch, namespace="m", model="t", tags=("m", "n")),
    ]
    for entry in (named, *others):
        assert await store.put(entry)
    assert await store.invalidate(rule) == (3 if rule == EVERYTHING else 1)
    assert await store.epoch() == epoch + 1
    assert await store.get(named.key) == Found(None, epoch + 1)
    for other in others:
        assert ((await store.get(other.key)).entry is None) == (rule == EVERYTHING)
    assert await store.put(replace(named, epoch=epoch + 1))
    assert (await store.get(named.key)).entry is not None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.kind))
async def test_a_slow_answer_does_not_bring_back_what_was_invalidated(
    store: Store, rule: InvalidationRule
) -> None:
    slow = an_entry(epoch=(await store.get(name("k"))).epoch, tags=("t",))
    assert await store.invalidate(rule) == 0
    await store.invalidate(InvalidationRule("tag", "something else"))
    assert not await store.put(slow)
    assert (await store.get(slow.key)).entry is None


async def test_an_entry_that_is_too_large_is_not_kept(store: Store) -> None:
    epoch = await store.epoch()
    assert not await store.put(an_entry(epoch=epoch, body=bytes(1 << 22)))
    assert await store.put(an_entry(epoch=epoch, body=bytes(1 << 20)))


@pytest.mark.parametrize("kind", KINDS)
async def test_bytes_are_bounded(kind: Kind, tmp_path: Path) -> None:
    bound = 1 << 20
    async with opened_store(kind, tmp_path, max_bytes=bound) as store:
        epoch = await store.epoch()
        for number in range(1500):
            body = bytes(number * 37 % 3000)
            assert await store.put(an_entry(str(number), epoch=epoch, body=body))
            if number % 100 == 0:
                assert (await store.stats()).bytes <= bound
        stats = await store.stats()
        assert bound // 2 < stats.bytes <= bound
        assert stats.entries + stats.evicted == 1500
        assert (await store.get(name("1499"))).entry is not None
        assert (await store.get(name("0"))).entry is None


async def test_changes_tell_what_is_there_and_what_happens(store: Store) -> None:
    epoch = await store.epoch()
    exact = an_entry("exact", epoch=epoch, text="", embedder="", vector=b"")
    for entry in (exact, *(an_entry(str(number), epoch=epoch) for number in range(700))):
        await store.put(entry)
    with following(store) as follower:
        await until(lambda: follower.complete)
        assert follower.alive() == {name(str(number)) for number in range(700)}
        assert follower.batches[0][0].reset
        await store.put(exact)
        await store.delete(name("1"))
        await store.put(an_entry("2", epoch=epoch, tags=("t",)))
        await store.put(an_entry("new", epoch=epoch, tags=("t",)))
        await until(lambda: name("new") in follower.alive())
        assert name("1") not in follower.alive()
        await store.invalidate(InvalidationRule("tag", "t"))
        await until(lambda: len(follower.alive()) == 698)
        assert follower.resets == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_changes_tell_of_evictions(kind: Kind, tmp_path: Path) -> None:
    async with opened_store(kind, tmp_path, max_bytes=1 << 20) as store:
        epoch = await store.epoch()
        with following(store) as follower:
            await until(lambda: follower.complete)
            for number in range(1000):
                await store.put(an_entry(str(number), epoch=epoch, body=bytes(3000)))
            left = (await store.stats()).entries
            await until(lambda: len(follower.alive()) == left)


async def test_a_text_that_is_no_text_does_no_harm(store: Store) -> None:
    entry = an_entry(epoch=await store.epoch(), text="\ud800")
    kept = await store.put(entry)
    assert (await store.get(entry.key)).entry == (entry if kept else None)


KEYS = ("a", "b", "c")
_RULES = st.one_of(
    st.just(EVERYTHING),
    st.sampled_from(KEYS).map(lambda key: InvalidationRule("entry", name(key))),
    st.sampled_from(
        [
            InvalidationRule("model", "m"),
            InvalidationRule("model", "o"),
            InvalidationRule("tag", "s"),
            InvalidationRule("tag", "t"),
        ]
    ),
    st.just(InvalidationRule("namespace", name("n"))),
)
_ENTRIES = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "lag": st.integers(0, 3),
        "ttl": st.sampled_from([-1, 5, 1000]),
        "model": st.sampled_from(["m", "o"]),
        "namespace": st.sampled_from([name("n"), name("o")]),
        "tags": st.sampled_from([(), ("s",), ("s", "t")]),
        "body": st.binary(max_size=20),
        "vector": st.sampled_from([b"", bytes(16)]),
    }
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _ENTRIES),
        st.tuples(st.just("get"), st.sampled_from(KEYS)),
        st.tuples(st.just("delete"), st.sampled_from(KEYS)),
        st.tuples(st.just("invalidate"), _RULES),
        st.tuples(st.just("wait"), st.sampled_from([1, 5])),
    ),
    max_size=25,
)


@dataclass
class World:
    """A store, and what it should hold."""

    store: Store
    clock: Clock
    epoch: int
    first: int
    entries: dict[str, CacheEntry] = field(default_factory=dict)
    rules: dict[InvalidationRule, int] = field(default_factory=dict)

    def allowed(self, entry: CacheEntry) -> bool:
        return all(self.rules.get(rule, 0) <= entry.epoch for rule in entry.rules())

    def alive(self, key: str) -> CacheEntry | None:
        entry = self.entries.get(key)
        return entry if entry is not None and entry.expires > self.clock.now else None

    async def put(self, fields: dict[str, Any]) -> None:
        fields = dict(fields)
        epoch = max(self.epoch - fields.pop("lag"), self.first)
        expires = self.clock.now + fields.pop("ttl")
        if not fields["vector"]:
            fields |= {"embedder": "", "text": ""}
        entry = an_entry(epoch=epoch, expires=expires, **fields)
        kept = self.allowed(entry) and expires > self.clock.now
        assert await self.store.put(entry) == kept
        if kept:
            self.entries[entry.key] = entry

    async def get(self, key: str) -> None:
        assert await self.store.get(name(key)) == Found(self.alive(name(key)), self.epoch)

    async def delete(self, key: str) -> None:
        alive = self.alive(name(key))
        was_there = await self.store.delete(name(key))
        assert was_there == (alive is not None) or name(key) in self.entries
        self.entries.pop(name(key), None)

    async def invalidate(self, rule: InvalidationRule) -> None:
        about = [entry for entry in self.entries.values() if rule in entry.rules()]
        alive = [entry for entry in about if entry.expires > self.clock.now]
        assert len(alive) <= await self.store.invalidate(rule) <= len(about)
        for entry in about:
            del self.entries[entry.key]
        self.epoch += 1
        self.rules[rule] = self.epoch

    async def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    def indexed(self) -> set[str]:
        return {key for key in self.entries if (e := self.alive(key)) is not None and e.vector}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(operations=OPERATIONS, start=st.integers(0, 25))
def test_it_does_as_a_simple_model_does(kind: Kind, operations: list[Any], start: int) -> None:
    async def run(path: Path) -> None:
        clock = Clock()
        async with opened_store(kind, path, clock=clock) as store:
            epoch = await store.epoch()
            world = World(store, clock, epoch, epoch)
            for operation, argument in operations[:start]:
                await getattr(world, operation)(argument)
            with following(store) as follower:
                for operation, argument in operations[start:]:
                    await getattr(world, operation)(argument)
                for key in KEYS:
                    await world.get(key)
                await until(
                    lambda: follower.complete and follower.alive(clock.now) == world.indexed()
                )
            assert follower.resets == 1

    with tempfile.TemporaryDirectory() as path:
        asyncio.run(run(Path(path)))
