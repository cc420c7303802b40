"""``disk://PATH``: entries in a directory of this process's own, which survive a restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from cache.entry import CacheEntry, InvalidationRule
from cache.store import Change, Found, StoreError, StoreStats
from cache.stores.cache_file import CacheFile, StoredRow
from cache.stores.changes import Feed
from cache.stores.codec import pack_head, unpack, unpack_fields, without_body
from cache.stores.memory import EntryTable, Held, tell_removed

__all__ = ["DiskStore"]

T = TypeVar("T")

_ROW_BYTES: Final = 130
_CELL_BYTES: Final = 16
_INDEX_BYTES: Final = 150
"""What a row has besides head and body, a page of the table besides each row, and the indexes."""

_PAGE: Final = 4096
_OVERFLOW: Final = 4092
_MOST_LOCAL: Final = 4061
_LEAST_LOCAL: Final = 489
"""SQLite's pages, and how it divides a row that has no room in one."""

_HOT_BYTES: Final = 1 << 24
"""How much of what was last used is kept in memory as well: a thread's answer takes a multiple of
the time that reading does.
"""
_HOT_OVERHEAD: Final = 1000

_SLICE: Final = 128
_MOST_WAITING: Final = 512
_RETRY_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 2.0
_SHRINK_PAGES: Final = 128


