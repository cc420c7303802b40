"""The fleet, and asking a second endpoint when the first is late.

Only streams are hedged, before their first output, and only where asking twice has no effect but
its cost: not with tools that run on the server. What it costs is bounded by ``balance.hedge``.

``Fleet`` puts the endpoints together with everything that decides between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from router.balance.averages import RetryBudget
from router.balance.deployment_state import GRADES
from router.core.exchange import Exchange
from router.endpoints.endpoint import Endpoint
from router.endpoints.loads import Loads
from router.endpoints.prober import Prober
from router.endpoints.registry import Connect, Prepared, Registry
from router.endpoints.selector import Selector, SlotReservation
from router.errors import RouterError, UpstreamError
from router.fetch.guard import FetchGuard
from router.fetch.images import Images
from router.pipeline.attempt import Attempt
from router.pipeline.failover import Failover
from router.response.frame import Frame
from router.settings.schema import Settings
from router.telemetry.log import get_logger
from router.telemetry.metrics import Metrics
from router.telemetry.tasks import Tasks

__all__ = ["Fleet", "Hedging", "PendingAttempt"]

_log = get_logger("router.pipeline.hedging")

_RUN_BY_THE_CLIENT: Final = frozenset({"function", "custom", "namespace", "tool_search"})


class PendingAttempt:
    """The beginning of an attempt, until its first output: ``frames`` are those of the batch that
    brought it, ``error`` why there is none. What comes before goes to ``hold``.
    """

    task: asyncio.Task[None]

    def __init__(self, attempt: Attempt, hold: Callable[[list[Frame]], None]) -> None:
        self.attempt = attempt
        self.frames: list[Frame] = []
        self.error: Exception | None = None
        self._hold = hold

    async def run(self) -> None:
        """Send the request and read until there is output; an error is kept."""
        try:
            decoder = await self.attempt.send()
            while True:
                frames = await self.attempt.read()
                if decoder.has_output or decoder.ended:
                    self.frames = frames
                    return
                if decoder.error is not None:
                    raise decoder.error
                self._hold(frames)
        except Exception as exc:
            self.error = exc

    def stop(self) -> None:
        """It is not wanted any more: its endpoint notices at once."""
        self.task.cancel()
        self.attempt.close()


class Hedging:
    """Decides when a second endpoint is asked, and which of the two goes on.

    ``judge(reservation, exchange, error)`` is told of an attempt that failed beside another one.
    """

    def __init__(
        self,
        selector: Selector,
        judge: Callable[[SlotReservation, Exchange, UpstreamError], object],
        metrics: Metrics,
    ) -> None:
        self._selector = selector
        self._judge = judge
        self._metrics = metrics
        self._tasks = Tasks()
        self._budget = RetryBudget(0.0, 0.0)
        self.on = False

    def configure(self, share: float) -> None:
        """Ask a second time for at most this share of the requests; 0: never."""
        self.on = share > 0
        self._budget.ratio = share
        self._budget.reserve = 1.0 if self.on else 0.0

    def delay(self, exchange: Exchange, reservation: SlotReservation) -> float | None:
        """After how many seconds without output a second endpoint is asked; None: never. To be
        asked for every request where hedging is ``on``.
        """
        if not exchange.result.attempts:
            self._budget.deposit(time.monotonic())
        if not exchange.request.operation.generates or len(reservation.plan.deployments) < 2:
            return None
        if reservation.probe:
            return None  # it has a limit already, and is to find out whether the endpoint is back
        if any(_runs_elsewhere(tool) for tool in exchange.body.get("tools") or ()):
            return None
        return reservation.deployment.late.value

    async def race(
        self,
        exchange: Exchange,
        first: Attempt,
        delay: float,
        hold: Callable[[list[Frame]], None],
        another: Callable[[SlotReservation], PendingAttempt],
    ) -> PendingAttempt:
        """The opening to go on with: the first that has output, or else the last that failed.

        ``another`` makes a second one after ``delay`` seconds. Whichever it is that is gone on
        with has the reservation that ``first`` had; what the other one held is given back.
        """
        mine = first.reservation
        running = [self._begin(PendingAttempt(first, hold))]
        second: PendingAttempt | None = None
        chosen: PendingAttempt | None = None
        try:
            await asyncio.wait({running[0].task}, timeout=delay)
            if not running[0].task.done() and (slot := self._second(mine)) is not None:
                second = self._begin(another(slot))
                running.append(second)
            while (ahead := await _next(running)).error is not None and len(running) > 1:
                running.remove(ahead)
                self._lose(ahead, exchange, mine, running[0])
            chosen = ahead
        finally:
            for pending in running:
                if pending is not chosen:
                    self._lose(pending, exchange, mine, chosen)
        if second is not None:
            self._count(second, won=chosen is second)
        return chosen

    def _begin(self, pending: PendingAttempt) -> PendingAttempt:
        pending.task = self._tasks.spawn(pending.run(), "a hedged attempt")
        return pending

    def _second(self, first: SlotReservation) -> SlotReservation | None:
        """A slot at another endpoint that can begin at once, if there is one and it may be."""
        plan = first.plan
        plan.tried.append(first.deployment)
        try:
            second = self._selector.try_reserve(plan)
        finally:
            plan.tried.remove(first.deployment)
        if second is not None and not self._budget.withdraw(time.monotonic()):
            self._selector.release(second)
            return None
        return second

    def _lose(
        self,
        pending: PendingAttempt,
        exchange: Exchange,
        mine: SlotReservation,
        other: PendingAttempt | None,
    ) -> None:
        """End an attempt beside which ``other`` goes on; None: the client has left.

        ``mine`` is given back by who took it.
        """
        pending.stop()
        attempt = pending.attempt
        if attempt.reservation is mine:
            if other is None:
                return
            _swap(attempt, other.attempt)
        error = pending.error
        if isinstance(error, UpstreamError):
            self._judge(attempt.reservation, exchange, error)
        elif error is not None and not isinstance(error, RouterError):
            _log.error("hedged attempt broke", request_id=exchange.request.id, exc_info=error)
        elif error is None and other is not None:
            name = attempt.reservation.deployment.endpoint.name
            self._metrics.fleet.attempts[name, "cancelled"].inc()
            _remember_late(attempt)
        self._selector.release(attempt.reservation)

    def _count(self, second: PendingAttempt, *, won: bool) -> None:
        result = "won" if won else "lost"
        self._metrics.fleet.hedges.labels("failed" if second.error is not None else result).inc()


async def _next(openings: list[PendingAttempt]) -> PendingAttempt:
    """The next one that has output, or has failed."""
    tasks = [pending.task for pending in openings]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return next(pending for pending in openings if pending.task.done())


def _remember_late(attempt: Attempt) -> None:
    """What was given up had taken this long at least: else only those that were quick would tell
    what is usual.
    """
    deployment = attempt.reservation.deployment
    now = time.monotonic()
    seconds = now - attempt.sent
    usual = deployment.late.value
    if usual is not None and seconds > usual:
        deployment.late.observe(seconds)
        deployment.first_token.observe(seconds, now)


def _swap(one: Attempt, other: Attempt) -> None:
    """Let each of two attempts go on with the other's reservation, and the slot it had itself."""
    one.reservation.swap(other.reservation)
    one.reservation, other.reservation = other.reservation, one.reservation


