"""The policies: which of several deployments that are ready gets a request.

    least-loaded   the least of its capacity in use; where that is about even, the quickest
    fastest        of two at random, the one with the sooner first token
    round-robin    the one whose turn is longest ago
    weighted       at random, in proportion to the weights
    priority       least-loaded, one tier after the other

They run for every request and over hundreds of deployments, so they read attributes with ``map``
and ask only few deployments for an average. Clocks (seconds) and randomness are handed in.

``Selection`` chooses among the deployments that serve a model by grade first, then by the policy,
tier by tier for ``priority``: a half-open deployment that is due for its probe; those with the
model in memory and a free slot; a free slot for which the model has to be loaded, or a place in the
queue, whichever is sooner; at last what is sick: an attempt tells more than a refusal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from operator import attrgetter
from typing import ClassVar, Final, Protocol, TypeVar

from router.balance.deployment_state import (
    COLD,
    COOLING,
    FULL,
    OPEN,
    PROBE,
    READY,
    WARMING,
    DeploymentState,
)
from router.settings.schema import PolicyName

__all__ = [
    "NOTHING",
    "QUEUE",
    "Average",
    "Fastest",
    "LeastLoaded",
    "LoadView",
    "Policy",
    "Priority",
    "RoundRobin",
    "Selection",
    "Weighted",
    "make_policy",
]

_NEAR: Final = 1.5
"""Times to a first token that differ by less than this factor count as equal: between equal
endpoints the averages differ as much, just because some prompts are longer than others.
"""

_EVEN: Final = 0.1
"""Loads that differ by no more than this count as equal. Where there are many slots hardly two
loads are the same, and the exact least would give an idle fleet's requests to its slow endpoints
just as to the fast ones.
"""

_CROWDING: Final = 8.0
"""So many times longer a first token is thought to take where all slots are in use: what was
measured tells nothing yet of those that were sent since.
"""

_COMPARED: Final = 16
"""So many of equal load are asked for their averages; of more, that many at random."""


class Average(Protocol):
    """A moving average in seconds; 0 while nothing is known. ``latest`` is without the ageing."""

    @property
    def latest(self) -> float: ...

    def value(self, now: float) -> float:
        """The average as of ``now``: less, the longer ago the last observation was."""
        ...


class LoadView(Protocol):
    """What policies read of a deployment.

    ``load`` is the share of its weighted capacity that is in use, ``tier`` is 1 for those that
    come first. ``turn`` belongs to round-robin: it begins as 0, and a higher one is more recent.
    """

    turn: int

    @property
    def in_flight(self) -> int: ...
    @property
    def load(self) -> float: ...
    @property
    def weight(self) -> float: ...
    @property
    def tier(self) -> int: ...
    @property
    def first_token(self) -> Average: ...


L = TypeVar("L", bound=LoadView)
Random = Callable[[], float]

_load: Final = attrgetter("load")
_turn: Final = attrgetter("turn")
_weight: Final = attrgetter("weight")


class Policy(Protocol):
    """One way to choose. Where ``tiered``, ``pick`` is to be called with the deployments of one
    tier.
    """

    name: ClassVar[PolicyName]
    tiered: ClassVar[bool]

    def pick(self, ready: Sequence[L], now: float, random: Random) -> L:
        """One of ``ready``, which is not empty. ``random`` is uniform in [0, 1)."""
        ...

    def score(self, deployment: LoadView, now: float) -> float:
        """How the deployment compares, to show why it was chosen: lower is better."""
        ...


class LeastLoaded:
    """The least load; among about equals one whose first token comes about as soon as any.

    So an idle fleet of equal endpoints shares the work, and one that is clearly faster than the
    others gets it. An endpoint whose time is not known yet counts as the fastest, to be tried.
    """

    name: ClassVar[PolicyName] = "least-loaded"
    tiered: ClassVar[bool] = False

    def pick(self, ready: Sequence[L], now: float, random: Random) -> L:
        """See ``Policy.pick``."""
        if len(ready) == 1:
            return ready[0]
        loads = list(map(_load, ready))
        most = min(loads) + _EVEN
        tied = [deployment for deployment, load in zip(ready, loads, strict=True) if load <= most]
        return tied[0] if len(tied) == 1 else _one_of_the_quickest(tied, now, random)

    def score(self, deployment: LoadView, now: float) -> float:
        """Its load: what is within a tenth of the least is about equal."""
        return deployment.load


class Fastest:
    """Of two at random, the one with the sooner first token, which takes longer under load.

    Two random choices keep routers from running to the same endpoint all at once. One that nobody
    knows (any more) is tried with one request: until that has told, the others go by what was
    known of it, and avoid it where nothing was.
    """

    name: ClassVar[PolicyName] = "fastest"
    tiered: ClassVar[bool] = False

    def pick(self, ready: Sequence[L], now: float, random: Random) -> L:
        """See ``Policy.pick``."""
        count = len(ready)
        if count == 1:
            return ready[0]
        i = int(random() * count)
        j = int(random() * (count - 1))
        one, other = ready[i], ready[j + (j >= i)]
        score, rival = _expected(one, now), _expected(other, now)
        if score == rival:
            score, rival = one.load, other.load
        # Their order was random, so that a tie is decided at random.
        return one if score <= rival else other

    def score(self, deployment: LoadView, now: float) -> float:
        """Seconds; infinite while its very first requests are on their way."""
        return _expected(deployment, now)


class RoundRobin:
    """The deployment whose turn is longest ago, whatever its load; one that is new is the next,
    once.
    """

    name: ClassVar[PolicyName] = "round-robin"
    tiered: ClassVar[bool] = False

    def __init__(self) -> None:
        self._latest = 0

    def pick(self, ready: Sequence[L], now: float, random: Random) -> L:
        """See ``Policy.pick``. It is the deployment's turn from here on."""
        turns = list(map(_turn, ready))
        deployment = ready[turns.index(min(turns))]
        # Deployments outlive a policy: there may be later turns than this one has given.
        self._latest = deployment.turn = max(self._latest, *turns) + 1
        return deployment

    def score(self, deployment: LoadView, now: float) -> float:
        """When it had its turn, counted in turns."""
        return float(deployment.turn)


