"""Waiting for a slot: who gets it, who is told that there is none, what is noticed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil

import pytest

from router.balance.deployment_state import OPEN
from router.errors import Overloaded, RouterError, UpstreamRateLimited
from tests.support.clock import run_in_virtual_time
from tests.support.depot import Depot, asking, backend, depot_of, now, sick, take, turns, waiting


def test_who_waits_gets_the_first_slot_anywhere() -> None:
    async def main() -> None:
        depot = depot_of(1, 1)
        first, second = await take(depot), await take(depot)
        third = await waiting(depot)
        depot.selector.release(second)
        granted = await third
        assert granted.deployment is second.deployment
        assert len(depot.selector.queue) == 0
        assert depot.in_flight == {("a", "m"): 1, ("b", "m"): 1}
        for reservation in (first, granted):
            depot.selector.release(reservation)
        assert not any(depot.in_flight.values())

    run_in_virtual_time(main())


def test_only_those_that_are_left_are_waited_for() -> None:
    async def main() -> None:
        depot = depot_of(1, 1)
        held = {r.deployment.endpoint.name: r for r in (await take(depot), await take(depot))}
        plan = await depot.plan()
        plan.tried.append(depot.deployment("a"))
        task = await waiting(depot, plan)
        depot.selector.release(held["a"])
        await turns()
        assert not task.done()
        depot.selector.release(held["b"])
        assert (await task).deployment is depot.deployment("b")

    run_in_virtual_time(main())


def test_callers_take_turns_for_slots() -> None:
    async def main() -> None:
        depot = depot_of(1)
        held = await take(depot)
        served: list[str] = []

        async def serve(caller: str) -> None:
            reservation = await depot.selector.reserve(await depot.plan(asking(caller)))
            served.append(caller)
            depot.selector.release(reservation)

        tasks = [asyncio.create_task(serve(caller)) for caller in "xxxyx"]
        await turns()
        depot.selector.release(held)
        await asyncio.gather(*tasks)
        assert "".join(served) == "xyxxx"

    run_in_virtual_time(main())


def test_who_finds_a_slot_while_looking_around_has_had_a_turn() -> None:
    async def main() -> None:
        depot = depot_of(1, 1)
        depot["b"].host.drained = True
        depot["b"].host.refresh(now())
        held = await take(depot)
        plans = [await depot.plan(asking(caller)) for caller in "xxy"]
        first, second, other = [await waiting(depot, plan) for plan in plans]
        depot["b"].host.drained = False
        depot["b"].host.refresh(now())
        assert (await first).deployment is depot.deployment("b")
        depot.selector.release(held)
        assert (await other).deployment is depot.deployment("a")
        assert not second.done()
        second.cancel()

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("held", "size", "after", "reason", "seconds"),
    [
        pytest.param(8.0, 3, 0.0, "the queue is full", 16, id="full, and so is the queue"),
        pytest.param(None, 0, 0.0, "the queue is full", 5, id="full, nothing is known"),
        pytest.param(8.0, 0, 0.0, "the queue is full", 4, id="full"),
        pytest.param(0.1, 0, 0.0, "the queue is full", 1, id="full, for a moment"),
        pytest.param(1e6, 0, 0.0, "the queue is full", 3600, id="full, for ever"),
        pytest.param(8.0, 9, 5.0, "none got free in 5 s", 4, id="time over"),
    ],
)
def test_what_a_request_is_told_that_finds_no_slot(
    held: float | None, size: int, after: float, reason: str, seconds: int
) -> None:
    """There are two slots."""

    async def main() -> None:
        depot = depot_of(2, queue_size=size)
        await take(depot), await take(depot)
        if held is not None:
            depot.deployment("a").service.observe(held)
        others = [await waiting(depot) for _ in range(size % 9)]
        with pytest.raises(Overloaded, match=reason) as caught:
            await take(depot)
        assert caught.value.headers == {"Retry-After": str(seconds)}
        assert now() == after
        assert depot.in_flight == {("a", "m"): 2}
        for other in others:
            other.cancel()

    run_in_virtual_time(main())


@pytest.mark.parametrize("queue_size", [0, 9])
def test_a_cold_endpoint_is_better_than_a_refusal(queue_size: int) -> None:
    """A slot was expected to be free soon; when there is no place to wait, or it comes to nothing,
    the model is loaded.
    """

    async def main() -> None:
        depot = depot_of(1, 1, queue_size=queue_size)
        depot.deployment("b").in_memory(now(), False)
        held = await take(depot)
        held.deployment.service.observe(0.5)
        reservation = await take(depot)
        assert (reservation.deployment, reservation.deployment.loaded) == (
            depot.deployment("b"),
            False,
        )
        assert now() == (5.0 if queue_size else 0.0)

    run_in_virtual_time(main())


def test_who_waits_gets_what_others_have_loaded_meanwhile() -> None:
    async def main() -> None:
        depot = depot_of(1, 1)
        for name in "ab":
            depot.deployment(name).service.observe(0.5)
        depot.deployment("b").in_memory(now(), False)
        await take(depot)
        task = await waiting(depot)
        plan = await depot.plan()
        plan.tried.append(depot.deployment("a"))
        loading = await depot.selector.reserve(plan)
        assert loading.deployment is depot.deployment("b")
        depot.selector.answered(loading, 0.1)
        depot.selector.release(loading)
        assert (await task).deployment is depot.deployment("b")
        assert now() == 0.0

    run_in_virtual_time(main())


def test_a_slot_where_the_model_was_not_loaded_after_all_is_no_better_than_the_queue() -> None:
    async def main() -> None:
        depot = depot_of(1, 1)
        for name in "ab":
            depot.deployment(name).service.observe(0.5)
        depot.deployment("b").in_memory(now(), False)
        held = await take(depot)
        task = await waiting(depot)
        plan = await depot.plan()
        plan.tried.append(depot.deployment("a"))
        depot.selector.release(await depot.selector.reserve(plan))
        await turns()
        assert not task.done()
        depot.selector.release(held)
        assert (await task).deployment is depot.deployment("a")

    run_in_virtual_time(main())


def pause(depot: Depot) -> None:
    depot.deployment("a").cool_down(9.0, now())
    depot.deployment("b").cool_down(2.5, now())


def pause_and_fail_to_load(depot: Depot) -> None:
    depot.deployment("a").cool_down(9.0, now())
    depot.deployment("b").cool(now() + 3.0, now())


def fail_to_load(depot: Depot) -> None:
    depot.deployment("a").cool(now() + 7.0, now())
    depot["b"].host.drained = True
    depot["b"].host.refresh(now())


def drain(depot: Depot) -> None:
    for endpoint in depot.registry.endpoints:
        endpoint.host.drained = True
        endpoint.host.refresh(now())


def break_down(depot: Depot) -> None:
    for endpoint in depot.registry.endpoints:
        endpoint.unreachable(now())


@pytest.mark.parametrize(
    ("happens", "error", "message", "seconds"),
    [
        pytest.param(pause, UpstreamRateLimited, "pause: a for 9 s, b for 3 s", 3, id="429"),
        pytest.param(
            pause_and_fail_to_load, UpstreamRateLimited, "a for 9 s, b for 3 s", 3, id="both"
        ),
        pytest.param(fail_to_load, Overloaded, "could not be loaded; .* a for 7 s", 7, id="load"),
        pytest.param(drain, Overloaded, "is drained", 5, id="drained"),
        pytest.param(break_down, Overloaded, "fails, and is left alone", None, id="unreachable"),
    ],
)
def test_what_a_request_is_told_that_nobody_can_be_asked_for(
    happens: Callable[[Depot], None], error: type[RouterError], message: str, seconds: int | None
) -> None:
    async def main() -> None:
        depot = depot_of(4, 4)
        plan = await depot.plan()
        plan.desperate = False
        happens(depot)
        with pytest.raises(error, match=message) as caught:
            await depot.selector.reserve(plan)
        # A breaker draws by lot for how long.
        hosts = [endpoint.host for endpoint in depot.registry.endpoints]
        told = seconds or ceil(min(host.breaker.opens_until for host in hosts))
        assert caught.value.headers == {"Retry-After": str(told)}
        assert now() == 0.0

    run_in_virtual_time(main())


def test_a_load_that_failed_after_a_rate_limit_is_no_rate_limit() -> None:
    async def main() -> None:
        depot = depot_of(4)
        depot.deployment("a").cool_down(1.0, now())
        depot.deployment("a").cool(now() + 5.0, now())
        with pytest.raises(Overloaded):
            await take(depot)

    run_in_virtual_time(main())


def test_who_waits_does_not_wait_for_others_to_see_what_time_changes() -> None:
    async def main() -> None:
        depot = depot_of(1, 1)
        depot.deployment("b").cool_down(2.0, now())
        await take(depot)
        task = await waiting(depot)
        assert (await task).deployment is depot.deployment("b")
        assert now() == 2.0

    run_in_virtual_time(main())


def test_an_alarm_is_set_sooner_when_something_changes_sooner() -> None:
    async def main() -> None:
        depot = depot_of(1, 1, 1)
        depot.deployment("b").cool_down(4.0, now())
        depot.deployment("c").cool_down(3.0, now())
        await take(depot)
        tasks = [await waiting(depot), await waiting(depot)]
        await asyncio.sleep(1.0)
        depot.deployment("c").cool_until = 2.0
        depot.deployment("c").refresh(now())
        assert (await tasks[0]).deployment is depot.deployment("c")
        assert now() == 2.0
        assert (await tasks[1]).deployment is depot.deployment("b")
        assert now() == 4.0

    run_in_virtual_time(main())


def test_what_is_sick_and_busy_is_waited_for_when_nothing_else_is_left() -> None:
    async def main() -> None:
        depot = depot_of(1)
        held = await take(depot)
        sick(depot, "a")
        task = await waiting(depot)
        depot.selector.release(held)
        granted = await task
        assert granted.deployment.grade == OPEN
        assert not granted.probe

    run_in_virtual_time(main())


def test_who_waits_follows_a_reload() -> None:
    async def main() -> None:
        depot = depot_of(1)
        held = await take(depot)
        first, second, third = [await waiting(depot) for _ in range(3)]
        depot.apply(backend("a", "m", max_in_flight=2))
        assert (await first).deployment is held.deployment
        depot.apply(backend("a", "m", max_in_flight=2), backend("b", "m", max_in_flight=1))
        assert (await second).deployment is depot.deployment("b")
        depot.apply(backend("c", "m"))
        assert (await third).deployment is depot.deployment("c")
        assert now() == 0.0

    run_in_virtual_time(main())


def test_who_waits_follows_to_what_has_to_be_asked_first() -> None:
    async def main() -> None:
        depot = depot_of(1)
        await take(depot)
        first, second = [await waiting(depot) for _ in range(2)]
        depot.apply(backend("b", max_in_flight=1))
        await turns()
        assert not first.done()
        assert not second.done()
        depot.lists("b", "m")
        granted = await first
        assert granted.deployment is depot.deployment("b")
        depot.selector.release(granted)
        assert (await second).deployment is granted.deployment
        assert now() == 0.0

    run_in_virtual_time(main())


def test_who_waits_for_what_is_gone_is_told() -> None:
    async def main() -> None:
        depot = depot_of(1)
        await take(depot)
        task = await waiting(depot)
        depot.apply(backend("b", "other"))
        depot.lists("b", "other")
        with pytest.raises(Overloaded):
            await task
        assert now() == 0.0

    run_in_virtual_time(main())


def test_slots_beyond_a_lower_limit_are_not_handed_on() -> None:
    async def main() -> None:
        depot = depot_of(3)
        held = [await take(depot) for _ in range(3)]
        depot.apply(backend("a", "m", max_in_flight=1), queue_timeout=5.0)
        task = await waiting(depot)
        for reservation in held[:2]:
            depot.selector.release(reservation)
            await turns()
            assert not task.done()
        depot.selector.release(held[2])
        await task
        assert depot.in_flight == {("a", "m"): 1}

    run_in_virtual_time(main())
