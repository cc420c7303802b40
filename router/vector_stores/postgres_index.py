"""The index in the state's PostgreSQL: pgvector for vectors, tsvector for words.

A store of up to 20 000 vectors is compared whole, which finds exactly the nearest. In larger ones
an HNSW index is asked, with iterative scans (pgvector 0.8 and later), where no filter narrows the
search; what that does not fill is compared whole after all. Words are stemmed as English.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg
import orjson

from router.vector_stores.filters import postgresql_condition
from router.vector_stores.index import (
    Candidates,
    FoundChunk,
    IndexedChunk,
    IndexSearch,
    IndexUnavailable,
)

if TYPE_CHECKING:
    from cache.embedder import Vectors

__all__ = ["PostgresIndex"]

_LOCK: Final = 0x76656374  # "vect"
_CONNECTIONS: Final = 4
_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 10.0
_WRITE_SECONDS: Final = 120.0
_EXACT: Final = 20_000
"""Vectors of a store that are compared one by one."""

_AT_ONCE: Final = 128  # pieces whose vectors are text at a time: that takes long, and much memory
_NEAR_FACTOR: Final = 4
_MOST_INDEXED: Final = 2000
"""Dimensions that HNSW takes."""

_MOST_WORDS: Final = 64
_MAJOR_MINOR: Final = 2
_NO_EXTENSION: Final = (
    "the server has no extension 'vector': install pgvector on it (Debian's package is "
    "postgresql-NN-pgvector)"
)

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS vector_index_files (
    store TEXT NOT NULL,
    file TEXT NOT NULL,
    attributes JSONB NOT NULL,
    PRIMARY KEY (store, file)
);
CREATE TABLE IF NOT EXISTS vector_index_chunks (
    store TEXT NOT NULL,
    file TEXT NOT NULL,
    position INTEGER NOT NULL,
    text TEXT NOT NULL,
    words TSVECTOR NOT NULL,
    PRIMARY KEY (store, file, position),
    FOREIGN KEY (store, file) REFERENCES vector_index_files ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS vector_index_words ON vector_index_chunks USING gin (words);
CREATE TABLE IF NOT EXISTS vector_index_vectors (
    store TEXT NOT NULL,
    file TEXT NOT NULL,
    position INTEGER NOT NULL,
    part INTEGER NOT NULL,
    embedder TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    embedding vector NOT NULL,
    PRIMARY KEY (store, file, position, part),
    FOREIGN KEY (store, file) REFERENCES vector_index_files ON DELETE CASCADE
);
"""
_MATCHING: Final = """
WITH asked AS (
    SELECT CAST(string_agg('''' || replace(replace(word, '\\', '\\\\'), '''', '''''') || '''',
                           ' | ') AS tsquery) AS query
    FROM (
        SELECT word FROM unnest(tsvector_to_array(to_tsvector('english', $2))) AS word
        LIMIT {words}
    ) AS words
)
SELECT chunk.file, chunk.position, chunk.text, files.attributes, {similarity}
FROM asked, vector_index_chunks AS chunk
JOIN vector_index_files AS files ON files.store = chunk.store AND files.file = chunk.file
WHERE chunk.store = $1 AND chunk.words @@ asked.query {condition}
ORDER BY ts_rank_cd(chunk.words, asked.query, 1) DESC, chunk.file, chunk.position
LIMIT {limit:d}
"""
_SIMILARITY: Final = """(
    SELECT 1.0 - min(v.embedding <=> CAST(CAST($3 AS TEXT) AS vector))
    FROM vector_index_vectors AS v
    WHERE v.store = chunk.store AND v.file = chunk.file AND v.position = chunk.position
    AND v.embedder = $4
)"""
_NEAR: Final = """
SELECT near.file, near.position, chunk.text, files.attributes, near.similarity
FROM (
    SELECT file, position, max(similarity) AS similarity FROM (
        SELECT v.file, v.position, 1.0 - ({distance}) AS similarity
        FROM vector_index_vectors AS v {joined}
        WHERE v.store = $1 AND v.embedder = $2 AND v.dimensions = {dimensions:d} {condition}
        ORDER BY {distance} LIMIT {vectors:d}
    ) AS vectors GROUP BY file, position
) AS near
JOIN vector_index_chunks AS chunk
    ON chunk.store = $1 AND chunk.file = near.file AND chunk.position = near.position
JOIN vector_index_files AS files ON files.store = $1 AND files.file = near.file
ORDER BY near.similarity DESC, near.file, near.position LIMIT {limit:d}
"""
_JOINED: Final = "JOIN vector_index_files AS files ON files.store = v.store AND files.file = v.file"
_LARGE: Final = f"""
SELECT count(*) FROM (
    SELECT 1 FROM vector_index_vectors WHERE store = $1 LIMIT {_EXACT + 1}
) AS counted
"""

