"""Lanes: what grade they have, when time changes it, and what they are expected to take."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from router.balance.capability import Abilities, Feature
from router.balance.lane import (
    COLD,
    COOLING,
    DRAINED,
    FULL,
    GRADES,
    OPEN,
    PROBE,
    READY,
    WARMING,
    Lane,
    Share,
)
from tests.support.lanes import (
    NOW,
    RULES,
    Step,
    abandon_probe,
    begin_probe,
    cool,
    drain,
    find,
    give_back,
    lane_of,
    load,
    lose,
    probe_fails,
    probe_succeeds,
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
        pytest.param((drain,), DRAINED, inf, id="drained"),
        pytest.param((cool, drain), DRAINED, inf, id="drained and cooling"),
        pytest.param((trip, lose, drain, undrain), OPEN, inf, id="undrained, unreachable"),
        pytest.param((trip, drain, undrain), OPEN, 4.0, id="undrained, open"),
        pytest.param((take_all, drain, give_back, undrain), READY, inf, id="undrained"),
    ],
)
def test_grades(steps: Sequence[Step], grade: int, due: float) -> None:
    """``due`` is in seconds from the start."""
    lane, now = lane_of(), NOW
    for step in steps:
        passed = step(lane, now)
        if isinstance(passed, float):
            now += passed
            if lane.due <= now:
                lane.refresh(now)
    assert (GRADES[lane.grade], lane.due) == (GRADES[grade], NOW + due)


def test_without_a_slow_start_what_recovers_is_ready() -> None:
    lane = lane_of(slow_start=0.0)
    lose(lane, NOW)
    find(lane, NOW)
    assert lane.grade == READY
    assert lane.warmth(NOW) == 1.0


def test_warmth_grows_from_a_little_to_everything() -> None:
    lane = lane_of()
    lane.warm(NOW)
    shares = [lane.warmth(NOW + seconds) for seconds in (0.0, 0.5, 1.0, 2.5, 5.0, 10.0)]
    assert shares == [0.1, 0.1, 0.1, 0.25, 0.5, 1.0]


def test_there_is_one_probe_at_a_time() -> None:
    lane = lane_of()
    trip(lane, NOW)
    assert not lane.begin_probe(NOW)
    lane.refresh(NOW + 4.0)
    assert lane.begin_probe(NOW + 4.0)
    assert not lane.begin_probe(NOW + 4.0)
    lane.abandon_probe(NOW + 4.0)
    assert lane.begin_probe(NOW + 4.0)


@pytest.mark.parametrize("probe", [False, True])
def test_only_a_probe_closes_a_breaker(probe: bool) -> None:
    lane = lane_of()
    trip(lane, NOW)
    lane.refresh(NOW + 4.0)
    assert lane.begin_probe(NOW + 4.0)
    lane.answered(NOW + 4.0, 0.2, probe=probe)
    assert lane.grade == (WARMING if probe else OPEN)


def test_a_host_is_away_until_it_answers() -> None:
    host = lane_of().host
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
    one = lane_of()
    other = Lane(one.host, Share(2, 1.0, 1), RULES, lambda: 0.5)
    one.host.unreachable(NOW)
    assert [one.grade, other.grade] == [OPEN, OPEN]
    one.host.reachable(NOW)
    assert [one.grade, other.grade] == [WARMING, WARMING]


def test_what_answers_is_in_memory_whatever_an_older_list_says() -> None:
    lane = lane_of()
    loaded = []
    lane.take()
    lane.in_memory(NOW, False)
    loaded.append(lane.loaded)
    lane.give_back(NOW)
    lane.in_memory(NOW, False)
    loaded.append(lane.loaded)
    lane.answered(NOW, 0.3)
    loaded.append(lane.loaded)
    assert loaded == [True, False, True]
    assert lane.grade == READY


def test_who_waits_for_a_load_does_not_keep_a_model_in_memory() -> None:
    lane = lane_of()
    lane.take()
    lane.load_began = NOW
    lane.in_memory(NOW, False)
    assert not lane.loaded


def test_answers_are_measured() -> None:
    lane = lane_of()
    for _ in range(20):
        lane.answered(NOW, 0.25)
    lane.answered(NOW, None)
    assert lane.first_token.value(NOW) == 0.25
    assert lane.late.value == 0.25


def test_what_a_model_cannot_do_is_kept_as_a_number() -> None:
    lane = lane_of()
    lane.able(Abilities(Feature.TOOLS | Feature.VISION, 4096))
    assert type(lane.lacks) is int
    assert Feature(lane.lacks) == Feature.TOOLS | Feature.VISION
    assert lane.context == 4096


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
    lane = lane_of()
    assert lane.predicted_load(NOW) == 0.0
    lane.in_memory(NOW, False)
    if seen is not None:
        lane.load_time.observe(seen)
    if began is not None:
        lane.load_began = NOW - began
    assert lane.predicted_load(NOW) == expected


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
    lane = lane_of()
    for step in steps:
        step(lane, NOW)
    if held is not None:
        lane.service.observe(held)
    assert lane.predicted_wait(waiting, NOW) == expected


def test_other_limits_are_taken_over_with_what_is_in_flight() -> None:
    lane = lane_of(4)
    for _ in range(3):
        lane.take()
    lane.configure(Share(2, 3.0, 2))
    lane.refresh(NOW)
    assert (lane.grade, lane.load, lane.tier, lane.weight) == (FULL, 3 / 6, 2, 3.0)
    lane.give_back(NOW)
    assert lane.grade == FULL
    lane.give_back(NOW)
    assert (lane.grade, lane.load) == (READY, 1 / 6)


def test_who_cares_is_told_of_grades_but_not_of_every_slot() -> None:
    told: list[int] = []
    lane = lane_of(1)
    lane.changed = lambda changed: told.append(changed.grade)
    lane.take()
    lane.give_back(NOW)
    assert told == []
    lane.cool(NOW + 3.0, NOW)
    lane.cool(NOW + 2.0, NOW)
    lane.refresh(NOW + 3.0)
    assert told == [COOLING, READY]
    trip(lane, NOW + 3.0)
    lane.refresh(NOW + 7.0)
    lane.begin_probe(NOW + 7.0)
    lane.failed(NOW + 7.0, probe=True)
    # The grade is the same as before, but somebody has to look again at its end.
    assert told[2:] == [OPEN, PROBE, OPEN, OPEN]
