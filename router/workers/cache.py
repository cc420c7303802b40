"""The store of the response cache for several workers, held by the supervisor.

``SharedCache`` is the supervisor's side: the store in memory or on the disk, which are for one
process. ``WorkerStore`` is a worker's: each look-up is a call. A store in Redis is nobody's here:
each worker asks it itself.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, cast

from cache.entry import CacheEntry, InvalidationRule
from cache.store import Change, Found, Store, StoreError, StoreStats
from cache.stores.codec import pack_head, pack_rule, unpack, unpack_rule
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.workers.link import Handler, LinkFailed, WorkerLink

if TYPE_CHECKING:
    from router.workers.children import Child

__all__ = ["SharedCache", "WorkerStore"]

_log = get_logger("router.workers")

_CALL_SECONDS: Final = 5.0
_LONG_SECONDS: Final = 30.0
"""What opening it and an invalidation may take, and a worker to take note of what has changed."""

_RETRY_SECONDS: Final = 1.0

Packed = tuple[str, str]
"""An entry's head and body, in base64."""


class SharedCache:
    """The store that ``make`` makes, for all workers. It is opened by the first that uses it."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self._store: Store | None = None
        self._started: asyncio.Future[None] | None = None
        self._feeds: dict[Child, dict[int, asyncio.Task[None]]] = {}
        self._tasks = Tasks()

    def handlers(self, child: Child) -> dict[str, Handler]:
        """What answers a worker."""
        self._feeds[child] = {}
        return {
            "cache get": lambda key: _answered(self._get(key)),
            "cache put": lambda packed: _answered(self._put(packed)),
            "cache delete": lambda key: _answered(self._do(lambda store: store.delete(key))),
            "cache invalidate": lambda rule: _answered(
                self._do(lambda store: store.invalidate(unpack_rule(rule)))
            ),
            "cache epoch": lambda _: _answered(self._do(lambda store: store.epoch())),
            "cache stats": lambda _: _answered(self._stats()),
            "cache follow": lambda number: self._follow(child, number),
        }

    def forget(self, child: Child) -> None:
        """A worker has ended: nobody follows there."""
        for feed in self._feeds.pop(child).values():
            feed.cancel()

    async def close(self) -> None:
        """Let go of the store."""
        await self._tasks.close()
        if self._store is not None:
            await self._store.close()

    async def _opened(self) -> Store:
        if self._store is None:
            self._store = self._make()
            self._started = asyncio.ensure_future(self._store.start())
        assert self._started is not None
        await asyncio.shield(self._started)
        return self._store

    async def _do(self, work: Callable[[Store], Awaitable[Any]]) -> Any:
        return await work(await self._opened())

    async def _get(self, key: str) -> list[Any]:
        found = await (await self._opened()).get(key)
        return [None if found.entry is None else _packed(found.entry), found.epoch]

    async def _put(self, packed: Packed) -> bool:
        return await (await self._opened()).put(_unpacked(packed))

    async def _stats(self) -> dict[str, int]:
        return asdict(await (await self._opened()).stats())

    def _follow(self, child: Child, number: int) -> None:
        feeds = self._feeds[child]
        task = self._tasks.spawn(self._feed(child, number), "tell a worker what the cache has")
        feeds[number] = task
        task.add_done_callback(lambda _: feeds.pop(number, None))

    async def _feed(self, child: Child, number: int) -> None:
        """Tell a worker what happens, as quickly as it takes note, until it does not any more."""
        try:
            changes = cast("Any", (await self._opened()).changes())
            async with aclosing(changes):
                async for batch in changes:
                    told = [number, [_change_told(one) for one in batch]]
                    if not await child.link.call("cache changes", told, _LONG_SECONDS):
                        return
        except (LinkFailed, StoreError) as exc:
            _log.warning("a worker follows the cache anew", worker=child.index, reason=str(exc))
            child.tell("cache lost", number)


class WorkerStore:
    """Implements ``cache.store.Store``, at the other end of ``link``."""

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._feeds: dict[int, asyncio.Queue[Sequence[Change] | None]] = {}
        self._number = 0
        link.handlers.update({"cache changes": self._changed, "cache lost": self._lost})

    async def start(self) -> None:
        """See ``Store.start``."""
        await self._ask("cache epoch", None, _LONG_SECONDS)

    async def close(self) -> None:
        """See ``Store.close``: the supervisor keeps it."""

    def at_once(self, key: str) -> CacheEntry | None:
        """See ``Store.at_once``: what is there, only the supervisor knows."""
        return None

    async def get(self, key: str) -> Found:
        """See ``Store.get``."""
        packed, epoch = await self._ask("cache get", key)
        return Found(None if packed is None else _unpacked(packed), epoch)

    async def put(self, entry: CacheEntry) -> bool:
        """See ``Store.put``."""
        try:
            packed = _packed(entry)
        except ValueError:
            return False
        kept: bool = await self._ask("cache put", packed)
        return kept

    async def delete(self, key: str) -> bool:
        """See ``Store.delete``."""
        was_there: bool = await self._ask("cache delete", key)
        return was_there

    async def invalidate(self, rule: InvalidationRule) -> int:
        """See ``Store.invalidate``."""
        count: int = await self._ask("cache invalidate", pack_rule(rule), _LONG_SECONDS)
        return count

    async def epoch(self) -> int:
        """See ``Store.epoch``."""
        epoch: int = await self._ask("cache epoch", None)
        return epoch

    async def stats(self) -> StoreStats:
        """See ``Store.stats``."""
        return StoreStats(**await self._ask("cache stats", None))

    async def changes(self) -> AsyncIterator[Sequence[Change]]:
        """See ``Store.changes``."""
        while True:
            self._number += 1
            number = self._number
            feed = self._feeds[number] = asyncio.Queue(1)
            try:
                self._link.tell("cache follow", number)
                while (batch := await feed.get()) is not None:
                    yield batch
            finally:
                del self._feeds[number]
            await asyncio.sleep(_RETRY_SECONDS)

    async def _changed(self, told: Sequence[Any]) -> bool:
        """Take note; whether there is anybody to do so."""
        number, batch = told
        feed = self._feeds.get(number)
        if feed is not None:
            await feed.put([_change_of(*one) for one in batch])
        return feed is not None

    async def _lost(self, number: int) -> None:
        if (feed := self._feeds.get(number)) is not None:
            await feed.put(None)

    async def _ask(self, name: str, value: Any, timeout: float = _CALL_SECONDS) -> Any:
        try:
            done, answer = await self._link.call(name, value, timeout)
        except LinkFailed as exc:
            raise StoreError(f"the supervisor does not answer: {exc}") from None
        if not done:
            raise StoreError(answer)
        return answer


async def _answered(work: Awaitable[Any]) -> list[Any]:
    try:
        return [1, await work]
    except StoreError as exc:
        return [0, str(exc)]


def _packed(entry: CacheEntry) -> Packed:
    return b64encode(pack_head(entry)).decode(), b64encode(entry.body).decode()


def _unpacked(packed: Sequence[str]) -> CacheEntry:
    head, body = packed
    return unpack(b64decode(head), b64decode(body))


def _change_told(change: Change) -> list[Any]:
    if change.added is not None:
        return ["added", _packed(change.added)]
    if change.invalidated is not None:
        return ["invalidated", pack_rule(change.invalidated)]
    return ["reset", True] if change.reset else ["removed", change.removed]


def _change_of(kind: str, value: Any) -> Change:
    if kind == "added":
        return Change(added=_unpacked(value))
    if kind == "invalidated":
        return Change(invalidated=unpack_rule(value))
    return Change(reset=True) if kind == "reset" else Change(removed=value)
