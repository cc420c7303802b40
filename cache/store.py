"""What a store promises, whichever it is; ``cache.stores`` has them.

A store keeps entries by key until they expire, are evicted, or are invalidated. Every invalidation
has a number, its *epoch*, one higher than that of the one before. An entry carries the epoch of the
moment before its answer was asked for; one that an invalidation with a higher epoch is about is
never served, and never stored: a slow answer cannot bring back what was invalidated meanwhile.

All methods raise ``StoreError`` when the store cannot be reached, and nothing else. They have no
deadline of their own: ``cache.guarded`` puts one on every store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cache.entry import CacheEntry, InvalidationRule

__all__ = ["Change", "Found", "Store", "StoreError", "StoreInUse", "StoreStats"]


class StoreError(Exception):
    """The store does not answer, or not as it should; the message says what and where, for the
    log, and holds neither a password nor anything that was stored.
    """


class StoreInUse(StoreError):
    """Another process uses it, and it is for one only."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a look-up found, and the store's epoch at that moment."""

    entry: CacheEntry | None
    epoch: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """``bytes`` is what counts against the bound; ``evicted`` counts since the process began."""

    entries: int
    bytes: int
    max_bytes: int
    evicted: int


@dataclass(frozen=True, slots=True)
class Change:
    """What happened in a store, for those who keep an index of it; exactly one field is set.

    ``added`` is an entry without its body (``body`` is empty), ``removed`` a key,
    ``invalidated`` what an invalidation was about. ``reset``: what was heard before is worthless
    (the store was emptied, or what happened meanwhile is not known any more): every entry that is
    there follows as ``added``.
    """

    added: CacheEntry | None = None
    removed: str | None = None
    invalidated: InvalidationRule | None = None
    reset: bool = False


class Store(Protocol):
    """See the module."""

    async def start(self) -> None:
        """Open it. A store that is away is no error here: the first use tells."""
        ...

    async def close(self) -> None:
        """Let go of it; called once, also when ``start`` failed or was never called."""
        ...

    async def get(self, key: str) -> Found:
        """The entry with this key, if there is one that has neither expired nor been
        invalidated, whole.
        """
        ...

    def at_once(self, key: str) -> CacheEntry | None:
        """What ``get`` would find, where that is at hand; None where there is none, or only
        ``get`` can tell. Raises nothing.
        """
        ...

    async def put(self, entry: CacheEntry) -> bool:
        """Keep an entry, in the place of one with the same key; False where it is not kept: it
        was invalidated meanwhile, has expired, or is larger than the store allows one to be.
        """
        ...

    async def delete(self, key: str) -> bool:
        """Remove one entry, as if it had been evicted; False where there is none."""
        ...

    async def invalidate(self, rule: InvalidationRule) -> int:
        """Have no entry of before be served any more that the rule is about, by any process that
        shares the store, once this returns. Returns how many entries went; where the store
        cannot tell, how many it knows of.
        """
        ...

    async def epoch(self) -> int:
        """The number of the last invalidation."""
        ...

    def changes(self) -> AsyncIterator[Sequence[Change]]:
        """What is there (entries with a vector only), and then what happens, in batches; never
        ends. The first batch begins with a ``reset``. Entries added by this process are among
        them. When the store does not answer it waits and goes on; it raises nothing but
        CancelledError.

        An empty batch says that everything that was there has been told.
        """
        ...

    async def stats(self) -> StoreStats:
        """How full it is."""
        ...
