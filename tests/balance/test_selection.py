"""Which deployment a request gets: by grade, by tier, by what is sooner, and by what it had
before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import get_args

import pytest

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
    Host,
    Share,
)
from router.balance.policies import NOTHING, QUEUE, Selection, make_policy
from router.settings.schema import PolicyName
from tests.support.deployments import NOW, RULES, busy, graded, half, spent, unreachable

POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)


def never() -> float:
    """Where nothing is left to chance."""
    raise AssertionError("nothing should be left to chance")


def selection(
    random: Callable[[], float] = half, policy: PolicyName = "least-loaded", panic: float = 1.0
) -> Selection:
    return Selection(make_policy(policy), panic, random)


def outcome(chosen: DeploymentState | None, why: str) -> str:
    """The grade of what was chosen, or why nothing was."""
    return why if chosen is None else GRADES[chosen.grade]


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        ((READY, WARMING, COLD, FULL, OPEN, COOLING, DRAINED), READY),
        ((READY, PROBE), PROBE),
        ((COLD, PROBE), PROBE),
        ((FULL, PROBE), PROBE),
        ((WARMING, COLD, FULL, OPEN), WARMING),
        ((COLD, FULL, OPEN, COOLING, DRAINED), COLD),
        ((FULL, OPEN, COOLING, DRAINED), QUEUE),
        ((OPEN, COOLING, DRAINED), OPEN),
        ((COOLING, DRAINED), NOTHING),
        ((DRAINED,), NOTHING),
        ((), NOTHING),
    ],
    ids=lambda value: (
        "-".join(GRADES[grade] for grade in value) if isinstance(value, tuple) else ""
    ),
)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("backwards", [False, True])
def test_the_order_of_grades(
    policy: PolicyName, grades: tuple[int, ...], expected: int | str, backwards: bool
) -> None:
    deployments = [graded(grade) for grade in (reversed(grades) if backwards else grades)]
    # Of those that warm up, half take part in a choice: not this time, unless they are needed.
    chosen = selection(lambda: 0.9, policy).choose(deployments, NOW)
    assert outcome(*chosen) == (expected if isinstance(expected, str) else GRADES[expected])


@pytest.mark.parametrize(
    ("deployments", "probes", "desperate", "expected"),
    [
        pytest.param([graded(PROBE), graded(READY)], False, True, "ready", id="others probe"),
        pytest.param([graded(PROBE), graded(FULL)], False, True, QUEUE, id="others probe, full"),
        pytest.param([graded(PROBE)], False, True, "probe", id="nothing else is left"),
        pytest.param([graded(PROBE)], False, False, NOTHING, id="there are fallbacks"),
        pytest.param([graded(PROBE)], True, False, "probe", id="a probe is not desperate"),
        pytest.param([graded(OPEN)], True, True, "open", id="desperate"),
        pytest.param([graded(OPEN)], True, False, NOTHING, id="open, not desperate"),
        pytest.param([unreachable()], True, True, "open", id="unreachable"),
        pytest.param([unreachable()], True, False, NOTHING, id="unreachable, not desperate"),
        pytest.param([busy()], True, True, QUEUE, id="open and busy"),
        pytest.param([busy()], True, False, NOTHING, id="open and busy, not desperate"),
        pytest.param([graded(COOLING), busy()], True, True, QUEUE, id="cooling is cooling"),
        pytest.param([spent(), graded(READY)], True, True, "ready", id="spent, another is ready"),
        pytest.param([spent(), graded(FULL)], True, True, QUEUE, id="spent, another will be"),
        pytest.param([spent(), graded(OPEN)], True, True, "cooling", id="spent, another is sick"),
        pytest.param([spent()], True, True, "cooling", id="spent"),
        pytest.param([spent()], True, False, NOTHING, id="spent, not desperate"),
        pytest.param([spent(4)], True, True, NOTHING, id="spent and busy"),
    ],
)
def test_what_is_sick(
    deployments: list[DeploymentState], probes: bool, desperate: bool, expected: str
) -> None:
    chosen = selection(never if len(deployments) > 1 else half).choose(
        deployments, NOW, probes=probes, desperate=desperate
    )
    assert outcome(*chosen) == expected


def test_what_can_be_reached_is_the_better_last_resort() -> None:
    away, sick = unreachable(), graded(OPEN, 3)
    for deployments in ([away, sick], [sick, away]):
        assert selection().choose(deployments, NOW) == (sick, "nothing better is left")
    assert selection().choose([away, busy()], NOW)[0] is away


def test_of_those_with_nothing_left_who_has_it_again_first_is_asked() -> None:
    first, second, busy = spent(2), spent(), spent(4)
    first.spent(NOW + 4.0, NOW)
    busy.spent(NOW + 1.0, NOW)
    paused = spent()
    paused.spent(NOW + 1.0, NOW)
    paused.cool(NOW + 2.0, NOW)
    assert selection().choose([second, paused, first, busy], NOW)[0] is first


def test_nobody_is_turned_away_before_who_has_nothing_left_was_asked() -> None:
    resting = spent()
    deployments = [graded(FULL), resting]
    assert selection().choose(deployments, NOW) == (None, QUEUE)
    assert selection().choose(deployments, NOW, patient=False)[0] is resting
    assert selection().choose(deployments, NOW, patient=False, desperate=False) == (None, QUEUE)


PANIC = [
    # of ten, so many are open, half-open, unreachable; does it panic, with 0.5
    pytest.param((5, 0, 0), False, id="half"),
    pytest.param((6, 0, 0), True, id="more than half"),
    pytest.param((5, 1, 0), True, id="half-open is sick too"),
    pytest.param((5, 0, 1), True, id="unreachable is sick too"),
    pytest.param((1, 0, 5), True, id="almost all unreachable"),
    pytest.param((0, 0, 6), True, id="all unreachable"),
]


@pytest.mark.parametrize(("sick", "panics"), PANIC)
@pytest.mark.parametrize("desperate", [False, True])
def test_past_the_threshold_breakers_are_ignored(
    sick: tuple[int, int, int], panics: bool, desperate: bool
) -> None:
    opened, half_open, away = sick
    gone = [unreachable() for _ in range(away)]
    deployments = (
        [graded(OPEN) for _ in range(opened)] + [graded(PROBE) for _ in range(half_open)] + gone
    )
    deployments += [graded(READY) for _ in range(10 - len(deployments))]
    choose = selection(Random(1).random, panic=0.5).choose
    chosen = [choose(deployments, NOW, probes=False, desperate=desperate)[0] for _ in range(200)]
    expected = {READY, OPEN} if panics and desperate and opened else {READY}
    assert {each.grade for each in chosen if each is not None} == expected
    assert None not in chosen
    assert not any(each in gone for each in chosen)


def test_in_a_panic_a_probe_comes_first_and_what_is_busy_is_left_alone() -> None:
    sick, half_open = graded(OPEN), graded(PROBE)
    choose = selection(panic=0.1).choose
    assert choose([sick, half_open], NOW)[0] is half_open
    assert choose([sick, busy()], NOW) == (sick, "least-loaded")


def test_some_that_cannot_be_used_do_not_make_a_panic() -> None:
    """Those that are drained or cool down are not sick."""
    ready, sick = graded(READY, in_flight=3), graded(OPEN)
    deployments = [
        ready,
        sick,
        *(graded(DRAINED) for _ in range(4)),
        *(graded(COOLING) for _ in range(4)),
    ]
    assert selection(panic=0.5).choose(deployments, NOW)[0] is ready


@pytest.mark.parametrize(
    ("held", "waiting", "load", "loading_for", "cold"),
    [
        pytest.param(None, 0, 10.0, None, True, id="nobody knows when a slot gets free"),
        pytest.param(8.0, 0, 10.0, None, False, id="a slot is sooner"),
        pytest.param(8.0, 8, 10.0, None, False, id="a slot is a little sooner"),
        pytest.param(8.0, 9, 10.0, None, True, id="too many wait"),
        pytest.param(80.0, 0, 10.0, None, True, id="slots are held for long"),
        pytest.param(80.0, 0, 9.0, None, True, id="a short load"),
        pytest.param(80.0, 0, 10.5, None, False, id="a load costs more than a wait"),
        pytest.param(80.0, 0, 30.0, 15.0, True, id="half of a load is over"),
        pytest.param(80.0, 0, 30.0, 5.0, False, id="a load has just begun"),
        pytest.param(8.0, 0, 30.0, 29.5, True, id="the load is almost over"),
        pytest.param(8.0, 0, None, None, False, id="nobody knows how long it takes to load"),
        pytest.param(168.0, 0, None, None, True, id="longer than a load is thought to take"),
    ],
)
def test_a_load_or_the_queue_whichever_is_sooner(
    held: float | None, waiting: int, load: float | None, loading_for: float | None, cold: bool
) -> None:
    """The full one has four slots: a quarter of ``held`` for each that waits, and the new one."""
    full, other = graded(FULL), graded(COLD)
    if held is not None:
        full.service.observe(held)
    if load is not None:
        other.load_time.observe(load)
    if loading_for is not None:
        other.load_began = NOW - loading_for
    choose = selection().choose
    loads = "it will load the model" if loading_for is None else "it is loading the model"
    expected = (other, loads) if cold else (None, QUEUE)
    assert choose([full, other], NOW, waiting=waiting) == expected
    assert choose([full, other], NOW, waiting=waiting, patient=False) == (other, loads)


def test_who_cannot_wait_for_a_load_either_waits_for_a_slot() -> None:
    assert selection().choose([graded(FULL)], NOW, patient=False) == (None, QUEUE)


def test_loads_are_joined_and_spread() -> None:
    loading, idle, slow = graded(COLD, 3), graded(COLD), graded(COLD)
    loading.load_time.observe(12.0)
    loading.load_began = NOW - 6.0
    slow.load_time.observe(60.0)
    choose = selection().choose
    assert choose([slow, idle, loading], NOW) == (loading, "it is loading the model")
    assert choose([slow, idle, graded(COLD, 1)], NOW) == (idle, "it will load the model")
    assert choose([slow], NOW)[0] is slow


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param([READY], [READY], 1, id="the first tier"),
        pytest.param([WARMING], [READY], 2, id="it warms up, and this was not its turn"),
        pytest.param([WARMING], [FULL], 1, id="it warms up, and nobody else is free"),
        pytest.param([WARMING], [COLD], 1, id="it warms up, and the second has to be loaded"),
        pytest.param([FULL], [READY], 2, id="it is full"),
        pytest.param([OPEN], [READY], 2, id="it is sick"),
        pytest.param([COOLING, DRAINED], [READY], 2, id="it is not to be used"),
        pytest.param([FULL, OPEN, READY], [READY], 1, id="one of it is there"),
        pytest.param([PROBE, READY], [READY], 1, id="a probe in it"),
        pytest.param([READY], [PROBE], 1, id="no probe where nobody is needed"),
        pytest.param([FULL], [PROBE, READY], 2, id="a probe in the second"),
        pytest.param([COLD], [READY], 1, id="it has to be loaded"),
        pytest.param([FULL], [COLD], 2, id="the second has to be loaded"),
        pytest.param([FULL], [FULL], QUEUE, id="both are full"),
        pytest.param([FULL], [OPEN], QUEUE, id="full and sick"),
        pytest.param([OPEN], [FULL], QUEUE, id="sick and full"),
        pytest.param([COOLING], [DRAINED], NOTHING, id="nothing"),
        pytest.param([DRAINED], [OPEN], 2, id="the last resort"),
    ],
)
def test_tiers(first: Sequence[int], second: Sequence[int], expected: int | str) -> None:
    deployments = [graded(grade, 3 if grade in (READY, WARMING, COLD) else 0) for grade in first]
    deployments += [graded(grade, tier=2) for grade in second]
    for order in (deployments, deployments[::-1]):
        chosen, why = selection(policy="priority").choose(order, NOW)
        assert (why if chosen is None else chosen.tier) == expected


def test_tiers_are_in_the_order_of_their_numbers() -> None:
    deployments = [graded(READY, tier=tier) for tier in (100, 9, 8, 3)]
    assert selection(policy="priority").choose(deployments, NOW)[0] is deployments[3]
    assert selection(policy="priority").choose(deployments[:3], NOW)[0] is deployments[2]


def test_a_slot_in_any_tier_may_be_sooner_than_a_load() -> None:
    full, cold = graded(FULL), graded(COLD, tier=2)
    full.service.observe(1.0)
    cold.load_time.observe(30.0)
    choose = selection(policy="priority").choose
    assert choose([full, cold], NOW) == (None, QUEUE)
    full.service.observe(4000.0)
    assert choose([full, cold], NOW)[0] is cold


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "priority"])
def test_tiers_are_for_one_policy_only(policy: PolicyName) -> None:
    second = graded(READY, tier=2)
    assert selection(policy=policy).choose([graded(FULL), second], NOW)[0] is second
    choose = selection(Random(1).random, policy=policy).choose
    first = graded(READY)
    assert {choose([first, second], NOW)[0] for _ in range(40)} == {first, second}


KNOWN = "it has served what came before"


@pytest.mark.parametrize(
    ("in_flight", "least", "bound", "stays"),
    [
        pytest.param(0, 0, 0.0, True, id="as idle as the others"),
        pytest.param(1, 0, 0.0, False, id="no more is allowed"),
        pytest.param(1, 0, 0.25, True, id="at the bound"),
        pytest.param(2, 0, 0.25, False, id="past it"),
        pytest.param(3, 2, 0.25, True, id="the others are busy too"),
        pytest.param(3, 0, inf, True, id="at any price"),
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_who_is_preferred_wins_within_the_bound(
    policy: PolicyName, in_flight: int, least: int, bound: float, stays: bool
) -> None:
    known = graded(READY, in_flight=in_flight)
    others = [graded(READY, in_flight=least) for _ in range(2)]
    for deployments in ([known, *others], [*others, known], [*others, known, graded(OPEN)]):
        chosen = selection(policy=policy).choose(deployments, NOW, preferred=[known], bound=bound)
        assert (chosen == (known, KNOWN)) == stays
        assert chosen[0] is not None


def test_the_least_loaded_of_those_preferred_is_taken() -> None:
    one, two = graded(READY, in_flight=3), graded(READY, in_flight=2)
    assert selection().choose([graded(READY), one, two], NOW, preferred=[one, two])[0] is two


@pytest.mark.parametrize("grade", [FULL, COLD, OPEN, COOLING, DRAINED])
def test_who_is_preferred_but_not_ready_is_not_waited_for(grade: int) -> None:
    known, other = graded(grade), graded(READY, in_flight=3)
    assert selection().choose([known, other], NOW, preferred=[known])[0] is other


def test_who_is_preferred_but_no_candidate_is_not_taken() -> None:
    other = graded(READY, in_flight=3)
    assert selection().choose([other], NOW, preferred=[graded(READY)])[0] is other


def test_what_is_bound_to_an_account_is_no_probe_elsewhere() -> None:
    issuer, probe = graded(READY, in_flight=3), graded(PROBE)
    choose = selection().choose
    assert choose([issuer, probe], NOW, preferred=[issuer])[0] is issuer
    assert choose([issuer, probe], NOW, preferred=[issuer, probe])[0] is probe
    assert choose([issuer, probe], NOW, preferred=[issuer], bound=0.9)[0] is probe
    assert choose([graded(FULL), probe], NOW, preferred=[graded(FULL)])[0] is probe


@pytest.mark.parametrize(
    ("others", "drawn", "warming"),
    [
        pytest.param([READY], 0.4, True, id="it takes part"),
        pytest.param([READY], 0.6, False, id="not this time"),
        pytest.param([], 0.6, True, id="nobody else is there"),
        pytest.param([COLD, FULL, OPEN], 0.6, True, id="nobody better is there"),
    ],
)
def test_what_recovers_takes_part_in_a_growing_share(
    others: Sequence[int], drawn: float, warming: bool
) -> None:
    """Half of the slow start is over. It is idle, so that it wins where it takes part."""
    back = graded(WARMING)
    deployments = [back, *(graded(grade, 1) for grade in others)]
    assert (selection(lambda: drawn).choose(deployments, NOW)[0] is back) == warming


@pytest.mark.parametrize(
    ("deployments", "panic", "desperate", "awaited"),
    [
        pytest.param([graded(FULL), graded(FULL)], 1.0, True, [0, 1], id="full"),
        pytest.param([graded(FULL), graded(COLD)], 1.0, True, [0, 1], id="loaded meanwhile"),
        pytest.param([graded(FULL), busy()], 1.0, True, [0], id="sick"),
        pytest.param([graded(FULL), busy()], 0.4, True, [0, 1], id="a panic"),
        pytest.param([graded(FULL), busy()], 0.4, False, [0], id="a panic is desperate"),
        pytest.param([graded(FULL), unreachable(1, limit=1)], 0.4, True, [0], id="a panic, away"),
        pytest.param([busy(), unreachable(1, limit=1)], 1.0, True, [0, 1], id="all are sick"),
        pytest.param([busy()], 1.0, False, [], id="all are sick, not desperate"),
    ],
)
def test_what_is_waited_for(
    deployments: list[DeploymentState], panic: float, desperate: bool, awaited: list[int]
) -> None:
    found = selection(never, panic=panic).awaited(deployments, desperate=desperate)
    assert [deployments.index(each) for each in found] == awaited


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_chances_make_the_same_choices(policy: PolicyName) -> None:
    grades = [READY, WARMING, READY, PROBE, COLD, OPEN, READY, FULL]

    def run() -> list[int]:
        deployments = [graded(grade) for grade in grades]
        chooser = selection(Random(5).random, policy)
        chosen = []
        for number in range(30):
            found = chooser.choose(deployments, NOW, probes=number % 3 == 0)[0]
            assert found is not None
            if found.grade in (READY, WARMING):
                found.take()
            chosen.append(deployments.index(found))
            if not found.free:
                found.give_back(NOW)
        return chosen

    assert run() == run()


def test_twice_the_weight_carries_twice_the_requests() -> None:
    host = Host(RULES, 10.0, half)
    deployments = [
        DeploymentState(host, Share(100, weight, 1), RULES, half) for weight in (1.0, 2.0)
    ]
    chooser = selection(Random(1).random)
    for _ in range(90):
        chosen, _ = chooser.choose(deployments, NOW)
        assert chosen is not None
        chosen.take()
    # Loads that differ by a tenth count as even.
    small, large = (each.in_flight for each in deployments)
    assert small + large == 90
    assert abs(small / 100 - large / 200) <= 0.11
