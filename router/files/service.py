"""Everything of files that one application has."""

from __future__ import annotations

from router.fetch.guard import FetchGuard
from router.files.cleanup import FileCleanup
from router.files.extraction import TextExtractor
from router.files.requests import RequestFiles
from router.files.store import FileStore
from router.settings.files import FilesSettings
from router.state.database import Database

__all__ = ["FileService"]


class FileService:
    """The store of uploaded files, what cleans it up, what extracts text, and what gets the files
    of requests, through ``guard`` where they are somewhere else.
    """

    def __init__(self, settings: FilesSettings, database: Database, guard: FetchGuard) -> None:
        self.store = FileStore(settings, database)
        self.extractor = TextExtractor(settings.extraction)
        self.requests = RequestFiles(settings, self.store, self.extractor, guard)
        self._cleanup = FileCleanup(self.store)

    def start(self) -> None:
        """Begin to clean up: the database has been started."""
        self._cleanup.start()

    async def stop(self) -> None:
        """Give up what is under way; the database is closed afterwards."""
        await self._cleanup.stop()
        self.extractor.close()
        await self.store.close()
