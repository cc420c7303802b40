"""A PostgreSQL server of a test's own, to be killed, frozen and brought back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

__all__ = ["Cluster", "cluster"]

USER = "postgres"
"""Whom the server runs as when the tests run as root, which it refuses to."""


class Cluster:
    """Listens on a socket in its own directory only; ``url`` is its maintenance database."""

    def __init__(self, binaries: Path, place: Path) -> None:
        self._binaries = binaries
        self._place = place
        self._data = place / "data"
        self.url = f"postgresql://test@/postgres?host={place}"

    def create(self) -> None:
        """The files of a new server."""
        self._run("initdb", "-D", self._data, "-U", "test", "-A", "trust", "-N", "--no-locale")

    def start(self) -> None:
        """Returns when it takes connections."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._place}' -F"
        log = self._place / "log"
        self._run("pg_ctl", "start", "-w", "-D", self._data, "-l", log, "-o", options)

    def kill(self) -> None:
        """As a crash would end it."""
        self._run("pg_ctl", "stop", "-m", "immediate", "-D", self._data)

    def slay(self) -> None:
        """SIGKILL for all of its processes: no client hears a word of it."""
        processes = self._signal(signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(map(_lives, processes)):
            assert time.monotonic() < deadline, "the server survives SIGKILL"
            time.sleep(0.01)
        (self._data / "postmaster.pid").unlink()

    def freeze(self) -> None:
        """It keeps its connections, and says nothing more."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        self._signal(signal.SIGCONT)

    @property
    def runs(self) -> bool:
        """Whether it was started and not killed."""
        return (self._data / "postmaster.pid").exists()

    def _signal(self, number: signal.Signals) -> list[int]:
        """Send it to all of the server's processes; their ids."""
        master = int((self._data / "postmaster.pid").read_text().split()[0])
        processes = [master]
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                if parent == master:
                    processes.append(int(status.parent.name))
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        return processes

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [str(self._binaries / program), *map(str, arguments)]
        if os.geteuid() == 0:
            command = ["runuser", "-u", USER, "--", *command]
        subprocess.run(
            command, check=True, timeout=60, cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A started server, gone at the end. Skips where PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no PostgreSQL server is installed under /usr/lib/postgresql")
    # Not in the directory of the tests: root's is closed to others.
    place = Path(tempfile.mkdtemp(prefix="pointsman-pg-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(place, USER)
        server = Cluster(found[-1].parent, place)
        server.create()
        server.start()
        try:
            yield server
        finally:
            if server.runs:
                server.thaw()
                server.kill()
    finally:
        shutil.rmtree(place)
