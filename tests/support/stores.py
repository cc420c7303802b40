"""Stores of all kinds for tests, what is put into them, and an index that follows one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast

from cache.entry import CacheEntry
from cache.store import Change, Store
from cache.stores.disk import DiskStore
from cache.stores.memory import MemoryStore
from cache.stores.redis_store import RedisStore
from router.workers.cache import SharedCache, WorkerStore
from router.workers.children import Child
from router.workers.link import WorkerLink
from tests.support.links import linked
from tests.support.redis import REDIS_URL, redis_prefix

__all__ = ["KINDS", "Clock", "Follower", "Kind", "an_entry", "following", "name", "opened_store"]

Kind = Literal["memory", "disk", "redis", "workers"]
KINDS: tuple[Kind, ...] = ("memory", "disk", "redis", "workers")


class Clock:
    """Unix time that passes when it is told to; begins now, as Redis has a clock of its own."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def name(text: str) -> str:
    """What stands for ``text`` where a key or a namespace is wanted."""
    return sha256(text.encode()).hexdigest()


def an_entry(
    key: str = "k", *, epoch: int = 0, expires: float | None = None, **more: Any
) -> CacheEntry:
    """One with a vector, and good for an hour, unless told otherwise."""
    fields: dict[str, Any] = {
        "namespace": name("n"),
        "kind": "answer",
        "model": "m",
        "created": time.time(),
        "expires": time.time() + 3600 if expires is None else expires,
        "body": b'{"text": "Hello"}',
        "text": f"What is {key}?",
        "embedder": "e",
        "vector": bytes(16),
    }
    return CacheEntry(key=name(key), epoch=epoch, **(fields | more))


@asynccontextmanager
async def opened_store(
    kind: Kind, path: Path, *, max_bytes: int = 1 << 24, clock: Any = time.time
) -> AsyncIterator[Store]:
    """One that is started, and empty; skips where there is no Redis for it. That of ``workers`` is
    a worker's, of one in memory that the supervisor holds.
    """
    if kind == "workers":
        async with _of_a_worker(max_bytes, clock) as made:
            yield made
        return
    async with redis_prefix() if kind == "redis" else _nothing() as prefix:
        store: Store
        if kind == "memory":
            store = MemoryStore(max_bytes, clock)
        elif kind == "disk":
            store = DiskStore(path / "cache", max_bytes, clock)
        else:
            store = RedisStore(
                REDIS_URL, max_bytes, prefix, connect_timeout=10.0, timeout=10.0, clock=clock
            )
        await store.start()
        try:
            yield store
        finally:
            await store.close()


class _Linked:
    """A worker that is no process."""

    def __init__(self, link: WorkerLink) -> None:
        self.index = 0
        self.link = link
        self.tell = link.tell


@asynccontextmanager
async def _of_a_worker(max_bytes: int, clock: Any) -> AsyncIterator[Store]:
    shared = SharedCache(lambda: MemoryStore(max_bytes, clock))
    async with linked() as [(link, theirs)]:
        child = cast(Child, _Linked(link))
        link.handlers.update(shared.handlers(child))
        store = WorkerStore(theirs)
        link.read()
        theirs.read()
        await store.start()
        try:
            yield store
        finally:
            await store.close()
            await shared.close()


@asynccontextmanager
async def _nothing() -> AsyncIterator[str]:
    yield ""


class Follower:
    """An index of keys; ``batches`` is what it was told, ``resets`` how often all over again."""

    def __init__(self) -> None:
        self.entries: dict[str, CacheEntry] = {}
        self.batches: list[list[Change]] = []
        self.resets = 0
        self.complete = False

    def alive(self, now: float = 0.0) -> set[str]:
        """Of those that have not expired at ``now``."""
        return {key for key, entry in self.entries.items() if entry.expires > now}

    async def follow(self, store: Store) -> None:
        """Listen, without end."""
        async for batch in store.changes():
            self.batches.append(list(batch))
            self.complete = self.complete or not batch
            for change in batch:
                self._apply(change)

    def _apply(self, change: Change) -> None:
        if change.reset:
            self.entries.clear()
            self.resets += 1
            self.complete = False
        elif change.added is not None:
            assert not change.added.body
            self.entries[change.added.key] = change.added
        elif change.removed is not None:
            self.entries.pop(change.removed, None)
        else:
            rule = change.invalidated
            gone = [key for key, entry in self.entries.items() if rule in entry.rules()]
            for key in gone:
                del self.entries[key]


@contextmanager
def following(store: Store) -> Iterator[Follower]:
    """One that listens meanwhile."""
    follower = Follower()
    task = asyncio.get_running_loop().create_task(follower.follow(store))
    try:
        yield follower
        assert not task.done(), task
    finally:
        task.cancel()
