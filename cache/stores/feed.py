"""Handing what happens in a store of this process to those who follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from cache.store import Change

__all__ = ["RESET", "Feed"]

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