T = TypeVar("T")


class PostgresIndex:
    """Implements ``router.vector_stores.index.ChunkIndex`` in the database of ``url``."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: Any = None
        self._indexed: set[int] = set()
        self._iterative = False

    async def start(self) -> None:
        """See ``ChunkIndex.start``."""

        async def work(connection: Any) -> None:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await self._prepare(connection)

        await self._write(work)

    async def check(self) -> None:
        """See ``ChunkIndex.check``."""

        async def work(connection: Any) -> None:
            if not await connection.fetchval(
                "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'"
            ):
                raise IndexUnavailable(_NO_EXTENSION)

        await self._run(work, _READ_SECONDS)

    async def close(self) -> None:
        """See ``ChunkIndex.close``."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    async def replace(
        self,
        store: str,
        file: str,
        attributes: Mapping[str, Any],
        embedder: str,
        chunks: Sequence[IndexedChunk],
    ) -> int:
        """See ``ChunkIndex.replace``."""
        width = next((chunk.vectors.shape[1] for chunk in chunks if len(chunk.vectors)), 0)
        texts = [(store, file, position, chunk.text) for position, chunk in enumerate(chunks)]
        if width and width not in self._indexed:
            await self._write(lambda connection: self._index(connection, width))

        async def work(connection: Any) -> None:
            await _remove(connection, store, file)
            await connection.execute(
                "INSERT INTO vector_index_files (store, file, attributes) "
                "VALUES ($1, $2, CAST(CAST($3 AS TEXT) AS JSONB))",
                store,
                file,
                orjson.dumps(attributes).decode(),
            )
            await connection.executemany(
                "INSERT INTO vector_index_chunks (store, file, position, text, words) "
                "VALUES ($1, $2, $3, $4, to_tsvector('english', $4))",
                texts,
            )
            for first in range(0, len(chunks), _AT_ONCE):
                vectors = await asyncio.to_thread(_written, chunks, first)
                await connection.executemany(
                    "INSERT INTO vector_index_vectors "
                    "(store, file, position, part, embedder, dimensions, embedding) "
                    "VALUES ($1, $2, $3, $4, $5, $6, CAST(CAST($7 AS TEXT) AS vector))",
                    [(store, file, *place, embedder, width, text) for *place, text in vectors],
                )

        await self._write(work)
        return sum(len(chunk.text.encode()) + chunk.vectors.nbytes for chunk in chunks)

    async def set_attributes(self, store: str, file: str, attributes: Mapping[str, Any]) -> None:
        """See ``ChunkIndex.set_attributes``."""
        held = orjson.dumps(attributes).decode()

        async def work(connection: Any) -> None:
            await connection.execute(
                "UPDATE vector_index_files SET attributes = CAST(CAST($3 AS TEXT) AS JSONB) "
                "WHERE store = $1 AND file = $2",
                store,
                file,
                held,
            )

        await self._write(work)

    async def remove(self, store: str, file: str | None = None) -> None:
        """See ``ChunkIndex.remove``."""
        await self._write(lambda connection: _remove(connection, store, file))

    async def texts(self, store: str, file: str) -> list[str]:
        """See ``ChunkIndex.texts``."""

        async def work(connection: Any) -> list[str]:
            rows = await connection.fetch(
                "SELECT text FROM vector_index_chunks WHERE store = $1 AND file = $2 "
                "ORDER BY position",
                store,
                file,
            )
            return [row[0] for row in rows]

        return await self._run(work, _READ_SECONDS)

    async def search(self, search: IndexSearch) -> Candidates:
        """See ``ChunkIndex.search``."""

        async def work(connection: Any) -> Candidates:
            near: Sequence[FoundChunk] = ()
            if search.vector is not None:
                near = await self._near(connection, search, search.vector)
            return Candidates(near, await _matching(connection, search))

        return await self._run(work, _READ_SECONDS)

    async def _near(
        self, connection: Any, search: IndexSearch, vector: Vectors
    ) -> list[FoundChunk]:
        by_graph = self._iterative and vector.shape[-1] in self._indexed
        if (
            by_graph
            and search.condition is None
            and await connection.fetchval(_LARGE, search.store) > _EXACT
        ):
            async with connection.transaction(readonly=True):
                await connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")
                await connection.execute("SET LOCAL hnsw.ef_search = 200")
                found = await _nearest(connection, search, vector, by_graph=True)
            if len(found) == search.limit:
                return found
        return await _nearest(connection, search, vector, by_graph=False)

    async def _prepare(self, connection: Any) -> None:
        version = await connection.fetchval(
            "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        )
        if version is None:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            version = await connection.fetchval(
                "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            )
        parts = tuple(int(part) for part in version.split(".")[:_MAJOR_MINOR])
        self._iterative = parts >= (0, 8)
        await connection.execute(_TABLES)
        rows = await connection.fetch(
            "SELECT indexname FROM pg_indexes WHERE tablename = 'vector_index_vectors' "
            "AND indexname LIKE 'vector\\_index\\_near\\_%'"
        )
        self._indexed = {int(row[0].rsplit("_", 1)[1]) for row in rows}

    async def _index(self, connection: Any, width: int) -> None:
        """Have an HNSW index for vectors of that many numbers, before the first of them."""
        if width <= _MOST_INDEXED:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await connection.execute(
                f"CREATE INDEX IF NOT EXISTS vector_index_near_{width:d} "
                f"ON vector_index_vectors USING hnsw "
                f"((CAST(embedding AS vector({width:d}))) vector_cosine_ops) "
                f"WHERE dimensions = {width:d}"
            )
        self._indexed.add(width)

    async def _write(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async def committed(connection: Any) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._run(committed, _WRITE_SECONDS)

    async def _run(self, work: Callable[[Any], Awaitable[T]], seconds: float) -> T:
        try:
            async with asyncio.timeout(seconds):
                if self._pool is None:
                    self._pool = await asyncpg.create_pool(
                        self._url,
                        min_size=0,
                        max_size=_CONNECTIONS,
                        timeout=_CONNECT_SECONDS,
                        server_settings={"application_name": "pointsman", "jit": "off"},
                    )
                async with self._pool.acquire() as connection:
                    return await work(connection)
        except TimeoutError:
            raise IndexUnavailable(f"PostgreSQL did not answer within {seconds:g} s") from None
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise IndexUnavailable(_reason(error)) from error


def _reason(error: Exception) -> str:
    """What is wrong, without a value of any row."""
    state = getattr(error, "sqlstate", None)
    if state in ("0A000", "58P01", "42704"):
        return _NO_EXTENSION
    if state == "42501":
        return (
            "the extension 'vector' is not in the database, and its user may not create it: "
            "have an administrator run CREATE EXTENSION vector"
        )
    return f"PostgreSQL: {type(error).__name__}" + (f" ({state})" if state else "")


def _written(chunks: Sequence[IndexedChunk], first: int) -> list[tuple[int, int, str]]:
    """The vectors of a few pieces as text, each behind its piece's position and its own there."""
    return [
        (position, part, _literal(vector))
        for position, chunk in enumerate(chunks[first : first + _AT_ONCE], first)
        for part, vector in enumerate(chunk.vectors)
    ]


def _literal(vector: Vectors) -> str:
    return orjson.dumps(vector.tolist()).decode()


async def _remove(connection: Any, store: str, file: str | None) -> None:
    await connection.execute(
        "DELETE FROM vector_index_files "
        "WHERE store = $1 AND (CAST($2 AS TEXT) IS NULL OR file = $2)",
        store,
        file,
    )


async def _nearest(
    connection: Any, search: IndexSearch, vector: Vectors, *, by_graph: bool
) -> list[FoundChunk]:
    """By the graph the distance is written as its index has it; else in a way that no index has."""
    width = vector.shape[-1]
    values: list[Any] = [search.store, search.embedder, _literal(vector)]
    given = "CAST(CAST($3 AS TEXT) AS vector"
    distance = f"v.embedding <=> {given})"
    if by_graph:
        distance = f"CAST(v.embedding AS vector({width:d})) <=> {given}({width:d}))"
    condition = ""
    if search.condition is not None:
        condition = "AND " + postgresql_condition(search.condition, "files.attributes", values)
    sql = _NEAR.format(
        distance=distance,
        joined=_JOINED if condition else "",
        condition=condition,
        dimensions=width,
        vectors=search.limit * _NEAR_FACTOR,
        limit=search.limit,
    )
    return [_found(row) for row in await connection.fetch(sql, *values)]


async def _matching(connection: Any, search: IndexSearch) -> list[FoundChunk]:
    values: list[Any] = [search.store, search.query]
    similarity = "NULL"
    if search.vector is not None:
        values += [_literal(search.vector), search.embedder]
        similarity = _SIMILARITY
    condition = ""
    if search.condition is not None:
        condition = "AND " + postgresql_condition(search.condition, "files.attributes", values)
    sql = _MATCHING.format(
        words=_MOST_WORDS, similarity=similarity, condition=condition, limit=search.limit
    )
    return [_found(row) for row in await connection.fetch(sql, *values)]


def _found(row: Any) -> FoundChunk:
    file, position, text, attributes, similarity = row
    return FoundChunk(file, position, text, orjson.loads(attributes), similarity)
