"""This process as one of several workers: what it tells the supervisor, and is told by it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry

from router.endpoints.registry import Registry
from router.endpoints.selector import Selector
from router.errors import StateUnavailable
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.usage.budgets import TagBudgets
from router.usage.memory_limiter import OnDown
from router.workers.accepting import HandedConnections
from router.workers.cache import WorkerStore
from router.workers.containers import WorkerRunner, holder_name
from router.workers.health import SharedHealth
from router.workers.limits import WorkerRateLimiter
from router.workers.link import Handler, LinkFailed, WorkerLink
from router.workers.slots import LeasedSlots
from router.workers.totals import exposition, snapshot

__all__ = ["WorkerProcess"]

_log = get_logger("router.workers")

_BEAT_SECONDS: Final = 0.5
_TOTALS_SECONDS: Final = 1.0
_SHARE: Final = 100
"""To collect the totals takes a hundredth of the time at most."""

_SCRAPE_SECONDS: Final = 2.0
_ELSEWHERE_SECONDS: Final = 35.0


class WorkerProcess:
    """The worker of this number, with its ends of the two sockets that it was started with.

    What the supervisor may have it do is given to ``handle``, and ``on_lost``, which is called once
    the supervisor is gone, is set before ``join``. ``reload`` reads the configuration again, as
    soon as that can be done: before, what is started reads it anyway.
    """

    def __init__(self, place: str) -> None:
        """``place`` is what the supervisor passes: number, count of workers, descriptors, and its
        own number.
        """
        index, count, link, handing, self._supervisor = map(int, place.split(":"))
        self.index = index
        self._count = count
        self._link_end = socket.socket(fileno=link)
        self.handed_over = HandedConnections(socket.socket(fileno=handing))
        self.on_lost: Callable[[], None] = lambda: None
        self.reload: Callable[[], Awaitable[None]] | None = None
        self._handlers: dict[str, Handler] = {}
        self._link: WorkerLink | None = None
        self._registry: CollectorRegistry | None = None
        self._connections: Callable[[], int] = lambda: 0
        self._slots: LeasedSlots | None = None
        self._tasks = Tasks()
        self._told_at = 0.0
        self._took = 0.0
        self._closed = False

    @property
    def link(self) -> WorkerLink:
        """The link, once ``connect`` is through."""
        assert self._link is not None
        return self._link

    async def connect(self) -> None:
        """Connect the link. Nothing is heard before ``join``."""
        self._link = await WorkerLink.over(self._link_end, self._lost)

    def _lost(self) -> None:
        if not self._closed:
            _log.warning("the supervisor is gone")
            self.on_lost()

    def watch(self, registry: CollectorRegistry) -> None:
        """Tell these metrics."""
        self._registry = registry

    def share_endpoints(self, registry: Registry, selector: Selector) -> None:
        """Have slots of endpoints, and what is found out about them, shared with the others."""
        self._slots = selector.leases = LeasedSlots(self.link, selector, self._count)
        self.handle(self._slots.handlers())
        self.handle(SharedHealth(registry, selector, self.tell_others).handlers())

    def cache_store(self) -> WorkerStore:
        """The store of the response cache, which the supervisor holds for all workers."""
        return WorkerStore(self.link)

    def code_runner(self, kind: str) -> tuple[WorkerRunner, str]:
        """What runs code for all workers, of this kind, and what its containers' rows call it."""
        return WorkerRunner(self.link, kind), holder_name(self._supervisor)

    def rate_limiter(self, tags: TagBudgets, on_down: OnDown) -> WorkerRateLimiter:
        """What counts limits and budgets for all workers."""
        return WorkerRateLimiter(self.link, tags, on_down)

    def handle(self, handlers: Mapping[str, Handler]) -> None:
        """Have these answer what the supervisor sends."""
        self.link.handlers.update(handlers)

    def join(self) -> None:
        """Answer the supervisor's calls from now on."""
        self.handle(
            {
                "snapshot": lambda _: self._snapshot(),
                "reload again": lambda _: self.reload() if self.reload is not None else None,
            }
        )
        self.link.read()
        self.link.tell("joined")

    def serve(self, make: Callable[[], asyncio.BaseProtocol], count: Callable[[], int]) -> None:
        """Ready: take connections, each with one of ``make``'s protocols; ``count`` tells how many
        are open.
        """
        self._connections = count
        self.handed_over.open(make)
        self._pulse()
        self.link.tell("ready")
        if self._slots is not None:
            self._slots.start()
        self._tasks.spawn(self._beat(), "tell the supervisor")

    async def _beat(self) -> None:
        """Tell how it stands, until it is cancelled."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            self._pulse()
            if time.monotonic() - self._told_at > max(_TOTALS_SECONDS, _SHARE * self._took):
                self._tell_totals()

    async def close(self) -> None:
        """Tell the last totals, and leave."""
        self._closed = True
        if self._slots is not None:
            await self._slots.close()
        await self._tasks.close()
        self._tell_totals()
        await self.handed_over.close()
        await self.link.close()

    def retire(self) -> None:
        """A successor is there: let it have what this worker does not use."""
        if self._slots is not None:
            self._slots.retire()

    def tell_others(self, name: str, value: Any) -> None:
        """Have all other workers handle this, in a moment."""
        self.link.tell("do elsewhere", [name, value])

    async def do_elsewhere(self, name: str, value: Any) -> None:
        """Have all other workers handle this, and wait until they have. Of what is ``about``
        something, those that are started later are told the last.
        """
        try:
            await self.link.call("do elsewhere", [name, value], _ELSEWHERE_SECONDS)
        except LinkFailed as exc:
            _log.error("not done by the other workers", what=name, reason=str(exc))

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """The metrics of all workers together, in the form that a scraper accepts.

        Raises StateUnavailable where the supervisor does not answer.
        """
        try:
            others = await self.link.call("scrape", None, _SCRAPE_SECONDS)
        except LinkFailed as exc:
            raise StateUnavailable(
                f"The metrics of the other workers cannot be told: {exc}.",
                headers={"Retry-After": "1"},
            ) from None
        return exposition([self._snapshot(), *others], accept)

    def _snapshot(self) -> Any:
        return snapshot(self._registry) if self._registry is not None else []

    def _pulse(self) -> None:
        self.link.tell("pulse", [self._connections(), self.handed_over.taken])

    def _tell_totals(self) -> None:
        if self._registry is None:
            return
        began = time.monotonic()
        self.link.tell("totals", snapshot(self._registry, gauges=False))
        self._told_at = time.monotonic()
        self._took = self._told_at - began
