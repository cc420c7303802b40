"""The benchmark's command line and the order of things.

    python -m tests.bench.run [--quick] [--rounds N] [--dialects responses,chat,ollama]
                              [--only baseline,whole,...] [--json FILE]

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
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson
import uvloop
import yaml

from .check import Checker
from .children import BenchError, Child, Children, free_port
from .measure import HELD_STREAMS, Bench, Plan, Target, Values
from .report import BASELINE, DIRECT, Figures, judge, render, summary

DIALECTS: Final = {
    "responses": ("/v1", "/v1/responses"),
    "chat": ("/v1", "/v1/chat/completions"),
    "ollama": ("", "/api/chat"),
}
"""Dialect -> path of the endpoint's base URL, path on which its requests reach the mock."""

MEASUREMENTS: Final = ("whole", "paced", "unpaced", "first", "memory")

Measure = Callable[[Target], Awaitable[Values]]

_PACKAGE: Final = __package__ or "tests.bench"
_KEY_VARIABLE: Final = "BENCH_CLIENT_KEY"
_MAX_SHOWN: Final = 20


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_PACKAGE}.run",
        description="Measure Switchyard beside a bare aiohttp proxy, on two cores.",
    )
    parser.add_argument("--quick", action="store_true", help="short measurements, about 90 s")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="default 5, quick 3")
    parser.add_argument("--dialects", default=",".join(DIALECTS), help="default: all three")
    parser.add_argument(
        "--only",
        default="",
        help=f"measurements out of {','.join(MEASUREMENTS)}; 'baseline' leaves Switchyard out",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    options = parser.parse_args(arguments)
    options.dialects = _names(parser, "--dialects", options.dialects, tuple(DIALECTS))
    only = _names(parser, "--only", options.only, (BASELINE, *MEASUREMENTS))
    if BASELINE in only:
        options.dialects = []
    options.measurements = [m for m in MEASUREMENTS if m in only] or list(MEASUREMENTS)
    options.rounds = options.rounds or (3 if options.quick else 5)
    if not 1 <= options.rounds <= 20:
        parser.error("--rounds must be between 1 and 20")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no directory {options.json.parent}")
    if options.json is not None and options.json.is_dir():
        parser.error(f"--json: {options.json} is a directory")
    return options


def _names(
    parser: argparse.ArgumentParser, option: str, given: str, known: Sequence[str]
) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in known:
            parser.error(f"{option}: {name!r} is none of {', '.join(known)}")
    return [name for name in known if name in names]


def _cores() -> tuple[int, int]:
    """The core of the proxies and the core of mock and load."""
    if sys.platform != "linux":
        raise BenchError("the benchmark reads /proc and pins processes: it needs Linux")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("the benchmark needs two cores, and this process may use only one")
    return cores[-1], cores[0]


def _allow_sockets() -> None:
    """Each held stream takes two sockets in a proxy; children inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * HELD_STREAMS
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BenchError(f"the hard limit on open files is {hard}; {needed} are needed (ulimit -n)")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _router_config(directory: Path, dialect: str, port: int, mock_port: int) -> Path:
    endpoint: dict[str, Any] = {
        "name": "mock",
        "url": f"http://127.0.0.1:{mock_port}{DIALECTS[dialect][0]}",
        "dialect": dialect,
        "models": ["mock-*"],
        "max_in_flight": 4096,
    }
    config = {
        "server": {"host": "127.0.0.1", "port": port},
        "auth": {"keys": [{"name": "bench", "key": f"${{{_KEY_VARIABLE}}}"}]},
        "endpoints": [endpoint],
    }
    path = directory / f"router-{dialect}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


class _Run:
    """One run: the processes, then the measurements in interleaved rounds."""

    def __init__(self, options: argparse.Namespace, directory: Path, children: Children) -> None:
        self._options = options
        self._directory = directory
        self._children = children
        self._router_core, self._load_core = _cores()
        self._key = f"bench-{secrets.token_hex(16)}"
        self._targets: list[Target] = []
        self.figures = Figures()
        self.bench: Bench | None = None

    @property
    def names(self) -> list[str]:
        return [target.name for target in self._targets]

    async def measure(self) -> None:
        """Everything; BenchError where it cannot go on."""
        os.sched_setaffinity(0, {self._load_core})
        bench = self.bench = await self._start()
        wanted = self._options.measurements
        proxies = [target for target in self._targets if target.name != DIRECT]
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

    async def _start(self) -> Bench:
        """Start mock, baseline and one router per dialect, and wait until all answer."""
        mock_port = free_port()
        command = ["-m", f"{_PACKAGE}.mock", "--port", str(mock_port)]
        mock = self._children.start("mock", self._load_core, command)
        await mock.ready(mock_port, "/v1/models")
        self._add(DIRECT, mock_port, "/v1/responses", mock)

        port = free_port()
        command = ["-m", f"{_PACKAGE}.baseline", "--port", str(port)]
        command += ["--upstream", f"http://127.0.0.1:{mock_port}"]
        baseline = self._children.start(BASELINE, self._router_core, command)
        await baseline.ready(port, "/v1/models")
        self._add(BASELINE, port, "/v1/responses", baseline)

        for dialect in self._options.dialects:
            await self._start_router(dialect, mock_port)
        return Bench(
            plan=Plan.quick() if self._options.quick else Plan.full(),
            key=self._key,
            mock_port=mock_port,
            proxies=[target.child for target in self._targets if target.name != DIRECT],
            core=self._router_core,
        )

    async def _start_router(self, dialect: str, mock_port: int) -> None:
        port = free_port()
        config = _router_config(self._directory, dialect, port, mock_port)
        router = self._children.start(
            dialect,
            self._router_core,
            ["-m", "router", "serve", "--config", str(config)],
            {_KEY_VARIABLE: self._key},
        )
        await router.ready(port, "/ready")
        self._add(dialect, port, DIALECTS[dialect][1], router)

    def _add(self, name: str, port: int, upstream_path: str, child: Child) -> None:
        own_ids = name not in (DIRECT, BASELINE)
        self._targets.append(Target(name, port, upstream_path, child, Checker(own_ids=own_ids)))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _conclude(run: _Run, options: argparse.Namespace, seconds: float) -> int:
    """Print the table and what was wrong; the exit code."""
    assert run.bench is not None
    verdicts = judge(run.figures, options.dialects)
    failures = run.bench.failures
    print(f"\n{_conditions(run, options, seconds)}\n")
    print(render(run.figures, run.names, verdicts))
    if options.json is not None:
        report = {
            "python": platform.python_version(),
            "quick": options.quick,
            **summary(run.figures, run.names, verdicts),
            "failures": dict(failures),
        }
        options.json.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2) + b"\n")
    if not failures:
        print("\nEvery answer was whole, and every one that was checked was right.")
        return 0
    print(f"\nFAILED: {failures.total()} answers were wrong, so the figures do not count:")
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
    foreign = run.figures.every("foreign_share")
    if foreign:
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
    _allow_sockets()
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="switchyard-bench-"))
    code = 1
    try:
        with Children(directory) as children:
            run = _Run(options, directory, children)
            await run.measure()
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
    options = _options(arguments)
    try:
        return uvloop.run(_main(options))
    except BenchError as error:
        _say(f"The benchmark cannot go on: {error}")
        return 1
    except asyncio.CancelledError:
        _say("Interrupted; every process has been ended.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
