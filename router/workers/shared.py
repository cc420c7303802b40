"""What the supervisor keeps for all workers, and has one do at another's word."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client import Counter as CounterMetric

from cache.store import Store
from router.containers.runner import Runner
from router.telemetry.log import get_logger
from router.telemetry.series import PolledMetric
from router.workers.cache import SharedCache
from router.workers.children import Child
from router.workers.containers import SharedRunner
from router.workers.limits import SharedLimits
from router.workers.link import LinkFailed
from router.workers.slots import SharedSlots
from router.workers.totals import Snapshot, Totals, snapshot

__all__ = ["Shared"]

_log = get_logger("router.workers")

_SNAPSHOT_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 1.5
_ELSEWHERE_SECONDS: Final = 31.0
"""A reload may take this long: it starts plugins."""

_MOST_KEPT: Final = 1000


class Shared:
    """``children`` tells which workers there are; ``make_store`` makes that of their cache.
    ``runner`` runs code for them, where it is done on this machine.
    """

    def __init__(
        self,
        children: Callable[[], Sequence[Child]],
        make_store: Callable[[], Store],
        runner: Runner | None = None,
    ) -> None:
        self._children = children
        self.limits = SharedLimits(self._spent)
        self.slots = SharedSlots()
        self.cache = SharedCache(make_store)
        self.containers = SharedRunner(runner)
        self._ended = Totals()
        self._kept: dict[str, Any] = {}
        self._registry = CollectorRegistry()
        ready = Gauge("pointsman_workers", "Workers that can serve.", registry=self._registry)
        ready.set_function(lambda: sum(one.ready.is_set() for one in children()))
        self._deaths = CounterMetric(
            "pointsman_workers_ended",
            "Workers that ended although nobody had them stop, and were started again.",
            registry=self._registry,
        )
        self._served_before: Counter[int] = Counter()
        requests = PolledMetric(
            self._registry,
            "counter",
            "pointsman_worker_requests",
            "Requests that a worker has served, as it last told.",
            ("worker",),
        )
        requests.values = self._served
        ProcessCollector(namespace="pointsman", registry=self._registry)

    def attach(self, child: Child) -> None:
        """Answer a worker that was started."""

        def joined(_: None) -> None:
            child.joined = True
            for name, value in self._kept.values():
                child.tell(name, value)

        child.link.handlers.update(
            {
                "joined": joined,
                "ready": lambda _: child.ready.set(),
                "pulse": child.pulse,
                "totals": lambda told: setattr(child, "totals", told),
                "scrape": lambda _: self._snapshots(child),
                "do elsewhere": lambda told: self._do_elsewhere(child, *told),
                **self.limits.handlers(child),
                **self.slots.handlers(child),
                **self.cache.handlers(child),
                **self.containers.handlers(child),
            }
        )
        child.link.read()

    def detach(self, child: Child, *, died: bool) -> None:
        """A worker has ended: keep its totals, and give back what it held."""
        self._ended.add(child.totals)
        self._served_before[child.index] += _requests(child.totals)
        self.limits.forget(child)
        self.slots.forget(child)
        self.cache.forget(child)
        self.containers.forget(child)
        if died:
            self._deaths.inc()
        for one in self._joined():
            one.tell("adopt")  # the usage that it recorded and did not write

    async def close(self) -> None:
        """No worker is left."""
        await self.limits.close()
        await self.cache.close()
        await self.containers.close()

    def _served(self) -> list[tuple[list[str], float]]:
        """How many requests each worker has served, and those that had its number before."""
        served = Counter(self._served_before)
        for child in self._children():
            served[child.index] += _requests(child.totals)
        return [([str(index)], count) for index, count in sorted(served.items())]

    def _joined(self, but: Child | None = None) -> list[Child]:
        return [one for one in self._children() if one.joined and one is not but]

    async def _do_elsewhere(self, child: Child, name: str, value: Any) -> None:
        """Have the other workers do it. The last word about each thing is kept for those that come
        later.
        """
        about = value.get("about") if isinstance(value, dict) else None
        if about is not None and (about in self._kept or len(self._kept) < _MOST_KEPT):
            self._kept[about] = name, value
        await asyncio.gather(*(_done(one, name, value) for one in self._joined(child)))

    async def _snapshots(self, scraped: Child) -> list[Snapshot]:
        """The metrics of all but the one that asks: of workers that have ended, of this process,
        and of the others.
        """
        others = self._joined(scraped)
        answers = await asyncio.gather(*map(_metrics_of, others))
        return [snapshot(self._ended), snapshot(self._registry), *answers]

    async def _spent(self, owner: str, since: float) -> tuple[int, int]:
        """Tokens and cost of an owner as the ledger has it, with what every worker has recorded;
        raises LinkFailed.
        """
        joined = self._joined()
        if not joined:
            raise LinkFailed("no worker is there to ask")
        await asyncio.gather(*(one.link.call("flush", None, _FLUSH_SECONDS) for one in joined))
        tokens, cost = await joined[0].link.call("spent", [owner, since], _FLUSH_SECONDS)
        return tokens, cost


def _requests(totals: Snapshot) -> int:
    samples = (one[4] for one in totals if one[0] == "pointsman_requests")
    return int(sum(one[2] for some in samples for one in some if one[0].endswith("_total")))


async def _done(child: Child, name: str, value: Any) -> None:
    try:
        await child.link.call(name, value, _ELSEWHERE_SECONDS)
    except LinkFailed as exc:
        _log.error("not done by a worker", worker=child.index, what=name, reason=str(exc))


async def _metrics_of(child: Child) -> Snapshot:
    """A worker's metrics; where it does not answer, what it last told."""
    try:
        answer: Snapshot = await child.link.call("snapshot", None, _SNAPSHOT_SECONDS)
    except LinkFailed as exc:
        _log.warning("a worker does not tell its metrics", worker=child.index, reason=str(exc))
        return child.totals
    return answer
