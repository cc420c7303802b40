"""The campaign as a command, for as many kills as wanted.

    python -m tests.crash.run --kills 100 --database postgresql --routers 2 --seed 1

Exit code 0: no promise was broken. 1: some were; they are printed, and the files are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.crash.campaign import Campaign
from tests.support.state import postgresql_url

__all__ = ["main"]

_ROUND = 10


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.run")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--routers", type=int, choices=(1, 2), default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--lease", type=float, default=5.0, help="in seconds")
    parser.add_argument("--stops", type=float, default=0.0, help="share of clean stops, 0 to 1")
    return asyncio.run(_run(parser.parse_args()))


async def _run(options: argparse.Namespace) -> int:
    directory = Path(tempfile.mkdtemp(prefix="pointsman-crash-"))
    async with _database(options.database, directory) as url:
        campaign = Campaign(
            url,
            directory,
            routers=options.routers,
            seed=options.seed,
            lease=options.lease,
            stops=options.stops,
        )
        rounds = [_ROUND] * (options.kills // _ROUND)
        if rest := options.kills % _ROUND:
            rounds.append(rest)
        report = await campaign.run(rounds)
    print(f"{options.database}, {options.routers} router(s), lease {options.lease} s")
    print("\n".join(report.lines()))
    if report.ledger.violations:
        print(f"logs: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


@asynccontextmanager
async def _database(kind: str, directory: Path) -> AsyncIterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{directory / 'state.db'}"
        return
    async with postgresql_url() as url:
        yield url


if __name__ == "__main__":
    sys.exit(main())
