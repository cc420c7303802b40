"""When an endpoint is left alone: a circuit breaker that doubles its patience.

    closed ── too many failures ──▶ open ── time passes ──▶ half-open
       ▲                             ▲                          │
       │                             └───────── the probe fails ┤
       └─────────────────────────────────── the probe succeeds ─┘

Failures in a row and an ejection that gets longer each time are those of Envoy's outlier
detection; a share of failures that counts only past a minimum of requests, and the single request
that may try, are those of Netflix's Hystrix. Clocks are handed in, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

__all__ = ["Breaker", "BreakerRules", "BreakerState"]


class BreakerState(Enum):
    """What may be sent: everything, nothing, or one probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When a breaker opens, and for how long.

    It opens after ``failures`` in a row, or once the share ``ratio`` of what is counted has
    failed, of at least ``min_requests``; what was counted loses half its weight in ``half_life``
    seconds. It stays open for about ``open_seconds``, each time twice as long, and never longer
    than ``max_open_seconds``.
    """

    failures: int
    ratio: float
    min_requests: int
    open_seconds: float
    max_open_seconds: float
    half_life: float = 5.0


class Breaker:
    """Counts how requests end. ``rules`` may be replaced at any time; what is known stays.

    ``opens_until`` is when it becomes, or became, half-open; 0.0 when it is closed. It is to be
    read only.

    While it is open, or half-open, the end of a request that is no ``probe`` changes nothing: it
    began before, and says what is known already. A ``probe`` was sent in order to find out, so its
    success closes the breaker, even before the time is over (as a health check does in Envoy); its
    failure opens a half-open breaker again, and leaves an open one as it is.

    The time that it stays open is spread by a quarter either way, so that what fell ill together
    is not tried together. It doubles each time until the endpoint has been well for ten times as
    long as the breaker was open (by then it has been there for nine tenths of the time, and what
    comes next is a new illness), and for two half-lives at least.
    """

    __slots__ = (
        "_all",
        "_closed_at",
        "_counted_at",
        "_doublings",
        "_failures",
        "_in_a_row",
        "_open_for",
        "_probing",
        "_random",
        "opens_until",
        "rules",
    )

    def __init__(self, rules: BreakerRules, random: Callable[[], float]) -> None:
        self.rules = rules
        self._random = random
        self._all = 0.0
        self._failures = 0.0
        self._counted_at = 0.0
        self._in_a_row = 0
        self.opens_until = 0.0
        self._open_for = 0.0
        self._closed_at = 0.0
        self._doublings = 0
        self._probing = False

    def state(self, now: float) -> BreakerState:
        """What may be sent now."""
        if not self.opens_until:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.opens_until else BreakerState.HALF_OPEN

    @property
    def probing(self) -> bool:
        """Whether a probe is under way that ``begin_probe`` allowed."""
        return self._probing

    def succeeded(self, now: float, *, probe: bool = False) -> bool:
        """A request went well; True when that closed the breaker. It never opens it."""
        if self.opens_until:
            if probe:
                self._close(now)
            return probe
        self._decay(now)
        self._all += 1.0
        self._in_a_row = 0
        return False

    def failed(self, now: float, *, probe: bool = False) -> bool:
        """A request failed; True when that opened the breaker, or opened it again."""
        if self.opens_until:
            if not probe:
                return False
            self._probing = False
            if now < self.opens_until:
                return False
        else:
            self._decay(now)
            self._all += 1.0
            self._failures += 1.0
            self._in_a_row += 1
            if not self._too_many():
                return False
        self._open(now)
        return True

    def trip(self, now: float) -> None:
        """Open it at once, whatever was counted. One that is open stays open as long as it was."""
        if self.state(now) is not BreakerState.OPEN:
            self._open(now)

    def begin_probe(self) -> bool:
        """Whether the caller may send the probe, to be asked when the state is half-open.

        True obliges to report its end, once: ``succeeded`` or ``failed`` with ``probe=True``, or
        ``abandon_probe``. Until then nobody else may.
        """
        if self._probing or not self.opens_until:
            return False
        self._probing = True
        return True

    def abandon_probe(self) -> None:
        """The probe was cancelled, which says nothing. The next request may try."""
        self._probing = False

    def failure_ratio(self, now: float) -> float:
        """The share of failures in what is counted; fades to 0.0 as that is forgotten."""
        self._decay(now)
        # Less than one request's weight is less than one request's word.
        return self._failures / max(self._all, 1.0)

    def _decay(self, now: float) -> None:
        """Take from what was counted the weight that it has lost since it was last looked at."""
        elapsed = now - self._counted_at
        if elapsed > 0.0:
            kept = 0.5 ** (elapsed / self.rules.half_life)
            self._all *= kept
            self._failures *= kept
            self._counted_at = now

    def _too_many(self) -> bool:
        rules = self.rules
        if self._in_a_row >= rules.failures:
            return True
        return self._all >= rules.min_requests and self._failures >= rules.ratio * self._all

    def _open(self, now: float) -> None:
        rules = self.rules
        well = max(10.0 * self._open_for, 2.0 * rules.half_life)
        if not self.opens_until and now - self._closed_at >= well:
            self._doublings = 0
        longest = rules.max_open_seconds
        seconds = min(rules.open_seconds * 2.0**self._doublings, longest)
        if seconds < longest:
            self._doublings += 1
        self._open_for = min(seconds * (0.75 + 0.5 * self._random()), longest)
        self.opens_until = now + self._open_for

    def _close(self, now: float) -> None:
        self.opens_until = 0.0
        self._closed_at = now
        self._all = self._failures = 0.0
        self._in_a_row = 0
        self._probing = False
