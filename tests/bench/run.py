"""The benchmark's command line and the order of things.

    python -m tests.bench.run [--quick] [--rounds N] [--dialects responses,chat,ollama,messages]
                              [--databases sqlite,postgresql] [--only baseline,whole,...]
                              [--large N] [--json FILE]

Exit code 0: everything was measured and every checked answer was right, whether or not targets
are met. 1: an answer was wrong, or the run could not go on. 2: the command line is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import resource
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import orjson

from .check import Checker
from .children import BenchError, Child, Children, concluded, free_port
from .databases import Databases
from .measure import HELD_STREAMS, Bench, Measure, Plan, Target
from .report import (
    BASELINE,
    DIRECT,
    DOOR_GOALS,
    DOOR_ROWS,
    Figures,
    judge,
    summary,
    table,
    verdict_lines,
)
from .routers import DIALECTS, Routers
from .stored_report import DATABASES, STORED_GOALS, STORED_ROWS
from .stored_run import STORED_MEASUREMENTS, StoredRun

MEASUREMENTS: Final = ("whole", "paced", "unpaced", "first", "memory", *STORED_MEASUREMENTS)

_PACKAGE: Final = __package__ or "tests.bench"
_LARGE: Final = 1_000_000
_MAX_SHOWN: Final = 20


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_PACKAGE}.run",
        description="Measure Pointsman beside a bare aiohttp proxy, on two cores.",
    )
    parser.add_argument("--quick", action="store_true", help="short measurements, about 4 minutes")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="default 5, quick 3")
    parser.add_argument("--dialects", default=",".join(DIALECTS), help="default: all")
    parser.add_argument("--databases", default=",".join(DATABASES), help="default: both")
    parser.add_argument(
        "--only",
        default="",
        help=f"measurements out of {','.join(MEASUREMENTS)}; 'baseline' leaves Pointsman out; "
        "without it, all but growth",
    )
    parser.add_argument(
        "--large",
        type=int,
        default=_LARGE,
        metavar="N",
        help="stored responses in the large database of growth, default 1 000 000",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    options = parser.parse_args(arguments)
    options.dialects = _names(parser, "--dialects", options.dialects, tuple(DIALECTS))
    options.databases = _names(parser, "--databases", options.databases, DATABASES)
    only = _names(parser, "--only", options.only, (BASELINE, *MEASUREMENTS))
    if BASELINE in only:
        options.dialects = options.databases = []
    default = [m for m in MEASUREMENTS if m != "growth"]
    options.measurements = [m for m in MEASUREMENTS if m in only] or default
    options.rounds = options.rounds or (3 if options.quick else 5)
    _check(parser, options)
    return options


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not 1 <= options.rounds <= 20:
        parser.error("--rounds must be between 1 and 20")
    if not 10_000 <= options.large <= 10_000_000:
        parser.error("--large must be between 10 000 and 10 000 000")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no directory {options.json.parent}")
    if options.json is not None and options.json.is_dir():
        parser.error(f"--json: {options.json} is a directory")


def _names(
    parser: argparse.ArgumentParser, option: str, given: str, known: Sequence[str]
) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in known:
            parser.error(f"{option}: {name!r} is none of {', '.join(known)}")
    return [name for name in known if name in names]


def cores() -> tuple[int, int]:
    """The core of the proxies and the core of mock and load."""
    if sys.platform != "linux":
        raise BenchError("the benchmark reads /proc and pins processes: it needs Linux")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("the benchmark needs two cores, and this process may use only one")
    return cores[-1], cores[0]


def allow_sockets() -> None:
    """Each held stream takes two sockets in a proxy; children inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * HELD_STREAMS
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BenchError(f"the hard limit on open files is {hard}; {needed} are needed (ulimit -n)")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class _Run:
    """One run: the processes, then the measurements in interleaved rounds."""

    def __init__(self, options: argparse.Namespace, directory: Path, children: Children) -> None:
        self._options = options
        self._directory = directory
        self._children = children
        self._router_core, self._load_core = cores()
        self._key = f"bench-{secrets.token_hex(16)}"
        self._targets: list[Target] = []
        self.figures = Figures()
        self.bench: Bench | None = None
        self.missing: list[str] = []

    @property
    def names(self) -> list[str]:
        return [target.name for target in self._targets]

    async def measure(self, databases: Databases) -> None:
        """Everything; BenchError where it cannot go on."""
        os.sched_setaffinity(0, {self._load_core})
        wanted = self._options.measurements
        mock_port = await self._start_mock()
        routers = Routers(self._children, self._directory, self._router_core, mock_port, self._key)
        bench = self.bench = Bench(
            plan=Plan.quick() if self._options.quick else Plan.full(),
            key=self._key,
            mock_port=mock_port,
            proxies=[],
            core=self._router_core,
        )
        if not set(wanted) <= set(STORED_MEASUREMENTS):
            await self._measure_door(bench, routers)
        if self._options.databases and set(wanted) & set(STORED_MEASUREMENTS):
            large = self._options.large
            run = StoredRun(routers, databases, bench, self.figures, _say, large)
            await run.measure(self._options.databases, wanted, self._options.rounds)
            self.missing = run.missing

    async def _measure_door(self, bench: Bench, routers: Routers) -> None:
        """What a request costs that leaves nothing behind."""
        wanted = self._options.measurements
        await self._start_door(routers)
        proxies = [target for target in self._targets if target.name != DIRECT]
        bench.proxies += [target.child for target in proxies]
        if "memory" in wanted:
            await self._each(0, proxies, bench.idle)
        for target in self._targets:
            await bench.warm_up(target)
        if "memory" in wanted:
            await self._each(0, proxies, bench.held)
        for number in range(1, self._options.rounds + 1):
            _say(f"round {number} of {self._options.rounds}")
            await self._round(number, bench, proxies)

    async def _round(self, number: int, bench: Bench, proxies: Sequence[Target]) -> None:
        """Each measurement of all targets in turn, backwards too: a machine drifts."""
        steps: dict[str, tuple[Measure, Sequence[Target]]] = {
            "whole": (partial(bench.quiet, bench.whole), self._targets),
            "paced": (partial(bench.quiet, bench.paced), proxies),
            "unpaced": (partial(bench.quiet, bench.unpaced), proxies),
            "first": (bench.first, self._targets),
        }
        for name, (measure, targets) in steps.items():
            if name not in self._options.measurements:
                continue
            if name in ("paced", "unpaced"):  # long enough: only every other round is backwards
                await self._each(number, targets[:: 1 if number % 2 else -1], measure)
            else:
                await self._each(2 * number, targets, measure)
                await self._each(2 * number + 1, targets[::-1], measure)

    async def _each(self, number: int, targets: Sequence[Target], measure: Measure) -> None:
        for target in targets:
            self.figures.add(target.name, number, await measure(target))

    async def _start_mock(self) -> int:
        """Its port, once it answers."""
        port = free_port()
        command = ["-m", f"{_PACKAGE}.mock", "--port", str(port)]
        mock = self._children.start("mock", self._load_core, command)
        await mock.ready(port, "/v1/models")
        self._add(DIRECT, port, mock)
        return port

    async def _start_door(self, routers: Routers) -> None:
        """Start the baseline and one router per dialect, and wait until all answer."""
        port = free_port()
        command = ["-m", f"{_PACKAGE}.baseline", "--port", str(port)]
        command += ["--upstream", f"http://127.0.0.1:{routers.mock_port}"]
        baseline = self._children.start(BASELINE, self._router_core, command)
        await baseline.ready(port, "/v1/models")
        self._add(BASELINE, port, baseline)
        for dialect in self._options.dialects:
            state = {"url": f"sqlite:///{self._directory / dialect}.db"}
            self._targets.append(await routers.start(dialect, dialect, dialect, state))

    def _add(self, name: str, port: int, child: Child) -> None:
        self._targets.append(Target(name, port, "/v1/responses", child, Checker(own_ids=False)))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _conclude(run: _Run, options: argparse.Namespace, seconds: float) -> int:
    """Print the tables and what was wrong; the exit code."""
    assert run.bench is not None
    targets = [*run.names, *options.databases]
    verdicts = judge(run.figures, targets, (*DOOR_GOALS, *STORED_GOALS))
    failures = run.bench.failures
    print(f"\n{_conditions(run, options, seconds)}\n")
    for part in (
        table(run.figures, run.names, DOOR_ROWS),
        table(run.figures, options.databases, STORED_ROWS),
        verdict_lines(run.figures, verdicts),
    ):
        if len(part) > 1:
            print("\n".join(part) + "\n")
    for kind in run.missing:
        print(f"{kind} was left out: no server answers.")
    if options.json is not None:
        report = {
            "python": platform.python_version(),
            "quick": options.quick,
            **summary(run.figures, targets, (*DOOR_ROWS, *STORED_ROWS), verdicts),
            "failures": dict(failures),
        }
        options.json.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2) + b"\n")
    if not failures:
        print("Every answer was whole, and every one that was checked was right.")
        return 0
    print(f"FAILED: {failures.total()} answers were wrong, so the figures do not count:")
    for text, count in failures.most_common(_MAX_SHOWN):
        print(f"  {count} x {text}")
    return 1


