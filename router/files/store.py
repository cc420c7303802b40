"""Uploaded files: rows in the database, and their content in a directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from router.core.response_lifecycle import new_id
from router.dialects.paging import Page
from router.errors import NotSupported, Overloaded, PayloadTooLarge
from router.files import file_sql as sql
from router.files.directory import FileReader, FileWriter, blamed
from router.settings.files import FilesSettings
from router.state.database import Database
from router.state.items import is_id
from router.state.statement import Row, StatementStep
from router.telemetry.log import get_logger

__all__ = ["FILE_PREFIX", "FileStore", "FileTooLarge", "StoredFile", "Upload", "files_are_off"]

T = TypeVar("T")
_log = get_logger("router.files")

FILE_PREFIX: Final = "file-"
"""What the ids of files begin with. They sort by the time at which the files were made."""

_MIB: Final = 1024 * 1024
_PIECE: Final = 256 * 1024
_THREADS: Final = 4
_AT_ONCE: Final = 64
_AT_ONCE_OF_ONE: Final = 16
"""Uploads of one process at once, and of one key."""
_LAST: Final = "file-g"
"""Sorts after every id, whatever the collation of the database: the rest of one is hexadecimal."""


class FileTooLarge(PayloadTooLarge):
    """413: the file, or all files of its key together, exceed a limit of ``files``."""

    default_code = "file_too_large"


def files_are_off() -> NotSupported:
    """The error of a router that keeps no files."""
    return NotSupported("This router keeps no files: its configuration has no files.path.")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is all there. ``bytes`` is its size, ``created_at`` and ``expires_at`` are in
    unix seconds, ``media_type`` is what its client said.
    """

    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int | None
    media_type: str | None

    def as_object(self) -> dict[str, Any]:
        """The File object of the API."""
        expiry = {} if self.expires_at is None else {"expires_at": self.expires_at}
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            **expiry,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
        }


