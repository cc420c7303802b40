"""Routers and simulated backends as processes of their own, that tests stop, kill and start again.

``Processes`` ends whatever it started, however the test ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from router.settings.schema import Dialect

__all__ = ["MODELS", "Process", "Processes", "RouterProcess", "free_port"]

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
"""Seconds until a process that has to be ready counts as broken."""

MODELS: dict[Dialect, str] = {
    "responses": "sim-native",
    "chat": "sim-chat",
    "ollama": "sim-llama",
}
"""The model that the simulated backend of each dialect serves."""

_PREFIX: dict[Dialect, str] = {"responses": "/v1", "chat": "/v1", "ollama": ""}


def free_port() -> int:
    """A port of the loopback address that nobody listens on at the moment.

    It is below the range that outgoing connections are given theirs from, so that it is still
    free when a process that was killed is started again.
    """
    for _ in range(1000):
        port = 10_000 + int.from_bytes(os.urandom(2), "big") % 20_000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


class Process:
    """A command that is run again and again; all that it prints is in the file ``log``."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.started = 0.0
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended, as far as anybody looked."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Run it; ``started`` is the time of that, of ``time.monotonic``."""
        assert not self.running, f"{self.name} runs already"
        self.started = time.monotonic()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches the test alone
            )

    def kill(self) -> None:
        """SIGKILL, and wait for the end; a process that has ended already is fine."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, which has to run."""
        assert self._process is not None
        assert self.running, f"{self.name} has ended by itself:\n{self.last_words()}"
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; the exit code."""
        async with asyncio.timeout(PATIENCE):
            while self.running:  # noqa: ASYNC110 (a process has no event)
                await asyncio.sleep(0.02)
        assert self._process is not None
        return self._process.returncode

    def last_words(self, lines: int = 25) -> str:
        """The end of what it printed."""
        text = self.log.read_bytes()[-16384:].decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def complaints(self, *, of: Sequence[str] = ('"level":"error"', "Traceback")) -> list[str]:
        """What it logged that contains one of these texts."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [f"{self.name}: {line[:3000]}" for line in lines if any(text in line for text in of)]

    async def answers(self, url: str) -> None:
        """Wait until GET ``url`` is answered with 200; fail where it ends or does not come up."""
        deadline = time.monotonic() + PATIENCE
        last = "no answer"
        async with aiohttp.ClientSession() as http:
            while time.monotonic() < deadline:
                assert self.running, f"{self.name} has ended by itself:\n{self.last_words()}"
                try:
                    async with http.get(url, timeout=aiohttp.ClientTimeout(total=2)) as response:
                        if response.status == 200:
                            return
                        last = await response.text()
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    last = str(error) or type(error).__name__
                await asyncio.sleep(0.02)
        raise AssertionError(f"{self.name} is not ready: {last}\n{self.last_words()}")


_SERVER: Final = {"shutdown_delay": 0, "drain_timeout": 1, "open_after": 15}


class RouterProcess(Process):
    """``pointsman serve`` with a configuration of its own, on a port that it keeps."""

    def __init__(self, name: str, directory: Path, settings: Mapping[str, Any]) -> None:
        self._port = free_port()
        self.config = config = directory / f"{name}.yaml"
        config.write_text(self.text_of(settings))
        self.url = f"http://127.0.0.1:{self._port}"
        command = (sys.executable, "-m", "router", "serve", "--config", str(config))
        super().__init__(name, command, directory / f"{name}.log")

    def text_of(self, settings: Mapping[str, Any]) -> str:
        """The file's text for these settings, with what is the same for each configuration."""
        server = {"port": self._port, **_SERVER, **settings.get("server", {})}
        logs = {"access": False, "format": "json"}
        return json.dumps({"logging": logs, **settings, "server": server})

    async def ready(self) -> None:
        """Wait until it can serve."""
        await self.answers(self.url + "/ready")


class Processes:
    """Starts processes with their files in ``directory``, and kills all of them in the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.kill()  # also what SIGSTOP has stopped

    async def router(self, name: str, settings: Mapping[str, Any]) -> RouterProcess:
        """A router with these settings, ready."""
        process = RouterProcess(name, self._directory, settings)
        self._all.append(process)
        process.start()
        await process.ready()
        return process

    async def backend(self, dialect: Dialect) -> dict[str, Any]:
        """A simulated backend; its settings as an endpoint, which has the dialect's name."""
        port = free_port()
        log = self._directory / f"{dialect}.log"
        run = ("-m", "router", "simulate", "--dialect", dialect, "--port", str(port))
        process = Process(dialect, (sys.executable, *run), log)
        self._all.append(process)
        process.start()
        base = f"http://127.0.0.1:{port}"
        await process.answers(base + "/v1/models")
        return {
            "name": dialect,
            "url": base + _PREFIX[dialect],
            "dialect": dialect,
            "models": [MODELS[dialect]],
            "max_in_flight": 256,
        }
