"""``redis://``: entries that several routers share; what happens in it is in ``scripts``.

``RedisFeed`` tells what happens in it to those who keep an index of it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from cache.entry import EVERYTHING, CacheEntry, InvalidationRule
from cache.store import Change, Found, StoreError, StoreStats
from cache.stores.changes import MOST_RULES, RESET
from cache.stores.codec import pack_head, pack_rule, unpack, unpack_rule
from cache.stores.redis_client import RedisClient
from cache.stores.scripts import DELETE, GET, HEADS, INVALIDATE, PUT, STATE, SWEEP, rule_id

__all__ = ["RedisFeed", "RedisStore"]

_BATCH: Final = 200
_BLOCK_SECONDS: Final = 1.0
_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_FOLLOWERS: Final = 4


class _Lost(Exception):
    """What happened meanwhile is not known any more."""


class RedisFeed:
    """``client`` is for what is quick; waiting for changes has connections of its own, to the
    Redis at ``url``.
    """

    def __init__(
        self, client: RedisClient, url: str, prefix: str, connect_timeout: float, timeout: float
    ) -> None:
        self._client = client
        self._waiting = RedisClient(
            url,
            prefix,
            connect_timeout=connect_timeout,
            timeout=_BLOCK_SECONDS + timeout,
            connections=_FOLLOWERS,
        )

    async def close(self) -> None:
        """End its connections."""
        await self._waiting.close()

    async def follow(self) -> AsyncIterator[Sequence[Change]]:
        """See ``Store.changes``."""
        while True:
            yield (RESET,)
            change = await self._patiently(self._change)
            number = "0"
            while number:
                number, entries = await self._patiently(self._younger, number)
                if entries:
                    yield [Change(added=entry) for entry in entries]
            yield ()
            try:
                while True:
                    change, changes = await self._patiently(self._since, change)
                    if changes:
                        yield changes
            except _Lost:
                await asyncio.sleep(_PAUSES[0])

    async def _patiently(self, ask: Any, *arguments: Any) -> Any:
        """The answer, when there is one at last."""
        failures = 0
        while True:
            try:
                return await ask(*arguments)
            except StoreError:
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                failures += 1
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _change(self) -> int:
        """The number of the last change."""
        _, (change, _, _) = await self._client.run(STATE, None)
        return int(change)

    async def _younger(self, number: str) -> tuple[str, list[CacheEntry]]:
        _, (last, heads) = await self._client.run(HEADS, None, number, _BATCH)
        return last.decode(), list(_entries(heads))

    async def _since(self, change: int) -> tuple[int, list[Change]]:
        """What happened after that change; raises _Lost."""
        records = await self._read(change, _BLOCK_SECONDS)
        if not records:
            last = await self._change()
            if last == change:
                return change, []
            # It may have come just now; if it cannot be read, it is lost.
            records = await self._read(change, None) if last > change else []
        if not records or _number(records[0]) != change + 1:
            raise _Lost
        keys = [fields[1] for _, fields in records if fields[0] == b"added"]
        heads = (await self._client.run(HEADS, None, "", *keys))[1][1] if keys else []
        added = {entry.key: entry for entry in _entries(heads)}
        changes = [told for record in records for told in _told(record, added)]
        self._client.change = change = max(self._client.change, _number(records[-1]))
        return change, changes

    async def _read(self, change: int, block: float | None) -> list[Any]:
        wait = () if block is None else ("BLOCK", int(block * 1000))
        name = self._client.key("changes")
        answer = await self._waiting.command(
            "XREAD", "COUNT", _BATCH, *wait, "STREAMS", name, f"{change}-0"
        )
        return list(answer[0][1]) if answer else []


def _number(record: Any) -> int:
    return int(record[0].partition(b"-")[0])


def _entries(heads: Sequence[bytes]) -> list[CacheEntry]:
    entries = []
    for head in heads:
        try:
            entry = unpack(head) if head else None
        except ValueError:
            continue
        if entry is not None and entry.vector:
            entries.append(entry)
    return entries


def _told(record: Any, added: dict[str, CacheEntry]) -> list[Change]:
    kind, value = record[1][0], record[1][1].decode(errors="replace")
    if kind == b"added":
        # One that is not there any more has a record of its going.
        return [Change(added=added[value])] if value in added else []
    if kind == b"gone":
        return [Change(removed=key) for key in value.split(" ")]
    if kind == b"invalidated":
        try:
            return [Change(invalidated=unpack_rule(value))]
        except ValueError:
            raise _Lost from None
    raise _Lost


_LARGEST: Final = 8
"""An entry may take up this fraction of the whole."""

_OVERHEAD: Final = 1300
"""Bytes that an entry takes up in Redis besides head and body: three indexes, its share of the
stream, and what each allocation is rounded up to.
"""

_CONNECTIONS: Final = 32
_SWEEP_ENTRIES: Final = 200
_SWEEP_SECONDS: Final = 0.05


class RedisStore:
    """Implements ``cache.store.Store``. The oldest entries make room for new ones.

    Raises ValueError where ``url`` is none for Redis. ``prefix`` begins the names of all keys.
    ``max_bytes`` bounds what the entries take up in Redis, as far as that can be told from here.
    ``connect_timeout`` and ``timeout`` (for one command) are in seconds.
    """

    def __init__(
        self,
        url: str,
        max_bytes: int,
        prefix: str = "pointsman:cache",
        *,
        connect_timeout: float = 0.5,
        timeout: float = 0.25,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = RedisClient(
            url,
            prefix,
            connect_timeout=connect_timeout,
            timeout=timeout,
            connections=_CONNECTIONS,
        )
        self._feed = RedisFeed(self._client, url, prefix, connect_timeout, timeout)
        self._max_bytes = max_bytes
        self._clock = clock
        self._evicted = 0
        self._sweepers: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """See ``Store.start``; there is nothing to do."""

    async def close(self) -> None:
        """See ``Store.close``."""
        if self._sweepers:
            for sweeper in self._sweepers:
                sweeper.cancel()
            await asyncio.wait(self._sweepers)
        await self._feed.close()
        await self._client.close()

    async def get(self, key: str) -> Found:
        """See ``Store.get``."""
        epoch, found = await self._client.run(GET, key)
        entry = None
        if found:
            with suppress(ValueError):
                entry = unpack(*found)
        if entry is not None and (entry.key != key or entry.expires <= self._clock()):
            entry = None
        return Found(entry, epoch)

    def at_once(self, key: str) -> CacheEntry | None:
        """See ``Store.at_once``: what another router has invalidated only Redis knows."""
        return None

    async def put(self, entry: CacheEntry) -> bool:
        """See ``Store.put``."""
        try:
            head = pack_head(entry)
        except ValueError:
            return False
        ids = b"".join(map(rule_id, entry.rules()))
        size = len(head) + len(entry.body) + len(ids) + 4 * len(entry.key) + _OVERHEAD
        if size > self._max_bytes // _LARGEST or entry.expires <= self._clock():
            return False
        _, (kept, evicted) = await self._client.run(
            PUT,
            entry.key,
            entry.key,
            entry.epoch,
            ids,
            head,
            entry.body,
            size,
            int(entry.expires * 1000),
            self._max_bytes,
            int(bool(entry.vector)),
        )
        self._evicted += evicted
        return bool(kept)

    async def delete(self, key: str) -> bool:
        """See ``Store.delete``."""
        _, (there,) = await self._client.run(DELETE, key, key)
        return bool(there)

    async def invalidate(self, rule: InvalidationRule) -> int:
        """See ``Store.invalidate``. The first step of it is all that matters for what is served;
        the entries themselves are removed step by step, some perhaps later.
        """
        known = await self.delete(rule.value) if rule.kind == "entry" else False
        arguments = (rule_id(rule), pack_rule(rule), MOST_RULES)
        _, (entries,) = await self._client.run(INVALIDATE, None, *arguments)
        if rule.kind == "entry":
            return int(known)
        for sweeper in self._sweepers:
            sweeper.cancel()  # the next one has its work to do, too
        count, number, began = 0, "0", time.monotonic()
        # What is not removed at all expires or is evicted in its time.
        with suppress(StoreError):
            while number and time.monotonic() - began < _SWEEP_SECONDS:
                number, gone = await self._sweep(number)
                count += gone
        if number:
            sweeper = asyncio.create_task(self._sweep_on(number), name="sweep the cache")
            self._sweepers.add(sweeper)
            sweeper.add_done_callback(self._sweepers.discard)
        return int(entries) if rule == EVERYTHING else count

    async def epoch(self) -> int:
        """See ``Store.epoch``."""
        return (await self._client.run(STATE, None))[0]

    def changes(self) -> AsyncIterator[Sequence[Change]]:
        """See ``Store.changes``."""
        return self._feed.follow()

    async def stats(self) -> StoreStats:
        """See ``Store.stats``."""
        _, (_, size, entries) = await self._client.run(STATE, None)
        return StoreStats(int(entries), int(size), self._max_bytes, self._evicted)

    async def _sweep(self, number: str) -> tuple[str, int]:
        """One step of removing what may not be served: how far it came, how many went."""
        _, (last, count) = await self._client.run(SWEEP, None, number, _SWEEP_ENTRIES)
        return last.decode(), count

    async def _sweep_on(self, number: str) -> None:
        with suppress(StoreError):
            while number:
                number, _ = await self._sweep(number)
