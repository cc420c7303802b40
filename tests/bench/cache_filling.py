"""Caches for measurements: one in a process, entries to fill it with, questions to ask it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cache.controls import CachePolicy, Controls, read_controls
from cache.core import ResponseCache
from cache.embedders.installed import default_directory
from cache.embedders.minilm import MiniLm
from cache.entry import CacheEntry
from cache.guarded import GuardedStore
from cache.index import VectorIndex
from cache.listener import Listener
from cache.offload import Offload
from cache.request import Bypass, CachedAnswer, CacheKeys, CacheRequest, keys
from cache.selfcheck import SelfCheck
from cache.semantic import SemanticTier
from cache.store import Store, StoreError
from cache.stores.opening import open_store
from tests.support.asking import from_responses

from .shapes import Shape

if TYPE_CHECKING:
    from cache.embedder import Embedder, Vectors

__all__ = [
    "MODEL",
    "Pretended",
    "answered",
    "asked",
    "covered",
    "entries",
    "fill",
    "local_embedder",
    "make_cache",
    "plain_controls",
    "questions",
    "resident_mib",
]

MODEL: Final = Shape(64, 0).model
SCOPE: Final = "key:bench"
"""That of the client key with which the benchmark asks a router."""

_DIMENSIONS: Final = 384
_AT_ONCE: Final = 16
_INDEX_SHARE: Final = 4
_PAUSE: Final = 0.1


class Pretended:
    """An embedder that makes up a vector for every text, at once."""

    dimensions = _DIMENSIONS

    def __init__(self, name: str) -> None:
        self.name = name
        self._random = np.random.default_rng(1)

    async def start(self) -> None:
        """There is nothing to do."""

    async def close(self) -> None:
        """There is nothing to do."""

    def refuses(self, text: str) -> str | None:
        """Nothing."""
        return None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors; two are never near."""
        return _units(self._random, len(texts))


def _units(random: np.random.Generator, count: int) -> Vectors:
    rows = random.standard_normal((count, _DIMENSIONS), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def local_embedder() -> MiniLm:
    """The one that routers use."""
    return MiniLm(default_directory(os.environ))


def make_cache(url: str, max_bytes: int, embedder: Embedder | None = None) -> ResponseCache:
    """One like a router's; with an embedder it has a semantic tier."""
    store = GuardedStore(open_store(url, max_bytes))
    if embedder is None:
        return ResponseCache(store)
    offload = Offload(1)
    index = VectorIndex(
        max_bytes=max_bytes // _INDEX_SHARE, embedder=embedder.name, offload=offload
    )
    tier = SemanticTier(embedder, index, SelfCheck(limit=0.05), Listener(), offload)
    return ResponseCache(store, semantic=tier)


def asked(text: str, **fields: Any) -> tuple[CacheRequest, CacheKeys]:
    """The request for this text, and its keys, as the router has them for the benchmark."""
    request = from_responses({"model": MODEL, "input": text, "store": False, **fields})
    if isinstance(request, Bypass):
        raise ValueError(f"the benchmark's own request is not cached: {request.reason}")
    return request, keys(request, scope=SCOPE)


def plain_controls() -> Controls:
    """Those of a request that says nothing, in a cache that is always used."""
    policy = CachePolicy(mode="always", ttl=86_400.0, threshold=0.8, semantic=True)
    return read_controls(policy, None, None, None)


def answered(size: int) -> CachedAnswer:
    """An answer whose text is so many bytes."""
    part = {"type": "output_text", "text": "a word " * (size // 7 + 1), "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}
    usage = {"input_tokens": 20, "output_tokens": 64, "total_tokens": 84}
    return CachedAnswer(MODEL, [item], usage, {}, {})


def entries(
    texts: Sequence[str], vectors: Vectors | None, embedder: str, epoch: int, size: int = 600
) -> Iterator[CacheEntry]:
    """What the cache keeps of these questions and answers of about so many bytes; with vectors
    they can be found by similar questions.
    """
    body, now = answered(size).encode(), time.time()
    for number, text in enumerate(texts):
        _, names = asked(text)
        near = vectors is not None
        yield CacheEntry(
            key=names.key,
            namespace=names.namespace,
            kind="answer",
            model=MODEL,
            created=now,
            expires=now + 86_400.0,
            epoch=epoch,
            body=body,
            text=text if near else "",
            embedder=embedder if near else "",
            vector=vectors[number].tobytes() if vectors is not None else b"",
        )


def questions(count: int) -> tuple[list[str], Vectors]:
    """Texts that differ, and a vector for each; none is near another."""
    texts = [f"What is there to know about number {number} of the list?" for number in range(count)]
    return texts, _units(np.random.default_rng(2), count)


async def fill(store: Store, made: Iterator[CacheEntry]) -> int:
    """Put them into a store that is open, however long it takes; how many it kept."""
    kept = 0

    async def work() -> None:
        nonlocal kept
        for entry in made:
            while (there := await _put(store, entry)) is None:  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE)
            kept += there

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    return kept


async def _put(store: Store, entry: CacheEntry) -> bool | None:
    """None where the store had no time for it."""
    try:
        return await store.put(entry)
    except StoreError:
        return None


def resident_mib() -> float:
    """Memory that this process occupies."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def covered(index: VectorIndex) -> float:
    """Wait until a large namespace is searched by its graph alone; seconds."""
    began = time.perf_counter()
    while not (shelves := index._shelves.large()) or any(s.views() for s in shelves):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return time.perf_counter() - began
