"""A log of what happens with every request: its lines are made and written some at a time.

They look as those of ``get_logger`` do, and where the log is not the JSON of this process (but a
console, or that of an application which mounts the router) they are written by that, at once. Lines
wait for ``_SECONDS`` at most: those are lost where the process is killed, and no others.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from router.telemetry.log import DateTimes, as_json, get_logger, writes_json

__all__ = ["LineLog"]

_SECONDS: Final = 0.02
_MOST: Final = 64
"""Lines that wait."""

Fields = Mapping[str, object]
Tell = Callable[[], Fields]
"""Tells the fields of a line: at least one."""


class LineLog:
    """Writes lines of the level ``info`` that say ``event``; ``name`` is their ``component``."""

    def __init__(self, name: str, event: str) -> None:
        # Bound once: unbound, it would be made anew for every line.
        self._log = get_logger(name).bind()
        self._event = event
        self._processors = structlog.get_config()["processors"]
        self._head = as_json({"component": name})[:-1] + b","
        self._tail = b"," + as_json({"event": event, "level": "info", "timestamp": ""})[1:-2]
        self._date_times = DateTimes()
        self._waiting: list[tuple[float, Tell]] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(self, tell: Tell) -> None:
        """A line with the fields that ``tell`` tells: at once, or in a moment."""
        if not writes_json(self._processors, "info"):
            self._log.info(self._event, **tell())
            return
        self._waiting.append((time.time(), tell))
        if self._timer is None:
            self._wait()
        elif len(self._waiting) >= _MOST:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        head, tail, date_time = self._head, self._tail, self._date_times.at
        lines = []
        for at, tell in waiting:
            try:
                fields = as_json(tell())[1:-1]
            except Exception:  # of this line: the others are not to be missed for it
                self._log.exception("a line cannot be made")
            else:
                lines.append(b'%b%b%b%b"}\n' % (head, fields, tail, date_time(at).encode()))
        if lines:
            sys.stderr.buffer.write(b"".join(lines))
            sys.stderr.buffer.flush()

    def _wait(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # nobody would write it later
            self.flush()
        else:
            self._timer = loop.call_later(_SECONDS, self.flush)
