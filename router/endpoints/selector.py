"""Finds a slot for every attempt: selection, the queue in front of it, and what is remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from random import random
from typing import Final

from router.balance.affinity import Affinity, fingerprints
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
from router.balance.policies import QUEUE, Selection, make_policy
from router.core.exchange import Exchange
from router.core.usage_record import session_of
from router.endpoints.deployment import Deployment, Slot
from router.endpoints.leases import Leases
from router.endpoints.plan import Plan, Queue, QueueFull, QueueTimeout, Ticket, able, issuers
from router.endpoints.registry import Group, Registry
from router.endpoints.timers import Timers
from router.errors import Overloaded, RouterError, UpstreamRateLimited
from router.settings.schema import BalanceSettings

__all__ = ["Selector", "SlotReservation"]

_LONGEST_RETRY_AFTER: Final = 3600

_OFFERED: Final = frozenset({READY, WARMING, OPEN})
"""Grades with which a slot that is given back goes to who waits for it (where it is open, only the
desperate do).
"""


@dataclass(slots=True, eq=False)
class SlotReservation:
    """A slot that was taken, at ``since``.

    ``probe``: this request tries a half-open breaker, and nothing is known of it yet. ``good``:
    it was answered. ``released``: it was given back. ``queue_seconds``: how long it was waited for.
    """

    plan: Plan
    deployment: Deployment
    since: float
    probe: bool
    good: bool = False
    released: bool = False
    queue_seconds: float = 0.0

    def swap(self, other: SlotReservation) -> None:
        """Exchange the slots of two reservations for the same request."""
        for name in ("good", "probe", "released", "since", "deployment"):
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, theirs)
            setattr(other, name, mine)


class Selector:
    """Chooses among a registry's deployments. ``clock`` is in seconds.

    ``in_flight`` is how many requests an endpoint works on for a model, where it does. ``leases``
    are there where other processes have some of the slots; ``noticed`` is called when a grade has
    changed.
    """

    def __init__(
        self,
        registry: Registry,
        balance: BalanceSettings,
        clock: Callable[[], float],
    ) -> None:
        self.in_flight: dict[Slot, int] = {}
        self._clock = clock
        self._affinity = Affinity()
        self.queue: Queue[Deployment] = Queue(balance.queue_size, self._given_up)
        self._timers = Timers(clock, lambda: bool(self.queue.waiting))
        self.leases: Leases | None = None
        self.noticed: Callable[[DeploymentState], None] | None = None
        self._registry = registry
        self.configure(balance)
        registry.changed = self._changed

    def configure(self, balance: BalanceSettings) -> None:
        """Go on with these rules."""
        self.queue.size = balance.queue_size
        self._queue_timeout = balance.queue_timeout
        self._bound = balance.affinity
        self.selection = Selection(make_policy(balance.policy), balance.breaker.panic, random)

    def now(self) -> float:
        """The time that deployments go by, in seconds."""
        return self._clock()

    def current(self, deployment: Deployment) -> bool:
        """Whether requests can still come to it."""
        endpoint = deployment.endpoint
        known = self._registry.named(endpoint.name) is endpoint
        return known and endpoint.deployments.get(deployment.model) is deployment

    def plan(self, group: Group, exchange: Exchange) -> Plan:
        """Where a request may go; raises InvalidRequest where nobody can serve it."""
        ours = exchange.context
        deployments: Sequence[Deployment] = group.deployments
        if group.differs or (ours.key is not None and ours.key.endpoints is not None):
            deployments = able(group, exchange, truncates=exchange.truncates)
        plan = Plan(group, deployments, ours.caller, exchange, ours.key)
        if len(deployments) > 1:
            plan.preferred = issuers(group, exchange.body)
            if self._bound:
                session = session_of(exchange.request.headers, exchange.body)
                plan.prints = fingerprints(exchange.body, session=session[:2])
                if not plan.preferred:
                    known = self._affinity.find(group.model, plan.prints)
                    deployment = group.at(known) if known is not None else None
                    if deployment is not None:
                        plan.preferred, plan.bound = (deployment,), self._bound
        return plan

    def at_once(self, plan: Plan) -> SlotReservation | None:
        """Take a slot at the best deployment, as ``reserve`` does; None where there is more to it,
        which is for ``reserve`` to see.
        """
        if plan.group.stale or self.leases is not None:
            return None
        deployment, _ = self.choose(plan)
        return self._taken(plan, deployment) if deployment is not None else None

    async def reserve(self, plan: Plan) -> SlotReservation:
        """Take a slot at the best deployment that is left, waiting for one if need be.

        Raises Overloaded, or UpstreamRateLimited where every endpoint asked for a pause. The
        slot has to be given back with ``release``.
        """
        ticket: Ticket[Deployment] | None = None
        refusal: Overloaded | None = None
        began = 0.0
        while True:
            if plan.group.stale:
                await self.follow(plan)
            if self.leases is not None:
                await self.leases.prepare(plan.group)
            deployment, why = self.choose(plan, patient=refusal is None)
            if deployment is not None:
                reservation = self._taken(plan, deployment)
                if ticket is not None:
                    self.queue.served(ticket)
                    reservation.queue_seconds = reservation.since - began
                return reservation
            if why != QUEUE:
                raise self._nothing(plan)
            if refusal is not None:
                raise refusal
            if self.leases is not None and await self._more(self.leases, plan):
                continue
            try:
                if ticket is None:
                    began = self._clock()
                    rank = plan.key.priority if plan.key is not None else 1
                    ticket = self.queue.ticket(plan.caller, self._queue_timeout, rank)
                self._timers.watch()
                awaited = self.selection.awaited(plan.left, desperate=plan.desperate)
                granted = await self.queue.wait(ticket, awaited)
            except QueueFull:
                refusal = self._overloaded(plan, "the queue is full")
            except QueueTimeout:
                reason = f"none got free in {self._queue_timeout:g} s"
                refusal = self._overloaded(plan, reason)
            else:
                if granted is not None:
                    now = self._clock()
                    return SlotReservation(plan, granted, now, False, queue_seconds=now - began)

    async def _more(self, leases: Leases, plan: Plan) -> bool:
        """Whether to look again: there are more slots, be it that one came while they were asked
        for, when nobody stood in the queue yet.
        """
        return await leases.more(plan.deployments) or self.choose(plan)[0] is not None

    async def follow(self, plan: Plan) -> None:
        """Plan with who serves the model now, if that has changed.

        Waits for endpoints that are new and have to be asked first what they serve. Raises
        InvalidRequest where nobody can serve the request any more.
        """
        if plan.group.stale:
            try:
                group = await self._registry.group(plan.group.model)
            except RouterError:
                return  # nobody serves it now; those who did tell why not
            plan.follow(group)

    def try_reserve(self, plan: Plan) -> SlotReservation | None:
        """Take a slot of a deployment that can begin at once; None where there is none."""
        deployment, _ = self.choose(plan)
        if deployment is None or deployment.grade > WARMING:
            return None
        return self._taken(plan, deployment)

    def choose(self, plan: Plan, *, patient: bool = True) -> tuple[Deployment | None, str]:
        """The deployment that the request would get now, and why; see ``Selection.choose``."""
        now = self._clock()
        if self._timers.entries:
            self._timers.catch_up(now)
        deployments = plan.left if plan.tried else plan.deployments
        if len(deployments) == 1 and deployments[0].grade == READY:
            return deployments[0], self.selection.policy.name
        return self.selection.choose(
            deployments,
            now,
            preferred=plan.preferred,
            bound=plan.bound,
            waiting=len(self.queue.waiting),
            patient=patient,
            probes=plan.probes and not plan.tried,
            desperate=plan.desperate,
        )

    def answered(self, reservation: SlotReservation, seconds: float | None) -> None:
        """The first output has come, after so many seconds (None: not known)."""
        deployment, plan = reservation.deployment, reservation.plan
        deployment.answered(self._clock(), seconds, probe=reservation.probe)
        reservation.probe = False
        reservation.good = True
        if plan.prints:
            # What the request began is best continued here.
            self._affinity.remember(plan.group.model, plan.prints, deployment.endpoint.name)

    def refused(self, reservation: SlotReservation) -> None:
        """The endpoint refused the request itself, which is an answer."""
        reservation.deployment.answered(self._clock(), None, probe=reservation.probe)
        reservation.probe = False

    def failed(self, reservation: SlotReservation) -> None:
        """The endpoint failed, for a reason that is not the request's own."""
        deployment = reservation.deployment
        if reservation.probe or reservation.since >= deployment.warm_from:
            # What was sent before it recovered says nothing of how it is now.
            deployment.failed(self._clock(), probe=reservation.probe)
        reservation.probe = reservation.good = False

    def begin_again(self, reservation: SlotReservation) -> None:
        """The model had to be loaded first: the request itself begins now."""
        reservation.since = self._clock()

    def release(self, reservation: SlotReservation) -> None:
        """Give a slot back; does nothing where that was done."""
        if reservation.released:
            return
        reservation.released = True
        now = self._clock()
        deployment = reservation.deployment
        if reservation.probe:
            deployment.abandon_probe(now)
        if reservation.good:
            deployment.service.observe(now - reservation.since)
        self._returned(deployment, now)

    def _taken(self, plan: Plan, deployment: Deployment) -> SlotReservation:
        now = self._clock()
        probe = deployment.grade == PROBE and deployment.begin_probe(now)
        deployment.take()
        in_flight, slot = self.in_flight, deployment.slot
        in_flight[slot] = in_flight.get(slot, 0) + 1
        return SlotReservation(plan, deployment, now, probe)

    def _given_up(self, deployment: Deployment) -> None:
        """Who was granted a slot of it has left."""
        self._returned(deployment, self._clock())

    def _returned(self, deployment: Deployment, now: float) -> None:
        """A slot is free again: it goes to whoever waits for it."""
        deployment.give_back(now)
        if self.leases is not None:
            self.leases.returned(deployment)
        if deployment.due < inf:
            self._timers.note(deployment)
        offered = self.queue.waiting and deployment.free and deployment.grade in _OFFERED
        if offered and self.queue.offer(deployment):
            deployment.take()
            return
        slot = deployment.slot
        if (left := self.in_flight[slot] - 1) > 0:
            self.in_flight[slot] = left
        else:
            del self.in_flight[slot]  # of names there may be any number
        if deployment.grade == COLD:
            self._changed(deployment)  # who waits may have better to expect

    def _changed(self, deployment: DeploymentState | None) -> None:
        """A grade has changed, or who serves what: those who wait may have to go elsewhere."""
        if deployment is not None:
            self._timers.note(deployment)
            if self.noticed is not None:
                self.noticed(deployment)
        if self.queue.waiting:
            self.queue.look_again()

    def _overloaded(self, plan: Plan, reason: str) -> Overloaded:
        """Every slot is taken. ``Retry-After`` is when the queue of now will be through."""
        now = self._clock()
        full = [deployment for deployment in plan.deployments if deployment.grade == FULL]
        waits = [
            deployment.predicted_wait(len(self.queue.waiting) / len(full), now)
            for deployment in full
        ]
        seconds = min(waits, default=inf)
        if seconds == inf:
            seconds = self._queue_timeout
        return Overloaded(
            f"Every slot for the model '{plan.group.model}' is taken, and {reason}. Try again "
            "later.",
            headers=_retry_after(seconds),
        )

    def _nothing(self, plan: Plan) -> RouterError:
        """Why no endpoint can be asked at all."""
        now = self._clock()
        model = plan.group.model
        cooling = [deployment for deployment in plan.deployments if deployment.grade == COOLING]
        if not cooling:
            sick = [
                deployment for deployment in plan.deployments if deployment.grade in (OPEN, PROBE)
            ]
            why = "fails, and is left alone for a while" if sick else "is drained"
            back = [max(t.breaker.opens_until, t.host.breaker.opens_until) for t in sick]
            seconds = min(back) - now if back else self._queue_timeout
            return Overloaded(
                f"Every endpoint that serves the model '{model}' {why}.",
                headers=_retry_after(seconds),
            )
        headers = _retry_after(min(deployment.rests_until for deployment in cooling) - now)
        until = ", ".join(
            f"{deployment.endpoint.name} for {ceil(deployment.rests_until - now)} s"
            for deployment in cooling[:10]
        )
        if any(deployment.rate_limited(now) for deployment in cooling):
            return UpstreamRateLimited(
                f"Every endpoint that serves the model '{model}' asked for a pause: {until}.",
                headers=headers,
            )
        return Overloaded(
            f"The model '{model}' could not be loaded; it is left alone at {until}.",
            headers=headers,
        )


def _retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(min(max(1, ceil(seconds)), _LONGEST_RETRY_AFTER))}
