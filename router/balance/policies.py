"""The policies: which of several deployments that are ready gets a request.

    least-loaded   the least of its capacity in use; where that is about even, the quickest
    fastest        of two at random, the one with the sooner first token
    round-robin    the one whose turn is longest ago
    weighted       at random, in proportion to the weights
    priority       least-loaded, one tier after the other

They run for every request and over hundreds of deployments, so they read attributes with ``map``
and ask only few deployments for an average. Clocks (seconds) and randomness are handed in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import inf
from operator import attrgetter
from typing import ClassVar, Final, Protocol, TypeVar

from router.settings.schema import PolicyName

__all__ = [
    "Average",
    "Fastest",
    "LeastLoaded",
    "LoadView",
    "Policy",
    "Priority",
    "RoundRobin",
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
"""So many deployments of equal load are asked for their averages; of more, that many at random."""


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
