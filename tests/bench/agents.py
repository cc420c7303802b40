"""How much longer Codex takes through a router than against the endpoint itself.

    python -m tests.bench.agents [--pairs N]

Each pair is one run of ``codex exec`` against a simulated Responses endpoint and one through a
router in front of it, in turns first; a run begins with the start of the program and ends with its
end, after one short answer. The figure is the median of the pairs' differences, in seconds:

- ``own``: with a provider of one's own, as ``pointsman launch codex`` makes one;
- ``built-in``: through the router with Codex's built-in provider, which tries a WebSocket first.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.agents import agent_programs
from tests.support.processes import MODELS, Processes

__all__ = ["main"]

GOAL: Final = 0.3
"""Seconds that a start through the router may take longer."""

_SECONDS: Final = 120.0
"""Until a run counts as hanging."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a router adds to a start of Codex.")
    parser.add_argument("--pairs", type=int, default=10)
    pairs = parser.parse_args().pairs
    codex = str(agent_programs() / "codex")
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_measured(codex, Path(directory), pairs))


async def _measured(codex: str, directory: Path, pairs: int) -> None:
    with Processes(directory) as processes:
        endpoint = await processes.backend("responses")
        router = await processes.router("router", {"endpoints": [endpoint]})
        direct = _own(endpoint["url"])
        for name, through in (
            ("own", _own(f"{router.url}/v1")),
            ("built-in", [f'openai_base_url="{router.url}/v1"']),
        ):
            _seconds(codex, directory, direct)  # both, once: what is made the first time
            _seconds(codex, directory, through)
            differences = []
            for number in range(pairs):
                runs = [direct, through] if number % 2 else [through, direct]
                took = {id(run): _seconds(codex, directory, run) for run in runs}
                differences.append(took[id(through)] - took[id(direct)])
            longer = statistics.median(differences)
            spread = f"{min(differences):+.3f} to {max(differences):+.3f}"
            missed = f"  misses its goal of {GOAL} s" if longer > GOAL else ""
            print(f"{name:10}{longer:+.3f} s longer ({spread}, {pairs} pairs){missed}", flush=True)


def _own(url: str) -> list[str]:
    return [
        'model_provider="bench"',
        f'model_providers.bench={{name="bench",base_url="{url}",wire_api="responses"}}',
    ]


def _seconds(codex: str, home: Path, options: Sequence[str]) -> float:
    """How long one run takes; raises where it does not answer."""
    common = (
        f'model="{MODELS["responses"]}"',
        'web_search="disabled"',  # the simulated endpoint refuses tools that it does not know
        "features.multi_agent=false",
        "analytics.enabled=false",
        "check_for_update_on_startup=false",
    )
    given = [word for option in (*common, *options) for word in ("-c", option)]
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "OPENAI_API_KEY": "none"}
    started = time.perf_counter()
    done = subprocess.run(
        [codex, "exec", "--skip-git-repo-check", *given, "Say exactly: hello from the bench"],
        cwd=home,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    took = time.perf_counter() - started
    if done.returncode or "hello from the bench" not in done.stdout:
        raise RuntimeError(f"Codex failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return took


if __name__ == "__main__":
    main()
