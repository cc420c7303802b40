"""The load and the health of one model at one endpoint: what policies choose among.

    Host    an endpoint: can it be reached, is it drained
    └── DeploymentState    one of its models: slots, breaker, cool-down, what is in memory, averages

Everything that a choice depends on is kept ready in ``grade`` and ``load``, so that choosing among
hundreds of deployments reads two attributes of each. Time changes a grade too: ``due`` says when it
has to be looked at again. Clocks are handed in, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from cache.breaker import Breaker, BreakerRules, BreakerState
from router.balance.averages import Ewma, PeakEwma, Quantile
from router.balance.capability import Abilities

__all__ = [
    "COLD",
    "COOLING",
    "DRAINED",
    "FULL",
    "GRADES",
    "OPEN",
    "PROBE",
    "READY",
    "WARMING",
    "DeploymentState",
    "Host",
    "Share",
]

READY: Final = 0
WARMING: Final = 1
PROBE: Final = 2
COLD: Final = 3
FULL: Final = 4
OPEN: Final = 5
COOLING: Final = 6
DRAINED: Final = 7
GRADES: Final = ("ready", "warming", "probe", "cold", "full", "open", "cooling", "drained")
"""The grades' names.

``ready``: the model is in memory, or the endpoint does not tell, and a slot is free. ``warming``:
the same, just recovered, and taking part in a growing share of the choices. ``probe``: its breaker
is half-open, the next request may try. ``cold``: a slot is free, the model has to be loaded.
``full``: no slot is free. ``open``: its breaker is, or its host cannot be reached. ``cooling``: it
asked for a pause, or said that nothing is left of its rate limit. ``drained``: an operator took it
out.
"""

_LEAST_WARM: Final = 0.1
_LOAD_SECONDS: Final = 10.0
"""What loading a model is thought to take before it has been seen."""

_PATIENCE: Final = 3.0
_LEAST_PATIENCE: Final = 2.0

_FORGETS: Final = 60.0
"""Seconds in which a time to first token fades: less, and where traffic is sparse a slow endpoint
would be tried again and again.
"""

_HELD_SECONDS: Final = 5.0
"""So long a request is thought to take at an endpoint that has only begun to load its model."""


@dataclass(frozen=True, slots=True)
class Share:
    """What of an endpoint's work one model may have: slots, weight, and its tier (1 is first)."""

    limit: int
    weight: float
    tier: int


class Host:
    """One endpoint. ``breaker`` is for its connections; ``back(now)`` is called when it may be used
    again after it was away, or taken out.
    """

    def __init__(self, rules: BreakerRules, slow_start: float, random: Callable[[], float]) -> None:
        self.breaker = Breaker(rules, random)
        self.slow_start = slow_start
        self.drained = False
        self.deployments: list[DeploymentState] = []
        self.back: Callable[[float], None] = _nobody_cares

    @property
    def up(self) -> bool:
        """Whether connections to it were made the last time."""
        return not self.breaker.opens_until

    def unreachable(self, now: float) -> None:
        """No connection could be made, or a probe got no answer."""
        if self.up:
            self.breaker.trip(now)
            self.refresh(now)
        else:
            self.breaker.failed(now, probe=True)

    def reachable(self, now: float) -> bool:
        """It answered; True when it had been away."""
        if self.up:
            return False
        self.breaker.succeeded(now, probe=True)
        self.recovered(now)
        return True

    def recovered(self, now: float) -> None:
        """Traffic may come back, step by step."""
        self.back(now)
        for deployment in self.deployments:
            deployment.warm(now)

    def refresh(self, now: float) -> None:
        """Grade every deployment anew."""
        for deployment in self.deployments:
            deployment.refresh(now)


