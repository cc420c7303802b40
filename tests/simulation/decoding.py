"""Requests that share one machine, token by token (continuous batching)."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from math import inf

__all__ = ["Decoding"]


class Decoding:
    """Every request gets a token in each step; a step takes longer the more requests there are.

    ``step`` is that of one request alone, ``share`` what each further one adds, in seconds.
    ``slowdown`` is a factor, infinite while nothing moves at all.
    """

    def __init__(self, step: float, share: float) -> None:
        self._step = step
        self._share = share
        self._slowdown = 1.0
        self._steps = 0.0
        self._at = 0.0
        self._number = count()
        self._running: list[tuple[float, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def slow_down(self, factor: float) -> None:
        """From now on everything takes so many times as long."""
        self._catch_up()
        self._slowdown = factor
        self._set_timer()

    @property
    def pace(self) -> float:
        """How many times as long as on an idle machine everything takes."""
        return self._slowdown * (1.0 + self._share / self._step * len(self._running))

    async def tokens(self, number: int) -> None:
        """Wait for so many tokens."""
        self._catch_up()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._steps + number, next(self._number), future)
        heapq.heappush(self._running, entry)
        self._set_timer()
        try:
            await future
        except asyncio.CancelledError:
            if entry in self._running:
                self._catch_up()
                self._running.remove(entry)
                heapq.heapify(self._running)
                self._set_timer()
            raise

    def _seconds_per_step(self) -> float:
        return self._slowdown * (self._step + self._share * (len(self._running) - 1))

    def _catch_up(self) -> None:
        """Count the steps that were made since the last change."""
        now = asyncio.get_running_loop().time()
        if self._running:
            self._steps += (now - self._at) / self._seconds_per_step()
        self._at = now

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running and self._slowdown < inf:
            left = max(self._running[0][0] - self._steps, 0.0)
            at = self._at + left * self._seconds_per_step()
            self._timer = asyncio.get_running_loop().call_at(at, self._done, self._running[0][0])

    def _done(self, steps: float) -> None:
        """Whoever waited for this step has all tokens."""
        self._catch_up()
        self._steps = max(self._steps, steps)
        while self._running and self._running[0][0] <= self._steps:
            future = heapq.heappop(self._running)[2]
            if not future.done():
                future.set_result(None)
        self._set_timer()