def _conditions(run: _Run, options: argparse.Namespace, seconds: float) -> str:
    kind = "quick" if options.quick else "full"
    text = (
        f"{options.rounds} {kind} rounds in {seconds:.0f} s, medians; CPU of the proxy's process "
        f"tree; Python {platform.python_version()}"
        "\ndirect: the load generator on the mock, without a proxy"
    )
    assert run.bench is not None
    if foreign := run.bench.foreign_shares:
        text += (
            f"\nForeign work on the proxies' core: {median(foreign):.0%} (at most "
            f"{max(foreign):.0%}); compare ratios, not figures of different runs"
        )
    return text


async def _main(options: argparse.Namespace) -> int:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    allow_sockets()
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="pointsman-bench-"))
    code = 1
    try:
        async with Databases(directory) as databases:
            with Children(directory) as children:
                run = _Run(options, directory, children)
                await run.measure(databases)
        code = _conclude(run, options, time.monotonic() - began)
    except asyncio.CancelledError:
        code = 0  # nothing is wrong that a log could explain
        raise
    finally:
        if code == 0:
            shutil.rmtree(directory)
        else:
            _say(f"What the processes printed is kept in {directory}")
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    return concluded(_main(_options(arguments)))


if __name__ == "__main__":
    sys.exit(main())
