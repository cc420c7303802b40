"""The directory of a disk store: who may use it, and what is read from and written to it.

Everything here blocks, and belongs to the one thread of ``cache.stores.disk``. An entry is one row
of diskcache: the body is its value, the head its tag; a rule is another, its epoch the value.

diskcache is used without pickles and without files of its own choosing: its own ``Disk`` unpickles
what the database says is a pickle, and reads and deletes whatever path a row names, so that whoever
can write to the directory can have code executed. Ours keeps texts, bytes and numbers, all of them
in the database, and refuses the rest in both directions.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import diskcache
import structlog
from diskcache.core import MODE_RAW

from cache.entry import CacheEntry, InvalidationRule
from cache.store import StoreError, StoreInUse
from cache.stores.codec import pack_rule, unpack, unpack_rule

__all__ = ["SETTINGS", "CacheFile", "NotPlainData", "PlainCache", "PlainDisk", "StoredRow"]

SETTINGS: Final = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "none",  # what goes, and when, is decided by the store
    "cull_limit": 0,
    "size_limit": 2**62,
    "sqlite_auto_vacuum": 2,
    "sqlite_cache_size": -8192,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 0,  # an error of the disk would be a SIGBUS
    "sqlite_synchronous": 1,
}


class NotPlainData(Exception):
    """A key or value that is not plain; it was not looked into."""


class PlainDisk(diskcache.Disk):  # type: ignore[misc]
    """Keys: str or bytes. Values: bytes, str, int or float. Raises Refused for all others."""

    def __init__(self, directory: str, **settings: object) -> None:
        """``settings`` come from the database and are not believed."""
        super().__init__(directory, min_file_size=2**62, pickle_protocol=0)

    def put(self, key: object) -> Any:
        """See ``diskcache.Disk.put``."""
        if type(key) not in (str, bytes):
            raise NotPlainData("a key that is neither text nor bytes")
        return super().put(key)

    def get(self, key: object, raw: object) -> Any:
        """See ``diskcache.Disk.get``."""
        if raw is not True and raw != 1:
            raise NotPlainData("a pickled key")
        return super().get(key, True)

    def store(self, value: object, read: object, key: object = None) -> Any:
        """See ``diskcache.Disk.store``."""
        if read or type(value) not in (bytes, str, int, float):
            raise NotPlainData("a value that is neither text, bytes nor a number")
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise NotPlainData("a number that is too large")
        return 0, MODE_RAW, None, sqlite3.Binary(value) if type(value) is bytes else value

    def fetch(self, mode: object, filename: object, value: object, read: object) -> Any:
        """See ``diskcache.Disk.fetch``."""
        if mode != MODE_RAW or filename is not None or read:
            raise NotPlainData("a value that is pickled or in a file")
        return super().fetch(MODE_RAW, None, value, False)

    def filename(self, key: object = None, value: object = None) -> Any:
        """See ``diskcache.Disk.filename``: there are none."""
        raise NotPlainData("a value in a file")

    def remove(self, file_path: object) -> None:
        """See ``diskcache.Disk.remove``: no file is the cache's, so none is removed."""


class PlainCache(diskcache.Cache):  # type: ignore[misc]
    """A ``diskcache.Cache`` on a PlainDisk; it belongs to the thread that makes it."""

    def __init__(self, directory: str, timeout: float) -> None:
        try:
            super().__init__(directory, timeout, PlainDisk, **SETTINGS)
        except BaseException:
            self.close()
            raise


_log = structlog.get_logger(component="cache.stores")
_DATABASE: Final = "cache.db"
_LOCK: Final = "lock"
_BUSY_SECONDS: Final = 0.2
_ENTRY: Final = "e/"
_RULE: Final = "r/"
_ROWS: Final = (
    "SELECT rowid, substr(key, 3), iif(typeof(tag) = 'blob', tag, x''), length(value) FROM Cache"
    " WHERE rowid > ? AND substr(key, 1, 2) = 'e/' ORDER BY rowid LIMIT ?"
)
_RULES: Final = "SELECT substr(key, 3), value FROM Cache WHERE key >= 'r/' AND key < 'r0'"
_DELETE: Final = "DELETE FROM Cache WHERE key = ? AND raw = 1"
_FOREIGN: Final = (
    "DELETE FROM Cache WHERE raw IS NOT 1 OR mode IS NOT 1 OR filename IS NOT NULL"
    " OR typeof(key) IS NOT 'text' OR substr(key, 1, 2) NOT IN ('e/', 'r/')"
)


class StoredRow(NamedTuple):
    """An entry without its body, whose size in bytes ``body`` is. ``head`` is what stands there,
    whoever wrote it; empty where it is not even bytes.
    """

    position: int
    key: str
    head: bytes
    body: int


