"""What ``pointsman check`` says of the response cache."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.settings.cache import CacheSettings
    from router.settings.schema import Settings

__all__ = ["glance"]


def glance(settings: Settings) -> tuple[bool, str]:
    """Whether the cache can be used as it is configured, and a line that says so."""
    import asyncio

    cache = settings.cache
    if cache.mode == "off":
        return True, "cache  off"
    store, semantic = asyncio.run(_store_problem(cache)), _semantic_problem(cache)
    told = f"FAILED: {store}" if store else "ok"
    kind = cache.store.get_secret_value().partition("://")[0]
    line = f"cache  {cache.mode}, {kind}: {told}"
    if cache.semantic.enabled:
        line += f"; semantic tier {f'off: {semantic}' if semantic else 'ok'}"
    return store is None, line


async def _store_problem(cache: CacheSettings) -> str | None:
    """Why the store cannot be used; a directory that a router uses can be."""
    from cache.guarded import GuardedStore
    from cache.store import StoreError, StoreInUse
    from cache.stores.opening import open_store

    try:
        store = GuardedStore(open_store(cache.store.get_secret_value(), cache.max_bytes))
    except ValueError as error:
        return str(error)
    try:
        await store.start()
        await store.stats()
    except StoreInUse:
        return None
    except StoreError as error:
        return str(error)
    finally:
        await store.close()
    return None


def _semantic_problem(cache: CacheSettings) -> str | None:
    """Why the semantic tier cannot be used although it is enabled."""
    from router.caching import semantic_problem

    if not cache.semantic.enabled:
        return None
    problem = semantic_problem(cache.semantic)
    if problem is not None or cache.semantic.embedder != "local":
        return problem
    from cache.embedder import EmbedderError
    from cache.embedders.installed import default_directory, verify

    try:
        verify(default_directory(os.environ))
    except EmbedderError as error:
        return str(error)
    return None
