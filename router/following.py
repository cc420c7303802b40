"""Keeps a running router at what its configuration's file says."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from router.reload import Reloader
from router.settings.document import SettingsError
from router.settings.schema import Settings
from router.settings.watch import ConfigFile
from router.telemetry.log import configure, get_logger

__all__ = ["Following"]

_log = get_logger("router.following")

_LOOK_SECONDS: Final = 2.0
"""So often the file is looked at; what is new is taken over if it is the same a look later."""


class Following:
    """Has ``reloader`` take over ``file``, whose settings it runs with, whenever it is changed.

    What cannot be used is a line in the log, and the old settings stay.
    """

    def __init__(self, file: ConfigFile, reloader: Reloader) -> None:
        self._file = file
        self._reloader = reloader
        self._one_at_a_time = asyncio.Lock()

    async def follow(self, asked: asyncio.Event) -> None:
        """Reload when the file has changed, and when ``asked`` is set; does not return."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await asked.wait()
            if asked.is_set() or await self._changed():
                asked.clear()
                await self.again()

    async def again(self) -> None:
        """Read the file and take it over, changed or not; never raises for what it says."""
        path = str(self._file.path)
        async with self._one_at_a_time:
            before = self._reloader.settings.logging
            try:
                changed = await self._reloader.reload(await self._read())
            except SettingsError as error:
                reasons = [str(mistake) for mistake in error.mistakes]
                _log.error("configuration refused, nothing is changed", file=path, reasons=reasons)
                return
            except Exception:
                # A bug, and no reason not to look at the file any more.
                _log.exception("configuration not reloaded", file=path)
                return
            after = self._reloader.settings.logging
            if after != before:
                configure(after.level, after.format)
            _log.info("configuration reloaded", file=path, changed=changed)

    async def _changed(self) -> bool:
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._file.changed)

    async def _read(self) -> Settings:
        try:
            return await asyncio.to_thread(self._file.reload)
        except SettingsError as error:
            self._reloader.refused(error)
            raise
