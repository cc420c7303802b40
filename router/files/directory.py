"""The directory that uploaded files are in: one file each, under the id of its row.

A file counts once its row is there. Whoever writes one holds a lock on it until then, which the
system takes back from a process that dies; what has neither a row nor a lock is garbage.
All of this blocks, and is for threads.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from router.errors import InternalError, RouterError
from router.telemetry.log import get_logger

__all__ = [
    "FileReader",
    "FileWriter",
    "StorageFull",
    "abandoned",
    "blamed",
    "listed",
    "sweeping",
    "unusable",
]

_log = get_logger("router.files")

_QUIET_SECONDS: Final = 120.0
"""A file that was written to more recently may be somebody's on another machine, where the file
system does not pass locks on.
"""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
_SWEEP: Final = "sweep.lock"


class StorageFull(RouterError):
    """507: the disk that uploaded files are kept on is full."""

    status = 507
    default_code = "insufficient_storage"


def blamed(error: OSError) -> RouterError:
    """The error for a client whose file cannot be written or read; the log has the reason."""
    _log.error("uploaded files cannot be kept", error=error.strerror or str(error))
    if error.errno in _FULL:
        return StorageFull(
            "The router has no room left for uploaded files. Nothing of this one was kept; try "
            "again later, or delete files that are no longer needed."
        )
    return InternalError("The router cannot write or read uploaded files; its log says why.")


class FileWriter:
    """A file that is being written, locked until ``close``. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = threading.Lock()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._open = True
        try:
            _lock(self._file)
            if os.stat(path).st_ino != os.fstat(self._file).st_ino:
                raise FileNotFoundError(errno.ENOENT, "the file was removed while it was begun")
        except BaseException:
            self.discard()
            raise

    def write(self, piece: bytes) -> None:
        """Append all of it."""
        left = memoryview(piece)
        with self._turn:
            while left and self._open:
                left = left[os.write(self._file, left) :]

    def sync(self) -> None:
        """Have it survive a cut of power."""
        with self._turn:
            if self._open:
                os.fsync(self._file)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        """Its row is there, or it is not wanted: give the lock up."""
        with self._turn:
            if self._open:
                self._open = False
                os.close(self._file)

    def discard(self) -> None:
        """Remove it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.close()


class FileReader:
    """A file that is read, until ``close``. Raises OSError.

    Whoever gives up waiting for a thread that opens or reads it only has to close it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._file: int | None = None
        self._open = True

    def read(self, size: int) -> bytes:
        """What comes next, empty at the end."""
        with self._turn:
            if not self._open:
                return b""
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.read(self._file, size)

    def close(self) -> None:
        """Nothing more is read; waits for a read that is under way."""
        with self._turn:
            self._open = False
            if self._file is not None:
                os.close(self._file)
                self._file = None


def listed(directory: Path, prefix: str) -> list[str]:
    """The names in it that begin so, in order."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.name.startswith(prefix))


def unusable(path: str) -> str | None:
    """Why files cannot be kept in the directory of this path, which need not be there yet; None
    where they can.
    """
    place = Path(path).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return "it is no directory"
    if not os.access(place, os.W_OK | os.X_OK):
        return "it may not be written to"
    return None


@contextlib.contextmanager
def sweeping(directory: Path) -> Iterator[bool]:
    """Whether this process is the one that cleans up; others do nothing meanwhile."""
    file = os.open(directory / _SWEEP, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            _lock(file)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)


@contextlib.contextmanager
def abandoned(path: Path) -> Iterator[bool]:
    """Whether nobody writes to this file; nobody else can think so in the meantime."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        quiet = time.time() - os.fstat(file).st_mtime >= _QUIET_SECONDS
        try:
            _lock(file)
        except BlockingIOError:
            quiet = False
        yield quiet
    finally:
        os.close(file)


def _lock(file: int) -> None:
    """Lock it; raises BlockingIOError where somebody else has. No locks are no error."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
