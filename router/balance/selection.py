"""Choosing among the deployments that serve a model: by grade first, then by the policy.

In this order: a half-open deployment that is due for its probe; deployments with the model in
memory and a free slot; a free slot for which the model has to be loaded, or a place in the queue,
whichever is predicted to be sooner; and at last what is known to be sick, because an attempt tells
more than a refusal. The policy ``priority`` goes through this tier by tier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final, TypeVar

from router.balance.deployment_state import COLD, FULL, OPEN, PROBE, READY, WARMING, DeploymentState
from router.balance.policies import Policy

__all__ = ["NOTHING", "QUEUE", "Selection"]

L = TypeVar("L", bound=DeploymentState)

QUEUE: Final = "every free slot is taken"
NOTHING: Final = "no endpoint can be asked"

_LOAD_PENALTY: Final = 2.0
"""A further load pushes other models out of memory: it has to be so many times sooner."""


class Selection:
    """The rules of one configuration.

    Past a share of ``panic`` sick deployments, breakers are ignored.
    """

    def __init__(self, policy: Policy, panic: float, random: Callable[[], float]) -> None:
        self.policy = policy
        self._panic = panic
        self._random = random

    def choose(
        self,
        deployments: Sequence[L],
        now: float,
        *,
        preferred: Sequence[L] = (),
        bound: float = inf,
        waiting: int = 0,
        patient: bool = True,
        probes: bool = True,
        desperate: bool = True,
    ) -> tuple[L | None, str]:
        """One of ``deployments`` and why it; or None and ``QUEUE`` (wait for a slot) or
        ``NOTHING``.

        One of ``preferred`` is taken where it is ready and has at most ``bound`` more load than
        the least loaded. ``waiting`` requests stand in the queue; if not ``patient`` this one does
        not wait where a model can be loaded instead. With ``probes`` it may be the one that tries
        a half-open deployment; only if ``desperate`` it goes to a sick one.
        """
        ready = [deployment for deployment in deployments if deployment.grade == READY]
        if len(ready) == len(deployments) and not self.policy.tiered and deployments:
            return self._pick(ready, now, preferred, bound)
        full = self._of(deployments, FULL)
        panics = desperate and self._panics(deployments)
        spared: list[L] = []
        for tier in self._tiers(deployments):
            usable = self._usable(tier, now)
            if panics:
                usable += [
                    deployment
                    for deployment in self._of(tier, OPEN)
                    if deployment.free and deployment.host.up
                ]
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
        if full:
            return None, QUEUE
        return self._last_resort(deployments, now) if desperate else (None, NOTHING)

    def awaited(self, deployments: Sequence[L], *, desperate: bool = True) -> list[L]:
        """Those of ``deployments`` whose next slot is for who was told ``QUEUE``, while grades
        last.
        """
        if desperate and not self._of(deployments, FULL):
            return list(deployments)
        panics = desperate and self._panics(deployments)
        return [
            deployment
            for deployment in deployments
            if deployment.grade != OPEN or (panics and deployment.host.up)
        ]

    def _tiers(self, deployments: Sequence[L]) -> Iterator[Sequence[L]]:
        if not self.policy.tiered:
            yield deployments
            return
        for tier in sorted({deployment.tier for deployment in deployments}):
            yield [deployment for deployment in deployments if deployment.tier == tier]

    def _usable(self, tier: Sequence[L], now: float) -> list[L]:
        """The deployments that can begin at once. A recovering one takes its chance."""
        usable = self._of(tier, READY)
        usable += [w for w in self._of(tier, WARMING) if self._random() < w.warmth(now)]
        return usable

    def _panics(self, deployments: Sequence[L]) -> bool:
        """Whether so many are sick that the requests are the likelier culprits."""
        grades = [deployment.grade for deployment in deployments]
        return grades.count(OPEN) + grades.count(PROBE) > self._panic * len(deployments)

    def _pick(
        self, ready: Sequence[L], now: float, preferred: Sequence[L], bound: float
    ) -> tuple[L, str]:
        if preferred:
            known = [deployment for deployment in preferred if deployment in ready]
            if known:
                best = min(known, key=_load)
                if bound == inf or best.load <= min(map(_load, ready)) + bound:
                    return best, "it has served what came before"
        return self.policy.pick(ready, now, self._random), self.policy.name

    def _to_probe(
        self, tier: Sequence[L], usable: Sequence[L], preferred: Sequence[L], bound: float
    ) -> Sequence[L]:
        """The half-open deployments that a request may try."""
        probe = self._of(tier, PROBE)
        if probe and bound == inf and any(deployment in usable for deployment in preferred):
            # Elsewhere it would lose something for good.
            return [deployment for deployment in probe if deployment in preferred]
        return probe

    def _soonest(self, cold: Sequence[L], full: Sequence[L], waiting: int, now: float) -> L | None:
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

    def _last_resort(self, deployments: Sequence[L], now: float) -> tuple[L | None, str]:
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
    def _of(deployments: Sequence[L], grade: int) -> list[L]:
        return [deployment for deployment in deployments if deployment.grade == grade]


def _load(deployment: DeploymentState) -> float:
    return deployment.load
