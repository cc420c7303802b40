"""diskcache without pickles and without files of its own choosing.

Its own ``Disk`` unpickles what the database says is a pickle, and reads and deletes whatever path
a row names: whoever can write to the directory can have code executed. This one keeps texts, bytes
and numbers, all of them in the database, and refuses the rest in both directions.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import diskcache
from diskcache.core import MODE_RAW

__all__ = ["SETTINGS", "PlainCache", "PlainDisk", "Refused"]

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


class Refused(Exception):
    """A key or value that is not plain; it was not looked into."""


class PlainDisk(diskcache.Disk):  # type: ignore[misc]
    """Keys: str or bytes. Values: bytes, str, int or float. Raises Refused for all others."""

    def __init__(self, directory: str, **settings: object) -> None:
        """``settings`` come from the database and are not believed."""
        super().__init__(directory, min_file_size=2**62, pickle_protocol=0)

    def put(self, key: object) -> Any:
        """See ``diskcache.Disk.put``."""
        if type(key) not in (str, bytes):
            raise Refused("a key that is neither text nor bytes")
        return super().put(key)

    def get(self, key: object, raw: object) -> Any:
        """See ``diskcache.Disk.get``."""
        if raw is not True and raw != 1:
            raise Refused("a pickled key")
        return super().get(key, True)

    def store(self, value: object, read: object, key: object = None) -> Any:
        """See ``diskcache.Disk.store``."""
        if read or type(value) not in (bytes, str, int, float):
            raise Refused("a value that is neither text, bytes nor a number")
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise Refused("a number that is too large")
        return 0, MODE_RAW, None, sqlite3.Binary(value) if type(value) is bytes else value

    def fetch(self, mode: object, filename: object, value: object, read: object) -> Any:
        """See ``diskcache.Disk.fetch``."""
        if mode != MODE_RAW or filename is not None or read:
            raise Refused("a value that is pickled or in a file")
        return super().fetch(MODE_RAW, None, value, False)

    def filename(self, key: object = None, value: object = None) -> Any:
        """See ``diskcache.Disk.filename``: there are none."""
        raise Refused("a value in a file")

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
