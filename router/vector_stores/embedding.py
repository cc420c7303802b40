"""What makes the vectors of pieces and queries: the local model, or an endpoint of the fleet.

A model takes texts up to a length. A longer piece has a vector for each of its parts, and is as
near to a query as the nearest of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from router.endpoints.embedder import EndpointEmbedder
from router.endpoints.endpoint import Endpoint
from router.settings.vector_stores import VectorStoresSettings
from router.settings.words import install_extra
from router.usage.embeddings import EmbeddingAccounts, EmbeddingFor
from router.vector_stores.chunking import ChunkingStrategy, chunks
from router.vector_stores.index import IndexedChunk

if TYPE_CHECKING:
    from cache.embedder import Embedder, Vectors
    from cache.embedders.minilm import MiniLm

__all__ = ["PieceEmbedder", "embedder_for", "missing_packages"]

_AT_ONCE: Final = 32
"""Texts of one request to an endpoint."""

Cut = Callable[[str], list[str]]
Paid = Callable[[Sequence[str], EmbeddingFor], Awaitable["Vectors"]]
"""Embeds texts, and books that; see ``EmbeddingAccounts.embed``."""


class PieceEmbedder:
    """Embeds pieces of files, and queries. ``name`` is the embedder's: vectors of different names
    are never compared. Raises EmbedderError; with ``paid``, which makes the vectors where they are
    accounted for, what that raises, too.
    """

    def __init__(self, embedder: Embedder, cut: Cut, paid: Paid | None = None) -> None:
        self.name = embedder.name
        self._embedder = embedder
        self._cut = cut
        self._paid = paid
        self._starting = asyncio.Lock()
        self._started = False

    async def start(self) -> None:
        """Load what has to be, once; whoever needs it may ask."""
        async with self._starting:
            if not self._started:
                await self._embedder.start()
                self._started = True

    async def close(self) -> None:
        """Let go of it."""
        await self._embedder.close()

    async def embed(
        self, texts: Sequence[str], whose: EmbeddingFor | None = None
    ) -> list[IndexedChunk]:
        """The pieces with their vectors; those without a word that the model knows have none."""
        import numpy as np

        await self.start()
        cut = await asyncio.to_thread(lambda: [self._cut(text) for text in texts])
        parts = [part for several in cut for part in several]
        made = [
            await self._made(parts[first : first + _AT_ONCE], whose)
            for first in range(0, len(parts), _AT_ONCE)
        ]
        vectors = np.concatenate(made) if made else np.zeros((0, 0), dtype=np.float32)
        pieces, first = [], 0
        for text, several in zip(texts, cut, strict=True):
            pieces.append(IndexedChunk(text, vectors[first : first + len(several)]))
            first += len(several)
        return pieces

    async def _made(self, texts: Sequence[str], whose: EmbeddingFor | None) -> Vectors:
        if self._paid is None or whose is None:
            return await self._embedder.embed(texts)
        return await self._paid(texts, whose)

    async def query(self, text: str, whose: EmbeddingFor | None = None) -> Vectors | None:
        """The vector of a query; None where the model knows no word of it."""
        import numpy as np

        [piece] = await self.embed([text], whose)
        if not len(piece.vectors):
            return None
        mean = piece.vectors.mean(axis=0)
        length = float(np.linalg.norm(mean))
        vector: Vectors = (mean / length).astype(np.float32)
        return vector if length else None


def embedder_for(
    settings: VectorStoresSettings,
    find: Callable[[str], Endpoint | None],
    accounts: EmbeddingAccounts | None = None,
) -> PieceEmbedder:
    """The embedder of these settings; ``find`` gives an endpoint by name, ``accounts`` book what
    its model does.
    """
    if settings.embedder != "local":
        endpoint = EndpointEmbedder(settings.embedder, find, settings.embedder_timeout)
        window = ChunkingStrategy(settings.embedder_tokens, 0)
        paid = None if accounts is None else partial(accounts.embed, endpoint)
        return PieceEmbedder(endpoint, lambda text: chunks(text, window), paid)
    local = _local()
    return PieceEmbedder(local, local.parts)


def missing_packages(settings: VectorStoresSettings, *, sqlite: bool) -> str | None:
    """What has to be installed for these settings; None where nothing has."""
    needed = ("numpy", *(("apsw", "sqlite_vec") if sqlite else ("asyncpg",)))
    if absent := [name for name in needed if find_spec(name) is None]:
        extra = "vector-stores" if sqlite or "numpy" in absent else "postgres"
        return f"{' and '.join(absent)} not installed; {install_extra(extra)}"
    if settings.embedder == "local" and find_spec("onnxruntime") is None:
        return f"onnxruntime not installed; {install_extra('semantic')}"
    return None


def _local() -> MiniLm:
    from cache.embedders.installed import default_directory
    from cache.embedders.minilm import MiniLm

    return MiniLm(default_directory(os.environ))
