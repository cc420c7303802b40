"""The command, for as long as wanted.

    python -m tests.chaos.run --seconds 120 --clients 200 --scenario night --reloads 10

Exit code 0: no promise was broken. 1: some were; they are printed, and the files are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from router.settings.schema import Dialect
from tests.chaos.audit import audit_requests
from tests.chaos.records import Evidence
from tests.chaos.report import lines
from tests.chaos.scenarios import SCENARIOS, reload_often
from tests.chaos.spread import audit_traffic
from tests.chaos.stage import Plan, staged

__all__ = ["broken", "main", "play"]

_SHOWN = 40
_DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "ollama")


async def play(
    name: str,
    plan: Plan,
    directory: Path,
    *,
    seconds: float = 0.0,
    reloads: int = 0,
    pause: float = 1.0,
) -> Evidence:
    """Run a scenario, again and again until ``seconds`` are over.

    Each time, the router is reloaded so often, ``pause`` seconds apart.
    """
    scenario = SCENARIOS[name]
    began = time.monotonic()
    async with staged(plan.adapted(scenario.settings), directory) as stage:
        while True:
            async with asyncio.TaskGroup() as group:
                group.create_task(scenario.act(stage))
                group.create_task(reload_often(stage, reloads, pause))
            if time.monotonic() - began >= seconds:
                break
    return stage.evidence


def broken(evidence: Evidence) -> list[str]:
    """Every promise that was broken."""
    return [*audit_requests(evidence), *audit_traffic(evidence)]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run")
    parser.add_argument("--seconds", type=float, default=0.0, help="go on for at least so long")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--scenario", choices=(*SCENARIOS, "all"), default="night")
    parser.add_argument("--dialect", choices=(*_DIALECTS, "mixed"), default="mixed")
    parser.add_argument("--reloads", type=int, default=0, help="in each run of the scenario")
    options = parser.parse_args()
    names = list(SCENARIOS) if options.scenario == "all" else [options.scenario]
    return max([_run(name, options) for name in names])


def _run(name: str, options: argparse.Namespace) -> int:
    dialects = _DIALECTS if options.dialect == "mixed" else (options.dialect,)
    plan = Plan(options.clients, options.seed, dialects=dialects)
    directory = Path(tempfile.mkdtemp(prefix="pointsman-chaos-"))
    evidence = asyncio.run(
        play(name, plan, directory, seconds=options.seconds, reloads=options.reloads, pause=2.0)
    )
    found = broken(evidence)
    print(f"{name}, {options.clients} clients, {options.dialect}, seed {options.seed}")
    print("\n".join([*lines(evidence), f"  {len(found)} broken promises"]))
    print("\n".join(f"    {what}" for what in found[:_SHOWN]), flush=True)
    if found:
        print(f"logs: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
