"""The index beside a state in SQLite: a file of its own, by sqlite-vec and FTS5.

Python's own sqlite3 can load no extensions on many systems, so this is apsw, with a SQLite of its
own. Numbers stand for stores and embedders: a store is a partition of the vectors, and a word of
the full text index, so that neither search looks at other stores.

Several processes may have it open. A piece's vectors have the row ids from ``chunk * 1024`` on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import apsw
import orjson
import sqlite_vec

from router.vector_stores.index import (
    Candidates,
    IndexedChunk,
    IndexSearch,
    IndexUnavailable,
)
from router.vector_stores.sqlite_search import (
    PARTS,
    one_value,
    search_index,
    store_word,
    vectors_table,
)

__all__ = ["SqliteIndex"]

_MEMORY: Final = ":memory:"
_READERS: Final = 2
_READ_SECONDS: Final = 10.0
_WRITE_SECONDS: Final = 120.0
_BUSY_MS: Final = 30_000
_VERSION: Final = 1

_TABLES: Final = """
CREATE TABLE stores (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE embedders (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL
);
CREATE TABLE files (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    store INTEGER NOT NULL REFERENCES stores (id),
    name TEXT NOT NULL,
    attributes TEXT NOT NULL,
    embedder INTEGER,
    UNIQUE (store, name)
);
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file INTEGER NOT NULL REFERENCES files (id),
    position INTEGER NOT NULL,
    vectors INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX chunks_by_file ON chunks (file, position);
CREATE VIRTUAL TABLE words USING fts5(
    store, text, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
);
"""

T = TypeVar("T")


class SqliteIndex:
    """Implements ``router.vector_stores.index.ChunkIndex`` in the file ``path``, or in memory
    (``:memory:``). ``durable``: what was written survives a power cut.
    """

    def __init__(self, path: str, *, durable: bool = False) -> None:
        self._path = path
        self._durable = durable
        self._local = threading.local()
        self._writing = ThreadPoolExecutor(1, "vectors-writer")
        self._reading = self._writing
        if path != _MEMORY:
            self._reading = ThreadPoolExecutor(_READERS, "vectors-reader")

    async def start(self) -> None:
        """See ``ChunkIndex.start``."""
        await self._run(self._writing, _prepare, _WRITE_SECONDS)

    async def check(self) -> None:
        """See ``ChunkIndex.check``: the extension is loaded, into memory where there is no file."""
        path = self._path
        self._path = _openable(path)
        try:
            await self._run(
                self._reading, lambda it: one_value(it, "PRAGMA user_version", ()), _READ_SECONDS
            )
        finally:
            self._path = path

    async def close(self) -> None:
        """See ``ChunkIndex.close``: its connections end with their threads."""
        for pool in {self._writing, self._reading}:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)

    async def replace(
        self,
        store: str,
        file: str,
        attributes: Mapping[str, Any],
        embedder: str,
        chunks: Sequence[IndexedChunk],
    ) -> int:
        """See ``ChunkIndex.replace``."""
        held = orjson.dumps(attributes).decode()

        def work(connection: apsw.Connection) -> int:
            return _replace(connection, store, file, held, embedder, chunks)

        return await self._write(work)

    async def set_attributes(self, store: str, file: str, attributes: Mapping[str, Any]) -> None:
        """See ``ChunkIndex.set_attributes``."""
        held = orjson.dumps(attributes).decode()

        def work(connection: apsw.Connection) -> None:
            connection.execute(
                "UPDATE files SET attributes = ? WHERE name = ? AND store = "
                "(SELECT id FROM stores WHERE name = ?)",
                (held, file, store),
            )

        await self._write(work)

    async def remove(self, store: str, file: str | None = None) -> None:
        """See ``ChunkIndex.remove``."""
        await self._write(lambda connection: _remove(connection, store, file))

    async def texts(self, store: str, file: str) -> list[str]:
        """See ``ChunkIndex.texts``."""

        def work(connection: apsw.Connection) -> list[str]:
            rows = connection.execute(
                "SELECT chunks.text FROM chunks JOIN files ON files.id = chunks.file "
                "JOIN stores ON stores.id = files.store "
                "WHERE stores.name = ? AND files.name = ? ORDER BY chunks.position",
                (store, file),
            )
            return [row[0] for row in rows]

        return await self._run(self._reading, work, _READ_SECONDS)

    async def search(self, search: IndexSearch) -> Candidates:
        """See ``ChunkIndex.search``."""
        return await self._run(self._reading, lambda it: search_index(it, search), _READ_SECONDS)

    async def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        def committed(connection: apsw.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            return result

        return await self._run(self._writing, committed, _WRITE_SECONDS)

    async def _run(
        self, pool: ThreadPoolExecutor, work: Callable[[apsw.Connection], T], seconds: float
    ) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().run_in_executor(pool, self._with, work)
        except apsw.Error as error:
            raise IndexUnavailable(f"{self._path}: {_reason(error)}") from error
        except OSError as error:
            raise IndexUnavailable(f"{self._path}: {error.strerror or error}") from error
        except TimeoutError:
            raise IndexUnavailable(f"{self._path}: no answer within {seconds:g} s") from None
        except RuntimeError as error:  # the pool is shut down
            raise IndexUnavailable(str(error)) from error

    def _with(self, work: Callable[[apsw.Connection], T]) -> T:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        return work(connection)

    def _connect(self) -> apsw.Connection:
        if self._path != _MEMORY and not os.path.exists(self._path):
            # It holds what people have written: nobody else may read it.
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = apsw.Connection(self._path)
        try:
            connection.set_busy_timeout(_BUSY_MS)
            connection.enable_load_extension(True)
            connection.load_extension(sqlite_vec.loadable_path())
            connection.enable_load_extension(False)
            connection.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
            connection.execute("PRAGMA cache_size=-32768")
            connection.execute("PRAGMA journal_size_limit=67108864")
        except BaseException:
            connection.close()
            raise
        return connection


def _openable(path: str) -> str:
    """The path, or that of memory where there is no file, but could be."""
    place = os.path.dirname(path) or "."
    if path == _MEMORY or os.path.exists(path):
        return path
    if not os.access(place, os.W_OK):
        raise IndexUnavailable(f"{place} cannot be written to")
    return _MEMORY


def _reason(error: apsw.Error) -> str:
    return f"{type(error).__name__}: {error}"


def _prepare(connection: apsw.Connection) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = one_value(connection, "PRAGMA user_version", ())
        if version > _VERSION:
            raise IndexUnavailable("the index was made by a newer Pointsman; nothing was changed")
        if version == 0:
            connection.execute(_TABLES)
            connection.execute(f"PRAGMA user_version={_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _embedder(connection: apsw.Connection, name: str, dimensions: int) -> int:
    """The number of what makes vectors, with a table for them."""
    found = connection.execute(
        "SELECT id, dimensions FROM embedders WHERE name = ?", (name,)
    ).fetchone()
    if found is not None:
        if found[1] != dimensions:
            raise IndexUnavailable(
                f"{name} made vectors of {found[1]} numbers before, and of {dimensions} now"
            )
        number: int = found[0]
        return number
    connection.execute("INSERT INTO embedders (name, dimensions) VALUES (?, ?)", (name, dimensions))
    number = connection.last_insert_rowid()
    connection.execute(
        f"CREATE VIRTUAL TABLE {vectors_table(number)} USING vec0(store INTEGER PARTITION KEY, "
        f"file INTEGER, embedding FLOAT[{dimensions:d}] DISTANCE_METRIC=cosine, chunk_size=128)"
    )
    return number


def _replace(
    connection: apsw.Connection,
    store: str,
    file: str,
    attributes: str,
    embedder: str,
    chunks: Sequence[IndexedChunk],
) -> int:
    _remove(connection, store, file)
    connection.execute("INSERT INTO stores (name) VALUES (?) ON CONFLICT DO NOTHING", (store,))
    partition = one_value(connection, "SELECT id FROM stores WHERE name = ?", (store,))
    width = next((chunk.vectors.shape[1] for chunk in chunks if len(chunk.vectors)), 0)
    number = _embedder(connection, embedder, width) if width else None
    connection.execute(
        "INSERT INTO files (store, name, attributes, embedder) VALUES (?, ?, ?, ?)",
        (partition, file, attributes, number),
    )
    parent = connection.last_insert_rowid()
    size = 0
    for position, chunk in enumerate(chunks):
        parts = chunk.vectors[:PARTS]
        connection.execute(
            "INSERT INTO chunks (file, position, vectors, text) VALUES (?, ?, ?, ?)",
            (parent, position, len(parts), chunk.text),
        )
        ident = connection.last_insert_rowid()
        connection.execute(
            "INSERT INTO words (rowid, store, text) VALUES (?, ?, ?)",
            (ident, store_word(partition), chunk.text),
        )
        for part, vector in enumerate(parts):
            connection.execute(
                f"INSERT INTO {vectors_table(number or 0)} (rowid, store, file, embedding) "
                "VALUES (?, ?, ?, ?)",
                (ident * PARTS + part, partition, parent, vector.tobytes()),
            )
        size += len(chunk.text.encode()) + parts.nbytes
    return size


def _remove(connection: apsw.Connection, store: str, file: str | None) -> None:
    found: list[Any] = connection.execute(
        "SELECT files.id, files.embedder FROM files JOIN stores ON stores.id = files.store "
        "WHERE stores.name = ?1 AND (?2 IS NULL OR files.name = ?2)",
        (store, file),
    ).fetchall()
    for ident, embedder in found:
        rows = "SELECT id FROM chunks WHERE file = ?"
        if embedder is not None:
            chunks: list[Any] = connection.execute(
                "SELECT id, vectors FROM chunks WHERE file = ?", (ident,)
            ).fetchall()
            for chunk, parts in chunks:
                connection.executemany(
                    f"DELETE FROM {vectors_table(embedder)} WHERE rowid = ?",
                    [(chunk * PARTS + part,) for part in range(parts)],
                )
        connection.execute(f"DELETE FROM words WHERE rowid IN ({rows})", (ident,))
        connection.execute("DELETE FROM chunks WHERE file = ?", (ident,))
        connection.execute("DELETE FROM files WHERE id = ?", (ident,))
    if file is None:
        connection.execute("DELETE FROM stores WHERE name = ?", (store,))
