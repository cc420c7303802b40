"""A trace, replayed in virtual time in front of the router's own parts."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from structlog.testing import capture_logs

from router.core.upstream import Adapter, Transport
from router.endpoints.selector import Selector, SlotReservation
from router.errors import RouterError
from router.pipeline.hedging import Fleet
from router.settings.schema import EndpointSettings, Settings
from router.telemetry.metrics import Metrics
from router.upstream.adapters import make_adapter
from tests.simulation.box import Box, Machine
from tests.simulation.line import Line
from tests.simulation.scene import SIZES, Fault
from tests.simulation.trace import Request
from tests.simulation.transport import SimulatedTransport
from tests.support.clock import run_in_virtual_time
from tests.support.exchanges import an_exchange

__all__ = ["Outcome", "Replay", "replay", "settings_for"]

_URLS: Final = {"chat": "http://{}.example/v1", "ollama": "http://{}.example"}


@dataclass(slots=True)
class Outcome:
    """How a request ended.

    ``first_token`` is in seconds from its arrival; ``error`` is None, or the status and, where
    the answer had begun, that it was cut.
    """

    request: Request
    first_token: float | None = None
    error: str | None = None
    endpoint: str | None = None
    attempts: int = 0


@dataclass(slots=True)
class Replay:
    """What came of a trace. ``left`` is what was in flight or in the queue after the last end."""

    outcomes: list[Outcome]
    boxes: Mapping[str, Box]
    left: int = 0
    longest_queue: int = 0

    def complete(self, asked: int) -> bool:
        """Whether as many requests as were ``asked`` have ended, and nothing is left of them."""
        ended = [o for o in self.outcomes if o.error is not None or o.first_token is not None]
        return len(ended) == asked and not self.left


def settings_for(machines: Sequence[Machine], balance: Mapping[str, Any]) -> Settings:
    """The router's configuration in front of these machines."""
    endpoints = [
        {
            "name": machine.name,
            "url": _URLS[machine.dialect].format(machine.name),
            "dialect": machine.dialect,
            "max_in_flight": machine.limit,
            "priority": machine.tier,
        }
        for machine in machines
    ]
    return Settings.model_validate({"endpoints": endpoints, "balance": dict(balance)})


def replay(
    trace: Sequence[Request],
    machines: Sequence[Machine],
    faults: Sequence[Fault],
    seconds: float,
    balance: Mapping[str, Any],
    seed: int = 0,
) -> Replay:
    """Replay a trace of so many seconds with these settings of ``balance``; always the same."""
    before = random.getstate()
    random.seed(seed)
    try:
        settings = settings_for(machines, balance)
        return run_in_virtual_time(_Stage(settings, machines, seed).play(trace, faults, seconds))
    finally:
        random.setstate(before)


class _Stage:
    """The router's parts in front of the boxes."""

    def __init__(self, settings: Settings, machines: Sequence[Machine], seed: int) -> None:
        self._settings = settings
        self._machines = machines
        self._seed = seed
        self._boxes: dict[str, Box] = {}

    async def play(
        self, trace: Sequence[Request], faults: Sequence[Fault], seconds: float
    ) -> Replay:
        """The whole trace, until the last request has ended."""
        self._boxes = {m.name: Box(m, SIZES, self._seed) for m in self._machines}
        with _virtual_clock(), capture_logs():
            fleet = Fleet(self._settings, self._connect, Metrics("simulation"))
            fleet.start()
            result = Replay([], self._boxes)
            async with asyncio.TaskGroup() as tasks:
                for fault in faults:
                    tasks.create_task(self._befall(fault, seconds))
                await self._ask(trace, fleet, tasks, result)
            await fleet.stop()
            result.left = len(fleet.selector.queue)
            result.left += sum(endpoint.in_flight for endpoint in fleet.registry.endpoints)
        return result

    def _connect(self, settings: EndpointSettings) -> tuple[Adapter, Transport]:
        return make_adapter(settings), SimulatedTransport(self._boxes[settings.name])

    async def _befall(self, fault: Fault, seconds: float) -> None:
        box = self._boxes[fault.endpoint]
        await asyncio.sleep(fault.begins * seconds)
        fault.begin(box)
        await asyncio.sleep((fault.ends - fault.begins) * seconds)
        fault.end(box)

    async def _ask(
        self, trace: Sequence[Request], fleet: Fleet, tasks: asyncio.TaskGroup, result: Replay
    ) -> None:
        loop = asyncio.get_running_loop()
        for request in trace:
            await asyncio.sleep(request.at - loop.time())
            outcome = Outcome(request)
            result.outcomes.append(outcome)
            result.longest_queue = max(result.longest_queue, len(fleet.selector.queue))
            tasks.create_task(_Work(outcome, fleet.selector, self._boxes).run(fleet))


class _Work:
    """One request at the router; implements ``router.pipeline.failover.Work``."""

    def __init__(self, outcome: Outcome, selector: Selector, boxes: Mapping[str, Box]) -> None:
        self._outcome = outcome
        self._selector = selector
        self._boxes = boxes
        request = outcome.request
        self._exchange = an_exchange(
            id=f"{request.conversation}.{request.turn}",
            started=request.at,
            caller=request.caller,
            model=request.model,
            body=dict(request.body),
            stream=True,
        )

    async def run(self, fleet: Fleet) -> None:
        """From its arrival to its end."""
        outcome = self._outcome
        try:
            await fleet.failover.run(self._exchange, self)
        except RouterError as error:
            outcome.error = "cut" if self.has_output else str(error.status)
        outcome.attempts = self._exchange.result.attempts

    @property
    def has_output(self) -> bool:
        """See ``Work.has_output``."""
        return self._outcome.first_token is not None

    async def attempt(self, reservation: SlotReservation) -> None:
        """See ``Work.attempt``."""
        deployment = reservation.deployment
        sent = time.monotonic()

        def first_output() -> None:
            now = time.monotonic()
            self._outcome.first_token = now - self._outcome.request.at
            self._outcome.endpoint = deployment.endpoint.name
            self._selector.answered(reservation, now - sent)

        self._exchange.result.attempts += 1
        line = Line(deployment.endpoint.settings.timeouts, first_output)
        box = self._boxes[deployment.endpoint.name]
        await box.answer(self._outcome.request, deployment.model, line)

    def rewind(self, model: str) -> None:
        """See ``Work.rewind``: nothing has been made."""


@contextmanager
def _virtual_clock() -> Iterator[None]:
    """The router's clock is the loop's."""
    with mock.patch.object(time, "monotonic", asyncio.get_running_loop().time):
        yield