class FileStore:
    """The files of one database. Everything is looked up by owner; expired files are not there.

    Without ``files.path`` it is off (``on`` is False): nothing is found, and ``begin`` and
    ``create`` raise NotSupported.
    """

    def __init__(self, settings: FilesSettings, database: Database) -> None:
        self.settings = settings
        self.database = database
        self._directory: Path | None = None
        self._threads = ThreadPoolExecutor(_THREADS, "files")
        self._uploads: set[Upload] = set()

    @property
    def on(self) -> bool:
        """Whether files are kept."""
        return self.settings.path is not None

    async def directory(self) -> Path:
        """Where the files of this database are: two databases never share a directory, since what
        is in it and not in the database is removed. Raises StateUnavailable, RouterError.
        """
        if self._directory is None:
            if self.settings.path is None:
                raise files_are_off()
            name = await self._name()
            with reporting():
                self._directory = await self.work(_made, self.settings.path, name)
        return self._directory

    async def begin(self, owner: str) -> Upload:
        """Begin to keep a file that arrives in pieces. Raises FileTooLarge, Overloaded,
        StorageFull.
        """
        own = sum(upload.owner == owner for upload in self._uploads)
        if len(self._uploads) >= _AT_ONCE or own >= _AT_ONCE_OF_ONE:
            raise Overloaded(
                "Too many files are uploaded at once; try again.", headers={"Retry-After": "1"}
            )
        directory = await self.directory()
        rows = await self.database.read(sql.TAKEN, owner=owner, now=int(time.time()))
        taken, count = rows[0]
        if count >= self.settings.max_files:
            raise self._too_many()
        ident = new_id(FILE_PREFIX)
        with reporting():
            writer = await self._begun(directory / ident)
        upload = Upload(self, owner, ident, writer, taken)
        self._uploads.add(upload)
        return upload

    async def create(
        self,
        owner: str,
        filename: str,
        purpose: str,
        content: AsyncIterator[bytes],
        *,
        media_type: str | None = None,
        expires_after: int | None = None,
    ) -> StoredFile:
        """Keep what ``content`` brings; ``expires_after`` is in seconds.

        Raises FileTooLarge, Overloaded, StorageFull; nothing is kept then.
        """
        async with contextlib.aclosing(await self.begin(owner)) as upload:
            async for piece in content:
                await upload.write(piece)
            return await upload.finish(
                filename, purpose, media_type=media_type, expires_after=expires_after
            )

    async def find(self, owner: str, ident: str) -> StoredFile | None:
        """This owner's file; None where there is none."""
        if not (self.on and is_id(ident)):
            return None
        await self.directory()
        rows = await self.database.read(sql.GET, id=ident, owner=owner, now=int(time.time()))
        return StoredFile(*rows[0]) if rows else None

    async def page(
        self, owner: str, page: Page, purpose: str | None = None
    ) -> tuple[list[StoredFile], bool]:
        """A page of this owner's by age, of this purpose only, and whether there is more after it.

        ``page.after`` need not be there any more.
        """
        await self.directory()
        after = page.after or (_LAST if page.descending else "")
        named = {} if purpose is None else {"purpose": purpose}
        rows = await self.database.read(
            sql.LISTS[page.descending, purpose is not None],
            owner=owner,
            after=after,
            now=int(time.time()),
            limit=page.limit + 1,
            **named,
        )
        return [StoredFile(*row) for row in rows[: page.limit]], len(rows) > page.limit

    async def delete(self, owner: str, ident: str) -> bool:
        """Delete it; False where there is none."""
        file = await self.find(owner, ident)
        if file is None:
            return False
        await self.remove(file.id)
        return True

    async def remove(self, *idents: str) -> None:
        """Remove these, whosever they are: the rows first, so that none is without a file."""
        directory = await self.directory()
        rows: list[Row] = [{"id": ident} for ident in idents]
        await self.database.write(StatementStep(sql.DELETE, rows))
        with reporting():
            await self.work(_unlink, directory, idents)

    async def content(self, file: StoredFile) -> AsyncGenerator[bytes, None]:
        """Its content, in pieces of 256 KiB."""
        with reporting():
            reader = FileReader(self.path(file))
            try:
                while piece := await self.work(reader.read, _PIECE):
                    yield piece
            finally:
                self._leave(reader.close)

    def path(self, file: StoredFile) -> Path:
        """Where the content of a file is that this store has found or made."""
        assert self._directory is not None
        return self._directory / file.id

    async def work(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """What a function that blocks returns or raises."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))

    async def close(self) -> None:
        """Give up what still arrives, and end the threads."""
        for upload in list(self._uploads):
            upload.discard()
        await asyncio.to_thread(self._threads.shutdown)

    def arriving(self, owner: str) -> int:
        """The bytes of this owner's uploads that are under way in this process."""
        return sum(upload.size for upload in self._uploads if upload.owner == owner)

    def too_large(self) -> FileTooLarge:
        """The error for a file past ``files.max_mb``."""
        return FileTooLarge(
            f"The file is larger than {self.settings.max_mb:g} MiB, the limit of one file.",
            param="file",
        )

    def no_room(self) -> FileTooLarge:
        """The error for a file that is too much together with the others."""
        return FileTooLarge(
            f"With this file, all files of the key would be larger than "
            f"{self.settings.max_total_mb:g} MiB. Delete files that are no longer needed.",
            code="storage_limit_exceeded",
            param="file",
        )

    def _too_many(self) -> FileTooLarge:
        return FileTooLarge(
            f"The key has {self.settings.max_files} files already, which is the limit. Delete "
            "files that are no longer needed.",
            code="storage_limit_exceeded",
            param="file",
        )

    def ended(self, upload: Upload, *, keep: bool) -> None:
        """An upload is over: its lock is given up, and its file removed unless it is kept."""
        if upload in self._uploads:
            self._uploads.discard(upload)
            writer = upload.writer
            self._leave(writer.close if keep else writer.discard)

    async def _begun(self, path: Path) -> FileWriter:
        """Where nobody waits for it any more it is removed again."""
        begun = self._threads.submit(FileWriter, path)
        try:
            return await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(_discard)
            raise

    def _leave(self, function: Callable[[], None]) -> None:
        """Have a thread do it, without waiting; here at the very end, when there is none."""
        try:
            self._threads.submit(function)
        except RuntimeError:
            function()

    async def _name(self) -> str:
        """The name of this database's directory, made by whoever asks first."""
        rows = await self.database.read(sql.NAME)
        if not rows:
            row: Row = {"name": os.urandom(8).hex()}
            await self.database.write(StatementStep(sql.ADD_NAME, (row,)))
            rows = await self.database.read(sql.NAME)
        return str(rows[0][0])

    async def add(self, file: StoredFile) -> None:
        """Add the row, which makes it a file. Raises FileTooLarge past the limits of its key."""
        row: Row = {
            "id": file.id,
            "owner": file.owner,
            "filename": file.filename,
            "purpose": file.purpose,
            "bytes": file.bytes,
            "created_at": file.created_at,
            "expires_at": file.expires_at,
            "media_type": file.media_type,
            "now": file.created_at,
            "most_bytes": int(self.settings.max_total_mb * _MIB),
            "most_files": self.settings.max_files,
        }
        added = await self.database.write(
            StatementStep(sql.TURN, ({"owner": file.owner},)),
            StatementStep(sql.ADD, (row,), guard=True),
        )
        # A write that was made twice adds nothing the second time.
        if not added and await self.find(file.owner, file.id) is None:
            rows = await self.database.read(sql.TAKEN, owner=file.owner, now=file.created_at)
            raise self._too_many() if rows[0][1] >= self.settings.max_files else self.no_room()


class Upload:
    """A file that arrives. Unless ``finish`` was reached nothing of it stays after ``aclose``."""

    def __init__(
        self, store: FileStore, owner: str, ident: str, writer: FileWriter, taken: int
    ) -> None:
        self.owner = owner
        self.size = 0
        self.writer = writer
        self._store = store
        self._id = ident
        self._taken = taken
        self._created_at = int(time.time())

    async def write(self, piece: bytes) -> None:
        """Append a piece; raises FileTooLarge, StorageFull."""
        settings = self._store.settings
        self.size += len(piece)
        if self.size > settings.max_mb * _MIB:
            raise self._store.too_large()
        if self._taken + self._store.arriving(self.owner) > settings.max_total_mb * _MIB:
            raise self._store.no_room()
        with reporting():
            await self._store.work(self.writer.write, piece)

    async def finish(
        self,
        filename: str,
        purpose: str,
        *,
        media_type: str | None = None,
        expires_after: int | None = None,
    ) -> StoredFile:
        """All has arrived: from now on it is there. ``expires_after`` is in seconds."""
        created = self._created_at
        expires_at = None if expires_after is None else created + expires_after
        file = StoredFile(
            self._id, self.owner, filename, purpose, self.size, created, expires_at, media_type
        )
        with reporting():
            await self._store.work(self.writer.sync)
        try:
            await self._store.add(file)
        except FileTooLarge:
            raise
        except BaseException:
            # The row may come all the same, as where the client has left: if not, the content is
            # cleaned up.
            self._store.ended(self, keep=True)
            raise
        self._store.ended(self, keep=True)
        return file

    async def aclose(self) -> None:
        """See the class; does nothing after ``finish``."""
        self.discard()

    def discard(self) -> None:
        """Remove what has arrived, in the background."""
        self._store.ended(self, keep=False)


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Errors of the disk, as the client is told of them."""
    try:
        yield
    except OSError as error:
        raise blamed(error) from error


def _made(path: str, name: str) -> Path:
    directory = Path(path).absolute() / name
    directory.mkdir(0o700, parents=True, exist_ok=True)
    return directory


def _discard(begun: Future[FileWriter]) -> None:
    if not begun.cancelled() and begun.exception() is None:
        begun.result().discard()


def _unlink(directory: Path, idents: tuple[str, ...]) -> None:
    for ident in idents:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(directory / ident)
