"""The policies compared on the same arrivals.

    python -m tests.simulation.run [--seed N] [--seeds K] [--minutes M] [--rate R] [--limit N]
                                   [--well] [--policy NAME ...] [--set KEY=VALUE ...]

Prints tables in Markdown, over the traces of the seeds N to N + K - 1, each of which every policy
gets. Exit code 1: a request was lost, or a slot.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, get_args

import yaml

from router.settings.schema import PolicyName
from tests.simulation import replay
from tests.simulation.report import Summary, ends_table, loads_table, summarise, times_table
from tests.simulation.scene import FAULTS, FLEET, MODELS, RATE
from tests.simulation.trace import make_trace

__all__ = ["Job", "main", "run"]


@dataclass(frozen=True, slots=True)
class Job:
    """One replay. ``balance`` is what of these settings is not as it is by default."""

    balance: Mapping[str, Any]
    seed: int
    minutes: float
    rate: float
    limit: int | None
    well: bool


def run(job: Job) -> tuple[Summary, bool]:
    """The figures, and whether every request has ended and every slot was given back."""
    seconds = job.minutes * 60.0
    fleet = FLEET if job.limit is None else [replace(m, limit=job.limit) for m in FLEET]
    faults = () if job.well else FAULTS
    trace = make_trace(job.seed, job.minutes, job.rate, MODELS)
    replayed = replay.replay(trace, fleet, faults, seconds, job.balance, job.seed)
    return summarise(replayed, faults, seconds), replayed.complete(len(trace))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    options = _options(arguments)
    policies = options.policy or get_args(PolicyName)
    variants: dict[str, dict[str, Any]] = {name: {"policy": name} for name in policies}
    variants[f"{policies[0]}, affinity: 0"] = {"policy": policies[0], "affinity": 0}
    changed = dict(map(_setting, options.set))
    seeds = range(options.seed, options.seed + options.seeds)
    jobs = [
        Job(changed | variant, seed, options.minutes, options.rate, options.limit, options.well)
        for variant in variants.values()
        for seed in seeds
    ]
    workers = min(os.cpu_count() or 1, len(jobs))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(run, jobs))
    rows = {
        name: [summary for summary, _ in results[number * len(seeds) :][: len(seeds)]]
        for number, name in enumerate(variants)
    }
    print("\n\n".join([times_table(rows), ends_table(rows), loads_table(rows, list(MODELS))]))
    if all(complete for _, complete in results):
        return 0
    print("A request has not ended, or a slot was not given back.", file=sys.stderr)
    return 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run")
    parser.add_argument("--seed", type=int, default=1, help="the first one (1)")
    parser.add_argument("--seeds", type=int, default=10, help="how many (10)")
    parser.add_argument("--minutes", type=float, default=60.0, help="the length of a day (60)")
    parser.add_argument("--rate", type=float, default=RATE, help=f"per second ({RATE:g})")
    parser.add_argument("--limit", type=int, help="max_in_flight of every endpoint")
    parser.add_argument("--well", action="store_true", help="no endpoint falls ill")
    parser.add_argument("--policy", action="append", choices=get_args(PolicyName))
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="in balance; a YAML value"
    )
    return parser.parse_args(arguments)


def _setting(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    return key, yaml.safe_load(value)


if __name__ == "__main__":
    sys.exit(main())
