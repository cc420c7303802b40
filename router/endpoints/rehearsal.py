"""Where a request would be sent, attempt by attempt, without sending it.

The choices are made by the very code that makes them for requests, but among doubles of the
targets: what a choice changes (whose turn it is, for one) is changed in the doubles. No slot is
taken, no breaker is probed, nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field

from router.balance.selection import NOTHING
from router.core.exchange import Exchange
from router.core.new_response import new_draft
from router.core.upstream import DIRECT, Call
from router.dialects.dropped import refuse_unsent
from router.endpoints.plan import Plan
from router.endpoints.selector import Selector
from router.endpoints.target import Target
from router.errors import InvalidRequest, NotSupported, RouterError

__all__ = ["Attempted", "Rehearsal", "rehearse"]


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt that would be made: at which target, why there, and with what."""

    target: Target
    why: str
    call: Call


@dataclass(slots=True)
class Rehearsal:
    """What would become of a request with one model.

    ``attempts`` are in the order in which they would be made, each if those before it fail.
    ``why`` is why there is none, or no further one; ``error`` what a request gets that nobody can
    serve. ``preferred`` are the targets that are wanted first. ``cannot`` says of whom the dialect
    cannot carry the request.
    """

    attempts: list[Attempted] = field(default_factory=list)
    why: str = ""
    error: RouterError | None = None
    preferred: Sequence[Target] = ()
    cannot: dict[Target, RouterError] = field(default_factory=dict)


def rehearse(
    selector: Selector, plan: Plan, exchange: Exchange, attempts: int, *, strict: bool = False
) -> Rehearsal:
    """The first ``attempts`` attempts at a request with this plan, which stays as it is.

    ``strict``: an endpoint whose dialect cannot carry all of it is not asked.
    """
    rehearsal = Rehearsal(preferred=plan.preferred)
    selector = _double_of(selector)
    originals = {copy(target): target for target in plan.targets}
    plan = _among(plan, originals)
    while len(rehearsal.attempts) < attempts:
        double, why = selector.choose(plan)
        if double is None:
            alone = why == NOTHING and rehearsal.attempts
            rehearsal.why = "no other endpoint is left" if alone else why
            break
        target = originals[double]
        try:
            call = _call(exchange, target)
            if strict:
                refuse_unsent(call.unsent, exchange.body)
        except (InvalidRequest, NotSupported) as error:
            rehearsal.cannot[target] = error
            plan.drop(double)
            if plan.targets:
                continue
            rehearsal.error = next(iter(rehearsal.cannot.values()))
            rehearsal.why = rehearsal.error.message
            break
        rehearsal.attempts.append(Attempted(target, why, call))
        plan.tried.append(double)
    return rehearsal


def _double_of(selector: Selector) -> Selector:
    """It knows the same, and chooses by the same rules; their state is its own."""
    double = copy(selector)
    double.selection = copy(selector.selection)
    double.selection.policy = copy(selector.selection.policy)
    return double


def _among(plan: Plan, originals: dict[Target, Target]) -> Plan:
    """The plan with the doubles in the place of the originals."""
    double = copy(plan)
    double.targets = tuple(originals)
    double.preferred = [one for one, original in originals.items() if original in plan.preferred]
    double.tried = []
    return double


def _call(exchange: Exchange, target: Target) -> Call:
    adapter = target.endpoint.adapter
    if (make := DIRECT.get(exchange.operation)) is not None:
        return make(adapter, exchange, target.model, target.context)
    return adapter.respond(exchange, target.model, new_draft(exchange.body), target.context)
