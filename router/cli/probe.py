"""``pointsman probe``: its command line, and what it prints.

What is found goes to standard output, as YAML for the configuration; how it goes, to standard
error. What the probe does is in ``router.probing``.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from router.probing.configuration import ProbedEndpoint
    from router.settings.schema import EndpointSettings, Settings

__all__ = ["add_arguments", "run"]

_SECONDS: Final = 60.0
_TIMES_AS_LONG: Final = 20
"""The whole probe gets so many times what one request gets."""


def add_arguments(probe: argparse.ArgumentParser) -> None:
    """Add the options."""
    probe.add_argument("--config", type=Path, required=True, metavar="FILE")
    probe.add_argument(
        "--endpoint", action="append", metavar="NAME", help="only this one; may be repeated"
    )
    probe.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="only this one; may be repeated; default: the first 20 of each endpoint",
    )
    probe.add_argument(
        "--deep",
        action="store_true",
        help="ask the models of Ollama too, each of which it has to load; by default what it "
        "tells of them is enough",
    )
    probe.add_argument(
        "--timeout",
        type=_seconds,
        default=_SECONDS,
        metavar="SECONDS",
        help=f"for one request (default: %(default)g); the whole probe gets {_TIMES_AS_LONG} "
        "times as long",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError("must be a number of seconds above 0")
    return seconds


def run(settings: Settings, args: argparse.Namespace) -> int:
    """Ask, print, and return the exit status: 2 where something could not be asked."""
    import asyncio

    from router.probing.configuration import block

    names = {endpoint.name for endpoint in settings.endpoints}
    unknown = [name for name in args.endpoint or () if name not in names]
    for name in unknown:
        print(f"pointsman: there is no endpoint {name!r} in {args.config}", file=sys.stderr)
    if unknown:
        return 1
    chosen = [e for e in settings.endpoints if not args.endpoint or e.name in args.endpoint]
    reports = asyncio.run(_ask_all(chosen, args.model or (), args.timeout, args.deep))
    print("\n".join(map(block, reports)), end="")
    if not any(report.models for report in reports):
        return 2
    return 0 if all(report.is_whole for report in reports) else 2


async def _ask_all(
    endpoints: Sequence[EndpointSettings], models: Sequence[str], seconds: float, deep: bool
) -> list[ProbedEndpoint]:
    """Ask all endpoints at once, each about one model after another."""
    import asyncio

    from router.probing.capabilities import ProbeLimits, probe_endpoint

    until = asyncio.get_running_loop().time() + _TIMES_AS_LONG * seconds
    limits = ProbeLimits(seconds, until)

    return await asyncio.gather(
        *(
            probe_endpoint(endpoint, models, limits, deep=deep, told=partial(_tell, endpoint.name))
            for endpoint in endpoints
        )
    )


def _tell(endpoint: str, model: str) -> None:
    print(f"asking {endpoint} about {model!r}", file=sys.stderr, flush=True)
