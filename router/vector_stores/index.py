"""What an index of pieces promises: near vectors and matching words, in one vector store.

Vector stores and files are known to it by their ids. What it gives back is looked up in the state's
database before a client sees it: a file that was removed a moment ago may still be in the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from router.vector_stores.filters import Condition

if TYPE_CHECKING:
    from cache.embedder import Vectors

__all__ = [
    "Candidates",
    "ChunkIndex",
    "FoundChunk",
    "IndexSearch",
    "IndexUnavailable",
    "IndexedChunk",
]


class IndexUnavailable(Exception):
    """The index cannot be used: a sentence for the operator, without any password or text."""


@dataclass(frozen=True, slots=True)
class IndexedChunk:
    """A piece of a file's text, and the vectors of it: one, or one for each part of a piece that
    is longer than the embedder's window. None at all where the embedder can make nothing of it.
    """

    text: str
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """``position`` counts the pieces of the file from 0. ``similarity`` is the cosine to the
    nearest of its vectors, None where it has none.
    """

    file: str
    position: int
    text: str
    attributes: Mapping[str, Any]
    similarity: float | None


@dataclass(frozen=True, slots=True)
class IndexSearch:
    """``vector`` has the length 1 and was made by ``embedder``; without one only words are searched
    for. ``limit`` is for each of the two rankings; ``condition`` is on the attributes of files.
    """

    store: str
    query: str
    embedder: str
    vector: Vectors | None
    limit: int
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """Two rankings of pieces, each once in a ranking, the best first."""

    near: Sequence[FoundChunk]
    matching: Sequence[FoundChunk]


class ChunkIndex(Protocol):
    """Every call has a deadline, and raises IndexUnavailable."""

    async def start(self) -> None:
        """Open it, and make its tables; whoever else does so at the same moment."""
        ...

    async def check(self) -> None:
        """Whether it could be started; nothing is made or changed."""
        ...

    async def close(self) -> None:
        """Let go of it. Works without a ``start`` before it."""
        ...

    async def replace(
        self,
        store: str,
        file: str,
        attributes: Mapping[str, Any],
        embedder: str,
        chunks: Sequence[IndexedChunk],
    ) -> int:
        """Have these be the pieces of the file, all at once; returns the bytes they take.

        ``embedder`` names what made the vectors: those of others are never compared.
        """
        ...

    async def set_attributes(self, store: str, file: str, attributes: Mapping[str, Any]) -> None:
        """Give a file other attributes, if it is there."""
        ...

    async def remove(self, store: str, file: str | None = None) -> None:
        """Remove a file with its pieces, or all of a store's."""
        ...

    async def texts(self, store: str, file: str) -> list[str]:
        """The pieces of a file, in order."""
        ...

    async def search(self, search: IndexSearch) -> Candidates:
        """The pieces of one store that are nearest, and those that have the words."""
        ...
