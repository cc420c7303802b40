"""Slots of endpoints (``max_in_flight``), given to workers by the supervisor.

What a worker may use of an endpoint for a model it has been granted, and that is all that it knows:
all grants together are never more than there are slots. A worker asks for its share when it first
needs the model there, and for more when that is used up: then others give back what is idle. Where
nothing is, it waits; as long as somebody does, the others give back each slot that gets free, so
that all take turns. A worker that ends has given back everything.

``SharedSlots`` is the supervisor's side, ``LeasedSlots`` a worker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from router.endpoints.deployment import Deployment, Slot
from router.endpoints.registry import Group
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.workers.link import Handler, LinkFailed, WorkerLink

if TYPE_CHECKING:
    from router.endpoints.selector import Selector
    from router.workers.children import Child

__all__ = ["LeasedSlots", "SharedSlots"]

_log = get_logger("router.workers")

_SPARE_SECONDS: Final = 0.5
_ASK_SECONDS: Final = 1.0
_SWEEP_SECONDS: Final = 0.05
_LEFT_SECONDS: Final = 5.0
_BLOCKS: Final = 8
"""A further grant is an eighth of all slots at most."""


class _SlotPool:
    """The slots of one model at one endpoint: who has how many, and who waits for one."""

    __slots__ = ("granted", "most", "waiting")

    def __init__(self) -> None:
        self.most = 0
        self.granted: dict[Child, int] = {}
        self.waiting: dict[Child, None] = {}

    @property
    def free(self) -> int:
        return self.most - sum(self.granted.values())

    def grant(self, child: Child, count: int) -> int:
        """Give so many if there are so many; how many."""
        count = max(0, min(count, self.free))
        if count:
            self.granted[child] = self.granted.get(child, 0) + count
        return count


class SharedSlots:
    """Gives out the slots of all endpoints."""

    def __init__(self) -> None:
        self._pools: dict[Slot, _SlotPool] = {}

    def handlers(self, child: Child) -> dict[str, Handler]:
        """What answers a worker."""
        return {
            "slots ask": lambda asked: self._ask(child, asked),
            "slots wait": lambda told: self._wait_too(child, *told),
            "slots back": lambda told: self._back(child, (told[0], told[1]), told[2]),
        }

    def forget(self, child: Child) -> None:
        """A worker has ended."""
        for slot, pool in list(self._pools.items()):
            pool.waiting.pop(child, None)
            self._back(child, slot, pool.granted.get(child, 0))

    async def _ask(self, child: Child, asked: Sequence[Sequence[Any]]) -> bool:
        """Whether the worker was granted any of these: endpoint, model, how many it wants at most,
        and how many there are as it knows it.

        Grants, and what is given back, are messages of their own: a caller that leaves, or a call
        that takes too long, loses none of them.
        """
        granted = await asyncio.gather(*(self._asked(child, *one) for one in asked))
        return any(granted)

    async def _asked(self, child: Child, endpoint: str, model: str, count: int, most: int) -> bool:
        slot = endpoint, model
        pool = self._pools.setdefault(slot, _SlotPool())
        pool.most = most
        if pool.free <= 0 and not pool.waiting:
            others = [one for one, has in pool.granted.items() if has and one is not child]
            await asyncio.gather(*(self._spare(one, slot) for one in others))
            pool = self._pools.setdefault(slot, pool)
        granted = 0 if pool.waiting or not child.link.up else pool.grant(child, count)
        if granted:
            child.tell("slots granted", [*slot, granted, False])
        elif child.link.up:
            self._wait(child, slot, pool)
        return bool(granted)

    @staticmethod
    async def _spare(child: Child, slot: Slot) -> None:
        """Have a worker give back some of what it does not use."""
        try:
            await child.link.call("slots spare", slot, _SPARE_SECONDS)
        except LinkFailed as exc:
            _log.debug("no slots are spared", worker=child.index, reason=str(exc))

    @staticmethod
    def _returned(pool: _SlotPool, child: Child, count: int) -> None:
        left = pool.granted.get(child, 0) - count
        if left > 0:
            pool.granted[child] = left
        else:
            pool.granted.pop(child, None)

    def _wait(self, child: Child, slot: Slot, pool: _SlotPool) -> None:
        """It gets the next that is given back, after those who wait already."""
        if not pool.waiting:
            for one in pool.granted:
                one.tell("slots awaited", [*slot, True])
        pool.waiting.setdefault(child)

    def _wait_too(self, child: Child, endpoint: str, model: str, most: int) -> None:
        pool = self._pools.setdefault((endpoint, model), _SlotPool())
        pool.most = most
        self._wait(child, (endpoint, model), pool)
        self._back(child, (endpoint, model), 0)

    def _back(self, child: Child, slot: Slot, count: int) -> None:
        """A worker has given back so many."""
        pool = self._pools.get(slot)
        if pool is None:
            return
        self._returned(pool, child, count)
        while pool.waiting and pool.free > 0:
            first = next(iter(pool.waiting))
            del pool.waiting[first]
            pool.grant(first, 1)
            first.tell("slots granted", [*slot, 1, bool(pool.waiting)])
            if not pool.waiting:
                for one in pool.granted:
                    one.tell("slots awaited", [*slot, False])
        if not pool.granted and not pool.waiting:
            del self._pools[slot]


class LeasedSlots:
    """What this worker has been granted. ``count`` is how many workers there are.

    A deployment's ``limit`` is what is granted of it, from when it is first looked at here.
    """

    def __init__(self, link: WorkerLink, selector: Selector, count: int) -> None:
        self._link = link
        self._selector = selector
        self._count = count
        self._held: dict[Slot, Deployment] = {}
        self._awaited: set[Slot] = set()
        self._retired = False
        self._tasks = Tasks()

    def handlers(self) -> dict[str, Handler]:
        """What answers the supervisor."""
        return {
            "slots spare": lambda slot: self._spare((slot[0], slot[1])),
            "slots awaited": lambda told: self._note((told[0], told[1]), told[2]),
            "slots granted": self._granted,
        }

    def start(self) -> None:
        """Begin to look for what is not used."""
        self._tasks.spawn(self._sweep(), "give back slots")

    async def close(self) -> None:
        """Give back nothing any more: the end of the process does."""
        await self._tasks.close()

    def retire(self) -> None:
        """A successor needs them: give back each that is not used."""
        self._retired = True

    async def prepare(self, group: Group) -> None:
        """Have a share of those that are new here."""
        if group.leased:
            return
        fresh = [one for one in group.deployments if self._held.get(one.slot) is not one]
        for one in fresh:
            self._take_over(one)
        group.leased = True
        if fresh:
            await self._ask(fresh, lambda one: max(1, one.most // self._count))

    async def more(self, deployments: Sequence[Deployment]) -> bool:
        """Have more slots of those that are full; whether there are any. If not, the next that gets
        free at another worker will come.
        """
        full = [
            one
            for one in deployments
            if self._held.get(one.slot) is one and not one.free and one.limit < one.most
        ]
        return bool(full) and await self._ask(full, lambda one: max(1, one.most // _BLOCKS))

    def returned(self, deployment: Deployment) -> None:
        """A slot has got free: it goes back where another worker waits for it."""
        if self._retired or deployment.slot in self._awaited or deployment.limit > deployment.most:
            self._give_back(deployment, 1)
            if self._selector.queue.waiting and deployment.slot in self._awaited:
                self._link.tell("slots wait", [*deployment.slot, deployment.most])

    def _take_over(self, deployment: Deployment) -> None:
        """Count from now on what is granted of a deployment: so far it thought it had all."""
        known = self._held.get(deployment.slot)
        self._held[deployment.slot] = deployment
        # One of the same name from before a reload: what it has it goes on to have.
        deployment.lease(known.limit if known is not None else 0, self._selector.now())

    async def _ask(
        self, deployments: Sequence[Deployment], wanted: Callable[[Deployment], int]
    ) -> bool:
        asked = [[*one.slot, wanted(one), one.most] for one in deployments]
        try:
            granted: bool = await self._link.call("slots ask", asked, _ASK_SECONDS)
        except LinkFailed as exc:
            _log.warning("slots are not granted", reason=str(exc))
            return False
        return granted

    def _add(self, deployment: Deployment, count: int) -> None:
        deployment.lease(deployment.limit + count, self._selector.now())

    def _granted(self, told: Sequence[Any]) -> None:
        endpoint, model, count, awaited = told
        slot = endpoint, model
        self._note(slot, awaited)
        deployment = self._held.get(slot)
        if deployment is None:
            self._link.tell("slots back", [*slot, count])
        else:
            self._add(deployment, count)

    def _note(self, slot: Slot, awaited: bool) -> None:
        (self._awaited.add if awaited else self._awaited.discard)(slot)

    def _spare(self, slot: Slot) -> None:
        """Give back half of what is idle."""
        deployment = self._held.get(slot)
        if deployment is not None and not self._selector.queue.waiting:
            self._give_back(deployment, (deployment.limit - deployment.in_flight + 1) // 2)

    def _give_back(self, deployment: Deployment, most: int) -> None:
        count = min(most, deployment.limit - deployment.in_flight)
        if count > 0:
            deployment.lease(deployment.limit - count, self._selector.now())
            self._link.tell("slots back", [*deployment.slot, count])

    async def _sweep(self) -> None:
        """Give back what nobody here uses: of those others wait for, at once; of those that are no
        more, once nothing is under way.
        """
        passes = 0
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            passes += 1
            if self._retired or self._awaited:
                for slot in [*self._held] if self._retired else [*self._awaited]:
                    if (deployment := self._held.get(slot)) is not None:
                        self._give_back(deployment, deployment.limit)
            if passes * _SWEEP_SECONDS >= _LEFT_SECONDS:
                passes = 0
                self._drop_gone()

    def _drop_gone(self) -> None:
        for slot, deployment in list(self._held.items()):
            current = self._selector.current(deployment)
            excess = deployment.limit - deployment.most
            if not current or excess > 0:
                self._give_back(deployment, deployment.limit if not current else excess)
            if not current and not deployment.limit:
                del self._held[slot]
