"""Searches in the index in a SQLite file, see ``router.vector_stores.sqlite_index``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import apsw
import orjson

from router.vector_stores.filters import Condition, sqlite_condition
from router.vector_stores.index import Candidates, FoundChunk, IndexSearch

if TYPE_CHECKING:
    from cache.embedder import Vectors

__all__ = ["PARTS", "one_value", "search_index", "store_word", "vectors_table"]

PARTS: Final = 1024
"""So many row ids of vectors belong to a piece."""

_MOST_NEAR: Final = 4096  # what sqlite-vec gives at most
_NEAR_FACTOR: Final = 4
"""Vectors that are looked at for each piece that is wanted: a piece may have several."""

_MOST_WORDS: Final = 64
_WORD: Final = re.compile(r"\w+")


def one_value(connection: apsw.Connection, sql: str, values: Sequence[Any]) -> Any:
    """The first value of the first row; None where there is none."""
    row = connection.execute(sql, tuple(values)).fetchone()
    return None if row is None else row[0]


def vectors_table(embedder: int) -> str:
    """The name of the table of what this embedder has made."""
    return f"vectors_{embedder:d}"


def store_word(partition: int) -> str:
    """What stands for a store in the full text index; no stemmer changes it."""
    return f"s{partition:d}"


def search_index(connection: apsw.Connection, search: IndexSearch) -> Candidates:
    """The pieces of one store that are nearest, and those that have the words."""
    partition = one_value(connection, "SELECT id FROM stores WHERE name = ?", (search.store,))
    if partition is None:
        return Candidates((), ())
    embedder = one_value(connection, "SELECT id FROM embedders WHERE name = ?", (search.embedder,))
    vector = None if embedder is None else search.vector
    near: dict[int, float] = {}
    if vector is not None:
        near = _near(connection, partition, embedder, vector, search)
    words = _matching(connection, partition, search)
    similar = dict(near)
    if vector is not None:
        left = [ident for ident in words if ident not in similar]
        similar |= _similar(connection, embedder, vector, left)
    found = _found(connection, [*near, *words], similar)
    return Candidates(
        [found[ident] for ident in near if ident in found],
        [found[ident] for ident in words if ident in found],
    )


def _files(partition: int, condition: Condition, values: list[Any]) -> str:
    """The files of a store that a condition holds for."""
    values.append(partition)
    held = sqlite_condition(condition, "files.attributes", values)
    return f"SELECT files.id FROM files WHERE files.store = ? AND {held}"


def _near(
    connection: apsw.Connection,
    partition: int,
    embedder: int,
    vector: Vectors,
    search: IndexSearch,
) -> dict[int, float]:
    """The similarity of the nearest pieces, the nearest first."""
    values: list[Any] = [
        partition, vector.tobytes(), min(search.limit * _NEAR_FACTOR, _MOST_NEAR)
    ]  # fmt: skip
    where = ""
    if search.condition is not None:
        where = f"AND file IN ({_files(partition, search.condition, values)})"
    rows = connection.execute(
        f"SELECT rowid, distance FROM {vectors_table(embedder)} "
        f"WHERE store = ? AND embedding MATCH ? AND k = ? {where} ORDER BY distance",
        tuple(values),
    )
    near: dict[int, float] = {}
    for rowid, distance in rows:
        near.setdefault(rowid // PARTS, 1.0 - distance)
    return dict(list(near.items())[: search.limit])


def _matching(connection: apsw.Connection, partition: int, search: IndexSearch) -> list[int]:
    words = dict.fromkeys(_WORD.findall(search.query))
    if not words:
        return []
    asked = " OR ".join(f'"{word}"' for word in list(words)[:_MOST_WORDS])
    values: list[Any] = [f"store : {store_word(partition)} AND text : ({asked})"]
    where = ""
    if search.condition is not None:
        files = _files(partition, search.condition, values)
        where = f"AND rowid IN (SELECT id FROM chunks WHERE file IN ({files}))"
    values.append(search.limit)
    rows = connection.execute(
        f"SELECT rowid FROM words WHERE words MATCH ? {where} "
        "ORDER BY bm25(words, 0.0, 1.0) LIMIT ?",
        tuple(values),
    )
    return [row[0] for row in rows]


def _similar(
    connection: apsw.Connection, embedder: int, vector: Vectors, chunks: Sequence[int]
) -> dict[int, float]:
    """How near these pieces are, those that have no vectors left out."""
    found: dict[int, float] = {}
    sql = (
        f"SELECT 1.0 - min(vec_distance_cosine(embedding, ?)) FROM {vectors_table(embedder)} "
        "WHERE rowid IN (SELECT value FROM json_each(?))"
    )
    for ident in chunks:
        parts = one_value(connection, "SELECT vectors FROM chunks WHERE id = ?", (ident,)) or 0
        rowids = orjson.dumps([ident * PARTS + part for part in range(parts)]).decode()
        similarity = one_value(connection, sql, (vector.tobytes(), rowids))
        if similarity is not None:
            found[ident] = similarity
    return found


def _found(
    connection: apsw.Connection, chunks: Sequence[int], similar: Mapping[int, float]
) -> dict[int, FoundChunk]:
    rows = connection.execute(
        "SELECT chunks.id, files.name, chunks.position, chunks.text, files.attributes "
        "FROM chunks JOIN files ON files.id = chunks.file "
        "WHERE chunks.id IN (SELECT value FROM json_each(?))",
        (orjson.dumps(list(dict.fromkeys(chunks))).decode(),),
    )
    return {
        ident: FoundChunk(file, position, text, orjson.loads(held), similar.get(ident))
        for ident, file, position, text, held in rows
    }
