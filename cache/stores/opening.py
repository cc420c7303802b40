"""Stores by URL."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from cache.store import Store
from cache.stores.memory import MemoryStore

__all__ = ["LEAST_BYTES", "open_store"]

LEAST_BYTES: Final = 1 << 20
_DISK: Final = "disk://"
_REDIS: Final = ("redis://", "rediss://", "unix://")


def open_store(url: str, max_bytes: int) -> Store:
    """The store for ``memory://``, ``disk://PATH`` (``disk:///PATH`` from the root), ``redis://``,
    ``rediss://`` or ``unix://``; it is not started.

    Raises ValueError that says what is wrong, without anything secret that the URL may hold.
    """
    if max_bytes < LEAST_BYTES:
        raise ValueError(f"a cache of less than {LEAST_BYTES} bytes is of no use")
    if url == "memory://":
        return MemoryStore(max_bytes)
    if url.startswith(_DISK):
        return _disk(url.removeprefix(_DISK), max_bytes)
    if url.startswith(_REDIS):
        return _redis(url, max_bytes)
    raise ValueError("a cache's URL is memory://, disk://PATH, redis://…, rediss://… or unix://…")


def _disk(path: str, max_bytes: int) -> Store:
    if not path.strip("/") or "?" in path or "#" in path or "\0" in unquote(path):
        raise ValueError("disk:// has to be followed by the path of a directory")
    try:
        # Not everybody has the packages that this takes.
        from cache.stores.disk import DiskStore  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        raise _missing("disk://", exc) from None
    return DiskStore(unquote(path), max_bytes)


def _redis(url: str, max_bytes: int) -> Store:
    try:
        from cache.stores.redis_store import RedisStore  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        raise _missing("redis://", exc) from None
    return RedisStore(url, max_bytes)


def _missing(scheme: str, error: ModuleNotFoundError) -> ValueError:
    package = {"diskcache": "diskcache", "redis": "'redis[hiredis]'"}.get(
        (error.name or "").partition(".")[0]
    )
    if package is None:
        return ValueError(f"a cache on {scheme} cannot be had here: there is no {error.name}")
    return ValueError(f"a cache on {scheme} needs a package: pip install {package}")
