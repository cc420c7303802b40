"""What happens when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from tests.chaos.faults import Fault, Kind, Point
from tests.chaos.stage import BOXES, EXTRA, Stage, endpoint

__all__ = ["SCENARIOS", "Scenario", "reload_often"]


Act = Callable[[Stage], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Scenario:
    """One act, which may be repeated; ``settings`` are fields of the ``Plan`` that it needs."""

    act: Act
    settings: dict[str, Any] = field(default_factory=dict)


async def killed(stage: Stage) -> None:
    """One is killed in the middle of its answers, and comes back."""
    await stage.wait(stage.plan.calm)
    episode = await stage.kill("two")
    await stage.wait(stage.plan.sick)
    await stage.cure(episode)
    await stage.back(episode)


def sick(kind: Kind, point: Point = "head", *, back: bool = True, **more: Any) -> Act:
    """One has a fault for a while; with ``back``, its return is watched."""

    async def act(stage: Stage) -> None:
        await stage.wait(stage.plan.calm)
        episode = await stage.sicken("two", Fault(kind, point, **more))
        await stage.wait(stage.plan.sick)
        await stage.cure(episode)
        if back:
            await stage.back(episode)

    return act


async def night(stage: Stage) -> None:
    """One after the other: two are sick at once, but never all three."""
    await stage.wait(stage.plan.calm)
    dead = await stage.kill("one")
    await stage.wait(stage.plan.sick)
    silent = await stage.sicken("two", Fault("stall"))
    await stage.wait(stage.plan.sick / 2)
    await stage.cure(dead)
    await stage.wait(stage.plan.sick / 2)
    await stage.cure(silent)
    flaky = await stage.sicken("three", Fault("error", share=0.3))
    await stage.wait(stage.plan.sick)
    await stage.cure(flaky)
    await stage.back(dead, silent)


async def dark(stage: Stage) -> None:
    """All are killed; requests are refused, and served again once they are back."""
    await stage.wait(stage.plan.calm)
    episodes = [await stage.kill(name) for name in BOXES]
    await stage.wait(stage.plan.sick)
    await asyncio.gather(*map(stage.cure, episodes))
    await stage.back(*episodes)


async def reload_often(stage: Stage, times: int, pause: float) -> None:
    """Reload the router so many times, ``pause`` seconds apart: weights change, an endpoint comes
    and goes, and in between the configuration is nonsense.
    """
    for number in range(times):
        await stage.wait(pause)
        weights = [stage.rng.choice((1.0, 1.25, 1.5)) for _ in BOXES]
        names = list(zip(BOXES, weights, strict=True))
        if number % 5 in (1, 2):
            names.append((EXTRA, 1.0))
        if number % 5 == 3:
            stage.reload_nonsense()
            await asyncio.sleep(pause / 2)
        stage.reload([endpoint(stage.boxes[n], stage.plan, weight=w) for n, w in names])


SCENARIOS: Final[dict[str, Scenario]] = {
    # The idle deadline is so long that only a broken connection tells of the death in time.
    "killed": Scenario(killed, {"timeouts": {"idle": 9.0, "total": 12.0}}),
    "killed-in-long-answers": Scenario(
        killed, {"pause": 0.5, "timeouts": {"idle": 9.0, "total": 12.0}}
    ),
    "crowded": Scenario(killed, {"room": 0.35}),
    # An answer in one piece is waited for until long after the endpoint is well again: it must
    # not be the one that everybody waits for.
    "stalled": Scenario(sick("stall"), {"timeouts": {"total": 10.0}}),
    "stalled-kept-alive": Scenario(
        sick("stall"), {"server": {"open_after": 0.3, "keepalive_interval": 0.3}}
    ),
    # In a stream of Chat Completions, what precedes the output is output to its client.
    # The endpoint is sick once the idle deadline has passed: that has to be soon.
    "stalled-before-output": Scenario(
        sick("stall", "output"), {"apis": ("responses",), "timeouts": {"idle": 1.0}}
    ),
    "stalled-in-output": Scenario(sick("stall", "middle", back=False)),
    "failing": Scenario(sick("error")),
    "failing-for-one-model": Scenario(sick("error", model="m")),
    "flaky": Scenario(sick("error", back=False, share=0.3), {"breaker": {"max_open_seconds": 8.0}}),
    "reset": Scenario(sick("reset")),
    "reset-in-output": Scenario(sick("reset", "middle", back=False)),
    "slow": Scenario(sick("slow", back=False)),
    "limited": Scenario(sick("limit", back=False, model="m", retry_after=3)),
    "dark": Scenario(dark),
    "night": Scenario(night),
}
