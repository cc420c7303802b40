"""In the background: files of vector stores are extracted, cut, embedded and indexed, and what was
deleted is removed from the index.

Every router on the database has one of these. A file is held by the router that works on it as long
as that gives signs of life; after kill -9 another one, or the same after its restart, begins the
file again. An index takes a file all at once, so half of one is never searched.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from cache.embedder import EmbedderError
from router.errors import Overloaded, QuotaExceeded, RouterError
from router.files.extraction import ExtractionFailed, TextExtractor, UnsupportedFile
from router.files.store import FileStore
from router.settings.vector_stores import VectorStoresSettings
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.telemetry.vector_store_metrics import IngestionResult, VectorStoreMetrics
from router.usage.embeddings import EmbeddingFor
from router.vector_stores.chunking import chunks
from router.vector_stores.embedding import PieceEmbedder
from router.vector_stores.index import ChunkIndex, IndexedChunk, IndexUnavailable
from router.vector_stores.objects import VectorStoreFile
from router.vector_stores.records import FileEnd, StoreRecords

__all__ = ["Ingestion"]

_log = get_logger("router.vector_stores")

_ATTEMPTS: Final = 5
_PAUSE: Final = 2.0
"""Seconds before the second attempt; each is twice as long after the next."""

_POLL: Final = 2.0
_SWEEP: Final = 30.0
"""Seconds between looks at what others have added, and at what has expired or was deleted."""

_LIMIT: Final = 16
_BATCH: Final = 16
"""Pieces that are embedded at once: between batches searches have their turn."""


class _BadFile(Exception):
    """The file cannot be ingested, and never will be: code and message of the API."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _TryLater(Exception):
    """What is needed does not answer; the message is for the log and the client."""


