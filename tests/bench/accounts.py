"""What accounting, limits and metrics cost, beside a router without them.

    python -m tests.bench.accounts [--seconds 4] [--rounds 5]

Two routers on one core take turns, so that noise meets both. ``with``: a ledger, prices, a budget,
limits that are never reached, metrics. ``without``: none of it (see ``unaccounted``); both have
keys, the access log and the state of the same kind. At most 8 % is wanted.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from .bodies import make_requests
from .children import Children, concluded, free_port
from .measure import Bench, Plan, Target
from .routers import OWNER, Routers
from .run import allow_sockets, cores
from .shapes import Shape

__all__ = ["main"]

_AT_ONCE: Final = 64
_WANTED: Final = 0.92
_PLENTY: Final = 10**9
_LIMITS: Final = {
    "limits": {
        "requests_per_minute": _PLENTY, "tokens_per_minute": 10**12, "concurrent": _PLENTY
    },
    "budgets": [{"period": "month", "usd": 10**9}, {"period": "day", "tokens": 10**15}],
}  # fmt: skip
_PRICES: Final = {"prices": {"mock-*": {"input": 2.5, "cached": 1.25, "output": 10}}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 0 when the price is as wanted, 1 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.accounts", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="for each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    return concluded(_main(parser.parse_args(arguments)))


async def _main(options: argparse.Namespace) -> int:
    allow_sockets()
    with tempfile.TemporaryDirectory() as name, Children(Path(name)) as children:
        directory = Path(name)
        core, load_core = cores()
        os.sched_setaffinity(0, {load_core})
        key, port = f"bench-{secrets.token_hex(16)}", free_port()
        mock = children.start("mock", load_core, ["-m", "tests.bench.mock", "--port", str(port)])
        await mock.ready(port, "/v1/models")
        bench = Bench(plan=Plan.quick(), key=key, mock_port=port, proxies=[], core=core)
        routers = Routers(children, directory, core, port, key)
        good = True
        for dialect in ("responses", "chat"):
            targets = [await _router(routers, directory, dialect, given) for given in (True, False)]
            bench.proxies[:] = [target.child for target in targets]
            for target in targets:
                await bench.warm_up(target)
            for stream in (False, True):
                good &= await _compared(bench, targets, stream, options, dialect)
            for target in targets:
                target.child.process.terminate()
                target.child.process.wait(10)
        for failure, count in bench.failures.items():
            print(f"{count} x {failure}")
        return 0 if good and not bench.failures else 1


async def _router(routers: Routers, directory: Path, dialect: str, given: bool) -> Target:
    name = f"{dialect}-{'with' if given else 'without'}"
    keys: dict[str, Any] = {"name": OWNER, "key": "${BENCH_CLIENT_KEY}"}
    more = {"auth": {"keys": [{**keys, **(_LIMITS if given else {})}]}, "accounts": _PRICES}
    module = "router" if given else "tests.bench.unaccounted"
    state = {"url": f"sqlite:///{directory / name}.db"}
    return await routers.start(name, name, dialect, state, more, module)


async def _compared(
    bench: Bench, targets: list[Target], stream: bool, options: argparse.Namespace, dialect: str
) -> bool:
    """Print how the two compare; whether the price is as wanted."""
    requests = make_requests(Shape(64, 0), stream=stream, key=bench.key)
    rates: list[float] = []
    costs: list[float] = []
    for _ in range(options.rounds):
        found = []
        for target in targets:
            result, spent = await bench.load(
                target, "load", requests, _AT_ONCE, seconds=options.seconds
            )
            rate = result.answers / result.seconds
            found.append((rate, spent["cpu_s"] / max(1, result.answers) * 1e6))
        rates.append(found[0][0] / found[1][0])
        costs.append(found[0][1] / found[1][1])
    form = "streams" if stream else "whole bodies"
    print(
        f"{dialect}, {form}: requests/s with / without {median(rates):.3f} "
        f"({min(rates):.3f} to {max(rates):.3f}), CPU per request {median(costs):.3f} "
        f"({min(costs):.3f} to {max(costs):.3f}); last {found[0][1]:.0f} / {found[1][1]:.0f} us",
        flush=True,
    )
    return median(rates) >= _WANTED


if __name__ == "__main__":
    sys.exit(main())
