"""The files of containers: what clients put there, and what code has made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, Final

from router.containers.access import ContainerAccess
from router.containers.runner import (
    DATA,
    PIECE,
    ContainerFile,
    ContainerGone,
    ContainerRef,
    Runner,
    RunnerFailed,
)
from router.core.random_digits import random_digits
from router.dialects.paging import Page, page_of
from router.errors import InvalidRequest, NotFound, PayloadTooLarge
from router.files.store import FileStore, StoredFile
from router.state.containers import ContainerStore, StoredContainer
from router.telemetry.tasks import Tasks

__all__ = ["ContainerFiles", "file_name"]

_FILE_PREFIX: Final = "cfile_"
_MIB: Final = 1024 * 1024
_MOST_NAME: Final = 200


class ContainerFiles:
    """Files are objects of the API, as dictionaries. ``uploaded`` has those of ``/v1/files``.

    Everything raises RouterError: NotFound for a container that has expired, say.
    """

    def __init__(self, access: ContainerAccess, store: ContainerStore, uploaded: FileStore) -> None:
        self._access = access
        self._store = store
        self._uploaded = uploaded
        self._tasks = Tasks()

    async def close(self) -> None:
        """Wait for nothing that is under way."""
        await self._tasks.close()

    async def all(self, container: StoredContainer) -> list[dict[str, Any]]:
        """The files of a container, the newest last."""
        async with self._access.using(container) as (runner, ref):
            found = await runner.files(ref)
        uploads = await self._store.uploads(container.id)
        shown = [_file_object(container.id, file, file.path in uploads) for file in found]
        return sorted(shown, key=lambda file: (file["created_at"], file["path"]))

    async def page(
        self, container: StoredContainer, page: Page
    ) -> tuple[list[dict[str, Any]], bool]:
        """A page of them, and whether there is more; raises InvalidRequest."""
        return page_of(await self.all(container), page)

    async def find(self, container: StoredContainer, ident: str) -> dict[str, Any]:
        """One of them; raises NotFound."""
        for file in await self.all(container):
            if file["id"] == ident:
                return file
        raise NotFound.of("Container file", ident)

    async def content(
        self, container: StoredContainer, file: dict[str, Any]
    ) -> AsyncIterator[bytes]:
        """The content of a file, in pieces."""
        path, offset = _inner(file), 0
        while True:
            async with self._access.using(container) as (runner, ref):
                piece = await runner.read(ref, path, offset, PIECE)
            if not piece:
                return
            yield piece
            offset += len(piece)

    async def put(
        self,
        container: StoredContainer,
        name: str,
        pieces: AsyncIterator[bytes],
        where: str = "file",
    ) -> dict[str, Any]:
        """Put a file of this name there; raises InvalidRequest, and PayloadTooLarge that names
        ``where``.
        """
        settings, _ = self._access.on()
        upload, most = random_digits(), int(settings.max_file_mb * _MIB)
        async with self._access.using(container) as (runner, ref):
            try:
                held = bytearray()
                async for piece in _bounded(pieces, most, where):
                    held += piece
                    while len(held) > PIECE:
                        await runner.write(ref, name, upload, bytes(held[:PIECE]), last=False)
                        del held[:PIECE]
                await runner.write(ref, name, upload, bytes(held), last=True)
            except BaseException:
                self._tasks.spawn(_drop(runner, ref, upload), "drop an upload")
                raise
        await self._store.add_upload(container.id, name)
        return await self.find(container, _file_id(container.id, name))

    async def names(self, owner: str, file_ids: Sequence[str], where: str) -> list[str]:
        """What uploaded files are called in a container; raises InvalidRequest."""
        found = [
            await self._source(owner, ident, f"{where}file_ids[{index}]")
            for index, ident in enumerate(file_ids)
        ]
        return [file_name(file.filename) for file in found]

    async def copy_new(
        self, container: StoredContainer, file_ids: Sequence[str], where: str
    ) -> None:
        """Copy those of these files there that are not there yet; raises InvalidRequest."""
        if not file_ids:
            return
        there = await self._store.uploads(container.id)
        for index, ident in enumerate(file_ids):
            param = f"{where}file_ids[{index}]"
            file = await self._source(container.owner, ident, param)
            name = file_name(file.filename)
            if there.isdisjoint((name, f"{file.id}-{name}")):
                await self.copy(container, ident, param)

    async def copy(self, container: StoredContainer, ident: str, where: str) -> dict[str, Any]:
        """Put a copy of an uploaded file there; raises InvalidRequest and PayloadTooLarge that name
        ``where``.
        """
        found = await self._source(container.owner, ident, where)
        name = file_name(found.filename)
        taken = {file["path"] for file in await self.all(container)}
        if f"{DATA}/{name}" in taken:
            name = f"{found.id}-{name}"
        return await self.put(container, name, self._uploaded.content(found), where)

    async def remove(self, container: StoredContainer, file: dict[str, Any]) -> None:
        """Delete a file."""
        async with self._access.using(container) as (runner, ref):
            await runner.delete(ref, _inner(file))
        await self._store.drop_upload(container.id, _inner(file))

    async def _source(self, owner: str, ident: str, where: str) -> StoredFile:
        found = await self._uploaded.find(owner, ident)
        if found is None:
            raise InvalidRequest(
                f"Invalid '{where}': File with id '{ident[:200]}' not found.",
                code="file_not_found",
                param=where,
            )
        return found


def file_name(given: str) -> str:
    """A client's name for a file as one in a container: without folders and control characters."""
    name = PurePosixPath(given.replace("\\", "/")).name
    name = "".join(sign for sign in name if sign.isprintable()).lstrip(".")
    encoded = name.encode("utf-8", "ignore")[:_MOST_NAME]
    return encoded.decode("utf-8", "ignore") or "file"


async def _bounded(pieces: AsyncIterator[bytes], most: int, where: str) -> AsyncIterator[bytes]:
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > most:
            raise PayloadTooLarge(
                f"The file is larger than {most / _MIB:g} MiB, the limit of "
                "tools.code_interpreter.max_file_mb.",
                code="file_too_large",
                param=where,
            )
        yield piece


async def _drop(runner: Runner, ref: ContainerRef, upload: str) -> None:
    with suppress(ContainerGone, RunnerFailed):  # nothing of it may be there
        await runner.drop(ref, upload)


def _inner(file: dict[str, Any]) -> str:
    path: str = file["path"]
    return path.removeprefix(f"{DATA}/")


def _file_id(container: str, path: str) -> str:
    """The same for the same file of a container, whoever asks."""
    return _FILE_PREFIX + sha256(f"{container}\0{path}".encode()).hexdigest()[:48]


def _file_object(container: str, file: ContainerFile, uploaded: bool) -> dict[str, Any]:
    return {
        "id": _file_id(container, file.path),
        "object": "container.file",
        "created_at": file.modified,
        "bytes": file.bytes,
        "container_id": container,
        "path": f"{DATA}/{file.path}",
        "source": "user" if uploaded else "assistant",
    }
