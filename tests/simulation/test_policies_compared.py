"""The policies on the same arrivals, in virtual time: the same figures on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import Any, get_args

import pytest

from router.settings.schema import PolicyName
from tests.simulation.box import Machine
from tests.simulation.replay import Replay, replay
from tests.simulation.report import Summary, summarise
from tests.simulation.scene import FAULTS, FLEET, MODELS, RATE
from tests.simulation.trace import Request, make_trace

MINUTES = 10.0
SECONDS = MINUTES * 60.0
SEEDS = (1, 2, 3)
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)

LARGE = tuple(machine for machine in FLEET if machine.name in ("vllm-a", "vllm-b", "spark"))
"""Endpoints of very different speed that always have their model in memory."""

SMALL = tuple(machine for machine in FLEET if machine.dialect == "ollama")
"""Endpoints that have to load their models, and have room for two or three."""


@cache
def whole(policy: PolicyName, affinity: float = 0.25) -> Replay:
    """The whole fleet, with everything that befalls it."""
    trace = make_trace(1, MINUTES, RATE, MODELS)
    return replay(trace, FLEET, FAULTS, SECONDS, {"policy": policy, "affinity": affinity})


def figures(policy: PolicyName, affinity: float = 0.25) -> Summary:
    return summarise(whole(policy, affinity), FAULTS, SECONDS)


def healthy(policy: PolicyName, fleet: Sequence[Machine], seed: int, rate: float) -> Summary:
    """The figures of a fleet that nothing befalls, for one model."""
    trace = make_trace(seed, MINUTES, rate, {"general": 1.0})
    return summarise(replay(trace, fleet, (), SECONDS, {"policy": policy}), (), SECONDS)


@cache
def medians(policy: PolicyName) -> tuple[float, float]:
    """The median and the 99th percentile of the time to the first token, medians of some runs."""
    runs = [healthy(policy, LARGE, seed, 2.5) for seed in SEEDS]
    return median(run.p50 for run in runs), median(run.p99 for run in runs)


@pytest.mark.parametrize("policy", ["least-loaded", "fastest"])
def test_it_beats_round_robin_where_endpoints_differ(policy: PolicyName) -> None:
    p50, p99 = medians(policy)
    p50_in_turn, p99_in_turn = medians("round-robin")
    assert p50 < 0.8 * p50_in_turn
    assert p99 < 0.5 * p99_in_turn


@pytest.mark.parametrize("policy", ["least-loaded", "fastest"])
def test_it_beats_round_robin_in_a_sick_fleet(policy: PolicyName) -> None:
    mine, in_turn = figures(policy), figures("round-robin")
    assert mine.p50 < 0.8 * in_turn.p50
    assert mine.p90 < 0.7 * in_turn.p90
    assert mine.largest < 0.7 * in_turn.largest


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "priority"])
def test_priority_spends_less_on_the_paid_api(policy: PolicyName) -> None:
    assert figures("priority").cost < 0.5 * figures(policy).cost


def test_affinity_uses_the_prompt_caches() -> None:
    without = figures("least-loaded", 0.0)
    assert figures("least-loaded").hits > without.hits + 0.1
    assert figures("least-loaded").p50 < without.p50


@pytest.mark.parametrize("policy", POLICIES)
def test_no_request_is_lost_and_no_slot(policy: PolicyName) -> None:
    replayed = whole(policy)
    assert len(replayed.outcomes) > 1000
    assert replayed.complete(len(make_trace(1, MINUTES, RATE, MODELS)))


@pytest.mark.parametrize("policy", POLICIES)
def test_hardly_a_request_fails_in_a_sick_fleet(policy: PolicyName) -> None:
    """But for those whose endpoint dies, or stalls, in the middle of their answer."""
    errors = figures(policy).errors
    assert errors.total() - errors["cut"] <= 0.01 * figures(policy).requests
    assert errors["cut"] <= 0.01 * figures(policy).requests


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cold_model_is_loaded_once_for_all_who_ask_for_it(policy: PolicyName) -> None:
    asked = [request_for("coder", 20.0 + 0.1 * number, number) for number in range(4)]
    replayed = replay(asked, SMALL, (), 120.0, {"policy": policy})
    loads = summarise(replayed, (), 120.0).loads
    assert loads == {"coder": 1}
    assert replayed.complete(4)


@pytest.mark.parametrize("policy", POLICIES)
def test_models_are_not_loaded_everywhere(policy: PolicyName) -> None:
    """Little is asked for: one place is enough for every model, and there is room for all."""
    trace = make_trace(2, MINUTES, 0.3, {"coder": 0.4, "writer": 0.3, "small": 0.3})
    summary = summarise(replay(trace, SMALL, (), SECONDS, {"policy": policy}), (), SECONDS)
    assert set(summary.loads) == {"coder", "writer", "small"}
    assert max(summary.homes.values()) <= 2
    assert summary.loads.total() <= 9
    assert not summary.errors


def test_the_same_seed_gives_the_same_figures() -> None:
    trace = make_trace(4, 3.0, RATE, MODELS)

    def once() -> list[Any]:
        replayed = replay(trace, FLEET, FAULTS, 180.0, {"policy": "fastest"}, seed=4)
        return [(o.first_token, o.error, o.endpoint, o.attempts) for o in replayed.outcomes]

    assert once() == once()


def request_for(model: str, at: float, number: int) -> Request:
    body = {"model": model, "stream": True, "input": [{"role": "user", "content": str(number)}]}
    return Request(at, number, 0, "caller", model, 300, 0, 50, body)
