"""A search in vector stores: by meaning and by words, the rankings fused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from cache.embedder import EmbedderError
from router.errors import StateUnavailable
from router.telemetry.log import get_logger
from router.usage.embeddings import EmbeddingFor
from router.vector_stores.embedding import PieceEmbedder
from router.vector_stores.index import (
    Candidates,
    ChunkIndex,
    FoundChunk,
    IndexSearch,
    IndexUnavailable,
)
from router.vector_stores.ranking import fused, rank_score
from router.vector_stores.records import StoreRecords
from router.vector_stores.requests import RankingOptions, VectorStoreSearch

__all__ = ["FoundText", "IndexProblem", "StoreSearcher", "reporting"]

_log = get_logger("router.vector_stores")

_DEPTH: Final = 50
"""The least length of each ranking, of which one is made."""

_Key = tuple[str, str, int]
"""A piece: its store, its file, and its position there."""


class IndexProblem(StateUnavailable):
    """503: the index, or what makes vectors, does not answer."""

    default_code = "vector_store_unavailable"


@dataclass(frozen=True, slots=True)
class FoundText:
    """A piece that a search has found; ``score`` is from 0 to 1."""

    file: str
    filename: str
    score: float
    attributes: Mapping[str, Any]
    text: str

    def as_result(self) -> dict[str, Any]:
        """The result of a search in the API."""
        return {
            "file_id": self.file,
            "filename": self.filename,
            "score": self.score,
            "attributes": dict(self.attributes),
            "content": [{"type": "text", "text": self.text}],
        }


class StoreSearcher:
    """Searches in an index; what it finds is looked up in the records before it is shown."""

    def __init__(self, index: ChunkIndex, embedder: PieceEmbedder, records: StoreRecords) -> None:
        self._index = index
        self._embedder = embedder
        self._records = records

    async def search(
        self,
        stores: Sequence[str],
        search: VectorStoreSearch,
        whose: EmbeddingFor | None = None,
    ) -> list[FoundText]:
        """The pieces that are found, the best first. Which they are is for the fused rankings to
        say; their order is that of their scores. Raises what ``PieceEmbedder`` does, and
        IndexUnavailable.
        """
        found: dict[_Key, FoundChunk] = {}
        rankings: list[tuple[list[_Key], float]] = []
        depth = max(_DEPTH, 2 * search.limit)
        for query in search.queries:
            vector, words = None, query.replace("\0", " ")  # which no database takes
            if search.ranking.embedding_weight:
                vector = await self._embedder.query(query, whose)
            for store in stores:
                asked = IndexSearch(
                    store, words, self._embedder.name, vector, depth, search.condition
                )
                candidates = await self._index.search(asked)
                rankings += _rankings(store, candidates, search.ranking, found)
        return await self._shown(fused(rankings), found, search)

    async def _shown(
        self,
        ranked: Sequence[_Key],
        found: Mapping[_Key, FoundChunk],
        search: VectorStoreSearch,
    ) -> list[FoundText]:
        """The first of them whose files are still there."""
        places = {key: place for place, key in enumerate(ranked)}
        by_words = all(found[key].similarity is None for key in ranked)
        names: dict[tuple[str, str], str | None] = {}
        shown: list[FoundText] = []
        for key in ranked:
            chunk = found[key]
            score = rank_score(places, key) if by_words else _score(chunk)
            if score < search.ranking.threshold:
                continue
            file = key[:2]
            if file not in names:
                names[file] = (await self._records.names(file[0], file[1:])).get(file[1])
            if (name := names[file]) is not None:
                shown.append(FoundText(chunk.file, name, score, chunk.attributes, chunk.text))
                if len(shown) == search.limit:
                    break
        return sorted(shown, key=lambda one: -one.score)


@contextmanager
def reporting() -> Iterator[None]:
    """What the index and the embedder raise, as the client is told of it."""
    try:
        yield
    except IndexUnavailable as error:
        _log.warning("the index does not answer", reason=str(error))
        raise IndexProblem("The index of vector stores does not answer.") from error
    except EmbedderError as error:
        _log.warning("no embeddings", reason=str(error))
        raise IndexProblem("What makes embeddings does not answer.") from error


def _rankings(
    store: str,
    candidates: Candidates,
    ranking: RankingOptions,
    found: dict[_Key, FoundChunk],
) -> list[tuple[list[_Key], float]]:
    """The two rankings of a search with their weights; what is in them is added to ``found``."""
    weighted = []
    for chunks, weight in (
        (candidates.near, ranking.embedding_weight),
        (candidates.matching, ranking.text_weight),
    ):
        if not weight:
            continue
        keys = []
        for chunk in chunks:
            key = (store, chunk.file, chunk.position)
            known = found.get(key)
            if known is None or (chunk.similarity or 0.0) > (known.similarity or 0.0):
                found[key] = chunk
            keys.append(key)
        weighted.append((keys, weight))
    return weighted


def _score(chunk: FoundChunk) -> float:
    """The cosine similarity, from 0 to 1."""
    return min(max(chunk.similarity or 0.0, 0.0), 1.0)
