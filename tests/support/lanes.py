"""Lanes, and what can happen to one of them."""

from __future__ import annotations

from collections.abc import Callable

from router.balance.breaker import Rules
from router.balance.lane import (
    COLD,
    COOLING,
    DRAINED,
    FULL,
    GRADES,
    OPEN,
    PROBE,
    WARMING,
    Host,
    Lane,
    Share,
)

__all__ = [
    "NOW",
    "RULES",
    "SLOW_START",
    "Step",
    "abandon_probe",
    "begin_probe",
    "busy",
    "cool",
    "drain",
    "find",
    "give_back",
    "graded",
    "half",
    "lane_of",
    "load",
    "lose",
    "probe_fails",
    "probe_succeeds",
    "take",
    "take_all",
    "trip",
    "undrain",
    "unload",
    "unreachable",
    "wait",
]

RULES = Rules(failures=2, ratio=1.0, min_requests=1000, open_seconds=4.0, max_open_seconds=64.0)
SLOW_START = 10.0
NOW = 100.0

Step = Callable[[Lane, float], object]


def half() -> float:
    """A source of randomness by which breakers stay open for exactly their time."""
    return 0.5


def lane_of(limit: int = 2, *, slow_start: float = SLOW_START, tier: int = 1) -> Lane:
    """A lane of a host of its own; its breakers stay open for exactly their time."""
    host = Host(RULES, slow_start, half)
    return Lane(host, Share(limit, 1.0, tier), RULES, half)


def take(lane: Lane, now: float) -> None:
    lane.take()


def take_all(lane: Lane, now: float) -> None:
    while lane.free:
        lane.take()


def give_back(lane: Lane, now: float) -> None:
    lane.give_back(now)


def unload(lane: Lane, now: float) -> None:
    lane.in_memory(now, False)


def load(lane: Lane, now: float) -> None:
    lane.in_memory(now, True)


def trip(lane: Lane, now: float) -> None:
    for _ in range(RULES.failures):
        lane.failed(now)


def begin_probe(lane: Lane, now: float) -> None:
    assert lane.begin_probe(now)


def probe_succeeds(lane: Lane, now: float) -> None:
    lane.answered(now, None, probe=True)


def probe_fails(lane: Lane, now: float) -> None:
    lane.failed(now, probe=True)


def abandon_probe(lane: Lane, now: float) -> None:
    lane.abandon_probe(now)


def cool(lane: Lane, now: float) -> None:
    lane.cool(now + 3.0, now)


def lose(lane: Lane, now: float) -> None:
    lane.host.unreachable(now)


def find(lane: Lane, now: float) -> None:
    lane.host.reachable(now)


def drain(lane: Lane, now: float) -> None:
    lane.host.drained = True
    lane.host.refresh(now)


def undrain(lane: Lane, now: float) -> None:
    lane.host.drained = False
    lane.host.refresh(now)


def wait(seconds: float) -> Step:
    """Time passes, until the lane is looked at again or for so long."""

    def passes(lane: Lane, now: float) -> float:
        return seconds

    return passes


def graded(grade: int, in_flight: int = 0, *, limit: int = 4, tier: int = 1) -> Lane:
    """A lane that has this grade at ``NOW``, by the way that leads there."""
    lane = lane_of(limit, tier=tier)
    if grade == FULL:
        take_all(lane, NOW)
    if grade == COLD:
        unload(lane, NOW)
    for _ in range(in_flight):
        lane.take()
    if grade in (OPEN, PROBE):
        trip(lane, NOW if grade == OPEN else NOW - 4.0)
    elif grade == COOLING:
        cool(lane, NOW)
    elif grade == DRAINED:
        drain(lane, NOW)
    elif grade == WARMING:
        lane.warm(NOW - SLOW_START / 2)
    lane.refresh(NOW)
    assert GRADES[lane.grade] == GRADES[grade]
    return lane


def unreachable(in_flight: int = 0, *, limit: int = 4) -> Lane:
    """A lane whose host is away."""
    lane = lane_of(limit)
    for _ in range(in_flight):
        lane.take()
    lose(lane, NOW)
    return lane


def busy() -> Lane:
    """A lane whose breaker is open, and whose only slot is taken."""
    return graded(OPEN, 1, limit=1)