def _runs_elsewhere(tool: object) -> bool:
    return not isinstance(tool, dict) or tool.get("type") not in _RUN_BY_THE_CLIENT


class Fleet:
    """What outlives a configuration: slots, breakers, averages, models in memory.

    ``connect`` makes what it takes to speak to an endpoint. Raises SettingsError for what cannot
    be made.
    """

    def __init__(self, settings: Settings, connect: Connect, metrics: Metrics) -> None:
        self._metrics = metrics
        self.registry = Registry(connect, time.monotonic)
        self.registry.apply(self.registry.prepare(settings))
        metrics.fleet.known_model = self.registry.known_models.__contains__
        self.selector = Selector(self.registry, settings.balance, time.monotonic)
        metrics.fleet.in_flight = self.selector.in_flight
        self.loads = Loads()
        self.guard = FetchGuard(settings.fetch)
        self._images = Images(self.guard)
        self.failover = Failover(self.registry, self.selector, self.loads, self._images, metrics)
        self.hedging = Hedging(self.selector, self.failover.judge, metrics)
        self._configure(settings)
        self._watched: dict[str, Endpoint] = {}
        self._prober = Prober(self.registry, settings.balance.health_interval, self._told)
        metrics.fleet.queue_depth(lambda: len(self.selector.queue))

    def prepare(self, settings: Settings) -> Prepared:
        """Make what another configuration needs; raises SettingsError and changes nothing."""
        return self.registry.prepare(settings)

    def apply(self, prepared: Prepared) -> None:
        """Go on with this configuration."""
        settings = prepared.settings
        self.selector.configure(settings.balance)
        self._configure(settings)
        before = set(self.registry.endpoints)
        self.registry.apply(prepared)
        for gone in before - set(self.registry.endpoints):
            self.loads.drop(gone)
            if self._watched.get(gone.name) is gone:
                del self._watched[gone.name]
                self._metrics.fleet.forget_endpoint(gone.name)
        self._prober.interval = settings.balance.health_interval
        self._prober.follow()

    def _configure(self, settings: Settings) -> None:
        self.failover.configure(settings)
        self._images.configure(settings)
        self.hedging.configure(settings.balance.hedge)

    def start(self) -> None:
        """Begin to ask the endpoints what they serve."""
        self._prober.start()

    async def stop(self) -> None:
        """Ask nobody any more, and close every connection."""
        await self._prober.stop()
        await self.loads.close()
        self._images.close()
        await self.registry.close()

    def _told(self, endpoint: Endpoint) -> None:
        """It has been asked: from now on there is something to tell of it."""
        if self._watched.get(endpoint.name) is not endpoint:
            self._watched[endpoint.name] = endpoint
            host = endpoint.host
            self._metrics.fleet.watch_endpoint(
                endpoint.name,
                lambda: host.up,
                lambda reason: sum(
                    GRADES[deployment.grade] == reason for deployment in host.deployments
                ),
            )
