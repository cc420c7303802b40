"""Entries with vectors, and a store that tells what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from cache.entry import CacheEntry
from cache.store import Change

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

__all__ = ["EMBEDDER", "NEVER", "Clock", "Feed", "added", "entry", "near", "unit", "units"]

EMBEDDER = "test-embedder"
NEVER = 1e12


class Clock:
    """Time that is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Feed:
    """The changes of a store, in batches that a test puts in."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[Sequence[Change]] = asyncio.Queue()

    def put(self, *batches: Sequence[Change]) -> None:
        for batch in batches:
            self.batches.put_nowait(batch)

    async def changes(self) -> AsyncIterator[Sequence[Change]]:
        while True:
            yield await self.batches.get()


def units(count: int, dimensions: int, seed: int) -> Vector:
    """Rows of length 1, in clumps of about thirty."""
    import numpy as np

    random = np.random.default_rng(seed)
    middles = random.standard_normal((max(1, count // 30), dimensions), np.float32)
    rows = middles[random.integers(0, len(middles), count)]
    rows = rows + 0.7 * random.standard_normal((count, dimensions), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows, np.float32)


def unit(*values: float) -> Vector:
    """One vector, brought to length 1."""
    import numpy as np

    vector = np.array(values, np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def near(vector: Vector, seed: int, distance: float = 0.4) -> Vector:
    """A vector with a similarity of about 1/sqrt(1 + distance²) to another."""
    import numpy as np

    noise = np.random.default_rng(seed).standard_normal(len(vector), np.float32)
    found = vector + noise * np.float32(distance / np.sqrt(len(vector)))
    return np.asarray(found / np.linalg.norm(found), np.float32)


def entry(key: str, vector: Vector, namespace: str = "n", **fields: Any) -> CacheEntry:
    """An entry as a store tells of it; its text names its key."""
    known: dict[str, Any] = {
        "kind": "answer",
        "model": "m",
        "created": 1.0,
        "expires": NEVER,
        "epoch": 0,
        "text": f"text of {key}",
        "embedder": EMBEDDER,
    }
    return CacheEntry(
        key=key,
        namespace=namespace,
        body=b"",
        vector=vector.astype("<f4").tobytes(),
        **(known | fields),
    )


def added(key: str, vector: Vector, namespace: str = "n", **fields: Any) -> Change:
    return Change(added=entry(key, vector, namespace, **fields))