class Weighted:
    """At random, in proportion to the weights, whatever the load."""

    name: ClassVar[PolicyName] = "weighted"
    tiered: ClassVar[bool] = False

    def pick(self, ready: Sequence[L], now: float, random: Random) -> L:
        """See ``Policy.pick``."""
        sums = list(accumulate(map(_weight, ready)))
        return ready[bisect_right(sums, random() * sums[-1], 0, len(sums) - 1)]

    def score(self, deployment: LoadView, now: float) -> float:
        """One by its weight: half the score is twice as likely."""
        return 1.0 / deployment.weight


class Priority(LeastLoaded):
    """``LeastLoaded`` in the first tier; the next tier is for when that is full or down."""

    name: ClassVar[PolicyName] = "priority"
    tiered: ClassVar[bool] = True

    def score(self, deployment: LoadView, now: float) -> float:
        """Its tier, and behind the point how loaded it is (0 idle, towards 1 the more it has)."""
        return deployment.tier + deployment.load / (1.0 + deployment.load)


def make_policy(name: PolicyName) -> Policy:
    """The policy of this name."""
    return _POLICIES[name]()


_POLICIES: Final[Mapping[PolicyName, Callable[[], Policy]]] = {
    "least-loaded": LeastLoaded,
    "fastest": Fastest,
    "round-robin": RoundRobin,
    "weighted": Weighted,
    "priority": Priority,
}


def _one_of_the_quickest(tied: Sequence[L], now: float, random: Random) -> L:
    count = len(tied)
    if count > _COMPARED:
        tied = [tied[int(random() * count)] for _ in range(_COMPARED)]
    times = [deployment.first_token.value(now) for deployment in tied]
    most = min(times) * _NEAR
    near = [deployment for deployment, time in zip(tied, times, strict=True) if time <= most]
    return near[int(random() * len(near))]


def _expected(deployment: LoadView, now: float) -> float:
    if not deployment.in_flight:
        return deployment.first_token.value(now)
    return deployment.first_token.latest * (1.0 + _CROWDING * deployment.load) or inf


S = TypeVar("S", bound=DeploymentState)

QUEUE: Final = "every free slot is taken"
NOTHING: Final = "no endpoint can be asked"

_LOAD_PENALTY: Final = 2.0
"""A further load pushes other models out of memory: it has to be so many times sooner."""


