"""Whatever happens to a lane, its grade is the right one, and somebody looks at it in time."""

from __future__ import annotations

from copy import copy
from math import inf
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.balance.breaker import State
from router.balance.lane import (
    COLD,
    COOLING,
    DRAINED,
    FULL,
    GRADES,
    OPEN,
    PROBE,
    READY,
    WARMING,
    Host,
    Lane,
    Share,
)
from tests.support.lanes import (
    NOW,
    RULES,
    SLOW_START,
    Step,
    abandon_probe,
    cool,
    drain,
    find,
    load,
    lose,
    probe_fails,
    probe_succeeds,
    undrain,
    unload,
)

KINDS = (
    "take", "give back", "answered", "failed", "probe", "probe answered", "probe failed",
    "probe abandoned", "cool", "load", "unload", "lost", "found", "drain", "undrain", "configure",
    "nothing",
)  # fmt: skip
EVENTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 0.5, 1.0, 4.0, 9.0]), st.sampled_from(KINDS)),
    max_size=60,
)


class Yard:
    """A lane, what was done to it, and somebody who looks at it only when told to."""

    def __init__(self, limit: int, random: Random) -> None:
        self.now = NOW
        host = Host(RULES, SLOW_START, random.random)
        self.lane = Lane(host, Share(limit, 2.0, 1), RULES, random.random)
        self.lane.changed = self.note
        self.random = random
        self.look_at = inf
        self.taken = 0
        self.probing = False

    def note(self, lane: Lane) -> None:
        self.look_at = min(self.look_at, lane.due)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        while self.look_at <= self.now:
            self.look_at = inf
            self.lane.refresh(self.now)
            self.note(self.lane)

    def do(self, kind: str) -> None:
        lane, now = self.lane, self.now
        if kind == "take" and lane.free:
            lane.take()
            self.taken += 1
        elif kind == "give back" and self.taken:
            lane.give_back(now)
            self.note(lane)
            self.taken -= 1
        elif kind in ("answered", "failed"):
            getattr(lane, kind)(now, *((0.1,) if kind == "answered" else ()))
        elif kind == "probe":
            began = lane.begin_probe(now)
            assert not (began and self.probing)
            self.probing |= began
        elif kind.startswith("probe ") and self.probing:
            self.probing = False
            _ENDS_OF_PROBES[kind](lane, now)
        elif kind in _ELSE:
            _ELSE[kind](lane, now)
        elif kind == "configure":
            limit = self.random.choice([1, 2, 5])
            lane.configure(Share(limit, self.random.choice([0.5, 2.0]), 1))
            lane.refresh(now)

    def check(self) -> None:
        lane = self.lane
        assert lane.in_flight == self.taken
        assert lane.load == pytest.approx(self.taken / (lane.limit * lane.weight))
        fresh = copy(lane)
        fresh.changed = lambda lane: None
        fresh.refresh(self.now)
        assert GRADES[lane.grade] == GRADES[fresh.grade] == GRADES[self.expected()]
        assert self.now < self.look_at <= fresh.due

    def expected(self) -> int:
        """The grade, from the obvious."""
        lane = self.lane
        free = self.taken < lane.limit
        state = lane.breaker.state(self.now)
        warming = lane.warm_from + lane.host.slow_start > self.now
        truths = (
            (lane.host.drained, DRAINED),
            (self.now < lane.cool_until, COOLING),
            (not lane.host.up or state is State.OPEN, OPEN),
            (state is State.HALF_OPEN, PROBE if free and not self.probing else OPEN),
            (not free, FULL),
            (not lane.loaded, COLD),
            (warming, WARMING),
            (True, READY),
        )
        return next(grade for true, grade in truths if true)


_ENDS_OF_PROBES: dict[str, Step] = {
    "probe answered": probe_succeeds,
    "probe failed": probe_fails,
    "probe abandoned": abandon_probe,
}
_ELSE: dict[str, Step] = {
    "cool": cool,
    "load": load,
    "unload": unload,
    "lost": lose,
    "found": find,
    "drain": drain,
    "undrain": undrain,
}


@settings(max_examples=400, deadline=None)
@given(EVENTS, st.integers(1, 3), st.randoms(use_true_random=False))
@example([(0.0, "take"), (0.0, "failed"), (0.0, "failed"), (4.0, "take")], 2, Random(1))
def test_whatever_happens_the_grade_is_what_a_fresh_look_says(
    events: list[tuple[float, str]], limit: int, random: Random
) -> None:
    yard = Yard(limit, random)
    for seconds, kind in events:
        yard.pass_time(seconds)
        yard.check()
        yard.do(kind)
        yard.check()
