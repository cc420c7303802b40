"""Choosing, waiting and giving back: no slot is lost, and nobody is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from router.balance.deployment_state import COLD, OPEN, PROBE, READY, WARMING
from router.errors import Overloaded
from tests.support.clock import run_in_virtual_time
from tests.support.depot import Depot, asking, backend, depot_of, now, sick, take


def test_the_least_loaded_is_taken_and_given_back() -> None:
    async def main() -> None:
        depot = depot_of(4, 4)
        first, second = await take(depot), await take(depot)
        assert {first.deployment.endpoint.name, second.deployment.endpoint.name} == {"a", "b"}
        assert depot.in_flight == {("a", "m"): 1, ("b", "m"): 1}
        for reservation in (first, second):
            assert not reservation.probe
            depot.selector.release(reservation)
        assert depot.in_flight == {}
        assert [depot.deployment(name).in_flight for name in "ab"] == [0, 0]

    run_in_virtual_time(main())


def test_slots_are_counted_by_model() -> None:
    async def main() -> None:
        depot = Depot(backend("a", "m", "n", max_in_flight=1), clock=now, queue_size=0)
        await take(depot)
        await depot.selector.reserve(await depot.plan(asking(model="n")))
        with pytest.raises(Overloaded):
            await take(depot)

    run_in_virtual_time(main())


def test_one_request_tries_what_was_sick() -> None:
    async def main() -> None:
        depot = depot_of(4, 4)
        sick(depot, "a")
        assert (await take(depot)).deployment is depot.deployment("b")
        await asyncio.sleep(1.3)
        probe = await take(depot)
        assert (probe.deployment, probe.probe) == (depot.deployment("a"), True)
        others = [await take(depot) for _ in range(2)]
        assert {other.deployment.endpoint.name for other in others} == {"b"}
        depot.selector.answered(probe, 0.1)
        assert not probe.probe
        assert depot.deployment("a").grade == WARMING
        depot.selector.release(probe)

    run_in_virtual_time(main())


@pytest.mark.parametrize("ending", ["failed", "refused", "released"])
def test_how_a_probe_ends(ending: str) -> None:
    async def main() -> None:
        depot = depot_of(1, 1)
        sick(depot, "a")
        await asyncio.sleep(1.3)
        probe = await take(depot)
        assert probe.probe
        if ending != "released":
            getattr(depot.selector, ending)(probe)
        depot.selector.release(probe)
        grades = {"failed": OPEN, "refused": WARMING, "released": PROBE}
        assert depot.deployment("a").grade == grades[ending]
        await asyncio.sleep(3.0)
        if ending == "failed":
            # It is tried again, although nothing else has happened there.
            assert (await take(depot)).probe

    run_in_virtual_time(main())


def test_a_retry_is_no_probe() -> None:
    async def main() -> None:
        depot = depot_of(4, 4, 4)
        sick(depot, "a")
        await asyncio.sleep(1.3)
        plan = await depot.plan()
        plan.tried.append(depot.deployment("b"))
        assert (await depot.selector.reserve(plan)).deployment is depot.deployment("c")

    run_in_virtual_time(main())


def test_a_hedge_gets_only_what_can_begin_at_once() -> None:
    async def main() -> None:
        depot = depot_of(1, 1)
        plan = await depot.plan()
        first = depot.selector.try_reserve(plan)
        assert first is not None
        plan.tried.append(first.deployment)
        other = next(
            deployment for deployment in plan.deployments if deployment is not first.deployment
        )
        other.in_memory(now(), False)
        assert other.grade == COLD
        assert depot.selector.try_reserve(plan) is None
        other.in_memory(now(), True)
        assert other.grade == READY
        second = depot.selector.try_reserve(plan)
        assert second is not None
        assert second.deployment is other
        assert depot.selector.try_reserve(await depot.plan()) is None
        depot.selector.answered(second, 0.1)
        first.swap(second)
        assert (first.deployment, first.good) == (other, True)
        depot.selector.release(first)
        depot.selector.release(second)
        assert depot.in_flight == {}

    run_in_virtual_time(main())


@pytest.mark.parametrize(("good", "average"), [(True, 3.0), (False, None)])
def test_how_long_slots_are_held_is_learned_from_good_answers(
    good: bool, average: float | None
) -> None:
    async def main() -> None:
        depot = depot_of(1)
        reservation = await take(depot)
        depot.selector.answered(reservation, 0.2)
        await asyncio.sleep(3.0)
        if not good:
            depot.selector.failed(reservation)
        depot.selector.release(reservation)
        assert depot.deployment("a").service.value == average

    run_in_virtual_time(main())


def test_slots_are_counted_over_a_change_of_the_backend() -> None:
    async def main() -> None:
        depot = depot_of(2)
        old = await take(depot)
        depot.apply(backend("a", "m", url="http://elsewhere:1"))
        new = await take(depot)
        assert depot.in_flight == {("a", "m"): 2}
        depot.selector.release(new)
        assert depot.in_flight == {("a", "m"): 1}
        depot.selector.release(old)
        assert depot.in_flight == {}

    run_in_virtual_time(main())