class Selection:
    """The rules of one configuration; past a share of ``panic`` sick ones no breaker counts."""

    def __init__(self, policy: Policy, panic: float, random: Random) -> None:
        self.policy = policy
        self._panic = panic
        self._random = random

    def choose(
        self,
        deployments: Sequence[S],
        now: float,
        *,
        preferred: Sequence[S] = (),
        bound: float = inf,
        waiting: int = 0,
        patient: bool = True,
        probes: bool = True,
        desperate: bool = True,
    ) -> tuple[S | None, str]:
        """One of ``deployments`` and why it; or None and ``QUEUE`` (wait for it) or ``NOTHING``.

        One of ``preferred`` is taken where it is ready and has at most ``bound`` more load than
        the least loaded. ``waiting`` requests stand in the queue; if not ``patient`` this one does
        not wait where a model can be loaded instead. With ``probes`` it may be the one that tries
        a half-open deployment; only if ``desperate`` it goes to a sick one.
        """
        if deployments and not self.policy.tiered:
            for deployment in deployments:
                if deployment.grade != READY:
                    break
            else:  # every one is ready
                if preferred:
                    return self._pick(deployments, now, preferred, bound)
                return self.policy.pick(deployments, now, self._random), self.policy.name
        full = self._of(deployments, FULL)
        panics = desperate and self._panics(deployments)
        spared: list[S] = []
        for tier in self._tiers(deployments):
            usable = self._usable(tier, now)
            if panics:
                usable += [one for one in self._of(tier, OPEN) if one.free and one.host.up]
            if probes and (probe := self._to_probe(tier, usable, preferred, bound)):
                return probe[int(self._random() * len(probe))], "a probe, to see if it is back"
            if usable:
                return self._pick(usable, now, preferred, bound)
            spared += self._of(tier, WARMING)
            if spared:
                continue
            cold = self._soonest(self._of(tier, COLD), full if patient else (), waiting, now)
            if cold is not None:
                loading = cold.load_began is not None
                return cold, "it is loading the model" if loading else "it will load the model"
        if spared:
            return self._pick(spared, now, preferred, bound)
        if full and (patient or not desperate or self._spent(deployments, now) is None):
            return None, QUEUE
        return self._last_resort(deployments, now) if desperate else (None, NOTHING)

    def awaited(self, deployments: Sequence[S], *, desperate: bool = True) -> list[S]:
        """Those whose next slot is for who was told ``QUEUE``, while grades last."""
        if desperate and not self._of(deployments, FULL):
            return list(deployments)
        panics = desperate and self._panics(deployments)
        return [
            deployment
            for deployment in deployments
            if deployment.grade != OPEN or (panics and deployment.host.up)
        ]

    def _tiers(self, deployments: Sequence[S]) -> Iterator[Sequence[S]]:
        if not self.policy.tiered:
            yield deployments
            return
        for tier in sorted({deployment.tier for deployment in deployments}):
            yield [deployment for deployment in deployments if deployment.tier == tier]

    def _usable(self, tier: Sequence[S], now: float) -> list[S]:
        """The deployments that can begin at once. A recovering one takes its chance."""
        usable = self._of(tier, READY)
        usable += [w for w in self._of(tier, WARMING) if self._random() < w.warmth(now)]
        return usable

    def _panics(self, deployments: Sequence[S]) -> bool:
        """Whether so many are sick that the requests are the likelier culprits."""
        grades = [deployment.grade for deployment in deployments]
        return grades.count(OPEN) + grades.count(PROBE) > self._panic * len(deployments)

    def _pick(
        self, ready: Sequence[S], now: float, preferred: Sequence[S], bound: float
    ) -> tuple[S, str]:
        if known := [deployment for deployment in preferred if deployment in ready]:
            best = min(known, key=_load)
            if bound == inf or best.load <= min(map(_load, ready)) + bound:
                return best, "it has served what came before"
        return self.policy.pick(ready, now, self._random), self.policy.name

    def _to_probe(
        self, tier: Sequence[S], usable: Sequence[S], preferred: Sequence[S], bound: float
    ) -> Sequence[S]:
        """The half-open deployments that a request may try."""
        probe = self._of(tier, PROBE)
        if probe and bound == inf and any(deployment in usable for deployment in preferred):
            # Elsewhere it would lose something for good.
            return [deployment for deployment in probe if deployment in preferred]
        return probe

    def _soonest(self, cold: Sequence[S], full: Sequence[S], waiting: int, now: float) -> S | None:
        """Where the model is in memory first; None where a slot gets free before that."""
        if not cold:
            return None
        loads = {id(deployment): deployment.predicted_load(now) for deployment in cold}
        best = min(
            cold, key=lambda deployment: (loads[id(deployment)], deployment.load, self._random())
        )
        seconds = loads[id(best)] * (_LOAD_PENALTY if best.load_began is None else 1.0)
        if any(deployment.predicted_wait(waiting, now) < seconds for deployment in full):
            return None
        return best

    def _spent(self, deployments: Sequence[S], now: float) -> S | None:
        """Who has said that nothing is left of its rate limit, and has it again first. That it has
        not asked for a pause means that it may be asked: it may have more by now.
        """
        resting = [one for one in self._of(deployments, COOLING) if one.cool_until <= now]
        free = [one for one in resting if one.free]
        return min(free, key=lambda one: one.spent_until, default=None)

    def _last_resort(self, deployments: Sequence[S], now: float) -> tuple[S | None, str]:
        if (spent := self._spent(deployments, now)) is not None:
            return spent, "nothing is left of its rate limit, and nothing better either"
        sick = [
            deployment
            for deployment in deployments
            if deployment.grade in (OPEN, PROBE) and deployment.free
        ]
        if not sick:
            return None, QUEUE if self._of(deployments, OPEN) else NOTHING
        reachable = [deployment for deployment in sick if deployment.host.up]
        return self.policy.pick(reachable or sick, now, self._random), "nothing better is left"

    @staticmethod
    def _of(deployments: Sequence[S], grade: int) -> list[S]:
        return [deployment for deployment in deployments if deployment.grade == grade]
