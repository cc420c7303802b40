"""What the response cache costs and saves: the benchmark's command line and the order of things.

    python -m tests.bench.cache [--quick] [--rounds N] [--only door,...] [--json FILE]

Exit code 0: everything was measured and every checked answer was right, whether or not targets
are met. 1: an answer was wrong, or the run could not go on. 2: the command line is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import orjson

from .cache_asked import latencies
from .cache_door import door
from .cache_lookup import lookups
from .cache_loop import loop
from .cache_memory import memory
from .cache_outage import outage
from .cache_setup import Workshop
from .cache_soak import soak
from .cache_warm import warm_start
from .children import Children, concluded, free_port
from .measure import Bench, Plan
from .routers import Routers
from .run import allow_sockets, cores

__all__ = ["main"]

PARTS: Final[Mapping[str, Callable[[Workshop], Awaitable[None]]]] = {
    "door": door,
    "lookup": lookups,
    "latency": latencies,
    "loop": loop,
    "warm": warm_start,
    "memory": memory,
    "soak": soak,
    "outage": outage,
}

_PACKAGE: Final = __package__ or "tests.bench"
_MAX_SHOWN: Final = 20


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_PACKAGE}.cache",
        description="Measure the response cache, on two cores.",
    )
    parser.add_argument("--quick", action="store_true", help="short measurements")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="default 5, quick 2")
    parser.add_argument("--only", default="", help=f"parts out of {','.join(PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    options = parser.parse_args(arguments)
    named = [name.strip() for name in options.only.split(",") if name.strip()]
    for name in named:
        if name not in PARTS:
            parser.error(f"--only: {name!r} is none of {', '.join(PARTS)}")
    options.parts = [name for name in PARTS if name in named] or list(PARTS)
    options.rounds = options.rounds or (2 if options.quick else 5)
    if not 1 <= options.rounds <= 20:
        parser.error("--rounds must be between 1 and 20")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no directory {options.json.parent}")
    return options


async def _workshop(options: argparse.Namespace, directory: Path, children: Children) -> Workshop:
    """With the mock running."""
    core, load_core = cores()
    os.sched_setaffinity(0, {load_core})
    key, port = f"bench-{secrets.token_hex(16)}", free_port()
    mock = children.start("mock", load_core, ["-m", f"{_PACKAGE}.mock", "--port", str(port)])
    await mock.ready(port, "/v1/models")
    plan = Plan.quick() if options.quick else Plan.full()
    return Workshop(
        children=children,
        directory=directory,
        core=core,
        load_core=load_core,
        bench=Bench(plan=plan, key=key, mock_port=port, proxies=[], core=core),
        routers=Routers(children, directory, core, port, key),
        rounds=options.rounds,
        quick=options.quick,
        say=_say,
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _conclude(shop: Workshop, options: argparse.Namespace, seconds: float) -> int:
    """Print the table and what was wrong; the exit code."""
    foreign = shop.bench.foreign_shares or [0.0]
    print(
        f"\n{options.rounds} {'quick' if options.quick else 'full'} rounds in {seconds:.0f} s, "
        f"medians; Python {platform.python_version()}; foreign work on the measured core: "
        f"{median(foreign):.0%} (at most {max(foreign):.0%})\n"
    )
    print("\n".join(shop.findings.table()) + "\n")
    failures = shop.bench.failures
    if options.json is not None:
        report = {
            "python": platform.python_version(),
            "quick": options.quick,
            "figures": shop.findings.as_json(),
            "failures": dict(failures),
        }
        options.json.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2) + b"\n")
    missed = shop.findings.missed()
    print(f"{len(missed)} of the targets are missed." if missed else "Every target is met.")
    if not failures:
        print("Every answer that was checked was right.")
        return 0
    print(f"FAILED: {failures.total()} answers were wrong, so the figures do not count:")
    for text, number in failures.most_common(_MAX_SHOWN):
        print(f"  {number} x {text}")
    return 1


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
        with Children(directory) as children:
            shop = await _workshop(options, directory, children)
            for name in options.parts:
                _say(f"{name}, at {time.monotonic() - began:.0f} s")
                await PARTS[name](shop)
        code = _conclude(shop, options, time.monotonic() - began)
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
