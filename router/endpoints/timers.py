"""When which deployments have to be graded anew, because time changes them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Final

from router.balance.deployment_state import DeploymentState

__all__ = ["Timers"]

_LEAST_PAUSE: Final = 0.001


class Timers:
    """The deployments with a ``due``, as a heap of ``entries``. ``clock`` is in seconds.

    Whoever chooses among deployments calls ``catch_up`` before, if there are any. While
    ``awaited()`` it is also done on time: those who wait for a slot do not choose until something
    has changed.
    """

    def __init__(self, clock: Callable[[], float], awaited: Callable[[], bool]) -> None:
        self._clock = clock
        self._awaited = awaited
        self.entries: list[tuple[float, int, DeploymentState]] = []
        self._number = count()
        self._noted: dict[DeploymentState, float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf

    def note(self, deployment: DeploymentState) -> None:
        """Look at it again when its time has come."""
        if self._noted.get(deployment, inf) > deployment.due:
            self._noted[deployment] = deployment.due
            heapq.heappush(self.entries, (deployment.due, next(self._number), deployment))
            if self._awaited():
                self.watch()

    def catch_up(self, now: float) -> None:
        """Grade anew what time has changed."""
        while self.entries and self.entries[0][0] <= now:
            due, _, deployment = heapq.heappop(self.entries)
            if self._noted.get(deployment) != due:
                continue  # it was noted again, for sooner
            del self._noted[deployment]
            deployment.refresh(now)
            self.note(deployment)

    def watch(self) -> None:
        """Somebody waits from now on."""
        if not self.entries:
            return
        due = self.entries[0][0]
        if self._alarm is not None:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm_at = due
        pause = max(due - self._clock(), _LEAST_PAUSE)
        self._alarm = asyncio.get_running_loop().call_later(pause, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._awaited():
            self.catch_up(self._clock())
            self.watch()
