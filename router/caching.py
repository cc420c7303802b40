"""The response cache of an application, made of its settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from cache.core import ResponseCache
from cache.guarded import GuardedStore
from cache.selfcheck import Rate
from cache.store import Store
from cache.stores.memory import MemoryStore
from cache.stores.opening import open_store
from router.endpoints.embedder import EndpointEmbedder
from router.endpoints.endpoint import Endpoint
from router.settings.cache import CacheSettings, SemanticSettings
from router.settings.document import Mistake, SettingsError
from router.settings.words import install_extra
from router.telemetry.cache_metrics import CacheMetrics
from router.telemetry.log import get_logger

if TYPE_CHECKING:
    from cache.embedder import Embedder
    from cache.semantic import SemanticTier

__all__ = [
    "make_cache",
    "make_store",
    "of_one_process",
    "semantic_problem",
]

_log = get_logger("router.cache")

_LOCAL: Final = ("numpy", "onnxruntime")
_THREADS: Final = 2
"""For searches in large namespaces, and what can wait: building what makes them quick."""

_INDEX_SHARE: Final = 4
"""The index of the semantic tier may take such a part of what the store may hold."""


def make_cache(
    settings: CacheSettings,
    metrics: CacheMetrics,
    find: Callable[[str], Endpoint | None],
    elsewhere: Callable[[], Store] | None = None,
) -> ResponseCache:
    """The cache, which is opened by the first that uses it. ``find`` gives an endpoint by name.
    ``elsewhere`` makes the store where another process holds those that are for one process only.

    Raises SettingsError for a store that cannot be made.
    """
    if elsewhere is not None and of_one_process(settings):
        made = elsewhere()
    else:
        made = make_store(settings)
    guarded = None
    if not isinstance(made, MemoryStore):  # which answers at once, and cannot be away
        guarded = GuardedStore(made, on_error=metrics.store_failed)
    cache = ResponseCache(
        guarded or made,
        semantic=_semantic_tier(settings, metrics, find),
        listener=metrics,
        note=_warn,
    )
    metrics.watch(
        lambda: cache.stats, lambda: guarded is None or guarded.up, lambda: _checked(cache)
    )
    return cache


def of_one_process(settings: CacheSettings) -> bool:
    """Whether its store can be used by one process at a time only."""
    return settings.store.get_secret_value().startswith(("memory://", "disk://"))


def make_store(settings: CacheSettings) -> Store:
    """The store of these settings; raises SettingsError where it cannot be made."""
    try:
        return open_store(settings.store.get_secret_value(), settings.max_bytes)
    except (ValueError, ImportError) as error:
        raise SettingsError([Mistake("cache.store", None, str(error))]) from None


def semantic_problem(settings: SemanticSettings) -> str | None:
    """Why the semantic tier cannot be used although it is enabled; None where it can."""
    needed = _LOCAL if settings.embedder == "local" else _LOCAL[:1]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        return (
            f"{' and '.join(missing)} not installed, only the exact tier is used; "
            f"{install_extra('semantic')}"
        )
    return None


def _warn(message: str) -> None:
    _log.warning(message)


def _semantic_tier(
    settings: CacheSettings, metrics: CacheMetrics, find: Callable[[str], Endpoint | None]
) -> SemanticTier | None:
    if not settings.semantic.enabled:
        return None
    problem = semantic_problem(settings.semantic)
    if problem is not None:
        _log.warning("semantic tier off", reason=problem)
        return None
    from cache.index import VectorIndex
    from cache.offload import Offload
    from cache.selfcheck import SelfCheck
    from cache.semantic import SemanticTier

    embedder = _embedder(settings.semantic, find)
    offload = Offload(_THREADS)
    index = VectorIndex(
        max_bytes=max(1, settings.max_bytes // _INDEX_SHARE),
        embedder=embedder.name,
        offload=offload,
        say=_warn,
    )
    check = SelfCheck(limit=settings.semantic.self_check.limit)
    return SemanticTier(embedder, index, check, metrics, offload)


def _embedder(settings: SemanticSettings, find: Callable[[str], Endpoint | None]) -> Embedder:
    if settings.embedder != "local":
        return EndpointEmbedder(settings.embedder, find)
    from cache.embedders.installed import default_directory
    from cache.embedders.minilm import MiniLm

    return MiniLm(default_directory(os.environ))


def _checked(cache: ResponseCache) -> tuple[Rate, int] | None:
    """The rate of false hits over all namespaces, and for how many the tier is off."""
    if cache.semantic is None:
        return None
    report = cache.semantic.check.report()
    return report.overall, len(report.off)
