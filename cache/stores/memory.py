"""``memory://``: entries in this process, for as long as it lives.

``EntryTable`` knows how many bytes the entries are, and which goes next; a store on a disk has one,
too, of what it holds. No call takes long, however many entries there are: what has to look at all
of them goes slice by slice over ``slots``, which do not move when entries come and go meanwhile,
and what grows is in many parts, since a dictionary of a million keys takes a tenth of a second to
grow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from cache.entry import EVERYTHING, CacheEntry, InvalidationRule
from cache.store import Change, Found, StoreStats
from cache.stores.changes import Feed, InvalidationRules
from cache.stores.codec import without_body

__all__ = ["EntryTable", "Held", "MemoryStore", "tell_removed"]

_OVERHEAD: Final = 640
"""Bytes that an entry takes up besides what is in it: objects, table places, allocator slack."""

_SLICE: Final = 256

_LARGEST: Final = 8
"""An entry may take up this fraction of the whole."""

_PARTS: Final = 64
_TIDY_STEPS: Final = 4


@dataclass(slots=True, eq=False)
class Held:
    """What a table knows of an entry, and the bytes that it counts for. ``entry`` is the whole of
    it where that is kept in memory. ``embedded``: it has a vector.
    """

    key: str
    namespace: str
    model: str
    tags: tuple[str, ...]
    expires: float
    epoch: int
    size: int
    embedded: bool
    entry: CacheEntry | None = None
    slot: int = -1
    older: Held = field(init=False, repr=False)
    newer: Held = field(init=False, repr=False)

    def rules(self) -> tuple[InvalidationRule, ...]:
        """See ``CacheEntry.rules``."""
        return (
            EVERYTHING,
            InvalidationRule("model", self.model),
            InvalidationRule("namespace", self.namespace),
            InvalidationRule("entry", self.key),
            *(InvalidationRule("tag", tag) for tag in self.tags),
        )


class EntryTable:
    """Entries by key, the least recently used first. ``evicted`` counts those that had to go, and
    ``largest`` is how large one may be.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.largest = max_bytes // _LARGEST
        self.rules = InvalidationRules()
        self.bytes = 0
        self.evicted = 0
        self._parts: list[dict[str, Held]] = [{} for _ in range(_PARTS)]
        self._count = 0
        # All in a ring, in the order of their last use; this one is between the ends.
        ends = self._ends = Held("", "", "", (), 0.0, 0, size=0, embedded=False)
        ends.older = ends.newer = ends
        self._slots: list[Held | None] = []
        self._free: list[int] = []
        self._hand = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: str) -> bool:
        return key in self._parts[hash(key) % _PARTS]

    @property
    def slots(self) -> int:
        """Positions for ``slice``."""
        return len(self._slots)

    def find(self, key: str, now: float) -> Held | None:
        """The entry, if it may be served at ``now``."""
        held = self._parts[hash(key) % _PARTS].get(key)
        if held is None or held.expires <= now:
            return None
        if held.epoch < self.rules.epoch and not self.rules.allow(held):
            return None
        ends = self._ends
        if held.newer is not ends:
            held.older.newer, held.newer.older = held.newer, held.older
            held.newer, held.older = ends, ends.older
            held.older.newer = ends.older = held
        return held

    def serves(self, entry: CacheEntry | Held, now: float) -> bool:
        """Whether it has neither expired nor been invalidated."""
        if entry.expires <= now:
            return False
        return entry.epoch >= self.rules.epoch or self.rules.allow(entry)

    def put(
        self, entry: CacheEntry, size: int, now: float, *, whole: bool, used: int = 0
    ) -> tuple[Held, Held | None, list[Held]]:
        """Hold an entry of so many bytes as of ``now``, in the place of one with the same key, and
        make room for it; ``whole``: with what is in it. ``used`` is how many bytes count where
        those are more than the entries'.

        Returns what it holds, the one with the same key, and the others that are gone: of those
        that may not be served any more a few are looked for at each call, so that in time all are.
        """
        held = Held(
            *(entry.key, entry.namespace, entry.model, entry.tags, entry.expires, entry.epoch),
            size=size,
            embedded=bool(entry.vector),
            entry=entry if whole else None,
        )
        old: Held | None = None
        if held.key in self._parts[hash(held.key) % _PARTS]:
            old = self.remove(held.key)
        gone: list[Held] = []
        for _ in range(min(_TIDY_STEPS, len(self._slots))):
            self._hand = (self._hand + 1) % len(self._slots)
            other = self._slots[self._hand]
            if other is not None and not self.serves(other, now):
                self.remove(other.key)
                gone.append(other)
        excess = max(self.bytes, used) + held.size - self.max_bytes
        if excess > 0:
            gone += self.evict(excess)
        self.add(held)
        return held, old, gone

    def add(self, held: Held) -> None:
        """Hold it, in the place of one with the same key."""
        part = self._parts[hash(held.key) % _PARTS]
        if held.key in part:
            self.remove(held.key)
        if self._free:
            held.slot = self._free.pop()
            self._slots[held.slot] = held
        else:
            held.slot = len(self._slots)
            self._slots.append(held)
        part[held.key] = held
        ends = self._ends
        held.newer, held.older = ends, ends.older
        held.older.newer = ends.older = held
        self._count += 1
        self.bytes += held.size

    def remove(self, key: str) -> Held | None:
        """Let go of it; None where there is none."""
        held = self._parts[hash(key) % _PARTS].pop(key, None)
        if held is None:
            return None
        held.older.newer, held.newer.older = held.newer, held.older
        self._count -= 1
        self._slots[held.slot] = None
        self._free.append(held.slot)
        self.bytes -= held.size
        return held

    def holds(self, held: Held) -> bool:
        """Whether this very one has neither gone nor been replaced."""
        return self._slots[held.slot] is held

    def evict(self, excess: int) -> list[Held]:
        """The least recently used entries, gone now, of this many bytes together or more."""
        gone: list[Held] = []
        while excess > 0 and self._count:
            held = self._ends.newer
            self.remove(held.key)
            gone.append(held)
            excess -= held.size
        self.evicted += len(gone)
        return gone

    def slice(self, position: int, count: int) -> Sequence[Held]:
        """Those in the slots from ``position`` on."""
        return [held for held in self._slots[position : position + count] if held is not None]


def tell_removed(feed: Feed, gone: Sequence[Held]) -> None:
    """Tell those who follow a store of what is gone from it."""
    feed.tell(*[Change(removed=held.key) for held in gone if held.embedded])


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

    def at_once(self, key: str) -> CacheEntry | None:
        """See ``Store.at_once``."""
        held = self._ledger.find(key, self._clock())
        return None if held is None else held.entry

    async def put(self, entry: CacheEntry) -> bool:
        """See ``Store.put``."""
        strings = (entry.key, entry.namespace, entry.kind, entry.model, entry.text, entry.embedder)
        parts = (*strings, *entry.tags, entry.body, entry.vector)
        ledger, now, size = self._ledger, self._clock(), sum(map(getsizeof, parts), _OVERHEAD)
        if size > ledger.largest or not ledger.serves(entry, now):
            return False
        _, old, gone = ledger.put(entry, size, now, whole=True)
        if old is not None and not entry.vector:
            gone.append(old)
        if gone:
            tell_removed(self._feed, gone)
        if entry.vector:
            self._feed.tell(Change(added=without_body(entry)))
        return True

    async def delete(self, key: str) -> bool:
        """See ``Store.delete``."""
        held = self._ledger.remove(key)
        if held is None:
            return False
        tell_removed(self._feed, [held])
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
