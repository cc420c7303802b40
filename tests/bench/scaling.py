"""How cost grows: CPU per request, or per event, with few and with many of everything.

    python -m tests.bench.scaling [--rounds N] [--only endpoints,models,...]

Prints a table in Markdown: the median of the rounds, and how many times that is what the smallest
number costs. Exit code 0: everything was measured, and every checked answer was right.
"""

from __future__ import annotations

import argparse
import os
import resource
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .children import BenchError, Children, concluded, free_port
from .measure import Bench, Plan
from .report import Figures
from .routers import Routers
from .run import cores
from .scaling_axes import AXES, Axis, Scaling

__all__ = ["main", "row"]

_FILES: Final = 12_000
"""Each open stream takes two sockets in a router."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.scaling", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(AXES), help="default: all of them")
    options = parser.parse_args(arguments)
    options.axes = [name.strip() for name in options.only.split(",")]
    for name in options.axes:
        if name not in AXES:
            parser.error(f"--only: {name!r} is none of {', '.join(AXES)}")
    return concluded(_main(options))


async def _main(options: argparse.Namespace) -> int:
    _allow_files()
    with tempfile.TemporaryDirectory() as name, Children(Path(name)) as children:
        core, load_core = cores()
        os.sched_setaffinity(0, {load_core})
        key, port = f"bench-{secrets.token_hex(16)}", free_port()
        mock = children.start("mock", load_core, ["-m", "tests.bench.mock", "--port", str(port)])
        await mock.ready(port, "/v1/models")
        bench = Bench(plan=Plan.full(), key=key, mock_port=port, proxies=[], core=core)
        routers = Routers(children, Path(name), core, port, key)
        print("| how many: what is measured | | | | |", "|---" * 5 + "|", sep="\n", flush=True)
        for axis in map(AXES.__getitem__, options.axes):
            scaling = Scaling(routers, bench, Figures())
            try:
                await scaling.measure(axis, options.rounds)
                print(row(axis, scaling.figures), flush=True)
            except BenchError as error:
                bench.failures[f"{axis.title}: {error}"] += 1
        for failure, count in bench.failures.items():
            print(f"FAILED: {count} x {failure}")
        shares = sorted(bench.foreign_shares)
        print(f"\nForeign work on the router's core: {shares[len(shares) // 2]:.0%} of it.")
        return 1 if bench.failures else 0


def row(axis: Axis, figures: Figures) -> str:
    """The line of the table for an axis."""
    cells = [axis.title]
    for size in axis.sizes:
        found = figures.spread(str(size), axis.title)
        ratio = figures.ratio(str(size), axis.title, to=str(axis.sizes[0]))
        if found is None or ratio is None:
            raise BenchError(f"nothing was measured with {size}: {axis.title}")
        shown = f"{found.median:,.0f}" if found.median >= 100 else f"{found.median:.1f}"
        times = "" if size == axis.sizes[0] else f" ({ratio.median:.2f} ×)"
        cells.append(f"{size:,}{axis.unit}: {shown}{times}")
    cells += [""] * (5 - len(cells))
    return f"| {' | '.join(cells)} |"


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < _FILES:
        raise BenchError(f"the hard limit on open files is {hard}; {_FILES} are needed (ulimit -n)")
    if resource.RLIM_INFINITY != soft < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, hard))


if __name__ == "__main__":
    sys.exit(main())
