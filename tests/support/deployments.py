"""Deployments, and what can happen to one of them."""

from __future__ import annotations

from collections.abc import Callable

from cache.breaker import BreakerRules
from router.balance.deployment_state import (
    COLD,
    COOLING,
    DRAINED,
    FULL,
    GRADES,
    OPEN,
    PROBE,
    WARMING,
    DeploymentState,
    Host,
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
    "deployment_of",
    "drain",
    "find",
    "give_back",
    "graded",
    "half",
    "load",
    "lose",
    "probe_fails",
    "probe_succeeds",
    "refill",
    "spend",
    "spent",
    "take",
    "take_all",
    "trip",
    "undrain",
    "unload",
    "unreachable",
    "wait",
]

RULES = BreakerRules(
    failures=2, ratio=1.0, min_requests=1000, open_seconds=4.0, max_open_seconds=64.0
)
SLOW_START = 10.0
NOW = 100.0

Step = Callable[[DeploymentState, float], object]


def half() -> float:
    """A source of randomness by which breakers stay open for exactly their time."""
    return 0.5


def deployment_of(
    limit: int = 2, *, slow_start: float = SLOW_START, tier: int = 1
) -> DeploymentState:
    """A deployment of a host of its own; its breakers stay open for exactly their time."""
    host = Host(RULES, slow_start, half)
    return DeploymentState(host, Share(limit, 1.0, tier), RULES, half)


def take(deployment: DeploymentState, now: float) -> None:
    deployment.take()


def take_all(deployment: DeploymentState, now: float) -> None:
    while deployment.free:
        deployment.take()


def give_back(deployment: DeploymentState, now: float) -> None:
    deployment.give_back(now)


def unload(deployment: DeploymentState, now: float) -> None:
    deployment.in_memory(now, False)


def load(deployment: DeploymentState, now: float) -> None:
    deployment.in_memory(now, True)


def trip(deployment: DeploymentState, now: float) -> None:
    for _ in range(RULES.failures):
        deployment.failed(now)


def begin_probe(deployment: DeploymentState, now: float) -> None:
    assert deployment.begin_probe(now)


def probe_succeeds(deployment: DeploymentState, now: float) -> None:
    deployment.answered(now, None, probe=True)


def probe_fails(deployment: DeploymentState, now: float) -> None:
    deployment.failed(now, probe=True)


def abandon_probe(deployment: DeploymentState, now: float) -> None:
    deployment.abandon_probe(now)


def cool(deployment: DeploymentState, now: float) -> None:
    deployment.cool(now + 3.0, now)


def spend(deployment: DeploymentState, now: float) -> None:
    deployment.spent(now + 5.0, now)


def refill(deployment: DeploymentState, now: float) -> None:
    deployment.spent(now, now)


def lose(deployment: DeploymentState, now: float) -> None:
    deployment.host.unreachable(now)


def find(deployment: DeploymentState, now: float) -> None:
    deployment.host.reachable(now)


def drain(deployment: DeploymentState, now: float) -> None:
    deployment.host.drained = True
    deployment.host.refresh(now)


def undrain(deployment: DeploymentState, now: float) -> None:
    deployment.host.drained = False
    deployment.host.refresh(now)


def wait(seconds: float) -> Step:
    """Time passes, until the deployment is looked at again or for so long."""

    def passes(deployment: DeploymentState, now: float) -> float:
        return seconds

    return passes


def graded(grade: int, in_flight: int = 0, *, limit: int = 4, tier: int = 1) -> DeploymentState:
    """A deployment that has this grade at ``NOW``, by the way that leads there."""
    deployment = deployment_of(limit, tier=tier)
    if grade == FULL:
        take_all(deployment, NOW)
    if grade == COLD:
        unload(deployment, NOW)
    for _ in range(in_flight):
        deployment.take()
    if grade in (OPEN, PROBE):
        trip(deployment, NOW if grade == OPEN else NOW - 4.0)
    elif grade == COOLING:
        cool(deployment, NOW)
    elif grade == DRAINED:
        drain(deployment, NOW)
    elif grade == WARMING:
        deployment.warm(NOW - SLOW_START / 2)
    deployment.refresh(NOW)
    assert GRADES[deployment.grade] == GRADES[grade]
    return deployment


def spent(in_flight: int = 0, *, limit: int = 4) -> DeploymentState:
    """A deployment that has nothing left of its rate limit."""
    deployment = deployment_of(limit)
    for _ in range(in_flight):
        deployment.take()
    spend(deployment, NOW)
    return deployment


def unreachable(in_flight: int = 0, *, limit: int = 4) -> DeploymentState:
    """A deployment whose host is away."""
    deployment = deployment_of(limit)
    for _ in range(in_flight):
        deployment.take()
    lose(deployment, NOW)
    return deployment


def busy() -> DeploymentState:
    """A deployment whose breaker is open, and whose only slot is taken."""
    return graded(OPEN, 1, limit=1)
