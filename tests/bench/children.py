"""The processes of a run: each started pinned to a core, each ended whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import uvloop

from .load import fetch

__all__ = ["BenchError", "Child", "Children", "concluded", "free_port"]

_ROOT: Final = Path(__file__).resolve().parents[2]
_WRAPPER: Final = Path(__file__).with_name("child.py")
_READY_LIMIT: Final = 30.0
_END_LIMIT: Final = 5.0


class BenchError(Exception):
    """The run cannot go on; the message is for the person at the terminal."""


def free_port() -> int:
    """A port of the loopback address that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Child:
    """A running process with its output in ``log``."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def last_words(self, lines: int = 15) -> str:
        """The end of its output, indented."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 8192))
            tail = file.read().decode(errors="replace").splitlines()[-lines:]
        return "\n".join(f"    {line[:300]}" for line in tail) or "    (it printed nothing)"

    def check(self) -> None:
        """BenchError if it has ended."""
        if self.process.poll() is not None:
            raise BenchError(
                f"{self.name} ended by itself (exit code {self.process.returncode}):\n"
                f"{self.last_words()}"
            )

    async def ready(self, port: int, path: str) -> None:
        """Wait until GET ``path`` is answered with 200; BenchError if that does not happen."""
        deadline = time.monotonic() + _READY_LIMIT
        last = "no answer"
        while time.monotonic() < deadline:
            self.check()
            try:
                status, _ = await fetch(("127.0.0.1", port), path)
            except OSError as error:
                last = str(error) or type(error).__name__
            else:
                if status == 200:
                    return
                last = f"status {status}"
            await asyncio.sleep(0.1)
        raise BenchError(
            f"{self.name} was not ready within {_READY_LIMIT:.0f} s: GET {path}: {last}\n"
            f"{self.last_words()}"
        )


class Children:
    """Starts processes, and ends all of them on leaving the context."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._all: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(
        self, name: str, core: int, command: list[str], environ: Mapping[str, str] | None = None
    ) -> Child:
        """Run ``python COMMAND...`` on ``core``, from the root of the project."""
        log = self._logs / f"{name}.log"
        wrapper = [sys.executable, str(_WRAPPER), str(core), str(os.getpid())]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*wrapper, sys.executable, *command],
                cwd=_ROOT,
                env={**os.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches the runner alone, which ends them in order
            )
        child = Child(name, process, log)
        self._all.append(child)
        return child

    def end(self) -> None:
        """Ask all to end, then kill what is left; takes a few seconds at most."""
        for child in self._all:
            _signal(child, signal.SIGTERM)
        deadline = time.monotonic() + _END_LIMIT
        for child in self._all:
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, deadline - time.monotonic()))
            _signal(child, signal.SIGKILL)  # also whatever the child has started itself
            child.process.wait()
        self._all.clear()


def _signal(child: Child, number: signal.Signals) -> None:
    # The group outlives its leader, and its number is not given away while it has members.
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def concluded(benchmark: Coroutine[Any, Any, int]) -> int:
    """Run a benchmark to its end, whatever that is; the exit code."""
    try:
        return uvloop.run(benchmark)
    except BenchError as error:
        print(f"The benchmark cannot go on: {error}", file=sys.stderr, flush=True)
        return 1
    except asyncio.CancelledError:
        print("Interrupted; every process has been ended.", file=sys.stderr, flush=True)
        return 130
