"""Short runs; ``python -m tests.chaos.run`` has long ones, and more kinds of trouble."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.report import lines
from tests.chaos.run import broken, play
from tests.chaos.stage import Plan

_SCENARIOS = ("killed", "stalled", "stalled-kept-alive", "failing", "flaky", "limited")


def plan() -> Plan:
    """Forty clients, and one thing after the other as fast as it can be seen."""
    seed = random.SystemRandom().randrange(10**6)
    return Plan(40, seed, pause=0.02, calm=1.0, sick=3.2, breaker={"slow_start": 2.0})


@pytest.mark.parametrize("scenario", _SCENARIOS)
async def test_one_endpoint_is_sick(scenario: str, tmp_path: Path) -> None:
    evidence = await play(scenario, plan(), tmp_path)
    print("\n".join(lines(evidence)))
    assert broken(evidence) == []


async def test_one_night_during_reloads(tmp_path: Path) -> None:
    evidence = await play("night", plan(), tmp_path, reloads=10)
    print("\n".join(lines(evidence)))
    assert len(evidence.reloads) == 10
    assert broken(evidence) == []
