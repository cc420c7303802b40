"""The policies: who gets the next request, and that nobody is forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, nextafter
from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.balance.averages import PeakEwma
from router.balance.policies import (
    Fastest,
    LeastLoaded,
    Policy,
    Priority,
    RoundRobin,
    Weighted,
    make_policy,
)
from router.settings.schema import PolicyName

NAMES: tuple[PolicyName, ...] = get_args(PolicyName)
NOW = 100.0
LIMIT = 8


@dataclass(slots=True, eq=False)
class Box:
    """A deployment with as much as policies know of one."""

    in_flight: int = 0
    weight: float = 1.0
    tier: int = 1
    turn: int = 0
    first_token: PeakEwma = field(default_factory=PeakEwma)

    @property
    def load(self) -> float:
        return self.in_flight / (LIMIT * self.weight)


def box(seconds: float = 0.0, in_flight: int = 0, *, weight: float = 1.0, at: float = NOW) -> Box:
    """A deployment whose first token took so long at the time ``at``; 0 is not known."""
    made = Box(in_flight, weight)
    if seconds:
        made.first_token.observe(seconds, at)
    return made


def choices(policy: Policy, boxes: list[Box], times: int = 1000, now: float = NOW) -> list[int]:
    """How often each is picked when nothing changes in between."""
    random = Random(7).random
    picked = Counter(id(policy.pick(boxes, now, random)) for _ in range(times))
    return [picked[id(each)] for each in boxes]


def scripted(*values: float) -> Callable[[], float]:
    """A source of randomness that says this, and then nothing more."""
    return iter(values).__next__


SECONDS = st.sampled_from([0.0, 0.1, 0.12, 0.2, 0.5, 3.0])
BOXES = st.lists(
    st.builds(
        box, SECONDS, st.integers(0, 7), weight=st.sampled_from([0.5, 1.0, 3.0]), at=st.just(90.0)
    ),
    min_size=1,
    max_size=24,
)
RANDOMS = st.floats(0.0, 1.0, exclude_max=True)


@pytest.mark.parametrize("name", NAMES)
def test_each_name_in_the_settings_has_a_policy(name: PolicyName) -> None:
    policy = make_policy(name)
    assert policy.name == name
    assert policy.tiered == (name == "priority")


@pytest.mark.parametrize("name", NAMES)
@given(boxes=BOXES, random=st.lists(RANDOMS, min_size=40, max_size=40))
def test_one_of_those_that_are_ready_is_picked(
    name: PolicyName, boxes: list[Box], random: list[float]
) -> None:
    assert make_policy(name).pick(boxes, NOW, scripted(*random)) in boxes


@pytest.mark.parametrize(
    ("name", "even"), [("least-loaded", 0.1), ("priority", 0.1), ("round-robin", 0.0)]
)
@given(boxes=BOXES, random=st.randoms(use_true_random=False))
def test_nobody_has_a_better_score_than_the_one_that_is_picked(
    name: PolicyName, even: float, boxes: list[Box], random: Random
) -> None:
    policy = make_policy(name)
    before = {id(each): policy.score(each, NOW) for each in boxes}
    picked = policy.pick(boxes, NOW, random.random)
    assert before[id(picked)] <= min(before.values()) + even


class TestLeastLoaded:
    def test_weight_scales_the_load(self) -> None:
        """Three times the weight carries three times the requests."""
        small, large = box(0.1), box(0.1, weight=3.0)
        random = Random(1).random
        for _ in range(400):
            LeastLoaded().pick([small, large], NOW, random).in_flight += 1
        assert 98 <= small.in_flight <= 102

    @pytest.mark.parametrize(
        "seconds",
        [(0.0,) * 4, (0.2,) * 4, (0.2, 0.21, 0.25, 0.29)],
        ids=["unknown", "same", "near"],
    )
    def test_an_idle_fleet_of_equals_shares_the_work(self, seconds: tuple[float, ...]) -> None:
        shares = choices(LeastLoaded(), [box(each) for each in seconds], 4000)
        assert all(900 < share < 1100 for share in shares)

    def test_of_equal_load_the_clearly_faster_wins(self) -> None:
        assert choices(LeastLoaded(), [box(0.6, 2), box(0.3, 2), box(0.1, 3)]) == [0, 1000, 0]

    def test_loads_that_are_about_even_count_as_equal(self) -> None:
        boxes = [box(0.6, 4, weight=10.0), box(0.1, 10, weight=10.0), box(0.01, 13, weight=10.0)]
        assert choices(LeastLoaded(), boxes) == [0, 1000, 0]

    def test_one_that_nobody_knows_is_tried(self) -> None:
        assert choices(LeastLoaded(), [box(0.1), box(), box(0.1)]) == [0, 1000, 0]

    def test_what_was_slow_long_ago_is_tried_again(self) -> None:
        boxes = [box(0.2, at=NOW), box(2.0, at=NOW - 60.0)]
        assert choices(LeastLoaded(), boxes) == [0, 1000]

    @given(BOXES, st.randoms(use_true_random=False))
    def test_nobody_as_idle_is_clearly_faster(self, boxes: list[Box], random: Random) -> None:
        boxes = boxes[:16]
        picked = LeastLoaded().pick(boxes, NOW, random.random)
        time = picked.first_token.value(NOW)
        rivals = [each for each in boxes if each.load <= picked.load]
        assert all(time <= rival.first_token.value(NOW) * 1.5 for rival in rivals)

    def test_a_large_idle_fleet_is_used_throughout(self) -> None:
        asked = 0

        class Counted(PeakEwma):
            def value(self, now: float) -> float:
                nonlocal asked
                asked += 1
                return super().value(now)

        boxes = [Box(first_token=Counted()) for _ in range(200)]
        shares = choices(LeastLoaded(), boxes, 4000)
        assert min(shares) > 0
        assert max(shares) < 60
        assert asked <= 16 * 4000


class TestFastest:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param(box(0.1), box(0.2), id="sooner"),
            pytest.param(box(0.1, 3), box(0.5), id="sooner in spite of its load"),
            pytest.param(box(0.3), box(0.1, 3), id="less in flight"),
            pytest.param(box(0.1, 6, weight=4.0), box(0.1, 3), id="less of its capacity in use"),
            pytest.param(box(), box(0.1), id="unknown and idle"),
            pytest.param(box(0.1, 7), box(0.0, 1), id="unknown and tried just now"),
            pytest.param(box(0.0, 1), box(0.0, 2), id="both unknown"),
            pytest.param(box(1.0, 0, at=NOW - 60.0), box(0.1), id="idle for long"),
            pytest.param(box(0.1, 3), box(1.0, 1, at=NOW - 60.0), id="tried just now"),
        ],
    )
    def test_the_better_of_two(self, one: Box, other: Box) -> None:
        assert choices(Fastest(), [one, other]) == [1000, 0]
        assert Fastest().score(one, NOW) <= Fastest().score(other, NOW)

    def test_a_tie_is_decided_at_random(self) -> None:
        for seconds in (0.0, 0.2):
            shares = choices(Fastest(), [box(seconds), box(seconds)], 4000)
            assert all(1850 < share < 2150 for share in shares)

    @given(BOXES, RANDOMS, RANDOMS)
    def test_it_is_never_the_worst(self, boxes: list[Box], first: float, second: float) -> None:
        policy = Fastest()
        picked = policy.pick(boxes, NOW, scripted(first, second))
        score = policy.score(picked, NOW)
        worse = [each for each in boxes if policy.score(each, NOW) >= score and each is not picked]
        assert worse or len(boxes) == 1

    def test_each_pair_is_as_likely(self) -> None:
        """Of three, the best wins the two pairs it is in, and the next one the third."""
        shares = choices(Fastest(), [box(0.3), box(0.1), box(0.2)], 3000)
        assert shares[0] == 0
        assert 1900 < shares[1] < 2100

    def test_the_highest_number_there_is_stays_in_the_list(self) -> None:
        boxes = [box(0.1 * (i + 1)) for i in range(500)]
        most = nextafter(1.0, 0.0)
        assert Fastest().pick(boxes, NOW, scripted(most, most)) is boxes[498]

    def test_an_unknown_score_is_infinite(self) -> None:
        assert Fastest().score(box(0.0, 1), NOW) == inf


class TestRoundRobin:
    @given(st.integers(1, 9), st.integers(1, 5))
    def test_each_has_its_turn_in_each_round(self, count: int, rounds: int) -> None:
        boxes = [box() for _ in range(count)]
        policy = RoundRobin()
        for _ in range(rounds):
            assert choices(policy, boxes, count) == [1] * count

    def test_one_that_is_new_is_next_once(self) -> None:
        policy = RoundRobin()
        old = [box() for _ in range(3)]
        choices(policy, old, 300)
        new = box()
        assert choices(policy, [*old, new], 1) == [0, 0, 0, 1]
        assert choices(policy, [*old, new], 400) == [100] * 4

    def test_one_that_was_away_does_not_catch_up(self) -> None:
        policy = RoundRobin()
        boxes = [box() for _ in range(3)]
        choices(policy, boxes, 3)
        choices(policy, boxes[1:], 100)
        assert choices(policy, boxes, 30) == [10] * 3

    def test_a_new_policy_goes_on_where_the_old_one_was(self) -> None:
        boxes = [box() for _ in range(3)]
        choices(RoundRobin(), boxes, 100)
        assert choices(RoundRobin(), boxes, 2) == [0, 1, 1]
        assert choices(RoundRobin(), boxes, 30) == [10] * 3

    @given(st.lists(st.sets(st.integers(0, 5), min_size=1), max_size=40))
    def test_whoever_has_waited_longest_is_next(self, rounds: list[set[int]]) -> None:
        boxes = [box() for _ in range(6)]
        policy = RoundRobin()
        last = [-1] * 6
        for moment, ready in enumerate(rounds):
            picked = policy.pick([boxes[i] for i in sorted(ready)], NOW, scripted())
            i = next(i for i, each in enumerate(boxes) if each is picked)
            assert last[i] == min(last[j] for j in ready)
            last[i] = moment


class TestWeighted:
    def test_the_shares_are_the_weights(self) -> None:
        boxes = [box(0.1, 5, weight=weight) for weight in (1.0, 2.0, 5.0)]
        one, two, five = choices(Weighted(), boxes, 8000)
        assert 900 < one < 1100
        assert 1850 < two < 2150
        assert 4850 < five < 5150
        scores = [Weighted().score(each, NOW) for each in boxes]
        assert scores == sorted(scores, reverse=True)

    @pytest.mark.parametrize(
        ("random", "index"), [(0.0, 0), (nextafter(1.0, 0.0), 2)], ids=["least", "most"]
    )
    @pytest.mark.parametrize("weight", [1e-300, 0.1, 1e300])
    def test_the_ends(self, weight: float, random: float, index: int) -> None:
        boxes = [box(weight=weight) for _ in range(3)]
        assert Weighted().pick(boxes, NOW, scripted(random)) is boxes[index]


class TestPriority:
    def test_the_score_goes_by_tier_and_then_by_load(self) -> None:
        boxes = [
            Box(tier=tier, in_flight=in_flight, weight=0.1)
            for tier in (1, 2, 3)
            for in_flight in (0, 1, 7)
        ]
        scores = [Priority().score(each, NOW) for each in boxes]
        assert scores == sorted(scores)
        assert [int(score) for score in scores] == [1, 1, 1, 2, 2, 2, 3, 3, 3]

    def test_within_a_tier_it_is_least_loaded(self) -> None:
        assert choices(Priority(), [box(0.1, 3), box(0.9, 1), box(0.1, 2)]) == [0, 1000, 0]
