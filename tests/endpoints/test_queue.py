"""The queue: nobody overtakes, no caller crowds out others, and no slot is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from router.endpoints.plan import Queue, QueueFull, QueueTimeout
from tests.support.clock import run_in_virtual_time
from tests.support.queueing import TIMEOUT, Yard, dismiss, turn


def test_one_caller_is_served_in_the_order_of_arrival() -> None:
    async def main() -> None:
        yard = Yard()
        await yard.stand_all("a1", "a2", "a3", "a4")
        while await yard.offer():
            pass
        assert yard.served == ["a1", "a2", "a3", "a4"]
        assert len(yard.queue) == 0

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        pytest.param("a1 a2 a3 b1", "a1 b1 a2 a3", id="a backlog"),
        pytest.param("a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3", id="three callers"),
        pytest.param("a1 b1 a2 b2 a3 b3", "a1 b1 a2 b2 a3 b3", id="in turn already"),
        pytest.param("a1 a2 . b1 b2 a3", "a1 b1 a2 b2 a3", id="who was served comes later"),
        pytest.param("a1 a2 a3 a4 . . b1 b2 . c1", "a1 a2 b1 c1 a3 b2 a4", id="newcomers"),
        pytest.param("a1 . a2 . a3 . b1 a4", "a1 a2 a3 b1 a4", id="a new caller, another's turn"),
        pytest.param("b1 a1 . . a2 b2", "b1 a1 b2 a2", id="who waited longer since his turn"),
    ],
)
def test_callers_take_turns(arrivals: str, order: str) -> None:
    """A dot is a slot that is offered in between; the rest follow at the end."""

    async def main() -> None:
        yard = Yard()
        for what in arrivals.split():
            if what == ".":
                assert await yard.offer()
            else:
                await yard.stand(what)
        while await yard.offer():
            pass
        assert " ".join(yard.served) == order

    run_in_virtual_time(main())


def test_a_hundredth_request_waits_behind_the_first_of_another_whatever_it_waits_for() -> None:
    """What a caller gets of one model is no head start of others in the queue for another one."""

    async def main() -> None:
        yard = Yard(size=200)
        tasks = await yard.stand_all(*(f"a{number}" for number in range(100)))
        elsewhere = await yard.stand("a100", "t")
        assert await yard.offer("t")
        assert await elsewhere == "t"
        tasks.append(await yard.stand("b1"))
        await yard.offer()
        await yard.offer()
        assert yard.served == ["a100", "b1", "a0"]
        await dismiss(tasks)

    run_in_virtual_time(main())


def test_who_left_without_a_slot_has_had_no_turn() -> None:
    async def main() -> None:
        yard = Yard()
        await dismiss(await yard.stand_all(*(f"a{number}" for number in range(50))))
        await yard.stand_all("a50", "b1", "b2", "a51")
        while await yard.offer():
            pass
        assert yard.served == ["a50", "b1", "a51", "b2"]

    run_in_virtual_time(main())


def test_a_slot_goes_to_the_first_that_can_use_it() -> None:
    async def main() -> None:
        yard = Yard()
        first, second, third = [
            await yard.stand(name, slots)
            for name, slots in (("a1", "s"), ("a2", "st"), ("a3", "t"))
        ]
        assert not await yard.offer("u")
        assert await yard.offer("t")
        assert await second == "t"
        assert await yard.offer("t")
        assert await third == "t"
        assert await yard.offer("s")
        assert await first == "s"
        assert not await yard.offer("s")

    run_in_virtual_time(main())


def test_the_queue_is_bounded() -> None:
    async def main() -> None:
        yard = Yard(size=2)
        tasks = await yard.stand_all("a1", "b1")
        with pytest.raises(QueueFull):
            yard.queue.ticket("c", TIMEOUT)
        await yard.offer()
        tasks += await yard.stand_all("c1")
        yard.queue.size = 1
        with pytest.raises(QueueFull):
            yard.queue.ticket("d", TIMEOUT)
        assert len(yard.queue) == 2  # who waits already, stays
        await dismiss(tasks)
        assert len(yard.queue) == 0

    run_in_virtual_time(main())


def test_who_looks_around_keeps_the_place_and_leaves_no_room() -> None:
    async def main() -> None:
        yard = Yard(size=2)
        tasks = await yard.stand_all("a1", "a2")
        yard.queue.look_again()
        with pytest.raises(QueueFull):
            yard.queue.ticket("b", TIMEOUT)
        await turn()
        assert yard.looked == ["a1", "a2"]
        assert len(yard.queue) == 2
        await yard.offer()
        await yard.offer()
        assert yard.served == ["a1", "a2"]
        await asyncio.gather(*tasks)

    run_in_virtual_time(main())


def test_who_comes_while_others_look_around_stands_behind_them() -> None:
    async def main() -> None:
        yard = Yard()
        (first,) = await yard.stand_all("a1")
        second = asyncio.create_task(yard.queue.wait(yard.queue.ticket("a", TIMEOUT), "s"))
        yard.queue.look_again()
        await turn()
        assert yard.looked == ["a1"]
        await yard.offer()
        assert await first == "s"
        assert not second.done()
        second.cancel()

    run_in_virtual_time(main())


def test_everybody_looks_around_in_turn() -> None:
    async def main() -> None:
        yard = Yard()
        tasks = await yard.stand_all("a1", "a2", "a3", "a4", "b1", "b2", "c1")
        await yard.offer()  # it was the turn of a
        yard.queue.look_again()
        await turn()
        assert yard.looked == ["b1", "c1", "a2", "b2", "a3", "a4"]
        await dismiss(tasks)

    run_in_virtual_time(main())


def test_who_found_a_slot_by_himself_has_had_his_turn() -> None:
    async def main() -> None:
        yard = Yard()
        ticket = yard.queue.ticket("a", TIMEOUT)
        yard.queue.served(ticket)
        await yard.stand_all("a1", "b1")
        await yard.offer()
        await yard.offer()
        assert yard.served == ["b1", "a1"]

    run_in_virtual_time(main())


def test_a_slot_that_comes_while_its_waiter_is_told_to_look_is_its_own() -> None:
    async def main() -> None:
        yard = Yard()
        first, second = await yard.stand_all("a1", "b1")
        yard.queue.look_again()
        assert yard.queue.offer("s")
        assert await first == "s"
        assert not second.done()
        assert yard.looked == ["b1"]
        await dismiss([second])

    run_in_virtual_time(main())


def test_waiting_has_a_deadline() -> None:
    async def main() -> None:
        yard = Yard()
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting = await yard.stand("a1")
        for after in (1.0, 2.0):  # looking around does not move it
            loop.call_at(began + after, yard.queue.look_again)
        with pytest.raises(QueueTimeout):
            await waiting
        assert loop.time() - began == TIMEOUT
        assert yard.looked == ["a1", "a1"]
        assert len(yard.queue) == 0
        assert not await yard.offer()

    run_in_virtual_time(main())


def test_no_time_to_wait_is_no_wait() -> None:
    async def main() -> None:
        yard = Yard()
        with pytest.raises(QueueTimeout):
            await yard.queue.wait(yard.queue.ticket("a", 0.0), "s")
        assert asyncio.get_running_loop().time() == 0.0
        assert len(yard.queue) == 0

    run_in_virtual_time(main())


def test_who_disconnects_leaves_at_once() -> None:
    async def main() -> None:
        yard = Yard(size=1)
        (waiting,) = await yard.stand_all("a1")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(yard.queue) == 0
        assert asyncio.get_running_loop().time() == 0.0
        assert not await yard.offer()
        await dismiss(await yard.stand_all("b1"))

    run_in_virtual_time(main())


@pytest.mark.parametrize("given_back", ["before", "after"])
def test_a_slot_that_comes_with_the_time_out_is_not_lost(given_back: str) -> None:
    """Both at the same moment, in either order: it was taken, or it was not, and nothing else."""

    async def main() -> None:
        yard = Yard()
        loop = asyncio.get_running_loop()
        offered: list[bool] = []
        offer: Callable[[], None] = lambda: offered.append(yard.queue.offer("s"))  # noqa: E731
        if given_back == "before":
            loop.call_at(TIMEOUT, offer)
        waiting = await yard.stand("a1")
        if given_back == "after":
            loop.call_at(TIMEOUT, offer)
        try:
            assert await waiting == "s"
        except QueueTimeout:
            await turn()
            assert offered == [False]
        else:
            assert offered == [True]
        assert len(yard.queue) == 0

    run_in_virtual_time(main())


def test_a_slot_that_comes_with_a_cancellation_goes_to_the_next() -> None:
    async def main() -> None:
        yard = Yard()
        first, second = await yard.stand_all("a1", "b1")
        assert yard.queue.offer("s")
        first.cancel()
        assert await second == "s"
        with pytest.raises(asyncio.CancelledError):
            await first
        assert yard.returned == ["s"]

    run_in_virtual_time(main())


def test_what_is_offered_after_a_cancellation_goes_to_another() -> None:
    async def main() -> None:
        yard = Yard()
        first, second = await yard.stand_all("a1", "b1")
        first.cancel()
        assert yard.queue.offer("s")
        assert await second == "s"
        assert yard.returned == []
        await dismiss([first])

    run_in_virtual_time(main())


def test_memory_does_not_grow_with_callers() -> None:
    async def main() -> None:
        queue: Queue[str] = Queue(9, lambda slot: None)
        for number in range(5000):
            queue.served(queue.ticket(f"caller {number}", TIMEOUT))
        assert len(queue._turn) <= 1024

    run_in_virtual_time(main())


def test_who_was_served_longest_ago_is_forgotten_first() -> None:
    async def main() -> None:
        yard = Yard()
        for caller in ("b", "a", *map(str, range(1022)), "b", "one more"):
            yard.queue.served(yard.queue.ticket(caller, TIMEOUT))
        await yard.stand_all("b1", "a1")
        await yard.offer()
        await yard.offer()
        assert yard.served == ["a1", "b1"]

    run_in_virtual_time(main())
