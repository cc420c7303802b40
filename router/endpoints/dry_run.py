"""Where a request would be sent, attempt by attempt, without sending it.

The choices are made by the very code that makes them for requests, but among doubles of the
deployments: what a choice changes (whose turn it is, for one) is changed in the doubles. No slot is
taken, no breaker is probed, nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field

from router.balance.policies import NOTHING
from router.core.exchange import Exchange
from router.core.response_lifecycle import new_builder
from router.core.upstream import DIRECT, UpstreamCall
from router.dialects.dropped import refuse_dropped
from router.endpoints.deployment import Deployment
from router.endpoints.plan import Plan
from router.endpoints.selector import Selector
from router.errors import InvalidRequest, NotSupported, RouterError

__all__ = ["DryRun", "PlannedAttempt", "simulate_attempts"]


@dataclass(frozen=True, slots=True)
class PlannedAttempt:
    """An attempt that would be made: at which deployment, why there, and with what."""

    deployment: Deployment
    why: str
    call: UpstreamCall


@dataclass(slots=True)
class DryRun:
    """What would become of a request with one model.

    ``attempts`` are in the order in which they would be made, each if those before it fail. ``why``
    is why there is none, or no further one; ``error`` what a request gets that nobody can serve.
    ``preferred`` are the deployments that are wanted first. ``cannot`` says of whom the dialect
    cannot carry the request.
    """

    attempts: list[PlannedAttempt] = field(default_factory=list)
    why: str = ""
    error: RouterError | None = None
    preferred: Sequence[Deployment] = ()
    cannot: dict[Deployment, RouterError] = field(default_factory=dict)


def simulate_attempts(
    selector: Selector, plan: Plan, exchange: Exchange, attempts: int, *, strict: bool = False
) -> DryRun:
    """The first ``attempts`` attempts at a request with this plan, which stays as it is.

    ``strict``: an endpoint whose dialect cannot carry all of it is not asked.
    """
    dry_run = DryRun(preferred=plan.preferred)
    selector = _double_of(selector)
    originals = {copy(deployment): deployment for deployment in plan.deployments}
    plan = _among(plan, originals)
    while len(dry_run.attempts) < attempts:
        double, why = selector.choose(plan)
        if double is None:
            alone = why == NOTHING and dry_run.attempts
            dry_run.why = "no other endpoint is left" if alone else why
            break
        deployment = originals[double]
        try:
            call = _call(exchange, deployment)
            if strict:
                refuse_dropped(call.dropped, exchange.body)
        except (InvalidRequest, NotSupported) as error:
            dry_run.cannot[deployment] = error
            plan.drop(double)
            if plan.deployments:
                continue
            dry_run.error = next(iter(dry_run.cannot.values()))
            dry_run.why = dry_run.error.message
            break
        dry_run.attempts.append(PlannedAttempt(deployment, why, call))
        plan.tried.append(double)
    return dry_run


def _double_of(selector: Selector) -> Selector:
    """It knows the same, and chooses by the same rules; their state is its own."""
    double = copy(selector)
    double.selection = copy(selector.selection)
    double.selection.policy = copy(selector.selection.policy)
    return double


def _among(plan: Plan, originals: dict[Deployment, Deployment]) -> Plan:
    """The plan with the doubles in the place of the originals."""
    double = copy(plan)
    double.deployments = tuple(originals)
    double.preferred = [one for one, original in originals.items() if original in plan.preferred]
    double.tried = []
    return double


def _call(exchange: Exchange, deployment: Deployment) -> UpstreamCall:
    adapter = deployment.endpoint.adapter
    if (make := DIRECT.get(exchange.request.operation.kind)) is not None:
        return make(adapter, exchange, deployment.model, deployment.context)
    return adapter.respond(
        exchange, deployment.model, new_builder(exchange.body), deployment.context
    )
