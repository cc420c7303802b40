"""What has been invalidated in a store of one process, and who is told of what happens in it. Pure.

``InvalidationRules`` is what has been invalidated, and when: the check that every store makes of
every entry. ``Feed`` hands what happens in the store to those who follow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

from cache.entry import EVERYTHING, InvalidationRule
from cache.store import Change

__all__ = ["MOST_RULES", "RESET", "Feed", "InvalidationRules", "RuleSubject"]

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
