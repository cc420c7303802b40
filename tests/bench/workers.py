"""What two workers cost beside one process, and how evenly requests are spread over them.

    python -m tests.bench.workers [--rounds N] [--seconds S] [--dialect responses|chat]
                                  [--connections N] [--apart]

Both serve whole answers on one core, by turns; the load and the endpoint have the other one. CPU is
that of all processes of the router, the supervisor's included. The split is of the requests that
each worker has served. On one core there are not more requests per second: whether there are on
several is not measured here.

Two workers that alternate on one core push each other out of its caches. With ``--apart`` each has
a core, as where they are used; but one of the cores is that of the load, so that there the split is
not what it is among equals.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import yaml

from .bodies import make_requests
from .children import BenchError, Child, Children, concluded, free_port
from .load import Load, fetch
from .procfs import cpu_seconds, tree
from .routers import DIALECTS, Routers
from .shapes import Shape

__all__ = ["main"]

_WHOLE: Final = Shape(64, 0, 0)
_SERVED: Final = re.compile(rb'^pointsman_worker_requests_total\{worker="(\d+)"\} (\S+)', re.M)
_TOLD_SECONDS: Final = 2.5
"""After this time the supervisor knows what each worker has served."""


@dataclass
class Measured:
    """One way to serve: its process, and what came out of each round."""

    name: str
    port: int
    child: Child
    cpu_us: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    shares: list[list[float]] = field(default_factory=list)

    async def served(self) -> dict[int, float]:
        """How many requests each worker has served; nothing of a single process."""
        _, body = await fetch(("127.0.0.1", self.port), "/metrics")
        return {int(worker): float(count) for worker, count in _SERVED.findall(body)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.workers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--dialect", choices=("responses", "chat"), default="chat")
    parser.add_argument("--apart", action="store_true", help="give each worker a core")
    options = parser.parse_args(arguments)
    return concluded(_run(options))


async def _run(options: argparse.Namespace) -> int:
    directory = Path(tempfile.mkdtemp(prefix="pointsman-bench-"))
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = cores[0], cores[-1]
    os.sched_setaffinity(0, {ours})
    key = secrets.token_hex(16)
    with Children(directory) as children:
        mock_port = free_port()
        mock = children.start("mock", ours, ["-m", "tests.bench.mock", "--port", str(mock_port)])
        await mock.ready(mock_port, "/counts")
        routers = Routers(children, directory, theirs, mock_port, key)
        both = [await _started(routers, count, options.dialect) for count in (1, 2)]
        if options.apart:
            _set_apart(both[1].child.pid, cores)
        for number in range(options.rounds + 1):
            for one in both if number % 2 else both[::-1]:
                await _measure(one, key, options, warm_up=not number)
    for one in both:
        print(_line(one))
    ratio = median(both[1].cpu_us) / median(both[0].cpu_us)
    print(f"CPU per request, 2 workers beside 1 process: {ratio:.3f}")
    shutil.rmtree(directory)
    return 0


async def _started(routers: Routers, count: int, dialect: str) -> Measured:
    port = free_port()
    name = f"workers-{count}"
    state = {"url": f"sqlite:///{routers.directory / name}.db"}
    config = routers._config(port, dialect, state)
    config["server"]["workers"] = count
    path = routers.directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    command = ["-m", "router", "serve", "--config", str(path)]
    child = routers.children.start(name, routers.core, command, {"BENCH_CLIENT_KEY": routers.key})
    await child.ready(port, "/ready")  # which all workers are then
    return Measured(name, port, child)


def _set_apart(supervisor: int, cores: Sequence[int]) -> None:
    """Give each worker a core of its own; the supervisor stays where it is."""
    for number, worker in enumerate(one for one in tree(supervisor) if one != supervisor):
        for thread in Path(f"/proc/{worker}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cores[number % len(cores)]})


async def _measure(one: Measured, key: str, options: argparse.Namespace, *, warm_up: bool) -> None:
    seconds = 1.0 if warm_up else options.seconds
    requests = make_requests(_WHOLE, stream=False, key=key)
    if options.dialect not in DIALECTS:
        raise BenchError(f"there is no dialect {options.dialect}")
    await asyncio.sleep(_TOLD_SECONDS)
    before = await one.served()
    address = "127.0.0.1", one.port
    async with Load(address, requests, options.connections, sample_every=1009) as load:
        began = cpu_seconds(one.child.pid)
        result = await load.run(limit=seconds + 60, seconds=seconds)
        spent = cpu_seconds(one.child.pid) - began
    if result.failures:
        raise BenchError(f"{one.name}: {result.failures[0]}")
    await asyncio.sleep(_TOLD_SECONDS)
    after = await one.served()
    if warm_up:
        return
    one.cpu_us.append(spent / result.answers * 1e6)
    one.per_second.append(result.answers / result.seconds)
    counts = [after[worker] - before.get(worker, 0.0) for worker in sorted(after)]
    one.shares.append([count / sum(counts) for count in counts])


def _line(one: Measured) -> str:
    rounds = " ".join(f"{value:.0f}" for value in one.cpu_us)
    shares = " ".join("/".join(f"{share:.0%}" for share in shares) for shares in one.shares)
    return (
        f"{one.name}: {median(one.cpu_us):.0f} µs of CPU per request ({rounds}), "
        f"{median(one.per_second):.0f} requests/s" + (f", split {shares}" if shares.strip() else "")
    )


if __name__ == "__main__":
    sys.exit(main())
