"""Removes what has expired, and what was left behind by processes that died."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from pathlib import Path
from typing import Final

from router.errors import RouterError
from router.files import file_sql as sql
from router.files.directory import abandoned, listed, sweeping
from router.files.store import FILE_PREFIX, FileStore, reporting
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["FileCleanup"]

_log = get_logger("router.files")

_INTERVAL_SECONDS: Final = 60.0
_BATCH: Final = 200


class FileCleanup:
    """Cleans up at start and then every minute, in one of the processes that share the files."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin."""
        if self._store.on:
            self._tasks.spawn(self._sweep(), "cleaning up files")

    async def stop(self) -> None:
        """Stop between two files."""
        await self._tasks.close()

    async def _sweep(self) -> None:
        while True:
            try:
                removed = await self.clean()
            except RouterError as error:
                _log.warning("files are not cleaned up now", error=error.message)
            except Exception:  # a file system that is away, say: the next time it may be there
                _log.exception("cleaning up files broke")
            else:
                if removed:
                    _log.info("files cleaned up", files=removed)
            # Jittered: several routers need not do it at the same moment.
            await asyncio.sleep(_INTERVAL_SECONDS * random.uniform(0.5, 1.5))

    async def clean(self) -> int:
        """Remove what has expired or belongs to no row; how many files that were. None where
        another process is at it.
        """
        store = self._store
        directory = await store.directory()
        with contextlib.ExitStack() as stack:
            with reporting():
                mine = await store.work(stack.enter_context, sweeping(directory))
            return await self._expired() + await self._rowless(directory) if mine else 0

    async def _expired(self) -> int:
        removed = 0
        while rows := await self._store.database.read(
            sql.EXPIRED, now=int(time.time()), limit=_BATCH
        ):
            await self._store.remove(*(row[0] for row in rows))
            removed += len(rows)
        return removed

    async def _rowless(self, directory: Path) -> int:
        """What has no row: an upload, or a deletion, of a process that died in its midst."""
        store = self._store
        with reporting():
            names = await store.work(listed, directory, FILE_PREFIX)
        removed = 0
        for start in range(0, len(names), _BATCH):
            window = names[start : start + _BATCH]
            rows = await store.database.read(sql.PRESENT, first=window[0], last=window[-1])
            for name in sorted(set(window) - {row[0] for row in rows}):
                removed += await self._remove(directory / name)
        return removed

    async def _remove(self, path: Path) -> bool:
        """Whether it was garbage, and is gone. Its row may have come in the meantime: whoever
        wrote it had it locked until then.
        """
        with contextlib.ExitStack() as stack:
            if not await self._store.work(stack.enter_context, abandoned(path)):
                return False
            name = path.name
            if await self._store.database.read(sql.PRESENT, first=name, last=name):
                return False
            with reporting():
                await self._store.work(os.unlink, path)
            return True