class CacheFile:
    """All methods raise StoreError where the directory cannot be used, and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._refused = 0
        self._lock: int | None = None
        self._cache: PlainCache | None = None
        self._sql: sqlite3.Connection | None = None

    def open(self) -> None:
        """Make it this process's, with what is no plain entry removed."""
        try:
            with self._trouble():
                _own(self._path)
                self._lock = _locked(self._path)
                self._refused += _cleaned(self._path / _DATABASE)
                self._cache = PlainCache(str(self._path), _BUSY_SECONDS)
                self._sql = sqlite3.connect(
                    self._path / _DATABASE, timeout=_BUSY_SECONDS, isolation_level=None
                )
                self._sql.execute("PRAGMA cache_size=-8192")
                self._sql.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            self.close()
            raise
        if self._refused:
            self._warn()

    def close(self) -> None:
        """Let go of it; also when it is not, or only half, open."""
        with suppress(sqlite3.Error):
            if self._sql is not None:
                self._sql.close()
            if self._cache is not None:
                self._cache.close()
        if self._lock is not None:
            os.close(self._lock)
        self._sql = self._cache = self._lock = None

    def rules(self) -> list[tuple[InvalidationRule, int]]:
        """What has been invalidated, with its epochs."""
        with self._trouble():
            rows = self._open[1].execute(_RULES).fetchall()
            try:
                return [(unpack_rule(text), int(epoch)) for text, epoch in rows]
            except (ValueError, TypeError):
                # It was about something: nothing that is there can be served without it.
                raise StoreError(
                    f"{self._path}: what was invalidated cannot be read: empty the directory"
                ) from None

    def rows(self, after: int, count: int) -> list[StoredRow]:
        """The next entries in the order in which they were first stored."""
        with self._trouble():
            return [StoredRow(*row) for row in self._open[1].execute(_ROWS, (after, count))]

    def read(self, key: str) -> CacheEntry | None:
        """The entry, whole; None where there is none, or what is there is none and now gone."""
        with self._trouble():
            cache = self._open[0]
            try:
                body, head = cache.get(_ENTRY + key, tag=True)
                if body is None:
                    return None
                if type(body) is not bytes or type(head) is not bytes:
                    raise NotPlainData("a value that is no entry")
                entry = unpack(head, body)
                if entry.key != key:
                    raise NotPlainData("another key's entry")
            except (NotPlainData, ValueError):
                cache.delete(_ENTRY + key)
                self._refused += 1
                self._warn()
                return None
            return entry

    def write(self, key: str, head: bytes, body: bytes, gone: Sequence[str]) -> int:
        """Store it and remove those with these keys, at once; returns ``used()``."""
        with self._trouble():
            cache = self._open[0]
            with cache.transact():
                for other in gone:
                    cache.delete(_ENTRY + other)
                cache.set(_ENTRY + key, body, tag=head)
        return self.used()

    def remove(self, keys: Sequence[str]) -> int:
        """Remove entries; returns ``used()``."""
        with self._trouble():
            sql = self._open[1]
            sql.execute("BEGIN IMMEDIATE")
            try:
                sql.executemany(_DELETE, [(_ENTRY + key,) for key in keys])
                sql.execute("COMMIT")
            except BaseException:
                sql.execute("ROLLBACK")
                raise
        return self.used()

    def record(self, rules: Sequence[tuple[InvalidationRule, int]]) -> None:
        """Keep these rules' epochs, whatever happens to the machine; 0: the rule goes."""
        with self._trouble():
            cache = self._open[0]
            cache.reset("sqlite_synchronous", 2, update=False)
            try:
                with cache.transact():
                    for rule, epoch in rules:
                        if epoch:
                            cache.set(_RULE + pack_rule(rule), epoch)
                        else:
                            cache.delete(_RULE + pack_rule(rule))
            finally:
                cache.reset("sqlite_synchronous", 1, update=False)

    def used(self) -> int:
        """Bytes of the database that are in use."""
        with self._trouble():
            sql = self._open[1]
            ((pages,),) = sql.execute("PRAGMA page_count").fetchall()
            ((free,),) = sql.execute("PRAGMA freelist_count").fetchall()
            ((size,),) = sql.execute("PRAGMA page_size").fetchall()
            return int((pages - free) * size)

    def shrink(self, pages: int) -> bool:
        """Give up to this many unused pages back to the file system; False: that was all."""
        with self._trouble():
            sql = self._open[1]
            ((free,),) = sql.execute("PRAGMA freelist_count").fetchall()
            step = f"incremental_vacuum({pages:d})" if free else "wal_checkpoint(TRUNCATE)"
            # Executed as a single statement, the first would give back one page only.
            sql.executescript(f"PRAGMA {step}")
            return bool(free)

    @property
    def _open(self) -> tuple[PlainCache, sqlite3.Connection]:
        if self._cache is None or self._sql is None:
            raise StoreError(f"{self._path}: it is not open")
        return self._cache, self._sql

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (
            sqlite3.Error,
            OSError,
            diskcache.Timeout,
            NotPlainData,
            ValueError,
            TypeError,
        ) as exc:
            kind = type(exc).__name__
            reason = exc.strerror if isinstance(exc, OSError) else None
            if isinstance(exc, sqlite3.Error):
                reason = getattr(exc, "sqlite_errorname", None)
            raise StoreError(f"{self._path} cannot be used: {reason or kind}") from None

    def _warn(self) -> None:
        if self._refused:
            _log.warning(
                "what is no plain entry was removed unread from the cache's directory",
                path=str(self._path),
                rows=self._refused,
            )
        self._refused = 0


def _own(path: Path) -> None:
    """Raises StoreError where others could put something there."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = os.stat(path)
    if state.st_uid != os.geteuid():
        raise StoreError(f"{path} belongs to another user: give the cache a directory of its own")
    if stat.S_IMODE(state.st_mode) & 0o022:
        raise StoreError(f"others may write to {path}: empty it, and 'chmod 700' it")


def _locked(path: Path) -> int:
    descriptor = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreInUse(
            f"{path} is in use by another process: give each its own, or share a Redis"
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _cleaned(path: Path) -> int:
    """Remove what diskcache would believe in but should not; returns how many rows of it."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
        database.execute("PRAGMA trusted_schema=OFF")
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if "Settings" in tables:
            database.execute("DELETE FROM Settings")
        return database.execute(_FOREIGN).rowcount if "Cache" in tables else 0
