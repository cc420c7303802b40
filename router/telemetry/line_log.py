"""A log of what happens with every request: its lines are rendered and written some at a time.

They look as those of ``get_logger`` do, and where the log is not the JSON of this process (but a
console, or that of an application which mounts the router) they are written by that, at once. Lines
wait for ``_SECONDS`` at most: those are lost where the process is killed, and no others.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Final

import structlog

from router.telemetry.log import DateTimes, as_json, get_logger, writes_json

__all__ = ["LineLog"]

_SECONDS: Final = 0.02
_MOST: Final = 64
"""Lines that wait."""

Fields = Mapping[str, object]


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
        self._waiting: list[tuple[float, Fields]] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(self, fields: Fields) -> None:
        """A line with these fields, of which there is at least one, and which stay as they are."""
        if not writes_json(self._processors, "info"):
            self._log.info(self._event, **fields)
            return
        self._waiting.append((time.time(), fields))
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
        head, tail, told = self._head, self._tail, self._date_times
        lines = [
            b'%b%b%b%b"}\n' % (head, as_json(fields)[1:-1], tail, told.at(at).encode())
            for at, fields in waiting
        ]
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
