"""One file of the journal: lines of rows, held by a lock as long as its process lives.

``router.usage.journal`` writes the lines; here they are read, and files are taken and let go of.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from router.state.statement import Values
from router.state.usage import COLUMNS, as_values

__all__ = [
    "FORMAT",
    "LONG",
    "Batch",
    "Segment",
    "adopted",
    "clipped",
    "created",
    "decoded",
    "read",
    "removed",
]

_NAME: Final = re.compile(r"usage-\d+-[0-9a-f]{12}\.journal")
FORMAT: Final = 2
"""The first value of every line, ahead of the row's."""

_WITHOUT_SESSIONS: Final = 1
"""The format before: routers that stopped, or still run, may have left such lines."""

LONG: Final = 8192
"""The texts of a line with more bytes are clipped."""

_CLIPPED: Final = 256
_CHUNK: Final = 192 * 1024
_WIDTH: Final = 1 + len(COLUMNS)
_MOST_KEPT: Final = 16


@dataclass(slots=True, eq=False)
class Segment:
    """A file, locked. ``size`` is how much of it is whole lines, ``taken`` how much of that the
    database has, in bytes. ``records`` of this process's own wait in it. ``flawed`` says that
    something in it did not get into the database, ``spoilt`` that nothing more may be added.
    """

    path: Path
    fd: int
    size: int = 0
    taken: int = 0
    records: int = 0
    flawed: bool = False
    spoilt: bool = False

    def cut(self) -> None:
        """Take off what is no whole line at its end."""
        try:
            os.ftruncate(self.fd, self.size)
        except OSError:
            self.spoilt = True

    def empty(self) -> None:
        """Begin again; raises OSError."""
        os.ftruncate(self.fd, 0)
        self.size = self.taken = 0

    def close(self) -> None:
        """Let go of it; whoever finds it may take it over."""
        os.close(self.fd)


@dataclass(slots=True)
class Batch:
    """Rows that were read from a segment, up to ``end``. ``lines`` counts what was between, of
    which ``broken`` are no rows; ``torn`` says that the last of those is one that was not finished.
    """

    records: list[Values] = field(default_factory=list)
    end: int = 0
    lines: int = 0
    broken: int = 0
    torn: bool = False


def clipped(values: Iterable[str | int | float | None]) -> bytes:
    """The line of a row with texts that are too long."""
    short = [v[:_CLIPPED] if isinstance(v, str) else v for v in values]
    return orjson.dumps(short) + b"\n"


def decoded(line: bytes) -> Values:
    """The row of a line; raises ValueError."""
    values = orjson.loads(line)
    formats = (FORMAT, _WITHOUT_SESSIONS)
    if type(values) is not list or not values or values[0] not in formats:
        raise ValueError("no row of this version")
    if b"\\u0000" in line:  # PostgreSQL has no place for it
        values = [v.replace("\0", "\ufffd") if isinstance(v, str) else v for v in values]
    return as_values(values[1:], sessions=values[0] == FORMAT)


def read(segment: Segment, until: int) -> Batch:
    """The next rows of a segment that is ``until`` bytes long; some of them. Raises OSError."""
    start = segment.taken
    data = os.pread(segment.fd, min(_CHUNK, until - start), start)
    whole = data.rfind(b"\n") + 1
    at_end = start + len(data) >= until
    batch = Batch(end=start + whole)
    if not _all_decoded(data[:whole], batch):
        for line in data[:whole].split(b"\n")[:-1]:
            batch.lines += 1
            try:
                batch.records.append(decoded(line))
            except ValueError:
                batch.broken += 1
    if whole < len(data) and (at_end or not whole):
        # The end of a line that was never finished, or no lines at all.
        batch.lines += 1
        batch.broken += 1
        batch.torn = at_end
        batch.end = start + len(data)
    elif not data:  # it was made shorter under our hands
        batch.end = until
    return batch


def _all_decoded(lines: bytes, batch: Batch) -> bool:
    """Put the rows of these whole lines into the batch with one call, as can be done with those
    that nothing has happened to; False where one of them has to be looked at.
    """
    try:
        rows = orjson.loads(b"[" + lines[:-1].replace(b"\n", b",") + b"]")
    except ValueError:
        return False
    if len(rows) != lines.count(b"\n") or b"\\u0000" in lines:
        return False
    for row in rows:
        if type(row) is not list or len(row) != _WIDTH or row[0] != FORMAT:
            return False
    batch.records = [tuple(row[1:]) for row in rows]
    batch.lines = len(rows)
    return True


def created(directory: Path) -> Segment:
    """A new, empty segment of this process; raises OSError."""
    for _ in range(100):
        path = directory / f"usage-{os.getpid()}-{secrets.token_hex(6)}.journal"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o600)
        if _locked(fd):
            return Segment(path, fd)
        os.close(fd)  # somebody took it for one that was left behind, and has removed it
    raise OSError("no file of the journal can be locked")


def adopted(
    directory: Path, ours: frozenset[str], not_again: frozenset[str]
) -> tuple[Segment | None, int]:
    """A segment that a dead process left, and the bytes of all segments but ``ours``.

    ``ours`` and ``not_again``, those to leave alone, are names. Raises OSError.
    """
    found: Segment | None = None
    total = 0
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name))
    for name in names:
        if name in ours:
            continue
        path = directory / name
        # Its process removes it meanwhile, or it is another user's.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            total += path.stat().st_size
            if found is None and name not in not_again:
                found = _left_behind(path)
    return found, total


def _left_behind(path: Path) -> Segment | None:
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    try:
        if not _locked(fd):
            os.close(fd)
            return None
        return Segment(path, fd, size=os.fstat(fd).st_size)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(fd)
        raise


def _locked(fd: int) -> bool:
    """Whether it is ours now, and still has its name."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(fd).st_nlink > 0


def removed(segment: Segment) -> None:
    """The database has it: delete the file. A flawed one is set aside as ``.kept``, for people to
    look at, unless there are many of those. Raises OSError.
    """
    path = segment.path
    try:
        if segment.flawed and sum(1 for _ in path.parent.glob("*.kept")) < _MOST_KEPT:
            path.rename(path.with_suffix(".kept"))
        else:
            path.unlink(missing_ok=True)
    finally:
        segment.close()
