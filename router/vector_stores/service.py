"""What the routes and the tool ``file_search`` call: stores, their files, searches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from router.core.response_lifecycle import new_id
from router.endpoints.endpoint import Endpoint
from router.errors import InvalidRequest, NotFound, NotSupported, RouterError
from router.files.service import FileService
from router.settings.schema import Settings, StateSettings
from router.settings.vector_stores import VectorStoresSettings
from router.state.connect import SQLITE
from router.state.database import Database
from router.telemetry.log import get_logger
from router.telemetry.vector_store_metrics import VectorStoreMetrics
from router.usage.embeddings import EmbeddingAccounts, EmbeddingFor
from router.vector_stores.embedding import PieceEmbedder, embedder_for, missing_packages
from router.vector_stores.index import ChunkIndex, IndexUnavailable
from router.vector_stores.ingestion import Ingestion
from router.vector_stores.objects import FileBatch, VectorStore, VectorStoreFile
from router.vector_stores.records import StoreRecords
from router.vector_stores.requests import AddedFile, FilePage, NewVectorStore, VectorStoreSearch
from router.vector_stores.searching import FoundText, IndexProblem, StoreSearcher, reporting

__all__ = ["VectorStores", "index_path", "make_index"]

_log = get_logger("router.vector_stores")


class VectorStores:
    """The vector stores of one database. Without ``vector_stores`` in the configuration it is off
    (``on`` is False): everything raises NotSupported.

    What a client names is its own, or raises NotFound.
    """

    def __init__(
        self,
        config: Settings,
        database: Database,
        files: FileService,
        find: Callable[[str], Endpoint | None],
        accounts: EmbeddingAccounts,
        metrics: VectorStoreMetrics,
    ) -> None:
        self._settings = config.vector_stores
        self._state = config.state
        self._files = files
        self._holder = ""
        self._find_endpoint = find
        self._accounts = accounts
        self._metrics = metrics
        self._records = StoreRecords(database)
        self._parts: _SearchParts | None = None
        self._starting = asyncio.Lock()

    @property
    def on(self) -> bool:
        """Whether there are vector stores."""
        return self._settings is not None

    async def start(self, holder: str) -> None:
        """Begin to ingest; ``holder`` is this router's id among the living. What is not there yet
        is tried again when it is needed, so that a router starts without it.
        """
        self._holder = holder
        if self._settings is None:
            return
        problem = missing_packages(
            self._settings, sqlite=self._state.url.get_secret_value().startswith(SQLITE)
        )
        if problem is not None:
            _log.warning("vector stores off", reason=problem)
            return
        try:
            await self._started()
        except IndexProblem as error:
            _log.warning("vector stores cannot be used yet", reason=error.message)

    async def stop(self) -> None:
        """End everything here."""
        if self._parts is not None:
            parts, self._parts = self._parts, None
            await parts.ingestion.stop()
            await parts.index.close()
            await parts.embedder.close()

    # Stores

    async def create(self, owner: str, new: NewVectorStore) -> VectorStore:
        """A new store; its files are ingested in the background."""
        settings = self._on()
        names = await self._names(owner, new.files)
        if new.files:
            await self._started()
        store = await self._records.create(owner, new, settings.max_stores)
        if not new.files:
            return store
        try:
            await self._added(store, new.files, names, None)
        except RouterError:
            await self._records.delete(owner, store.id)
            raise
        return await self.get(owner, store.id)

    async def find(self, owner: str, ident: str) -> VectorStore | None:
        """This owner's store; None where there is none, or vector stores are off."""
        return await self._records.find(owner, ident) if self.on else None

    async def get(self, owner: str, ident: str) -> VectorStore:
        """This owner's store."""
        self._on()
        store = await self._records.find(owner, ident)
        if store is None:
            raise no_store(ident)
        return store

    async def page(self, owner: str, asked: FilePage) -> tuple[list[VectorStore], bool]:
        """A page of this owner's stores, and whether there is more."""
        self._on()
        return await self._records.page(owner, asked)

    async def update(self, owner: str, ident: str, changes: Mapping[str, Any]) -> VectorStore:
        """Change ``name``, ``expires_days`` or ``metadata``."""
        store = await self.usable(owner, ident)
        if not await self._records.update(store, changes):
            raise no_store(ident)
        return await self.get(owner, ident)

    async def delete(self, owner: str, ident: str) -> None:
        """Delete a store; its files stay in ``/files``."""
        self._on()
        if not await self._records.delete(owner, ident):
            raise no_store(ident)
        await self._clean()

    async def usable(self, owner: str, ident: str, param: str | None = None) -> VectorStore:
        """This owner's store; raises InvalidRequest, too, for one that has expired."""
        self._on()
        store = await self._records.find(owner, ident)
        if store is None:
            raise no_store(ident, param)
        if store.is_expired:
            raise InvalidRequest(
                f"Vector store '{store.id}' has expired.", code="vector_store_expired", param=param
            )
        return store

    # Files

    async def add_file(self, owner: str, ident: str, file: AddedFile) -> VectorStoreFile:
        """Add a file, or add it again with other attributes or pieces."""
        store = await self.usable(owner, ident)
        names = await self._names(owner, (file,), "file_id")
        await self._added(store, (file,), names, None)
        return await self.file(owner, ident, file.file)

    async def add_batch(self, owner: str, ident: str, files: Sequence[AddedFile]) -> FileBatch:
        """Add files together."""
        store = await self.usable(owner, ident)
        names = await self._names(owner, files)
        batch = new_id("vsfb_")
        await self._added(store, files, names, batch)
        return await self.batch(owner, ident, batch)

    async def file(self, owner: str, ident: str, file: str) -> VectorStoreFile:
        """A file in a store."""
        await self.get(owner, ident)
        found = await self._records.file(ident, file)
        if found is None:
            raise NotFound.of("File", file, where=f" in vector store '{ident}'")
        return found

    async def files(
        self, owner: str, ident: str, asked: FilePage, batch: str | None = None
    ) -> tuple[list[VectorStoreFile], bool]:
        """A page of a store's files, or of a batch's, and whether there is more."""
        if batch is None:
            await self.get(owner, ident)
        else:
            await self.batch(owner, ident, batch)
        return await self._records.files(ident, asked, batch)

    async def set_attributes(
        self, owner: str, ident: str, file: str, attributes: Mapping[str, Any]
    ) -> VectorStoreFile:
        """Give a file other attributes; filters go by them from then on."""
        await self.file(owner, ident, file)
        parts = await self._started()
        await self._records.set_attributes(ident, file, attributes)
        with reporting():
            await parts.index.set_attributes(ident, file, attributes)
        return await self.file(owner, ident, file)

    async def remove_file(self, owner: str, ident: str, file: str) -> None:
        """Remove a file from a store; it stays in ``/files``."""
        found = await self.file(owner, ident, file)
        await self._records.remove(ident, found.file)
        await self._clean()

    async def texts(self, owner: str, ident: str, file: str) -> list[str]:
        """The pieces of a file's text."""
        found = await self.file(owner, ident, file)
        parts = await self._started()
        with reporting():
            return await parts.index.texts(ident, found.file)

    async def batch(self, owner: str, ident: str, batch: str) -> FileBatch:
        """A batch of a store."""
        await self.get(owner, ident)
        found = await self._records.batch(ident, batch)
        if found is None:
            raise NotFound.of("Batch", batch, where=f" in vector store '{ident}'")
        return found

    async def cancel(self, owner: str, ident: str, batch: str) -> FileBatch:
        """Have those files of a batch that are not ingested yet stay so."""
        await self._records.cancel(await self.batch(owner, ident, batch))
        return await self.batch(owner, ident, batch)

    # Searches

    async def search(
        self, stores: Collection[VectorStore], search: VectorStoreSearch, whose: EmbeddingFor
    ) -> list[FoundText]:
        """The pieces that are found in these stores, the best first; ``whose`` key pays for the
        queries' embeddings.
        """
        began = time.monotonic()
        try:
            parts = await self._started()
            for store in stores:
                await self._records.touch(store)
            searcher = StoreSearcher(parts.index, parts.embedder, self._records)
            with reporting():
                found = await searcher.search([store.id for store in stores], search, whose)
        except Exception:
            self._metrics.searched(time.monotonic() - began, ok=False)
            raise
        self._metrics.searched(time.monotonic() - began, ok=True)
        return found

    # Parts

    def _on(self) -> VectorStoresSettings:
        if self._settings is None:
            raise NotSupported(
                "This router has no vector stores: its configuration has no 'vector_stores'."
            )
        return self._settings

    async def _started(self) -> _SearchParts:
        """What searches and ingests; raises NotSupported, IndexProblem."""
        settings = self._on()
        if self._parts is not None:
            return self._parts
        async with self._starting:
            if self._parts is None:
                sqlite = self._state.url.get_secret_value().startswith(SQLITE)
                problem = missing_packages(settings, sqlite=sqlite)
                if problem is not None:
                    raise NotSupported(f"This router has no vector stores: {problem}.")
                index = make_index(self._state, settings)
                with reporting():
                    await index.start()
                embedder = embedder_for(settings, self._find_endpoint, self._accounts)
                ingestion = Ingestion(
                    settings,
                    self._records,
                    self._files.store,
                    self._files.extractor,
                    embedder,
                    index,
                    self._holder,
                    self._metrics,
                )
                ingestion.start()
                self._parts = _SearchParts(index, embedder, ingestion)
        return self._parts

    async def _names(
        self, owner: str, files: Sequence[AddedFile], param: str = "file_ids"
    ) -> dict[str, str]:
        """The names of this owner's files; raises NotFound for one that is not."""
        names: dict[str, str] = {}
        for one in files:
            found = await self._files.store.find(owner, one.file)
            if found is None:
                raise NotFound.of("File", one.file, param=param)
            names[one.file] = found.filename
        return names

    async def _added(
        self,
        store: VectorStore,
        files: Sequence[AddedFile],
        names: Mapping[str, str],
        batch: str | None,
    ) -> None:
        most = self._on().max_files
        parts = await self._started()
        if await self._records.file_count(store.id) + len(files) > most:
            raise InvalidRequest(
                f"A vector store has {most} files at most.", code="vector_store_limit_exceeded"
            )
        if not await self._records.add(store, files, names, batch):
            raise no_store(store.id)
        parts.ingestion.wake()

    async def _clean(self) -> None:
        """Remove from the index what has just been deleted; what fails is done later."""
        if self._parts is None:
            return
        try:
            await self._parts.ingestion.remove_some()
        except (IndexUnavailable, RouterError) as error:
            _log.warning("removed from the index later", reason=str(error))


@dataclass(frozen=True, slots=True)
class _SearchParts:
    index: ChunkIndex
    embedder: PieceEmbedder
    ingestion: Ingestion


def make_index(state: StateSettings, settings: VectorStoresSettings) -> ChunkIndex:
    """The index of these settings, not started. What it needs is installed."""
    url = state.url.get_secret_value()
    if url.startswith(SQLITE):
        from router.vector_stores.sqlite_index import SqliteIndex

        return SqliteIndex(index_path(state, settings), durable=state.durability == "power")
    from router.vector_stores.postgres_index import PostgresIndex

    return PostgresIndex(url)


def index_path(state: StateSettings, settings: VectorStoresSettings) -> str:
    """The file of the index with a state in SQLite; of a state in memory it is in memory."""
    path = state.url.get_secret_value().removeprefix(SQLITE)
    if settings.index is not None:
        return settings.index
    return path if path == ":memory:" else f"{path}-vectors"


def no_store(ident: str, param: str | None = None) -> NotFound:
    """The error for a store that this owner does not have."""
    return NotFound.of("Vector store", ident, param=param)
