"""Requests that come, wait, end and leave in any order, before endpoints that change meanwhile.

Times are whole numbers, so that ends, time-outs, cancellations and what time changes coincide; in
between there is always a moment at which everybody has done what can be done.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from router.balance.deployment_state import FULL, GRADES
from router.balance.policies import QUEUE
from router.endpoints.deployment import Deployment
from router.endpoints.endpoint import Endpoint
from router.endpoints.plan import Plan
from router.endpoints.selector import SlotReservation
from router.errors import RouterError
from tests.support.depot import Depot, asking, backend

__all__ = ["Attempt", "Bustle", "Change", "Fleet", "Job"]

QUEUE_TIMEOUT: Final = 3
PATIENCE: Final = 60
"""Seconds after which everything must be over."""


@dataclass(frozen=True)
class Attempt:
    """How long a slot is held, and how that ends: the name of a method of ``Bustle``."""

    takes: int
    ends: str
    turns: int


@dataclass(frozen=True)
class Job:
    """One request: when it comes, for what, what becomes of its attempts, and when it leaves.

    Within a moment, ``turns`` says in which turn of the event loop that is.
    """

    arrives: int
    caller: str
    model: str
    desperate: bool
    attempts: tuple[Attempt, ...]
    leaves_after: int | None
    turns: int


@dataclass(frozen=True)
class Change:
    """Something that happens to an endpoint, or a model there: the name of a method of ``Bustle``.

    ``where`` is any number.
    """

    at: int
    kind: str
    where: int
    turns: int


@dataclass(frozen=True)
class Fleet:
    """A configuration: how many slots each endpoint has, by name; the rest of its settings."""

    slots: tuple[tuple[str, int], ...]
    policy: str
    queue_size: int
    panic: float
    moved: bool
    """Whether one of them is another backend than it was."""

    def backends(self) -> list[dict[str, Any]]:
        first = f"http://{'elsewhere' if self.moved else 'here'}:1"
        return [
            backend(
                name,
                *(("m", "n") if place else ("m",)),
                max_in_flight=slots,
                priority=1 + place % 2,
                url=first if not place else f"http://{name}:1",
            )
            for place, (name, slots) in enumerate(self.slots)
        ]

    def balance(self) -> dict[str, Any]:
        breaker = {"failures": 1, "open_seconds": 1, "max_open_seconds": 4, "slow_start": 2}
        return {
            "policy": self.policy,
            "queue_size": self.queue_size,
            "queue_timeout": QUEUE_TIMEOUT,
            "breaker": {**breaker, "panic": self.panic},
        }


@dataclass
class Busy:
    """A job under way: it waits for a slot, or holds one."""

    job: Job
    plan: Plan
    number: int = 0
    """Of the attempt."""
    task: asyncio.Task[None] | None = None
    held: SlotReservation | None = None
    over: str = ""


def in_turn(turns: int, call: Callable[..., object], *args: object) -> None:
    """Call, so many turns of the event loop later."""
    if turns:
        asyncio.get_running_loop().call_soon(in_turn, turns - 1, call, *args)
    else:
        call(*args)


@dataclass
class Bustle:
    """Runs jobs and changes, and checks at every step what must always hold."""

    fleets: Sequence[Fleet]
    busy: list[Busy] = field(default_factory=list)
    known: dict[Deployment, int] = field(default_factory=dict)
    """Every target there ever was, and how far it was beyond its limit the last time."""
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: list[BaseException] = field(default_factory=list)

    async def run(self, jobs: Sequence[Job], changes: Sequence[Change]) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.errors.append(context["exception"]))
        first = self.fleets[0]
        self.depot = Depot(*first.backends(), clock=loop.time, **first.balance())
        self.selector = self.depot.selector
        self._probe_all()
        self.later = iter(self.fleets[1:])
        for job in jobs:
            loop.call_at(job.arrives, in_turn, job.turns, self._arrive, job)
        for change in changes:
            loop.call_at(change.at, in_turn, change.turns, self._change, change)
        last = max([0, *(job.arrives for job in jobs), *(change.at for change in changes)])
        moment = 0.5
        while not self.errors and (moment < last + 1 or not self.idle):
            assert moment < last + PATIENCE, "somebody hangs"
            await asyncio.sleep(moment - loop.time())
            self._check_at_rest()
            moment += 1.0
        if self.errors:
            raise self.errors[0]
        self._check_at_the_end(len(jobs))

    @property
    def idle(self) -> bool:
        return all(busy.over for busy in self.busy)

    def _arrive(self, job: Job) -> None:
        group = self.depot.registry.find(job.model)
        if group is None:
            self.outcomes["not served"] += 1
            return
        plan = self.selector.plan(group, asking(job.caller, job.model))
        plan.desperate = job.desperate
        busy = Busy(job, plan)
        self.busy.append(busy)
        self._begin(busy)
        if job.leaves_after is not None:
            loop = asyncio.get_running_loop()
            when = loop.time() + job.leaves_after
            loop.call_at(when, in_turn, job.turns, self._leave, busy)

    def _begin(self, busy: Busy) -> None:
        busy.task = asyncio.get_running_loop().create_task(self._reserve(busy))
        busy.task.add_done_callback(lambda task: self._tried(busy, task))

    def _tried(self, busy: Busy, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._over(busy, "left")
        elif (error := task.exception()) is not None:
            self.errors.append(error)

    async def _reserve(self, busy: Busy) -> None:
        """What an attempt begins with."""
        try:
            busy.held = reservation = await self.selector.reserve(busy.plan)
        except RouterError as error:
            self._over(busy, error.code or "error")
            self._check_refusal(busy.plan)
            return
        assert reservation.plan is busy.plan
        assert reservation.deployment not in busy.plan.tried
        self._check()
        attempt = busy.job.attempts[busy.number]
        loop = asyncio.get_running_loop()
        # Not by the task itself, which would always come a turn after the time-outs.
        when = loop.time() + attempt.takes
        loop.call_at(when, in_turn, attempt.turns, self._end, busy, reservation, attempt.ends)

    def _check_refusal(self, plan: Plan) -> None:
        found, _ = self.selector.choose(plan, patient=False)
        assert found is None, f"refused, although {GRADES[found.grade]}"

    def _over(self, busy: Busy, outcome: str) -> None:
        assert not busy.over
        busy.over = outcome
        busy.held = None
        self.outcomes[outcome] += 1

    def _leave(self, busy: Busy) -> None:
        """The client has gone."""
        if busy.held is not None:
            self._end(busy, busy.held, "nothing")
        elif not busy.over and busy.task is not None:
            busy.task.cancel()

    def _end(self, busy: Busy, reservation: SlotReservation, ends: str) -> None:
        if busy.held is not reservation:
            return  # it has left before
        busy.held = None
        again = bool(getattr(self, ends)(reservation))
        self.selector.release(reservation)
        busy.number += 1
        if again and busy.number < len(busy.job.attempts):
            busy.plan.tried.append(reservation.deployment)
            if not busy.plan.left:
                busy.plan.tried.clear()
            self._begin(busy)
        else:
            self._over(busy, ends)
        self._check()

    def nothing(self, reservation: SlotReservation) -> None:
        """It ends without a word."""

    def answered(self, reservation: SlotReservation) -> None:
        self.selector.answered(reservation, 0.5)

    def answered_and_failed(self, reservation: SlotReservation) -> None:
        self.selector.answered(reservation, None)
        self.selector.failed(reservation)

    def refused(self, reservation: SlotReservation) -> bool:
        self.selector.refused(reservation)
        return True

    def failed(self, reservation: SlotReservation) -> bool:
        self.selector.failed(reservation)
        return True

    def limited(self, reservation: SlotReservation) -> bool:
        reservation.deployment.cool_down(2.0, self.now)
        return True

    def not_reached(self, reservation: SlotReservation) -> bool:
        reservation.deployment.endpoint.unreachable(self.now)
        return True

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def _change(self, change: Change) -> None:
        endpoints = self.depot.registry.endpoints
        getattr(self, change.kind)(endpoints[change.where % len(endpoints)], change.where)
        self._check()

    def drain(self, endpoint: Endpoint, where: int) -> None:
        endpoint.host.drained = True
        endpoint.host.refresh(self.now)

    def undrain(self, endpoint: Endpoint, where: int) -> None:
        endpoint.host.drained = False
        endpoint.host.refresh(self.now)

    def unreachable(self, endpoint: Endpoint, where: int) -> None:
        endpoint.host.unreachable(self.now)

    def reachable(self, endpoint: Endpoint, where: int) -> None:
        endpoint.host.reachable(self.now)

    def load(self, endpoint: Endpoint, where: int) -> None:
        for deployment in endpoint.deployments.values():
            deployment.in_memory(self.now, True)

    def unload(self, endpoint: Endpoint, where: int) -> None:
        for deployment in endpoint.deployments.values():
            deployment.in_memory(self.now, False)

    def load_fails(self, endpoint: Endpoint, where: int) -> None:
        for deployment in endpoint.deployments.values():
            deployment.cool(self.now + 1.0, self.now)

    def reload(self, endpoint: Endpoint, where: int) -> None:
        self._note_targets()
        fleet = next(self.later, self.fleets[0])
        self.depot.apply(*fleet.backends(), **fleet.balance())
        self._probe_all()
        for deployment in self.known:
            self.known[deployment] = max(0, deployment.in_flight - deployment.limit)

    def _probe_all(self) -> None:
        """Nobody waits for an endpoint to be asked for the first time."""
        for endpoint in self.depot.registry.endpoints:
            self.depot.registry.probed(endpoint)

    def _note_targets(self) -> None:
        for endpoint in self.depot.registry.endpoints:
            for deployment in endpoint.deployments.values():
                self.known.setdefault(deployment, 0)

    def _check(self) -> None:
        """What holds at any time."""
        self._note_targets()
        held = Counter(busy.held.deployment for busy in self.busy if busy.held is not None)
        for deployment, before in self.known.items():
            # Slots on their way to their new holders are in flight, but not held yet.
            assert held[deployment] <= deployment.in_flight
            beyond = max(0, deployment.in_flight - deployment.limit)
            assert beyond <= before, "more slots were taken than there are"
            self.known[deployment] = beyond

    def _check_at_rest(self) -> None:
        """What holds when everybody has done what can be done."""
        self._check()
        held = Counter(busy.held.deployment for busy in self.busy if busy.held is not None)
        slots: Counter[tuple[str, str]] = Counter()
        for deployment in self.known:
            assert deployment.in_flight == held[deployment]
            slots[deployment.slot] += deployment.in_flight
        for slot, count in self.depot.in_flight.items():
            assert count == slots[slot]
        probes = {b.held.deployment for b in self.busy if b.held is not None and b.held.probe}
        assert probes == {deployment for deployment in self.known if deployment.breaker.probing}
        waiting = [busy for busy in self.busy if not busy.over and busy.held is None]
        assert len(self.selector.queue) == len(waiting)
        for busy in waiting:
            self._check_waits(busy)
        if self.busy:
            self._check_grades(self.busy[0].plan)

    def _check_waits(self, busy: Busy) -> None:
        """Nobody waits who could go on, with what was planned or is there now."""
        plans = [busy.plan]
        if (group := self.depot.registry.find(busy.job.model)) is not None:
            plans.append(self.selector.plan(group, asking(busy.job.caller, busy.job.model)))
            plans[-1].desperate, plans[-1].tried = busy.plan.desperate, busy.plan.tried
        for plan in plans:
            found, why = self.selector.choose(plan)
            if found is None:
                assert why == QUEUE
            else:
                # Another slot was expected to be free before this one is loaded.
                assert GRADES[found.grade] == "cold"
                assert any(deployment.grade == FULL for deployment in plan.left)

    def _check_grades(self, plan: Plan) -> None:
        """Whoever chooses now sees everything as it is."""
        self.selector.choose(plan)
        for deployment in self.known:
            fresh = copy(deployment)
            fresh.changed = lambda deployment: None
            fresh.refresh(self.now)
            assert GRADES[deployment.grade] == GRADES[fresh.grade]

    def _check_at_the_end(self, jobs: int) -> None:
        assert self.outcomes.total() == jobs
        assert len(self.selector.queue) == 0
        assert not any(self.depot.in_flight.values())
        assert not any(deployment.in_flight for deployment in self.known)
        assert not any(deployment.breaker.probing for deployment in self.known)