class DiskStore:
    """Implements ``cache.store.Store``. The least recently used entries make room for new ones.

    ``max_bytes`` bounds what is in use of the database. Which entries there are is known in
    memory, so that a miss costs nothing; everything else is done by a thread of the store's own,
    one piece of work after the other. What is changed here is changed in memory first, and in the
    same order in the database.

    ``start`` raises StoreError where the directory cannot be used; every later call tries again.
    """

    def __init__(
        self, path: str | Path, max_bytes: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = Path(path)
        self._clock = clock
        self._file = CacheFile(self._path)
        self._ledger = EntryTable(max_bytes)
        self._hot = EntryTable(_HOT_BYTES)
        self._feed = Feed()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cache disk")
        self._waiting = 0
        self._opening: asyncio.Task[None] | None = None
        self._ready = self._closed = False
        self._used = 0
        self._owed: dict[str, None] = {}
        """Keys of rows that are still to be removed."""
        self._maintenance: asyncio.Future[Any] | None = None
        self._shrinks = False

    async def start(self) -> None:
        """See ``Store.start``."""
        await self._open()

    async def close(self) -> None:
        """See ``Store.close``."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        self._ready, self._closed = False, True
        ended = asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        await asyncio.wait({ended}, timeout=_CLOSE_SECONDS)
        self._thread.shutdown(wait=False)

    async def get(self, key: str) -> Found:
        """See ``Store.get``."""
        ledger = await self._open()
        held = ledger.find(key, self._clock())
        if held is None:
            return Found(None, ledger.rules.epoch)
        hot = self._hot.find(key, self._clock())
        if hot is not None:
            return Found(hot.entry, ledger.rules.epoch)
        entry = await self._do(self._file.read, key)
        if ledger.holds(held):
            if entry is None:
                ledger.remove(key)
                tell_removed(self._feed, [held])
            else:
                self._keep_hot(entry)
        if entry is not None and not ledger.serves(entry, self._clock()):
            entry = None  # invalidated meanwhile
        return Found(entry, ledger.rules.epoch)

    def at_once(self, key: str) -> CacheEntry | None:
        """See ``Store.at_once``."""
        now = self._clock()
        if not self._ready or self._ledger.find(key, now) is None:
            return None
        hot = self._hot.find(key, now)
        return None if hot is None else hot.entry

    async def put(self, entry: CacheEntry) -> bool:
        """See ``Store.put``."""
        ledger = await self._open()
        try:
            head = pack_head(entry)
        except ValueError:
            return False
        size, now = _size(head, len(entry.body)), self._clock()
        if size > ledger.largest or not ledger.serves(entry, now):
            return False
        self._check_room()
        held, old, gone = ledger.put(entry, size, now, whole=False, used=self._used)
        keys = [other.key for other in gone]
        self._owed.pop(entry.key, None)
        self._keep_hot(entry)
        if old is not None:
            gone.append(old)
        tell_removed(self._feed, gone)
        writing = self._submit(self._file.write, entry.key, head, entry.body, keys)
        writing.add_done_callback(partial(self._written, entry, held, keys))
        # Whoever leaves early leaves it to be finished.
        await asyncio.shield(writing)
        return True

    async def delete(self, key: str) -> bool:
        """See ``Store.delete``."""
        ledger = await self._open()
        self._check_room()
        held = ledger.remove(key)
        if held is None:
            return False
        tell_removed(self._feed, [held])
        removing = self._submit(self._file.remove, [key])
        removing.add_done_callback(partial(self._removed, [key]))
        await asyncio.shield(removing)
        return ledger.serves(held, self._clock())

    async def invalidate(self, rule: InvalidationRule) -> int:
        """See ``Store.invalidate``. It is on the disk, also through a power cut, before any entry
        goes; the rows are removed afterwards.
        """
        ledger = await self._open()
        self._check_room()
        self._feed.tell(Change(invalidated=rule))
        await asyncio.shield(self._submit(self._file.record, ledger.rules.add(rule)))
        count, now = 0, self._clock()
        for start in range(0, ledger.slots, _SLICE):
            if start:
                await asyncio.sleep(0)
            for held in ledger.slice(start, _SLICE):
                if not ledger.rules.allow(held):
                    ledger.remove(held.key)
                    self._owed[held.key] = None
                    count += held.expires > now
        self._shrinks = self._shrinks or count > 0
        self._keep_up()
        return count

    async def epoch(self) -> int:
        """See ``Store.epoch``."""
        return (await self._open()).rules.epoch

    def changes(self) -> AsyncIterator[Sequence[Change]]:
        """See ``Store.changes``."""
        return self._feed.follow(self._everything)

    async def stats(self) -> StoreStats:
        """See ``Store.stats``."""
        ledger = await self._open()
        used = max(ledger.bytes, self._used)
        return StoreStats(len(ledger), used, ledger.max_bytes, ledger.evicted)

    async def _open(self) -> EntryTable:
        if not self._ready:
            if self._closed:
                raise StoreError(f"{self._path}: the cache was closed")
            if self._opening is None or self._opening.done():
                self._opening = asyncio.create_task(self._load(), name="open the cache")
            # A caller's deadline must not undo what has been read so far.
            await asyncio.shield(self._opening)
        return self._ledger

    async def _load(self) -> None:
        await self._do(self._file.open)
        try:
            await self._load_entries()
        except BaseException:
            self._submit(self._file.close)
            raise
        self._ready = self._shrinks = True
        self._keep_up()

    async def _load_entries(self) -> None:
        ledger = self._ledger = EntryTable(self._ledger.max_bytes)
        ledger.rules.restore(await self._do(self._file.rules))
        now, known = self._clock(), dict[str, str]()
        async for rows in self._rows(0):
            for row in rows:
                held = _held(row, known)
                if held is None or not ledger.serves(held, now):
                    self._owed[row.key] = None
                    continue
                # An invalidation that did not get as far as the disk had this number, too.
                ledger.rules.epoch = max(ledger.rules.epoch, held.epoch)
                ledger.add(held)
        self._used = await self._do(self._file.used)
        for held in ledger.evict(ledger.bytes - ledger.max_bytes):
            self._owed[held.key] = None

    async def _everything(self) -> AsyncIterator[Sequence[Change]]:
        after = 0
        while True:
            try:
                ledger = await self._open()
                async for rows in self._rows(after):
                    after = rows[-1].position
                    yield [
                        Change(added=entry)
                        for row in rows
                        if row.key in ledger
                        and (entry := _entry_of(row)) is not None
                        and entry.vector
                        and ledger.serves(entry, self._clock())
                    ]
                return
            except StoreError:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _rows(self, after: int) -> AsyncIterator[Sequence[StoredRow]]:
        """All rows behind that one; the next are read while these are looked at."""
        reading = self._submit(self._file.rows, after, _SLICE)
        while rows := await reading:
            reading = self._submit(self._file.rows, rows[-1].position, _SLICE)
            yield rows
            await asyncio.sleep(0)  # the next ones may be there already

    def _keep_hot(self, entry: CacheEntry) -> None:
        """Whether it may be served is for the ledger to say; here is what it says then."""
        hot, size = self._hot, len(entry.body) + len(entry.vector) + len(entry.text) + _HOT_OVERHEAD
        if size <= hot.largest:
            hot.put(entry, size, self._clock(), whole=True)
        else:
            hot.remove(entry.key)

    def _check_room(self) -> None:
        if self._waiting >= _MOST_WAITING:
            raise StoreError(f"{self._path}: more is asked of it than the disk can do")

    def _submit(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        if self._closed:
            raise StoreError(f"{self._path}: the cache was closed")
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        future.add_done_callback(self._done)
        return future

    async def _do(self, work: Callable[..., T], *arguments: Any) -> T:
        self._check_room()
        return await self._submit(work, *arguments)

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not future.cancelled():
            future.exception()  # nobody may be there any more to be told

    def _written(
        self, entry: CacheEntry, held: Held, gone: Sequence[str], future: asyncio.Future[int]
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            self._owed.update((key, None) for key in gone if key not in self._ledger)
            if self._ledger.holds(held):
                self._ledger.remove(entry.key)
                self._owed[entry.key] = None
            return
        self._used = future.result()
        if held.embedded and self._ledger.holds(held):
            self._feed.tell(Change(added=without_body(entry)))
        self._keep_up()

    def _removed(self, keys: Sequence[str], future: asyncio.Future[int]) -> None:
        self._maintenance = None if future is self._maintenance else self._maintenance
        if future.cancelled() or future.exception() is not None:
            self._owed.update((key, None) for key in keys if key not in self._ledger)
            return
        self._used = future.result()
        self._keep_up()

    def _shrunk(self, future: asyncio.Future[bool]) -> None:
        self._maintenance = None
        self._shrinks = not future.cancelled() and not future.exception() and future.result()
        self._keep_up()

    def _keep_up(self) -> None:
        """Remove what is owed, then give unused pages back, one step at a time."""
        if self._maintenance is not None or self._closed or not self._ready:
            return
        if not self._owed and self._used > self._ledger.max_bytes:
            # Pages that are not full: what was evicted so far was not enough.
            gone = self._ledger.evict(self._used - self._ledger.max_bytes)
            tell_removed(self._feed, gone)
            self._owed.update((held.key, None) for held in gone)
        if self._owed:
            keys = list(islice(self._owed, _SLICE))
            for key in keys:
                del self._owed[key]
            self._maintenance = self._submit(self._file.remove, keys)
            self._maintenance.add_done_callback(partial(self._removed, keys))
        elif self._shrinks:
            self._maintenance = self._submit(self._file.shrink, _SHRINK_PAGES)
            self._maintenance.add_done_callback(self._shrunk)


def _entry_of(row: StoredRow) -> CacheEntry | None:
    """Without its body; None for what was not written here."""
    try:
        entry = unpack(row.head)
    except ValueError:
        return None
    return entry if entry.key == row.key else None


def _held(row: StoredRow, known: dict[str, str]) -> Held | None:
    """None for what was not written here. ``known`` are strings that others have, too."""
    try:
        fields, vector = unpack_fields(row.head)
    except ValueError:
        return None
    key, namespace, _, model, _, expires, epoch, tags, _, _ = fields
    if key != row.key:
        return None
    return Held(
        key,
        known.setdefault(namespace, namespace),
        known.setdefault(model, model),
        tuple([known.setdefault(tag, tag) for tag in tags]),
        expires,
        epoch,
        size=_size(row.head, row.body),
        embedded=bool(vector),
    )


def _size(head: bytes, body: int) -> int:
    """Bytes in the database: its share of a page of the table, and the pages it has alone."""
    row, alone = len(head) + body + _ROW_BYTES, 0
    if row > _MOST_LOCAL:
        local = _LEAST_LOCAL + (row - _LEAST_LOCAL) % _OVERFLOW
        local = local if local <= _MOST_LOCAL else _LEAST_LOCAL
        row, alone = local, (row - local) // _OVERFLOW * _PAGE
    return alone + _PAGE // max(1, _PAGE // (row + _CELL_BYTES)) + _INDEX_BYTES
