"""The configuration file, which may change while the router runs."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path

from router.settings.document import Mistake, SettingsError
from router.settings.load import load_settings
from router.settings.schema import Settings

__all__ = ["ConfigFile"]

_MISSING = b""
"""Instead of a digest, for a file that cannot be read."""


class ConfigFile:
    """Reads the settings from a file, again and again, in the same environment.

    Nothing here is asynchronous, and everything may wait for a disk.
    """

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self.path = path
        self._environ = dict(environ)
        self._loaded = self._seen = _MISSING

    def load(self) -> Settings:
        """The settings as the file has them now; raises SettingsError."""
        # From before it is read: what is written in between counts as a change.
        self._loaded = self._seen = self._digest()
        return load_settings(self.path, self._environ)

    def reload(self) -> Settings:
        """Like ``load``, for a file that has been read once; a pipe can be read only once."""
        if self._is_pipe():
            message = "is a pipe, which cannot be read again"
            raise SettingsError([Mistake("", None, message, str(self.path))])
        return self.load()

    def changed(self) -> bool:
        """Whether the content is another than was loaded last, and the same as a call ago.

        To be called at intervals: so nothing is reported that is half written, or missing while
        the file is replaced. A link is followed to whatever it points to at the moment.
        """
        before, self._seen = self._seen, self._digest()
        return self._seen == before != self._loaded

    def _is_pipe(self) -> bool:
        """Or a terminal: reading from it could wait for ever."""
        try:
            mode = self.path.stat().st_mode
        except OSError:
            return False
        return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)

    def _digest(self) -> bytes:
        if self._is_pipe():
            return _MISSING
        try:
            return hashlib.blake2b(self.path.read_bytes()).digest()
        except OSError:
            return _MISSING
