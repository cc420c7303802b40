"""What is measured of endpoints, cheap enough to be kept up to date on every request. Pure.

``PeakEwma``, ``Ewma`` and ``Quantile`` are averages of how long things take. ``RetryBudget`` is how
many extra requests (retries, hedges) may be sent beside what clients ask.

``PromptTokens`` learns how many tokens a model makes of a prompt from what it reports. Two things
differ from model to model: how much text makes a token, and what the template adds to every prompt,
such as a system prompt of its own. So the estimate is ``slope × known share + fixed``, and both are
corrected by each report (normalised least mean squares: Widrow and Hoff): a short prompt says more
of the fixed part, a long one of the slope.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import ceil, exp
from typing import Final

__all__ = ["Ewma", "PeakEwma", "PromptTokens", "Quantile", "RetryBudget"]

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


_LEAST_SLOPE: Final = 0.5
_MOST_SLOPE: Final = 4.0
_MOST_FIXED: Final = 2048.0
"""Bounds: a report that is nonsense does no lasting harm."""

_OPENING: Final = 4.0
"""What a template adds at least: the beginning of the prompt and of the answer."""

_EVEN: Final = 64.0
"""The share, in tokens, at which a report says as much of the one as of the other."""

_STEP: Final = 0.5
_FIRST: Final = 16
_EVERY: Final = 8


class PromptTokens:
    """What one model at one endpoint has reported. ``reports`` counts those that were learned."""

    __slots__ = ("_fixed", "_skipped", "_slope", "reports")

    def __init__(self) -> None:
        self._slope = 1.0
        self._fixed = _OPENING
        self._skipped = 0
        self.reports = 0

    def estimate(self, share: int) -> int:
        """The tokens of a prompt that by the general rule is ``share`` tokens, without what every
        prompt has.
        """
        return max(1, round(self._slope * share + self._fixed))

    def due(self) -> bool:
        """Whether the next report is worth learning: the first ones, then one in so many."""
        if self.reports < _FIRST:
            return True
        self._skipped = (self._skipped + 1) % _EVERY
        return not self._skipped

    def learn(self, share: int, reported: int) -> None:
        """The model made ``reported`` tokens of such a prompt."""
        error = reported - (self._slope * share + self._fixed)
        error *= 1.0 if self.reports == 0 else _STEP
        weight = share * share + _EVEN * _EVEN
        slope = self._slope + error * share / weight
        fixed = self._fixed + error * _EVEN * _EVEN / weight
        self._slope = min(max(slope, _LEAST_SLOPE), _MOST_SLOPE)
        self._fixed = min(max(fixed, 0.0), _MOST_FIXED)
        self.reports += 1


_LONG_AGO: Final = -1e9
"""Before any clock's zero: whoever comes first finds the reserve full."""


class RetryBudget:
    """Each request earns ``ratio`` of an extra one, on top of a ``reserve``.

    The rule is that of Finagle's retry budget: a share of the requests may be sent again, and a
    few more where there are few requests. The reserve is there at the first use, and fills up again
    evenly within ``refill_seconds``. At most the reserve and what the requests of about the last
    ``refill_seconds`` earned can be saved up: a large fleet that loses an endpoint may retry
    many at once, while a small one does not live on what it earned an hour ago. So there are
    never more extra requests than ``ratio`` of all requests, the reserve, and its refills.

    ``ratio`` and ``reserve`` may be replaced at any time. An extra request costs 1: a reserve
    below that allows none by itself. Clocks are handed in, in seconds.
    """

    __slots__ = ("_at", "_balance", "_recent", "_refill_seconds", "ratio", "reserve")

    def __init__(self, ratio: float, reserve: float, refill_seconds: float = 60.0) -> None:
        self.ratio = ratio
        self.reserve = reserve
        self._refill_seconds = refill_seconds
        self._balance = 0.0
        self._recent = 0.0
        self._at = _LONG_AGO

    def deposit(self, now: float) -> None:
        """A request came in; to be called once for each, however often it is tried."""
        self._settle(now)
        self._recent += 1.0
        self._balance += self.ratio

    def withdraw(self, now: float) -> bool:
        """Whether one more may be sent; it is then paid for."""
        self._settle(now)
        if self._balance < 1.0:
            return False
        self._balance -= 1.0
        return True

    def available(self, now: float) -> float:
        """How many more may be sent at once."""
        self._settle(now)
        return self._balance

    def _settle(self, now: float) -> None:
        """Refill for the time that has passed, and forget what was earned too long ago."""
        elapsed = (now - self._at) / self._refill_seconds
        if elapsed > 0.0:
            self._at = now
            self._recent *= exp(-elapsed)
            self._balance += self.reserve * elapsed
        self._balance = min(self._balance, self.reserve + self.ratio * self._recent)
