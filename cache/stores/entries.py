"""The entries that a store of one process holds, what has been invalidated, and who is told. Pure.

``EntryTable`` knows how many bytes the entries are, and which goes next. No call takes long,
however many entries there are: what has to look at all of them goes slice by slice over ``slots``,
which do not move when entries come and go meanwhile, and what grows is in many parts, since a
dictionary of a million keys takes a tenth of a second to grow.

``InvalidationRules`` is what has been invalidated, and when: the check that every store makes of
every entry. ``Feed`` hands what happens in the store to those who follow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

from cache.entry import EVERYTHING, CacheEntry, InvalidationRule
from cache.store import Change

__all__ = ["MOST_RULES", "RESET", "EntryTable", "Feed", "Held", "InvalidationRules", "RuleSubject"]

_LARGEST: Final = 8
"""An entry may take up this fraction of the whole."""

_PARTS: Final = 64


class Held:
    """What a ledger knows of an entry, and the bytes that it counts for. ``entry`` is the whole of
    it where that is kept in memory. ``embedded``: it has a vector.
    """

    __slots__ = (
        "embedded",
        "entry",
        "epoch",
        "expires",
        "key",
        "model",
        "namespace",
        "newer",
        "older",
        "size",
        "slot",
        "tags",
    )

    older: Held
    newer: Held

    def __init__(
        self,
        key: str,
        namespace: str,
        model: str,
        tags: tuple[str, ...],
        expires: float,
        epoch: int,
        *,
        size: int,
        embedded: bool,
        entry: CacheEntry | None = None,
    ) -> None:
        self.key = key
        self.namespace = namespace
        self.model = model
        self.tags = tags
        self.expires = expires
        self.epoch = epoch
        self.size = size
        self.embedded = embedded
        self.entry = entry
        self.slot = -1

    @classmethod
    def of(cls, entry: CacheEntry, size: int, *, whole: bool) -> Held:
        """For this entry, with it or without."""
        return cls(
            entry.key,
            entry.namespace,
            entry.model,
            entry.tags,
            entry.expires,
            entry.epoch,
            size=size,
            embedded=bool(entry.vector),
            entry=entry if whole else None,
        )

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
    """Entries by key, the least recently used first. ``evicted`` counts those that had to go."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
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
        return key in self._part(key)

    @property
    def slots(self) -> int:
        """Positions for ``slice``."""
        return len(self._slots)

    def find(self, key: str, now: float) -> Held | None:
        """The entry, if it may be served at ``now``."""
        held = self._part(key).get(key)
        if held is None or not self.serves(held, now):
            return None
        if held.newer is not self._ends:
            _unlink(held)
            self._link(held)
        return held

    def serves(self, entry: CacheEntry | Held, now: float) -> bool:
        """Whether it has neither expired nor been invalidated."""
        return entry.expires > now and self.rules.allow(entry)

    def fits(self, size: int) -> bool:
        """Whether an entry may be as large as that."""
        return size <= self.max_bytes // _LARGEST

    def add(self, held: Held) -> None:
        """Hold it, in the place of one with the same key."""
        self.remove(held.key)
        if self._free:
            held.slot = self._free.pop()
            self._slots[held.slot] = held
        else:
            held.slot = len(self._slots)
            self._slots.append(held)
        self._part(held.key)[held.key] = held
        self._link(held)
        self._count += 1
        self.bytes += held.size

    def remove(self, key: str) -> Held | None:
        """Let go of it; None where there is none."""
        held = self._part(key).pop(key, None)
        if held is None:
            return None
        _unlink(held)
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

    def tidy(self, now: float, steps: int = 4) -> list[Held]:
        """Entries that may not be served any more, gone now; a few steps at each call, so that in
        time all are looked at.
        """
        gone: list[Held] = []
        for _ in range(min(steps, len(self._slots))):
            self._hand = (self._hand + 1) % len(self._slots)
            held = self._slots[self._hand]
            if held is not None and not self.serves(held, now):
                self.remove(held.key)
                gone.append(held)
        return gone

    def slice(self, position: int, count: int) -> Sequence[Held]:
        """Those in the slots from ``position`` on."""
        return [held for held in self._slots[position : position + count] if held is not None]

    def _part(self, key: str) -> dict[str, Held]:
        return self._parts[hash(key) % _PARTS]

    def _link(self, held: Held) -> None:
        """As the one that was used last."""
        held.newer, held.older = self._ends, self._ends.older
        held.older.newer = held.newer.older = held


