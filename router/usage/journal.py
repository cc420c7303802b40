"""Rows on their way to the database: in files, so that they survive the end of the process.

A row is one ``write`` to a file, synchronous: what the kernel has is not lost with the process
(with the machine it may be: nothing is forced to the disk). Each process writes to segments of its
own, which it holds by a lock; a segment goes when the database has its rows. What dead processes
left in the directory is taken over. Where the files cannot be written, rows wait in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson

from router.core.usage_record import UsageRecord
from router.telemetry.log import get_logger
from router.usage.segment import (
    FORMAT,
    LONG,
    Batch,
    Segment,
    adopted,
    clipped,
    created,
    decoded,
    read,
    removed,
)

__all__ = ["MOST_BYTES", "Journal", "JournalBatch"]

_log = get_logger("router.books")

MANY_ROWS: Final = 2048
"""So many rows are told of at once."""

MOST_BYTES: Final = 1024 * 1024 * 1024
MOST_IN_MEMORY: Final = 10_000
_SEGMENT: Final = 32 * 1024 * 1024
_WORTH_EMPTYING: Final = 256 * 1024
_AGAIN_SECONDS: Final = 1.0
"""Between two tries to write to files that could not be written."""

_LOOK_SECONDS: Final = 0.1
"""Between two looks whether the file still has a name. To look takes as long as to write a row, and
what was written before it was deleted is as much without a name as what comes after.
"""

_LOG_SECONDS: Final = 60.0
_MEMORY_BATCH: Final = 256


class JournalBatch:
    """A batch, and where it came from: a segment, or memory (None). It takes ``size`` bytes there,
    None where that is not known.
    """

    __slots__ = ("batch", "segment", "size")

    def __init__(self, batch: Batch, segment: Segment | None) -> None:
        self.batch = batch
        self.segment = segment
        self.size = None if segment is None else batch.end - segment.taken


class Journal:
    """The journal in ``directory``, or in memory only (None). ``most_bytes`` bounds what all
    processes have in the directory; ``clock`` is in seconds. ``fresh`` counts what was appended
    since somebody set it to zero; once those are many, ``on_many`` is called for each.

    ``lost`` counts rows that the database will never have: ``full`` (no more room in the files),
    ``memory`` (nor in memory, while the files could not be written), ``unreadable`` (lines cut
    short or damaged), ``unwritable`` (no JSON can hold it), ``refused`` (by the database),
    ``stopped`` (left in memory at the end, or recorded after it).
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = directory
        self.lost: Counter[str] = Counter()
        self.fresh = 0
        self.on_many: Callable[[], None] = lambda: None
        self._most = most_bytes
        self._clock = clock
        self._current: Segment | None = None
        self._sealed: deque[Segment] = deque()
        self._adopted: Segment | None = None
        self._ours = 0
        self._others = 0
        self._given_up: set[str] = set()
        self._memory: deque[bytes] = deque()
        self._try_at = 0.0
        self._look_at = 0.0
        self._said: dict[str, float] = {}
        self._open = True

    @property
    def size(self) -> int:
        """Bytes in the directory: of this process as they are, of others as last looked."""
        return self._others + self._ours

    @property
    def waiting(self) -> int:
        """Rows of this process that the database does not have yet."""
        return len(self._memory) + sum(segment.records for segment in self._segments())

    def append(self, record: UsageRecord) -> None:
        """Keep a row: once this returns it survives the end of the process. Raises nothing: what
        cannot be kept is counted, and logged.
        """
        self.fresh += 1
        if self.fresh >= MANY_ROWS:
            self.on_many()
        values = (FORMAT, *record.values())
        try:
            line = orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE)
            if len(line) > LONG:
                line = clipped(values)
        except TypeError as exc:
            self._lose("unwritable", error=str(exc))
            return
        if not self._open:
            self._lose("stopped")
        elif self.directory is not None and self._others + self._ours + len(line) > self._most:
            self._lose("full", bytes=self.size)
        elif not self._written(line):
            if len(self._memory) < MOST_IN_MEMORY:
                self._memory.append(line)
            else:
                self._lose("memory")

    async def adopt(self) -> bool:
        """Look for what dead processes left; whether there is such a thing to read now."""
        while self.directory is not None and self._adopted is None:
            found = await self._left(self.directory)
            if found is None:
                return False
            if not self._open:
                found.close()
                return False
            if found.size:
                self._adopted = found
                self._others -= found.size
                self._ours += found.size
                _log.info("a journal was left behind", file=found.path.name, bytes=found.size)
            else:
                self._remove(found)
        return self._adopted is not None

    async def _left(self, directory: Path) -> Segment | None:
        ours = frozenset(segment.path.name for segment in self._segments())
        not_again = frozenset(self._given_up)
        try:
            found, self._others = await asyncio.to_thread(adopted, directory, ours, not_again)
        except FileNotFoundError:
            self._others = 0
            return None
        except OSError as exc:
            self._complain("the journal's directory cannot be read", error=_reason(exc))
            return None
        return found

    async def take(self) -> JournalBatch | None:
        """The oldest rows that wait; some of them. ``done`` is for when the database has them."""
        for segment in self._segments():
            if segment.taken >= segment.size:
                continue
            try:
                return JournalBatch(await asyncio.to_thread(read, segment, segment.size), segment)
            except OSError as exc:
                self._complain("the journal cannot be read", error=_reason(exc))
                self._give_up(segment)
                return JournalBatch(Batch(), None)
        if self._memory:
            lines = [self._memory[n] for n in range(min(len(self._memory), _MEMORY_BATCH))]
            return JournalBatch(Batch([decoded(line) for line in lines], lines=len(lines)), None)
        return None

    def done(self, taken: JournalBatch) -> None:
        """What was taken is in the database, or lost: forget it."""
        batch, segment = taken.batch, taken.segment
        if segment is None:
            for _ in range(batch.lines):
                self._memory.popleft()
            return
        segment.taken = batch.end
        if segment is not self._adopted:
            segment.records -= batch.lines
        if batch.broken:
            segment.flawed |= batch.broken > int(batch.torn)
            self._lose("unreadable", batch.broken, file=segment.path.name, before=batch.end)
        if segment.taken >= segment.size:
            self._drained(segment)

    def refused(self, taken: JournalBatch, count: int) -> None:
        """The database takes so many rows of it from nobody."""
        self.lost["refused"] += count
        if taken.segment is not None:
            taken.segment.flawed = True

    def close(self) -> None:
        """Let go of the files; those with rows in them are for whoever comes next."""
        self._open = False
        self._save_memory()
        for segment in self._segments():
            if segment.taken < segment.size:
                segment.close()
            else:
                self._remove(segment)
        self._current = self._adopted = None
        self._sealed.clear()
        self._ours = 0

    def _segments(self) -> list[Segment]:
        """Those that are held, from the oldest."""
        first, last = self._adopted, self._current
        return [segment for segment in (first, *self._sealed, last) if segment is not None]

    def _written(self, line: bytes) -> bool:
        """Whether it is in a file now."""
        now = self._clock()
        if self.directory is None or now < self._try_at:
            return False
        segment = self._current
        try:
            if segment is not None and now >= self._look_at:
                self._look_at = now + _LOOK_SECONDS
                segment = self._still_named(segment)
            if segment is None:
                segment = self._current = self._begun(self.directory)
            written = os.write(segment.fd, line)
            if written != len(line):
                segment.cut()
                raise OSError(f"only {written} of {len(line)} bytes could be written")
        except OSError as exc:
            self._try_at = self._clock() + _AGAIN_SECONDS
            self._complain("the journal cannot be written", error=_reason(exc))
            if segment is not None and segment.spoilt:
                self._seal(segment)
            return False
        segment.size += written
        segment.records += 1
        self._ours += written
        if segment.size >= _SEGMENT:
            self._seal(segment)
        return True

    def _still_named(self, segment: Segment) -> Segment | None:
        """The segment, unless it was deleted; raises OSError."""
        if os.fstat(segment.fd).st_nlink:
            return segment
        # What is in it is read through the open file; what comes needs one with a name.
        self._complain("a file of the journal was deleted", file=segment.path.name)
        self._seal(segment)
        return None

    def _begun(self, directory: Path) -> Segment:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return created(directory)

    def _seal(self, segment: Segment) -> None:
        self._current = None
        self._sealed.append(segment)

    def _save_memory(self) -> None:
        """At the end, what is only in memory goes into a file, if that is possible now."""
        self._try_at = 0.0
        while self._memory and self._written(self._memory[0]):
            self._memory.popleft()
        if self._memory:
            self._lose("stopped", len(self._memory))
            self._memory.clear()

    def _drained(self, segment: Segment) -> None:
        """The database has all of it."""
        if segment is self._current:
            if segment.size < _WORTH_EMPTYING:
                return
            if not segment.flawed:
                try:
                    emptied = segment.size
                    segment.empty()
                    self._ours -= emptied
                    return
                except OSError as exc:
                    self._complain("the journal cannot be emptied", error=_reason(exc))
        self._forget(segment)
        self._remove(segment)

    def _forget(self, segment: Segment) -> None:
        self._ours -= segment.size
        if segment is self._adopted:
            self._adopted = None
        elif segment is self._current:
            self._current = None
        else:
            self._sealed.remove(segment)

    def _remove(self, segment: Segment) -> None:
        try:
            removed(segment)
        except OSError as exc:
            # Its rows are in the database: read again they change nothing, but take time.
            self._given_up.add(segment.path.name)
            self._complain("the journal cannot be removed", error=_reason(exc))

    def _give_up(self, segment: Segment) -> None:
        """It cannot be read: leave the file where it is."""
        self._given_up.add(segment.path.name)
        self._forget(segment)
        self._others += segment.size
        with contextlib.suppress(OSError):
            segment.close()

    def _lose(self, reason: str, count: int = 1, **more: object) -> None:
        self.lost[reason] += count
        self._complain("usage is lost", reason=reason, records=self.lost[reason], **more)

    def _complain(self, event: str, **more: object) -> None:
        """Say so, once in a while."""
        about = f"{event} {more.get('reason', '')}"
        now = self._clock()
        if now >= self._said.get(about, now):
            self._said[about] = now + _LOG_SECONDS
            _log.error(event, directory=str(self.directory), **more)


def _reason(exc: OSError) -> str:
    return exc.strerror or str(exc)
