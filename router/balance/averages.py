"""Averages of what endpoints take, cheap enough to be kept up to date on every request."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import ceil, exp
from typing import Final

__all__ = ["Ewma", "PeakEwma", "Quantile"]

_ENOUGH: Final = 20
"""Fewer observations say nothing about a quantile."""


class PeakEwma:
    """A moving average of durations that follows a peak at once and comes down slowly.

    The rule is that of the peak EWMA of Finagle and Linkerd: a longer duration than the average
    becomes the average; a shorter one pulls it down, the more the longer ago the last one was.
    ``decay`` is the time constant in seconds. ``latest`` is the average at the last observation,
    in seconds (0.0 without one), ``known`` whether there was one.
    """

    __slots__ = ("_at", "_decay", "known", "latest")

    def __init__(self, decay: float = 10.0) -> None:
        self._decay = decay
        self._at = 0.0
        self.latest = 0.0
        self.known = False

    def observe(self, seconds: float, now: float) -> None:
        """Take another duration into account."""
        latest = self.latest
        elapsed = now - self._at
        if seconds >= latest:
            self.latest = seconds
        elif elapsed > 0.0:
            self.latest = seconds + (latest - seconds) * exp(-elapsed / self._decay)
        if elapsed > 0.0:
            self._at = now
        self.known = True

    def value(self, now: float) -> float:
        """The average in seconds, less the longer nothing was observed; 0.0 when nothing is known.

        What looked slow looks better with time, and so is tried again.
        """
        elapsed = now - self._at
        return self.latest * exp(-elapsed / self._decay) if elapsed > 0.0 else self.latest


class Ewma:
    """A moving average in which the newest observation has the weight ``alpha``.

    ``value`` is None before the first observation, which is the first average.
    """

    __slots__ = ("_alpha", "value")

    def __init__(self, alpha: float = 0.2) -> None:
        self._alpha = alpha
        self.value: float | None = None

    def observe(self, value: float) -> None:
        """Take another observation into account."""
        average = self.value
        self.value = value if average is None else average + self._alpha * (value - average)


class Quantile:
    """The quantile ``q`` (between 0 and 1) of the newest ``size`` (20 or more) observations."""

    __slots__ = ("_newest", "_q", "_sorted")

    def __init__(self, q: float, size: int = 200) -> None:
        self._q = q
        self._newest: deque[float] = deque(maxlen=size)
        self._sorted: list[float] = []

    def observe(self, value: float) -> None:
        """Take another observation into account, in place of the oldest when it is one too many."""
        newest, ordered = self._newest, self._sorted
        if len(newest) == newest.maxlen:
            del ordered[bisect_left(ordered, newest[0])]
        newest.append(value)
        insort(ordered, value)

    @property
    def value(self) -> float | None:
        """The least observation that the share ``q`` of them does not exceed; None below 20."""
        count = len(self._sorted)
        if count < _ENOUGH:
            return None
        return self._sorted[max(ceil(self._q * count), 1) - 1]