class Ingestion:
    """Ingests files, ``settings.ingest_parallel`` at once; ``holder`` is this router's id among the
    living (``Heartbeat.id``).
    """

    def __init__(
        self,
        settings: VectorStoresSettings,
        records: StoreRecords,
        files: FileStore,
        extractor: TextExtractor,
        embedder: PieceEmbedder,
        index: ChunkIndex,
        holder: str,
        metrics: VectorStoreMetrics,
        *,
        poll: float = _POLL,
    ) -> None:
        self._settings = settings
        self._records = records
        self._files = files
        self._extractor = extractor
        self._embedder = embedder
        self._index = index
        self._holder = holder
        self._metrics = metrics
        self._count_at = 0.0
        self._poll = poll
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(settings.ingest_parallel)
        self._busy: set[tuple[str, str]] = set()
        self._loops = Tasks()
        self._work = Tasks()

    def start(self) -> None:
        """Begin to look for work; what is needed for it has been started."""
        self._loops.spawn(self._ingest_all(), "ingest files")
        self._loops.spawn(self._sweep_all(), "sweep vector stores")

    async def stop(self) -> None:
        """End everything here; files that are not ingested yet are given back."""
        await self._loops.close()
        await self._work.close()

    def wake(self) -> None:
        """There is something to be ingested."""
        self._wake.set()

    async def _ingest_all(self) -> None:
        with contextlib.suppress(RouterError):
            await self._records.again(self._embedder.name)
        while True:
            self._wake.clear()
            try:
                claimed = await self._claim_some()
                await self._count_waiting()
            except RouterError as error:
                _log.warning("files wait to be ingested", error=error.message)
                claimed = False
            except Exception:  # of one look: whoever adds files later must not wait for a restart
                _log.exception("looking for files to ingest broke")
                claimed = False
            if not claimed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await self._wake.wait()

    async def _count_waiting(self) -> None:
        if (now := time.monotonic()) >= self._count_at:
            self._metrics.waiting(await self._records.waiting())
            self._count_at = now + self._poll / 2

    async def _claim_some(self) -> bool:
        """Claim files and begin with them, as long as there is room; whether there were any. Some
        may be this router's already: the database was away when their ingestion ended.
        """
        begun = False
        limit = _LIMIT + self._settings.ingest_parallel
        for file in await self._records.candidates(self._holder, limit):
            if (file.store, file.file) in self._busy:
                continue
            await self._room.acquire()
            held = False
            try:
                held = await self._records.claim(file, self._holder)
            finally:
                if not held:
                    self._room.release()
            if held:
                begun = True
                claimed = replace(file, fence=file.fence + 1, attempts=file.attempts + 1)
                self._busy.add((file.store, file.file))
                task = self._work.spawn(self._ingest(claimed), f"ingest {file.file}")
                # Not in the task: one that is cancelled before its first step does nothing.
                task.add_done_callback(partial(self._leave, file))
        return begun

    def _leave(self, file: VectorStoreFile, _: asyncio.Task[None]) -> None:
        self._busy.discard((file.store, file.file))
        self._room.release()
        self._wake.set()

    async def _ingest(self, file: VectorStoreFile) -> None:
        """Ingest a claimed file, and write down how that ended."""
        try:
            await self._ingest_once(file)
        except RouterError as error:
            _log.warning("file is ingested again", file=file.file, error=error.message)

    async def _ingest_once(self, file: VectorStoreFile) -> None:
        """Raises StateUnavailable: the file stays this router's, which begins it again."""
        began = time.monotonic()
        try:
            end = await self._ended(file)
        except _TryLater as error:
            if file.attempts < _ATTEMPTS:
                _log.warning("file is ingested later", file=file.file, reason=str(error))
                seconds = _PAUSE * 2 ** (file.attempts - 1)
                await self._records.postpone(file, file.fence, seconds)
                self._metrics.ingested("postponed", time.monotonic() - began)
                return
            end = FileEnd(error=("server_error", str(error)))
        except asyncio.CancelledError:
            with contextlib.suppress(RouterError, TimeoutError):
                async with asyncio.timeout(_POLL):
                    await self._records.give_back(file, file.fence, self._holder)
            raise
        done = await self._records.finish(file, file.fence, end)
        result: IngestionResult = "completed" if end.error is None else "failed"
        self._metrics.ingested(result if done else "dropped", time.monotonic() - began)
        now = await self._records.file(file.store, file.file)
        if done:
            if now is not None and now.attributes != file.attributes:
                with contextlib.suppress(IndexUnavailable):
                    await self._index.set_attributes(file.store, file.file, now.attributes)
            return
        # It was removed, cancelled or added again meanwhile.
        if now is None or now.status == "cancelled":
            with contextlib.suppress(IndexUnavailable):
                await self._index.remove(file.store, file.file)
        await self._records.release(file, self._holder)

    async def _ended(self, file: VectorStoreFile) -> FileEnd:
        """Raises _TryLater."""
        if file.attempts > _ATTEMPTS:
            return FileEnd(error=("server_error", "The ingestion of the file was begun too often."))
        try:
            async with asyncio.timeout(self._settings.ingest_timeout):
                pieces = await self._pieces(file)
                size = await self._index.replace(
                    file.store, file.file, file.attributes, self._embedder.name, pieces
                )
        except _BadFile as error:
            return FileEnd(error=(error.code, error.message))
        except TimeoutError:
            return FileEnd(error=("server_error", "The file took too long to be ingested."))
        except EmbedderError as error:
            raise _TryLater(f"No embeddings could be made: {error}") from error
        except IndexUnavailable as error:
            _log.warning("the index does not answer", reason=str(error))
            raise _TryLater("The index of vector stores does not answer.") from error
        except QuotaExceeded as error:
            return FileEnd(error=("server_error", f"The file was not embedded: {error.message}"))
        except RouterError as error:
            raise _TryLater(error.message) from error
        except Exception as error:
            _log.exception("ingestion broke", file=file.file)
            raise _TryLater("The file could not be ingested.") from error
        return FileEnd(size, self._embedder.name)

    async def _pieces(self, file: VectorStoreFile) -> list[IndexedChunk]:
        """The pieces of a file with their vectors; raises _BadFile, and what else may go wrong."""
        text = await self._text(file)
        cut = await asyncio.to_thread(chunks, text, file.strategy)
        if not cut:
            raise _BadFile("invalid_file", "The file has no text.")
        if len(cut) > self._settings.max_chunks:
            raise _BadFile(
                "invalid_file",
                f"The file has more than {self._settings.max_chunks} pieces; split it.",
            )
        whose = EmbeddingFor(file.owner, file.file)
        pieces: list[IndexedChunk] = []
        for first in range(0, len(cut), _BATCH):
            pieces += await self._embedder.embed(_clean(cut[first : first + _BATCH]), whose)
        return pieces

    async def _text(self, file: VectorStoreFile) -> str:
        stored = await self._files.find(file.owner, file.file)
        if stored is None:
            raise _BadFile("invalid_file", "The file was deleted.")
        await self._files.directory()
        try:
            found = await self._extractor.extract(
                self._files.path(stored), stored.filename, stored.media_type
            )
        except UnsupportedFile as error:
            raise _BadFile("unsupported_file", str(error)) from error
        except ExtractionFailed as error:
            raise _BadFile("invalid_file", str(error)) from error
        except Overloaded as error:
            raise _TryLater(error.message) from error
        return found.text

    async def _sweep_all(self) -> None:
        while True:
            try:
                await self._records.expire()
                await self.remove_some()
            except RouterError as error:
                _log.warning("vector stores are not swept", error=error.message)
            except IndexUnavailable as error:
                _log.warning("the index does not answer", reason=str(error))
            except Exception:
                _log.exception("sweeping vector stores broke")
            await asyncio.sleep(_SWEEP)

    async def remove_some(self) -> None:
        """Remove from the index what is to be gone. Raises IndexUnavailable, RouterError."""
        for store in await self._records.deleted(_LIMIT):
            await self._index.remove(store)
            await self._records.drop_store(store)
        while files := await self._records.removing(self._holder, _LIMIT):
            if not [await self._remove(file) for file in files].count(True):
                return

    async def _remove(self, file: VectorStoreFile) -> bool:
        if not await self._records.claim(file, self._holder):
            return False
        try:
            await self._index.remove(file.store, file.file)
            await self._records.drop(file, file.fence + 1, self._holder)
        except IndexUnavailable:
            await self._records.release(file, self._holder)
            raise
        return True


def _clean(texts: Sequence[str]) -> list[str]:
    """Without what a database cannot hold."""
    return [text.replace("\0", " ").encode(errors="replace").decode() for text in texts]
