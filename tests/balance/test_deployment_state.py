"""Deployments: what grade they have, when time changes it, and what they are expected to take."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from router.balance.capability import Abilities, Feature
from router.balance.deployment_state import (
    COLD,
    COOLING,
    DRAINED,
    FULL,
    GRADES,
    OPEN,
    PROBE,
    READY,
    WARMING,
    DeploymentState,
    Share,
)
from tests.support.deployments import (
    NOW,
    RULES,
    Step,
    abandon_probe,
    begin_probe,
    cool,
    deployment_of,
    drain,
    find,
    give_back,
    load,
    lose,
    probe_fails,
    probe_succeeds,
    refill,
    spend,
    take,
    take_all,
    trip,
    undrain,
    unload,
    wait,
)

HALF_OPEN = (trip, wait(4.0))
BACK = (lose, find)


@pytest.mark.parametrize(
    ("steps", "grade", "due"),
    [
        pytest.param((), READY, inf, id="new"),
        pytest.param((take,), READY, inf, id="some slots taken"),
        pytest.param((take_all,), FULL, inf, id="every slot taken"),
        pytest.param((take_all, give_back), READY, inf, id="a slot given back"),
        pytest.param((unload,), COLD, inf, id="not in memory"),
        pytest.param((unload, load), READY, inf, id="in memory again"),
        pytest.param((unload, take_all), FULL, inf, id="full, cold"),
        pytest.param((unload, take_all, give_back), COLD, inf, id="cold, a slot given back"),
        pytest.param((unload, take, load), READY, inf, id="loaded for a request"),
        pytest.param((trip,), OPEN, 4.0, id="failures"),
        pytest.param((trip, take_all), OPEN, 4.0, id="open, every slot taken"),
        pytest.param((trip, wait(3.9)), OPEN, 4.0, id="still open"),
        pytest.param(HALF_OPEN, PROBE, inf, id="half-open"),
        pytest.param((*HALF_OPEN, begin_probe), OPEN, inf, id="probed"),
        pytest.param((*HALF_OPEN, begin_probe, take, abandon_probe), PROBE, inf, id="abandoned"),
        pytest.param((*HALF_OPEN, begin_probe, probe_fails), OPEN, 12.0, id="a failed probe"),
        pytest.param(
            (*HALF_OPEN, begin_probe, probe_fails, wait(8.0)), PROBE, inf, id="the next probe"
        ),
        pytest.param((*HALF_OPEN, begin_probe, probe_succeeds), WARMING, 14.0, id="recovered"),
        pytest.param(
            (*HALF_OPEN, begin_probe, probe_succeeds, wait(10.0)), READY, inf, id="warmed up"
        ),
        pytest.param((take_all, *HALF_OPEN), OPEN, inf, id="half-open without room"),
        pytest.param((take_all, *HALF_OPEN, give_back), PROBE, inf, id="half-open, room at last"),
        pytest.param(
            (*HALF_OPEN, begin_probe, take_all, abandon_probe, give_back),
            PROBE,
            inf,
            id="abandoned in the last slot",
        ),
        pytest.param((lose,), OPEN, inf, id="unreachable"),
        pytest.param((lose, wait(5.0)), OPEN, inf, id="only its answer brings a host back"),
        pytest.param((lose, lose, find), WARMING, 10.0, id="reachable again"),
        pytest.param((find,), READY, inf, id="never away"),
        pytest.param((trip, *BACK), OPEN, 4.0, id="reachable, but sick"),
        pytest.param((*BACK, take_all), FULL, 10.0, id="warming and full"),
        pytest.param((*BACK, take_all, give_back), WARMING, 10.0, id="warming again"),
        pytest.param((*BACK, take_all, wait(10.0), give_back), READY, inf, id="warmed up, full"),
        pytest.param((*BACK, unload), COLD, inf, id="cold and warming"),
        pytest.param((cool,), COOLING, 3.0, id="cooling"),
        pytest.param((cool, wait(1.0), cool), COOLING, 4.0, id="cooling for longer"),
        pytest.param((cool, wait(3.0)), READY, inf, id="cooled down"),
        pytest.param((take_all, cool, give_back), COOLING, 3.0, id="cooling, a slot given back"),
        pytest.param((take_all, cool, wait(3.0)), FULL, inf, id="cooled down, full"),
        pytest.param((trip, cool), COOLING, 3.0, id="cooling and open"),
        pytest.param((trip, cool, wait(3.0)), OPEN, 4.0, id="cooled down, open"),
        pytest.param((trip, cool, wait(3.0), wait(1.0)), PROBE, inf, id="cooled, half-open"),
        pytest.param((spend,), COOLING, 5.0, id="spent"),
        pytest.param((spend, wait(1.0), spend), COOLING, 6.0, id="spent for longer"),
        pytest.param((spend, wait(5.0)), READY, inf, id="not spent any more"),
        pytest.param((spend, refill), READY, inf, id="refilled"),
        pytest.param((refill,), READY, inf, id="never spent"),
        pytest.param((spend, cool), COOLING, 3.0, id="spent and cooling"),
        pytest.param((spend, cool, wait(3.0)), COOLING, 5.0, id="cooled down, spent"),
        pytest.param((spend, trip), OPEN, 4.0, id="spent and sick"),
        pytest.param((spend, lose), OPEN, inf, id="spent and unreachable"),
        pytest.param((spend, take_all), COOLING, 5.0, id="spent, every slot taken"),
        pytest.param((take_all, spend, give_back, wait(5.0)), READY, inf, id="spent, given back"),
        pytest.param((unload, spend), COOLING, 5.0, id="spent, not in memory"),
        pytest.param((drain,), DRAINED, inf, id="drained"),
        pytest.param((cool, drain), DRAINED, inf, id="drained and cooling"),
        pytest.param((trip, lose, drain, undrain), OPEN, inf, id="undrained, unreachable"),
        pytest.param((trip, drain, undrain), OPEN, 4.0, id="undrained, open"),
        pytest.param((take_all, drain, give_back, undrain), READY, inf, id="undrained"),
    ],
)
def test_grades(steps: Sequence[Step], grade: int, due: float) -> None:
    """``due`` is in seconds from the start."""
    deployment, now = deployment_of(), NOW
    for step in steps:
        passed = step(deployment, now)
        if isinstance(passed, float):
            now += passed
            if deployment.due <= now:
                deployment.refresh(now)
    assert (GRADES[deployment.grade], deployment.due) == (GRADES[grade], NOW + due)


def test_without_a_slow_start_what_recovers_is_ready() -> None:
    deployment = deployment_of(slow_start=0.0)
    lose(deployment, NOW)
    find(deployment, NOW)
    assert deployment.grade == READY
    assert deployment.warmth(NOW) == 1.0


def test_warmth_grows_from_a_little_to_everything() -> None:
    deployment = deployment_of()
    deployment.warm(NOW)
    shares = [deployment.warmth(NOW + seconds) for seconds in (0.0, 0.5, 1.0, 2.5, 5.0, 10.0)]
    assert shares == [0.1, 0.1, 0.1, 0.25, 0.5, 1.0]


def test_there_is_one_probe_at_a_time() -> None:
    deployment = deployment_of()
    trip(deployment, NOW)
    assert not deployment.begin_probe(NOW)
    deployment.refresh(NOW + 4.0)
    assert deployment.begin_probe(NOW + 4.0)
    assert not deployment.begin_probe(NOW + 4.0)
    deployment.abandon_probe(NOW + 4.0)
    assert deployment.begin_probe(NOW + 4.0)


@pytest.mark.parametrize("probe", [False, True])
def test_only_a_probe_closes_a_breaker(probe: bool) -> None:
    deployment = deployment_of()
    trip(deployment, NOW)
    deployment.refresh(NOW + 4.0)
    assert deployment.begin_probe(NOW + 4.0)
    deployment.answered(NOW + 4.0, 0.2, probe=probe)
    assert deployment.grade == (WARMING if probe else OPEN)


def test_a_host_is_away_until_it_answers() -> None:
    host = deployment_of().host
    ups = [host.up]
    assert not host.reachable(NOW)
    host.unreachable(NOW)
    ups.append(host.up)
    first = host.breaker.opens_until
    host.unreachable(NOW + 1.0)
    assert host.breaker.opens_until == first
    host.unreachable(first)
    assert host.breaker.opens_until - first == 2 * (first - NOW)
    assert host.reachable(first + 1.0)
    ups.append(host.up)
    assert ups == [True, False, True]
    assert not host.reachable(first + 1.0)


def test_a_host_grades_all_its_lanes() -> None:
    one = deployment_of()
    other = DeploymentState(one.host, Share(2, 1.0, 1), RULES, lambda: 0.5)
    one.host.unreachable(NOW)
    assert [one.grade, other.grade] == [OPEN, OPEN]
    one.host.reachable(NOW)
    assert [one.grade, other.grade] == [WARMING, WARMING]


def test_what_answers_is_in_memory_whatever_an_older_list_says() -> None:
    deployment = deployment_of()
    loaded = []
    deployment.take()
    deployment.in_memory(NOW, False)
    loaded.append(deployment.loaded)
    deployment.give_back(NOW)
    deployment.in_memory(NOW, False)
    loaded.append(deployment.loaded)
    deployment.answered(NOW, 0.3)
    loaded.append(deployment.loaded)
    assert loaded == [True, False, True]
    assert deployment.grade == READY


def test_who_waits_for_a_load_does_not_keep_a_model_in_memory() -> None:
    deployment = deployment_of()
    deployment.take()
    deployment.load_began = NOW
    deployment.in_memory(NOW, False)
    assert not deployment.loaded


def test_answers_are_measured() -> None:
    deployment = deployment_of()
    for _ in range(20):
        deployment.answered(NOW, 0.25)
    deployment.answered(NOW, None)
    assert deployment.first_token.value(NOW) == 0.25
    assert deployment.late.value == 0.25


def test_what_a_model_cannot_do_is_kept_as_a_number() -> None:
    deployment = deployment_of()
    deployment.able(Abilities(Feature.TOOLS | Feature.VISION, 4096))
    assert type(deployment.lacks) is int
    assert Feature(deployment.lacks) == Feature.TOOLS | Feature.VISION
    assert deployment.context == 4096


@pytest.mark.parametrize(
    ("seen", "began", "expected"),
    [
        pytest.param(None, None, 10.0, id="nothing is known"),
        pytest.param(40.0, None, 40.0, id="it was loaded before"),
        pytest.param(40.0, 0.0, 40.0, id="begun just now"),
        pytest.param(40.0, 30.0, 10.0, id="almost there"),
        pytest.param(40.0, 100.0, 60.0, id="longer than ever"),
        pytest.param(None, 4.0, 6.0, id="the first load"),
        pytest.param(0.0, None, 0.0, id="at once"),
    ],
)
def test_predicted_load(seen: float | None, began: float | None, expected: float) -> None:
    """``began`` is in seconds before now."""
    deployment = deployment_of()
    assert deployment.predicted_load(NOW) == 0.0
    deployment.in_memory(NOW, False)
    if seen is not None:
        deployment.load_time.observe(seen)
    if began is not None:
        deployment.load_began = NOW - began
    assert deployment.predicted_load(NOW) == expected


@pytest.mark.parametrize(
    ("steps", "held", "waiting", "expected"),
    [
        pytest.param((), None, 7, 0.0, id="a slot is free"),
        pytest.param((unload,), None, 7, 10.0, id="a slot is free, the model is not loaded"),
        pytest.param((take_all,), None, 0, inf, id="nobody knows how long"),
        pytest.param((take_all,), 6.0, 0, 3.0, id="the first who waits"),
        pytest.param((take_all,), 6.0, 3, 12.0, id="the fourth"),
        pytest.param((unload, take_all), None, 0, 12.5, id="loading, nobody knows how long"),
        pytest.param((unload, take_all), 6.0, 1, 16.0, id="loading, the second"),
    ],
)
def test_predicted_wait(
    steps: Sequence[Step], held: float | None, waiting: int, expected: float
) -> None:
    deployment = deployment_of()
    for step in steps:
        step(deployment, NOW)
    if held is not None:
        deployment.service.observe(held)
    assert deployment.predicted_wait(waiting, NOW) == expected


def test_other_limits_are_taken_over_with_what_is_in_flight() -> None:
    deployment = deployment_of(4)
    for _ in range(3):
        deployment.take()
    deployment.configure(Share(2, 3.0, 2))
    deployment.refresh(NOW)
    assert (deployment.grade, deployment.load, deployment.tier, deployment.weight) == (
        FULL,
        3 / 6,
        2,
        3.0,
    )
    deployment.give_back(NOW)
    assert deployment.grade == FULL
    deployment.give_back(NOW)
    assert (deployment.grade, deployment.load) == (READY, 1 / 6)


def test_who_cares_is_told_of_grades_but_not_of_every_slot() -> None:
    told: list[int] = []
    deployment = deployment_of(1)
    deployment.changed = lambda changed: told.append(changed.grade)
    deployment.take()
    deployment.give_back(NOW)
    assert told == []
    deployment.cool(NOW + 3.0, NOW)
    deployment.cool(NOW + 2.0, NOW)
    deployment.refresh(NOW + 3.0)
    assert told == [COOLING, READY]
    trip(deployment, NOW + 3.0)
    deployment.refresh(NOW + 7.0)
    deployment.begin_probe(NOW + 7.0)
    deployment.failed(NOW + 7.0, probe=True)
    # The grade is the same as before, but somebody has to look again at its end.
    assert told[2:] == [OPEN, PROBE, OPEN, OPEN]
