"""Slots: none is lost, none is taken twice, nobody overtakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.endpoints.slots import SlotKey, Slots
from router.errors import Overloaded
from tests.support.clock import run_in_virtual_time

A: SlotKey = ("a", "m")
B: SlotKey = ("b", "m")
C: SlotKey = ("c", "m")
QUEUE_TIMEOUT = 3.0


@dataclass(frozen=True)
class Job:
    """One request: when it comes, where it may go, how long it takes, when it is cancelled.

    Times are whole numbers, so that ends, time-outs and cancellations often coincide; within a
    moment, ``turns`` says in which turn of the event loop it ends or is cancelled.
    """

    arrives: int
    keys: tuple[SlotKey, ...]
    takes: int
    cancelled_after: int | None
    turns: int


jobs = st.lists(
    st.builds(
        Job,
        arrives=st.integers(0, 2),
        keys=st.sets(st.sampled_from([A, B, C]), min_size=1).map(lambda k: tuple(sorted(k))),
        takes=st.integers(0, 3),
        cancelled_after=st.none() | st.integers(0, 4),
        turns=st.integers(0, 2),
    ),
    min_size=1,
    max_size=25,
)


def in_turn(turns: int, call: Callable[..., object], *args: object) -> None:
    """Call, so many turns of the event loop later."""
    if turns:
        asyncio.get_running_loop().call_soon(in_turn, turns - 1, call, *args)
    else:
        call(*args)


class Yard:
    """Runs jobs against real slots and checks at every step what must always hold."""

    def __init__(self, limit: int, queue_size: int) -> None:
        self.limit = limit
        self.queue_size = queue_size
        self.reported: dict[SlotKey, int] = {}
        self.slots = Slots(queue_size, QUEUE_TIMEOUT, self._changed)
        self.outcomes: list[str] = []

    def _changed(self, key: SlotKey, in_flight: int) -> None:
        self.reported[key] = in_flight
        assert 0 <= in_flight <= self.limit

    def check(self) -> None:
        assert self.slots.waiting <= self.queue_size
        for keys, future in self.slots._waiters:
            if not future.done():
                real = [key for key in keys if key in (A, B, C)]
                assert all(self.slots.in_flight(key) == self.limit for key in real)

    async def run(self, jobs: list[Job]) -> None:
        tasks = [asyncio.create_task(self._job(job, n)) for n, job in enumerate(jobs)]
        loop = asyncio.get_running_loop()
        for job, task in zip(jobs, tasks, strict=True):
            if job.cancelled_after is not None:
                when = job.arrives + job.cancelled_after
                loop.call_at(when, in_turn, job.turns, task.cancel)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, asyncio.CancelledError):
                self.outcomes.append("cancelled")
            elif isinstance(result, BaseException):
                raise result
        await asyncio.sleep(20)
        assert self.slots.waiting == 0
        assert self.slots._in_flight == {}
        assert not any(self.reported.values())
        assert len(self.outcomes) == len(jobs)

    async def _job(self, job: Job, number: int) -> None:
        await asyncio.sleep(job.arrives)
        self.check()
        try:
            key = await self._take(job, number)
        except Overloaded:
            self.outcomes.append("overloaded")
            return
        self.outcomes.append("served")
        self.check()
        # Not by the task itself, which would always come a turn after the time-outs.
        loop = asyncio.get_running_loop()
        loop.call_at(loop.time() + job.takes, in_turn, job.turns, self._end, key)

    def _end(self, key: SlotKey) -> None:
        self.slots.give_back(key)
        self.check()

    async def _take(self, job: Job, number: int) -> SlotKey:
        for key in job.keys:
            if self.slots.in_flight(key) < self.limit:
                self.slots.take(key)
                return key
        # A key of its own says who stands where in the queue.
        own = ("job", str(number))
        before = [keys for keys, _ in self.slots._waiters]
        key = await self.slots.wait([*job.keys, own])
        assert key in job.keys
        still = [keys for keys, future in self.slots._waiters if not future.done()]
        assert not any(key in keys for keys in still if keys in before), "somebody was overtaken"
        return key


@settings(max_examples=500, deadline=None)
@given(jobs=jobs, limit=st.integers(1, 3), queue_size=st.integers(0, 8))
def test_any_interleaving_ends_with_nothing_in_flight(
    jobs: list[Job], limit: int, queue_size: int
) -> None:
    run_in_virtual_time(Yard(limit, queue_size).run(jobs))


def slots(queue_size: int = 9) -> Slots:
    return Slots(queue_size, QUEUE_TIMEOUT, lambda key, in_flight: None)


async def soon(*coroutines: Coroutine[Any, Any, SlotKey]) -> list[asyncio.Task[SlotKey]]:
    """Tasks that have run until they wait."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    await asyncio.sleep(0)
    return tasks