class DeploymentState:
    """One model at one endpoint.

    ``changed(deployment)`` is called when its grade has changed, or is due to change sooner; but
    not for a slot that is taken, or given back to a deployment that was full. ``limit`` is how many
    slots there are: ``most``, or fewer where other processes have some. ``first_token`` and
    ``service`` are in seconds: from sending a request to its first output, and how long a slot is
    held. ``late`` is the 95th percentile of the first, ``heard`` when there was output the last
    time. Until ``cool_until`` it is left alone, until ``spent_until`` as long as there is another:
    nothing is left of its rate limit, it has said.
    """

    __slots__ = (
        "_leased",
        "_unit",
        "breaker",
        "changed",
        "context",
        "cool_until",
        "due",
        "first_token",
        "grade",
        "heard",
        "host",
        "in_flight",
        "lacks",
        "late",
        "limit",
        "load",
        "load_began",
        "load_time",
        "loaded",
        "most",
        "service",
        "spent_until",
        "tier",
        "turn",
        "warm_from",
        "weight",
    )

    def __init__(
        self, host: Host, share: Share, rules: BreakerRules, random: Callable[[], float]
    ) -> None:
        self.host = host
        self._leased = False
        self.in_flight = 0
        self.load = 0.0
        self.turn = 0
        self.grade = READY
        self.heard = -inf
        self.due = inf
        self.loaded = True
        self.load_began: float | None = None
        self.load_time = Ewma()
        self.cool_until = 0.0
        self.spent_until = 0.0
        self.warm_from = -inf
        self.breaker = Breaker(rules, random)
        self.first_token = PeakEwma(_FORGETS)
        self.late = Quantile(0.95)
        self.service = Ewma()
        self.lacks = 0
        self.context: int | None = None
        self.changed: Callable[[DeploymentState], None] = _nobody_cares
        self.configure(share)
        host.deployments.append(self)

    def configure(self, share: Share) -> None:
        """Take over other limits; ``refresh`` is to be called afterwards."""
        self.most = share.limit
        if not self._leased:
            self.limit = share.limit
        self.weight = share.weight
        self.tier = share.tier
        self._unit = 1.0 / (share.limit * share.weight)
        self.load = self.in_flight * self._unit

    def able(self, abilities: Abilities) -> None:
        """What the model can do here."""
        self.lacks = int(abilities.lacks)
        self.context = abilities.context

    def lease(self, limit: int, now: float) -> None:
        """Only so many of its slots are this process's from now on."""
        self._leased = True
        self.limit = limit
        self.refresh(now)

    @property
    def free(self) -> bool:
        """Whether a slot is free."""
        return self.in_flight < self.limit

    def take(self) -> None:
        """Take a slot."""
        self.in_flight = taken = self.in_flight + 1
        self.load = taken * self._unit
        if taken >= self.limit and self.grade <= COLD:
            self.grade = OPEN if self.grade == PROBE else FULL

    def give_back(self, now: float) -> None:
        """Return a slot."""
        self.in_flight = taken = self.in_flight - 1
        self.load = taken * self._unit
        if taken != self.limit - 1:
            return
        if self.grade == FULL:
            self.grade, self.due = self._graded(now)
        else:
            self.refresh(now)  # a half-open breaker may have waited for room for its probe

    def refresh(self, now: float) -> None:
        """Grade it anew."""
        grade, due = self.grade, self.due
        self.grade, self.due = self._graded(now)
        if self.grade != grade or self.due < due:
            self.changed(self)

    def _graded(self, now: float) -> tuple[int, float]:
        """The grade, and when time changes it."""
        if self.host.drained:
            return DRAINED, inf
        if self.cool_until > now:
            return COOLING, self.cool_until
        state = self.breaker.state(now)
        if not self.host.up or state is BreakerState.OPEN:
            return OPEN, (self.breaker.opens_until if self.host.up else inf)
        if state is BreakerState.HALF_OPEN:
            return (OPEN if self.breaker.probing or not self.free else PROBE), inf
        if self.spent_until > now:
            return COOLING, self.spent_until
        if not self.free:
            return FULL, inf
        if not self.loaded:
            return COLD, inf
        warm = self.warm_from + self.host.slow_start
        return (WARMING, warm) if warm > now else (READY, inf)

    def warm(self, now: float) -> None:
        """It has recovered: its traffic comes back step by step."""
        self.warm_from = now
        self.refresh(now)

    def warmth(self, now: float) -> float:
        """The share of the choices it takes part in while it is ``warming``."""
        length = self.host.slow_start
        return max(_LEAST_WARM, (now - self.warm_from) / length) if length else 1.0

    def answered(self, now: float, seconds: float | None, *, probe: bool = False) -> None:
        """A request got its first output, ``seconds`` after it was sent (None: not known)."""
        self.heard = now
        if self.host.breaker.opens_until:  # it was down
            self.host.reachable(now)
        if seconds is not None:
            self.first_token.observe(seconds, now)
            self.late.observe(seconds)
        if self.breaker.succeeded(now, probe=probe):
            self.warm(now)
        if not self.loaded:
            self.in_memory(now, True)

    def failed(self, now: float, *, probe: bool = False) -> None:
        """A request failed here for a reason that is not its own."""
        if self.breaker.failed(now, probe=probe):
            self.refresh(now)

    def begin_probe(self, now: float) -> bool:
        """Whether this request is the one that may try; it must be told how it ends."""
        if self.grade != PROBE or not self.breaker.begin_probe():
            return False
        self.refresh(now)
        return True

    def abandon_probe(self, now: float) -> None:
        """The request that tried was cancelled, which says nothing."""
        self.breaker.abandon_probe()
        self.refresh(now)

    def cool(self, until: float, now: float) -> None:
        """Leave it alone until then."""
        self.cool_until = max(self.cool_until, until)
        self.refresh(now)

    def spent(self, until: float, now: float) -> None:
        """It has said that nothing is left of its rate limit until then; that there is something,
        where that time is over.
        """
        if until > now or self.spent_until > now:
            self.spent_until = until
            self.refresh(now)

    @property
    def rests_until(self) -> float:
        """When it gets requests again: over, where it is not ``cooling``."""
        return max(self.cool_until, self.spent_until)

    def in_memory(self, now: float, loaded: bool) -> None:
        """The endpoint tells whether the model is in memory."""
        if loaded == self.loaded or (not loaded and self.in_flight and self.load_began is None):
            return  # what answers is in memory, whatever a list from before says
        self.loaded = loaded
        self.refresh(now)

    def patience(self, *, stream: bool) -> float | None:
        """Seconds after which a request that tries a half-open breaker is better off elsewhere:
        a few times what its output usually takes here. None: not known.
        """
        if not stream:
            held = self.service.value
            return None if held is None else max(_LEAST_PATIENCE, _PATIENCE * held)
        usual = max(self.late.value or 0.0, self.first_token.latest)
        return max(_LEAST_PATIENCE, _PATIENCE * usual) if usual else None

    def predicted_load(self, now: float) -> float:
        """Seconds until the model will be in memory, if it is asked for now."""
        if self.loaded:
            return 0.0
        expected = self.load_time.value
        if expected is None:
            expected = _LOAD_SECONDS
        if self.load_began is None:
            return expected
        # Longer than ever before: it may be as long again.
        return abs(expected - (now - self.load_began))

    def predicted_wait(self, waiting: float, now: float) -> float:
        """Seconds until a slot will be free for one more than so many; infinite if unknown."""
        if self.free:
            return self.predicted_load(now)
        held = self.service.value
        if held is None:
            if self.loaded:
                return inf
            held = _HELD_SECONDS
        return self.predicted_load(now) + held * (waiting + 1) / self.most


def _nobody_cares(_: object) -> None:
    """Nothing depends on it yet."""
