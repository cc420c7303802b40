"""When which lanes have to be graded anew, because time changes them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Final

from router.balance.lane import Lane

__all__ = ["Agenda"]

_LEAST_PAUSE: Final = 0.001


class Agenda:
    """The lanes with a ``due``. ``clock`` is in seconds.

    Whoever chooses among lanes calls ``catch_up`` before. While ``awaited()`` it is also done on
    time: those who wait for a slot do not choose until something has changed.
    """

    def __init__(self, clock: Callable[[], float], awaited: Callable[[], bool]) -> None:
        self._clock = clock
        self._awaited = awaited
        self._entries: list[tuple[float, int, Lane]] = []
        self._number = count()
        self._noted: dict[Lane, float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf

    def note(self, lane: Lane) -> None:
        """Look at it again when its time has come."""
        if self._noted.get(lane, inf) > lane.due:
            self._noted[lane] = lane.due
            heapq.heappush(self._entries, (lane.due, next(self._number), lane))
            if self._awaited():
                self.watch()

    def catch_up(self, now: float) -> None:
        """Grade anew what time has changed."""
        while self._entries and self._entries[0][0] <= now:
            due, _, lane = heapq.heappop(self._entries)
            if self._noted.get(lane) != due:
                continue  # it was noted again, for sooner
            del self._noted[lane]
            lane.refresh(now)
            self.note(lane)

    def watch(self) -> None:
        """Somebody waits from now on."""
        if not self._entries:
            return
        due = self._entries[0][0]
        if self._alarm is not None:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm_at = due
        pause = max(due - self._clock(), _LEAST_PAUSE)
        self._alarm = asyncio.get_running_loop().call_later(pause, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._awaited():
            self.catch_up(self._clock())
            self.watch()
