"""Whether the files that SQLite has open are still the ones at their paths."""

from __future__ import annotations

import os
from typing import Final

from router.state.database import Unreachable

__all__ = ["DatabaseFiles"]

_SUFFIXES: Final = ("", "-wal", "-shm")
"""The database, its write-ahead log, and the index of the log that connections share."""

_Identity = tuple[int, int]
"""Device and inode."""


class DatabaseFiles:
    """The files of the database at ``path``, once ``note`` has seen them.

    An open file goes on working after it was deleted or replaced: what is written to it then is
    lost with the process, and nobody else sees it. SQLite does not look in WAL mode.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._noted: dict[str, _Identity] = {}

    @property
    def noted(self) -> bool:
        """Whether ``note`` was called."""
        return bool(self._noted)

    def note(self) -> None:
        """What is there now is what a connection has open."""
        for suffix in _SUFFIXES:
            try:
                self._noted[suffix] = _identity(self._path + suffix)
            except FileNotFoundError:
                if not suffix:
                    raise Unreachable("the file was deleted while it was opened") from None

    def check(self) -> None:
        """Raises Unreachable where one of them is not there any more, or is another file."""
        for suffix, noted in self._noted.items():
            path = self._path + suffix
            try:
                found: _Identity | None = _identity(path)
            except (FileNotFoundError, NotADirectoryError):
                found = None
            except OSError as exc:
                raise Unreachable(f"{path}: {exc.strerror}") from None
            if found != noted:
                what = "was deleted or moved" if found is None else "was replaced"
                raise Unreachable(
                    f"{path} {what} while it was in use: put the file back that was there, or "
                    "restart the router to go on with what is there now"
                )


def _identity(path: str) -> _Identity:
    found = os.stat(path)
    return found.st_dev, found.st_ino
