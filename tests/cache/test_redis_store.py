"""The Redis store: shared by several, killed, emptied, cut short."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from redis.asyncio import Redis

from cache.entry import EVERYTHING, InvalidationRule
from cache.guarded import GuardedStore
from cache.store import StoreError
from cache.stores.redis_store import RedisStore
from cache.stores.scripts import INVALIDATE
from tests.support.processes import free_port
from tests.support.redis import REDIS_URL, RedisServer, redis_prefix, redis_server
from tests.support.stores import an_entry, following, name
from tests.support.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@asynccontextmanager
async def stores(
    count: int, url: str, prefix: str = "pointsman:cache", *, max_bytes: int = 1 << 24
) -> AsyncIterator[list[RedisStore]]:
    """As many routers would have."""
    made = [
        RedisStore(url, max_bytes, prefix, connect_timeout=9.0, timeout=9.0) for _ in range(count)
    ]
    try:
        yield made
    finally:
        for store in made:
            await store.close()


async def test_two_stores_on_one_redis() -> None:
    async with redis_prefix() as prefix, stores(2, REDIS_URL, prefix) as (one, two):
        epoch = await one.epoch()
        assert await two.epoch() == epoch
        with following(two) as follower:
            await until(lambda: follower.complete)
            entry = an_entry(epoch=epoch, tags=("t",))
            assert await one.put(entry)
            assert (await two.get(entry.key)).entry == entry
            await until(lambda: entry.key in follower.entries)
            assert await one.invalidate(InvalidationRule("tag", "t")) == 1
            assert (await two.get(entry.key)).entry is None
            assert not await two.put(entry)
            await until(lambda: not follower.entries)
            assert await two.put(replace(entry, epoch=epoch + 1))
            assert await one.delete(entry.key)
            assert (await two.get(entry.key)).entry is None
            assert follower.resets == 1


async def test_all_keys_are_of_one_slot_and_entries_expire_by_themselves() -> None:
    async with redis_prefix() as prefix, stores(1, REDIS_URL, prefix) as (store,):
        epoch = await store.epoch()
        await store.put(an_entry("soon", epoch=epoch, expires=time.time() + 0.2))
        await store.put(an_entry("late", epoch=epoch))
        await store.invalidate(InvalidationRule("tag", "t"))
        async with Redis.from_url(REDIS_URL) as redis:
            names = [name.decode() async for name in redis.scan_iter(f"*{prefix}*")]
            assert len(names) == 7
            assert all(key.startswith(f"{{{prefix}}}:") for key in names)
            assert await redis.pttl(f"{{{prefix}}}:e:{name('late')}") > 3_000_000
            await asyncio.sleep(0.3)
            assert not await redis.exists(f"{{{prefix}}}:e:{name('soon')}")
        assert (await store.get(name("soon"))).entry is None
        await store.put(an_entry("another", epoch=epoch))
        assert (await store.stats()).entries == 2


async def test_many_rules_become_one() -> None:
    async with redis_prefix() as prefix, stores(1, REDIS_URL, prefix) as (store,):
        old = an_entry("old", epoch=await store.epoch())
        for number in range(5000):
            await store._client.run(INVALIDATE, None, f"{number:016}".encode(), "tag:x", 100)
        await store.invalidate(InvalidationRule("tag", "recent"))
        async with Redis.from_url(REDIS_URL) as redis:
            assert 50 <= await redis.zcard(f"{{{prefix}}}:rules") <= 103
        epoch = await store.epoch()
        assert not await store.put(old)
        assert await store.put(an_entry("fresh", epoch=epoch - 5))
        assert not await store.put(an_entry("tagged", epoch=epoch - 1, tags=("recent",)))
        await store.invalidate(EVERYTHING)
        assert (await store.get(name("fresh"))).entry is None


async def test_what_was_asked_for_before_it_was_emptied_is_not_kept(server: RedisServer) -> None:
    async with stores(2, server.url) as (one, two):
        entry = an_entry(epoch=await one.epoch())
        await two.epoch()
        assert await one.put(entry)
        with following(two) as follower:
            await until(lambda: entry.key in follower.entries)
            await server.command("FLUSHALL")
            assert (await one.get(entry.key)).entry is None
            assert not await two.put(entry)
            await until(lambda: follower.resets == 2 and follower.complete)
            assert not follower.entries
            newer = replace(entry, epoch=await two.epoch())
            assert newer.epoch > entry.epoch
            assert await two.put(newer)
            await until(lambda: entry.key in follower.entries)


async def test_an_older_copy_is_not_believed(server: RedisServer) -> None:
    """A Redis that comes back without the last invalidations serves nothing of before."""
    prefix = "pointsman:cache"
    async with stores(1, server.url) as (store,), Redis.from_url(server.url) as redis:
        entry = an_entry(epoch=await store.epoch(), tags=("t",))
        assert await store.put(entry)
        dumps = {key: await redis.dump(key) for key in await redis.keys(f"{{{prefix}}}*")}
        await store.invalidate(InvalidationRule("tag", "t"))
        await redis.flushall()
        for key, dump in dumps.items():
            assert dump is not None
            await redis.restore(key, 3_600_000 if b":e:" in key else 0, dump)
        assert (await store.get(entry.key)).entry is None
        assert not await store.put(entry)
        async with stores(1, server.url) as (another,):
            assert (await another.get(entry.key)).entry is None


async def test_a_lost_part_of_it_brings_nothing_back(server: RedisServer) -> None:
    for part in ("rules", "changes", "sizes", "age", "expiry"):
        async with stores(1, server.url, max_bytes=1 << 18) as (store,):
            entry = an_entry(epoch=await store.epoch(), tags=("t",))
            await store.put(entry)
            await store.invalidate(InvalidationRule("tag", "t"))
            await server.command("DEL", f"{{pointsman:cache}}:{part}")
            assert (await store.get(entry.key)).entry is None
            assert not await store.put(entry)
            epoch = await store.epoch()
            for number in range(300):
                await store.put(an_entry(str(number), epoch=epoch, body=bytes(1000)))
            assert (await store.get(name("299"))).entry is not None
            assert (await store.stats()).bytes <= 1 << 18


async def test_a_follower_that_missed_something_begins_anew(server: RedisServer) -> None:
    async with stores(2, server.url) as (one, two):
        with following(two) as follower:
            await until(lambda: follower.complete)
            epoch = await one.epoch()
            await two._feed._waiting.close()  # it cannot hear anything now
            two._feed._waiting._closed.set()
            for start in range(0, 12_000, 500):
                keys = [str(number) for number in range(start % 1000, start % 1000 + 500)]
                await asyncio.gather(*(one.put(an_entry(key, epoch=epoch)) for key in keys))
            two._feed._waiting._closed.clear()
            await until(lambda: follower.resets == 2 and follower.complete)
            assert follower.alive() == {name(str(number)) for number in range(1000)}


async def test_nonsense_in_it_is_no_harm(server: RedisServer) -> None:
    async with stores(1, server.url) as (store,):
        entry = an_entry(epoch=await store.epoch())
        await store.put(entry)
        with following(store) as follower:
            await until(lambda: follower.complete)
            key = f"{{pointsman:cache}}:e:{entry.key}"
            for head in ("", "[]", "\n", '["a"]\n', "{}\n", "[" * 10_000):
                await server.command("HSET", key, "h", head)
                assert (await store.get(entry.key)).entry is None
            await server.command("SET", key, "no hash")
            with pytest.raises(StoreError, match=r"WRONGTYPE|ERR"):
                await store.get(entry.key)
            await server.command("XADD", "{pointsman:cache}:changes", "*", "what", "nonsense")
            await until(lambda: follower.resets >= 2)
        await server.command("FLUSHALL")


class Load:
    """Callers that look a key up and store another one, whatever happens."""

    def __init__(self, stores: list[GuardedStore], key: str) -> None:
        self._key = key
        self._ended = False
        self._tasks = [asyncio.create_task(self._go_on(store)) for store in stores for _ in "1234"]

    async def _go_on(self, store: GuardedStore) -> None:
        while not self._ended:
            with suppress(StoreError):
                found = await store.get(self._key)
                await store.put(an_entry("other", epoch=found.epoch))
            await asyncio.sleep(0.001)

    async def end(self) -> None:
        """Raises what they did not expect."""
        self._ended = True
        await asyncio.gather(*self._tasks)


async def test_what_is_killed_comes_back_without_anything_stale(server: RedisServer) -> None:
    async with stores(2, server.url) as (one, two):
        guarded = [GuardedStore(store) for store in (one, two)]
        entry = an_entry(epoch=await one.epoch(), tags=("t",))
        await one.put(entry)
        load = Load(guarded, entry.key)
        with following(two) as follower:
            await until(lambda: entry.key in follower.entries)
            await asyncio.to_thread(server.kill)
            await until(lambda: not any(store.up for store in guarded))
            for store in guarded:
                with pytest.raises(StoreError):
                    await store.invalidate(EVERYTHING)
            await asyncio.to_thread(server.start)
            await until(lambda: all(store.up for store in guarded))
            assert (await one.get(entry.key)).entry is None
            assert not await two.put(entry)
            await until(lambda: follower.resets >= 2 and follower.complete)
            assert entry.key not in follower.entries
            await until(lambda: name("other") in follower.entries)
        await load.end()
        for store in guarded:
            await store.close()


async def test_one_that_hangs_costs_one_deadline(server: RedisServer) -> None:
    store = GuardedStore(RedisStore(server.url, 1 << 24))
    await store.start()
    epoch = await store.epoch()
    try:
        server.freeze(True)
        with pytest.raises(StoreError):
            await store.get("k")
        assert not store.up
        for _ in range(1000):
            with pytest.raises(StoreError, match="left alone"):
                await store.get("k")
    finally:
        server.freeze(False)
    await until(lambda: store.up)
    assert (await store.get("k")).epoch == epoch
    await store.close()


async def test_more_callers_than_connections(server: RedisServer) -> None:
    async with stores(1, server.url) as (store,):
        epoch = await store.epoch()
        found = await asyncio.gather(*(store.get(str(number)) for number in range(500)))
        assert {one.epoch for one in found} == {epoch}


@pytest.mark.parametrize("where", ["redis://:{}@127.0.0.1:1/0", "unix:///nowhere?password={}"])
async def test_errors_hold_no_password(where: str) -> None:
    store = RedisStore(where.format("s3cret"), 1 << 24)
    with pytest.raises(StoreError) as raised:
        await store.get("k")
    assert "s3cret" not in f"{raised.value!r} {raised.value} {store!r} {vars(store)}"
    await store.close()


async def test_password_and_database_are_those_of_the_url(server: RedisServer) -> None:
    await server.command("CONFIG", "SET", "requirepass", "p@ss/#:")
    url = server.url.replace("//", "//:p%40ss%2F%23%3A@")
    try:
        async with stores(1, f"{url}/3") as (store,):
            entry = an_entry(epoch=await store.epoch())
            assert await store.put(entry)
        async with stores(2, url) as (one, _), stores(1, server.url) as (locked_out,):
            assert (await one.get(entry.key)).entry is None
            with pytest.raises(StoreError, match=r"127.0.0.1:\d+/0 .*(NOAUTH|Authentication)"):
                await locked_out.epoch()
    finally:
        async with Redis.from_url(url) as redis:
            await redis.config_set("requirepass", "")


async def test_over_tls_and_over_a_unix_socket(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    port, place = str(free_port()), tmp_path / "redis.sock"
    options = ["--tls-port", port, "--tls-auth-clients", "no", "--unixsocket", str(place)]
    for name_of_file in ("--tls-cert-file", "--tls-key-file"):
        options += [name_of_file, str(tmp_path / "server.pem")]
    with redis_server(*options, "--tls-ca-cert-file", str(tmp_path / "ca.pem")):
        secure = f"rediss://127.0.0.1:{port}"
        async with stores(1, f"{secure}?ssl_ca_certs={tmp_path}/ca.pem") as (store,):
            entry = an_entry(epoch=await store.epoch())
            assert await store.put(entry)
        async with stores(1, f"unix://{place}?db=0") as (store,):
            assert (await store.get(entry.key)).entry == entry
        async with stores(1, secure) as (store,):
            with pytest.raises(StoreError, match="ConnectionError"):
                await store.epoch()
