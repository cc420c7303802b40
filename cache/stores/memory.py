"""``memory://``: entries in this process, for as long as it lives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from sys import getsizeof
from typing import Final

from cache.entry import CacheEntry, InvalidationRule
from cache.store import Change, Found, StoreStats
from cache.stores.codec import without_body
from cache.stores.entries import EntryTable, Feed, Held

__all__ = ["MemoryStore"]

_OVERHEAD: Final = 640
"""Bytes that an entry takes up besides what is in it: objects, table places, allocator slack."""

_SLICE: Final = 256


class MemoryStore:
    """Implements ``cache.store.Store``. The least recently used entries make room for new ones.

    ``max_bytes`` bounds everything that entries take up in memory. It belongs to one event loop.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.time) -> None:
        self._ledger = EntryTable(max_bytes)
        self._feed = Feed()
        self._clock = clock

    async def start(self) -> None:
        """See ``Store.start``; there is nothing to do."""

    async def close(self) -> None:
        """See ``Store.close``; there is nothing to do."""

    async def get(self, key: str) -> Found:
        """See ``Store.get``."""
        held = self._ledger.find(key, self._clock())
        return Found(None if held is None else held.entry, self._ledger.rules.epoch)

    async def put(self, entry: CacheEntry) -> bool:
        """See ``Store.put``."""
        ledger, now, size = self._ledger, self._clock(), _size(entry)
        if not ledger.fits(size) or not ledger.serves(entry, now):
            return False
        old = ledger.remove(entry.key)
        gone = ledger.tidy(now)
        gone += ledger.evict(ledger.bytes + size - ledger.max_bytes)
        ledger.add(Held.of(entry, size, whole=True))
        if old is not None and not entry.vector:
            gone.append(old)
        self._tell_gone(gone)
        if entry.vector:
            self._feed.tell(Change(added=without_body(entry)))
        return True

    async def delete(self, key: str) -> bool:
        """See ``Store.delete``."""
        held = self._ledger.remove(key)
        if held is None:
            return False
        self._tell_gone([held])
        return self._ledger.serves(held, self._clock())

    async def invalidate(self, rule: InvalidationRule) -> int:
        """See ``Store.invalidate``. From its first step on no such entry is served."""
        ledger = self._ledger
        ledger.rules.add(rule)
        self._feed.tell(Change(invalidated=rule))
        count, now = 0, self._clock()
        for start in range(0, ledger.slots, _SLICE):
            if start:
                await asyncio.sleep(0)
            for held in ledger.slice(start, _SLICE):
                if not ledger.rules.allow(held):
                    ledger.remove(held.key)
                    count += held.expires > now
        return count

    async def epoch(self) -> int:
        """See ``Store.epoch``."""
        return self._ledger.rules.epoch

    def changes(self) -> AsyncIterator[Sequence[Change]]:
        """See ``Store.changes``."""
        return self._feed.follow(self._everything)

    async def stats(self) -> StoreStats:
        """See ``Store.stats``."""
        ledger = self._ledger
        return StoreStats(len(ledger), ledger.bytes, ledger.max_bytes, ledger.evicted)

    async def _everything(self) -> AsyncIterator[Sequence[Change]]:
        position = 0
        while position < self._ledger.slots:
            now = self._clock()
            yield [
                Change(added=without_body(held.entry))
                for held in self._ledger.slice(position, _SLICE)
                if held.entry is not None and held.embedded and self._ledger.serves(held, now)
            ]
            position += _SLICE
            await asyncio.sleep(0)

    def _tell_gone(self, gone: Sequence[Held]) -> None:
        self._feed.tell(*(Change(removed=held.key) for held in gone if held.embedded))


def _size(entry: CacheEntry) -> int:
    tags = sum(getsizeof(tag) for tag in entry.tags)
    strings = (entry.key, entry.namespace, entry.kind, entry.model, entry.text, entry.embedder)
    whole = tags + sum(map(getsizeof, strings))
    return whole + getsizeof(entry.body) + getsizeof(entry.vector) + _OVERHEAD
