"""Whatever happens to a deployment, its grade is the right one, and somebody looks at it in
time.
"""

from __future__ import annotations

from copy import copy
from math import inf
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cache.breaker import BreakerState
from router.balance.deployment_state import (
    COLD,
    COOLING,
    DRAINED,
    FULL,
    GRADES,
    OPEN,
    PROBE,
    READY,
    WARMING,
    DeploymentState,
    Host,
    Share,
)
from tests.support.deployments import (
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
    refill,
    spend,
    undrain,
    unload,
)

KINDS = (
    "take", "give back", "answered", "failed", "probe", "probe answered", "probe failed",
    "probe abandoned", "cool", "spend", "refill", "load", "unload", "lost", "found", "drain",
    "undrain", "configure", "nothing",
)  # fmt: skip
EVENTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 0.5, 1.0, 4.0, 9.0]), st.sampled_from(KINDS)),
    max_size=60,
)


class Yard:
    """A deployment, what was done to it, and somebody who looks at it only when told to."""

    def __init__(self, limit: int, random: Random) -> None:
        self.now = NOW
        host = Host(RULES, SLOW_START, random.random)
        self.deployment = DeploymentState(host, Share(limit, 2.0, 1), RULES, random.random)
        self.deployment.changed = self.note
        self.random = random
        self.look_at = inf
        self.taken = 0
        self.probing = False

    def note(self, deployment: DeploymentState) -> None:
        self.look_at = min(self.look_at, deployment.due)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        while self.look_at <= self.now:
            self.look_at = inf
            self.deployment.refresh(self.now)
            self.note(self.deployment)

    def do(self, kind: str) -> None:
        deployment, now = self.deployment, self.now
        if kind == "take" and deployment.free:
            deployment.take()
            self.taken += 1
        elif kind == "give back" and self.taken:
            deployment.give_back(now)
            self.note(deployment)
            self.taken -= 1
        elif kind in ("answered", "failed"):
            getattr(deployment, kind)(now, *((0.1,) if kind == "answered" else ()))
        elif kind == "probe":
            began = deployment.begin_probe(now)
            assert not (began and self.probing)
            self.probing |= began
        elif kind.startswith("probe ") and self.probing:
            self.probing = False
            _ENDS_OF_PROBES[kind](deployment, now)
        elif kind in _ELSE:
            _ELSE[kind](deployment, now)
        elif kind == "configure":
            limit = self.random.choice([1, 2, 5])
            deployment.configure(Share(limit, self.random.choice([0.5, 2.0]), 1))
            deployment.refresh(now)

    def check(self) -> None:
        deployment = self.deployment
        assert deployment.in_flight == self.taken
        assert deployment.load == pytest.approx(self.taken / (deployment.limit * deployment.weight))
        fresh = copy(deployment)
        fresh.changed = lambda deployment: None
        fresh.refresh(self.now)
        assert GRADES[deployment.grade] == GRADES[fresh.grade] == GRADES[self.expected()]
        assert self.now < self.look_at <= fresh.due

    def expected(self) -> int:
        """The grade, from the obvious."""
        deployment = self.deployment
        free = self.taken < deployment.limit
        state = deployment.breaker.state(self.now)
        warming = deployment.warm_from + deployment.host.slow_start > self.now
        truths = (
            (deployment.host.drained, DRAINED),
            (self.now < deployment.cool_until, COOLING),
            (not deployment.host.up or state is BreakerState.OPEN, OPEN),
            (state is BreakerState.HALF_OPEN, PROBE if free and not self.probing else OPEN),
            (self.now < deployment.spent_until, COOLING),
            (not free, FULL),
            (not deployment.loaded, COLD),
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
    "spend": spend,
    "refill": refill,
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
