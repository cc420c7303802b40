"""Short runs; ``python -m tests.chaos.run`` has long ones, and more kinds of trouble."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.audit import audit_requests
from tests.chaos.records import Evidence
from tests.chaos.report import lines
from tests.chaos.run import play
from tests.chaos.spread import audit_traffic
from tests.chaos.stage import Plan
from tests.support.seed import seed

_SCENARIOS = ("killed", "stalled", "stalled-kept-alive", "failing", "flaky", "limited")
_TRIES = 2


def plan() -> Plan:
    """Forty clients, and one thing after the other as fast as it can be seen."""
    return Plan(40, seed(), pause=0.02, calm=1.0, sick=3.2, breaker={"slow_start": 2.0})


async def held(scenario: str, directory: Path, reloads: int = 0) -> Evidence:
    """What is promised of an answer holds each time; what is of the traffic, once in two times: in
    so few seconds, shares of it waver.
    """
    for number in range(_TRIES):
        place = directory / str(number)
        place.mkdir()
        evidence = await play(scenario, plan(), place, reloads=reloads)
        print("\n".join(lines(evidence)))
        assert audit_requests(evidence) == []
        if not (found := audit_traffic(evidence)):
            return evidence
        print("\n".join(found))
    return pytest.fail(f"twice: {found}")


@pytest.mark.parametrize("scenario", _SCENARIOS)
async def test_one_endpoint_is_sick(scenario: str, tmp_path: Path) -> None:
    await held(scenario, tmp_path)


async def test_one_night_during_reloads(tmp_path: Path) -> None:
    evidence = await held("night", tmp_path, reloads=10)
    assert len(evidence.reloads) == 10