def _unlink(held: Held) -> None:
    held.older.newer, held.newer.older = held.newer, held.older


MOST_RULES: Final = 10_000


class RuleSubject(Protocol):
    """An entry, as far as it matters here."""

    @property
    def epoch(self) -> int:
        """See ``CacheEntry``."""
        ...

    def rules(self) -> tuple[InvalidationRule, ...]:
        """See ``CacheEntry.rules``."""
        ...


class InvalidationRules:
    """Each rule with its epoch. ``epoch`` is the number of the last invalidation.

    Past ``most`` rules the older half becomes one about everything as old as they are: entries
    are lost then, but none that was invalidated comes back.
    """

    def __init__(self, most: int = MOST_RULES) -> None:
        self.epoch = 0
        self._most = most
        self._epochs: dict[InvalidationRule, int] = {}

    def __len__(self) -> int:
        return len(self._epochs)

    def restore(self, rules: Iterable[tuple[InvalidationRule, int]]) -> None:
        """Take over what an earlier process had recorded."""
        for rule, epoch in sorted(rules, key=lambda known: known[1]):
            self._epochs[rule] = self.epoch = epoch

    def add(self, rule: InvalidationRule) -> list[tuple[InvalidationRule, int]]:
        """Record an invalidation. Returns what changed, with the new epochs; 0 where a rule is not
        needed any more, because a later one says the same.
        """
        self.epoch += 1
        if rule == EVERYTHING:
            changed = [(old, 0) for old in self._epochs if old != rule]
            self._epochs = {rule: self.epoch}
            return [*changed, (rule, self.epoch)]
        self._epochs.pop(rule, None)  # the oldest comes first
        self._epochs[rule] = self.epoch
        changed = [(rule, self.epoch)]
        if len(self._epochs) > self._most:
            changed += self._collapse()
        return changed

    def allow(self, entry: RuleSubject) -> bool:
        """Whether no invalidation since this entry's epoch is about it."""
        if entry.epoch >= self.epoch:
            return True
        epochs = self._epochs
        return all(epochs.get(rule, 0) <= entry.epoch for rule in entry.rules())

    def _collapse(self) -> list[tuple[InvalidationRule, int]]:
        older = list(islice(self._epochs, len(self._epochs) // 2))
        epoch = max(self._epochs.pop(rule) for rule in older)
        self._epochs = {EVERYTHING: epoch, **self._epochs}
        return [*((rule, 0) for rule in older if rule != EVERYTHING), (EVERYTHING, epoch)]


RESET: Final = Change(reset=True)
_MOST_PENDING: Final = 8192
_BATCH: Final = 256


class _Follower:
    """What one of them has not taken yet. ``lost``: too much for that; it has to begin anew."""

    def __init__(self) -> None:
        self.pending: list[Change] = []
        self.lost = False
        self.woken = asyncio.Event()


class Feed:
    """``most``: how far behind a follower may be."""

    def __init__(self, most: int = _MOST_PENDING) -> None:
        self._most = most
        self._followers: set[_Follower] = set()

    def tell(self, *changes: Change) -> None:
        """Add to what is to be told."""
        for follower in self._followers:
            if len(follower.pending) + len(changes) > self._most:
                follower.pending.clear()
                follower.lost = True
            elif not follower.lost:
                follower.pending.extend(changes)
            follower.woken.set()

    async def follow(
        self, everything: Callable[[], AsyncIterator[Sequence[Change]]]
    ) -> AsyncIterator[Sequence[Change]]:
        """See ``Store.changes``. ``everything`` tells what is there."""
        with self._following() as follower:
            while True:
                follower.pending.clear()
                follower.lost = False
                yield (RESET,)
                async for batch in everything():
                    if batch:
                        yield batch
                yield ()
                while not follower.lost:
                    for start in range(0, len(taken := _take(follower)), _BATCH):
                        yield taken[start : start + _BATCH]
                    if not follower.pending and not follower.lost:
                        follower.woken.clear()
                        await follower.woken.wait()

    @contextmanager
    def _following(self) -> Iterator[_Follower]:
        follower = _Follower()
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.discard(follower)


def _take(follower: _Follower) -> list[Change]:
    taken, follower.pending = follower.pending, []
    return taken