def test_who_waits_is_served_in_turn() -> None:
    async def main() -> None:
        yard = slots()
        yard.take(A)
        served: list[int] = []

        async def waiter(number: int) -> SlotKey:
            key = await yard.wait([A])
            served.append(number)
            yard.give_back(key)
            return key

        tasks = await soon(*(waiter(number) for number in range(6)))
        assert yard.waiting == 6
        yard.give_back(A)
        await asyncio.gather(*tasks)
        assert served == list(range(6))

    run_in_virtual_time(main())


def test_a_slot_goes_to_the_first_that_can_use_it() -> None:
    async def main() -> None:
        yard = slots()
        yard.take(A)
        yard.take(B)
        first, second, third = await soon(yard.wait([A]), yard.wait([A, B]), yard.wait([B]))
        yard.give_back(B)
        assert await second == B
        assert not first.done()
        assert not third.done()
        yard.give_back(B)
        assert await third == B
        yard.give_back(A)
        assert await first == A

    run_in_virtual_time(main())


def test_the_queue_is_bounded() -> None:
    async def main() -> None:
        yard = slots(queue_size=1)
        yard.take(A)
        (waiting,) = await soon(yard.wait([A]))
        with pytest.raises(Overloaded, match="queue is full") as caught:
            await yard.wait([A])
        assert caught.value.headers == {"Retry-After": "3"}
        yard.give_back(A)
        assert await waiting == A

    run_in_virtual_time(main())


def test_waiting_has_a_deadline() -> None:
    async def main() -> None:
        yard = slots()
        yard.take(A)
        began = asyncio.get_running_loop().time()
        with pytest.raises(Overloaded, match="3 s"):
            await yard.wait([A])
        assert asyncio.get_running_loop().time() - began == QUEUE_TIMEOUT
        assert yard.waiting == 0
        assert yard.in_flight(A) == 1

    run_in_virtual_time(main())


@pytest.mark.parametrize("given_back", ["before", "after"])
def test_a_slot_that_comes_with_the_time_out_is_not_lost(given_back: str) -> None:
    async def main() -> None:
        yard = slots()
        yard.take(A)
        loop = asyncio.get_running_loop()
        if given_back == "before":
            loop.call_at(QUEUE_TIMEOUT, yard.give_back, A)
        (waiting,) = await soon(yard.wait([A]))
        if given_back == "after":
            loop.call_at(QUEUE_TIMEOUT, yard.give_back, A)
        try:
            key = await waiting
        except Overloaded:
            await asyncio.sleep(0)
            assert yard.in_flight(A) == 0
        else:
            assert yard.in_flight(A) == 1
            yard.give_back(key)
        assert yard._in_flight == {}

    run_in_virtual_time(main())


def test_a_slot_that_comes_with_a_cancellation_goes_to_the_next() -> None:
    async def main() -> None:
        yard = slots()
        yard.take(A)
        first, second = await soon(yard.wait([A]), yard.wait([A]))
        yard.give_back(A)
        first.cancel()
        assert await second == A
        with pytest.raises(asyncio.CancelledError):
            await first
        assert yard.in_flight(A) == 1

    run_in_virtual_time(main())


@pytest.mark.parametrize("timeout", [0.0, 0.4])
def test_retry_after_is_at_least_a_second(timeout: float) -> None:
    async def main() -> None:
        yard = Slots(1, timeout, lambda key, in_flight: None)
        yard.take(A)
        with pytest.raises(Overloaded) as caught:
            await yard.wait([A])
        assert caught.value.headers == {"Retry-After": "1"}

    run_in_virtual_time(main())
