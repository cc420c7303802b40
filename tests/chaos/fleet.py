"""Chaotic backends as processes, and what their logs say."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from router.settings.schema import Dialect
from tests.chaos.faults import Fault
from tests.chaos.records import Arrival
from tests.chaos.upstream import BUSY, MODELS
from tests.support.processes import Process, free_port
from tests.support.speech import SPEECH

__all__ = ["Box"]


class Box(Process):
    """One backend. ``arrivals`` are the generation requests that came, as far as it was ``read``.

    ``pause`` is the time between two pieces of an answer, in seconds.
    """

    def __init__(
        self, name: str, dialect: Dialect, directory: Path, *, pause: float, seed: int
    ) -> None:
        self.port = free_port()
        self.dialect = dialect
        self.arrivals: list[Arrival] = []
        self._requests = directory / f"{name}.requests"
        self._requests.touch()
        self._read = 0
        self._open: dict[int, Arrival] = {}
        self._lives = 0
        options = {"port": self.port, "log": self._requests, "pause": pause, "seed": seed}
        flags = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        command = (sys.executable, "-m", "tests.chaos.upstream", *flags)
        super().__init__(name, command, directory / f"{name}.log")

    @property
    def _base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self, **more: Any) -> dict[str, Any]:
        """It as an endpoint of a configuration."""
        url = self._base + SPEECH[self.dialect].prefix
        names = {"name": self.name, "url": url, "dialect": self.dialect, "models": list(MODELS)}
        return {**names, **more}

    async def ready(self) -> None:
        """Wait until it serves."""
        await self.answers(self._base + "/v1/models")

    async def take(self, fault: Fault) -> None:
        """Fail like this from now on; with requests that have begun, it does not."""
        async with aiohttp.ClientSession() as http:
            body = orjson.dumps(asdict(fault))
            async with http.post(self._base + "/fault", data=body) as response:
                assert response.status == 200, await response.text()

    def kill(self) -> None:
        """See ``Process.kill``. What it was answering has not ended, and never will."""
        super().kill()
        self.read()
        self._open.clear()

    def read(self) -> list[Arrival]:
        """Read on in its log; everything that has come."""
        with self._requests.open("rb") as log:
            log.seek(self._read)
            *lines, _unfinished = log.read().split(b"\n")
        self._read += sum(len(line) + 1 for line in lines)
        for line in map(orjson.loads, lines):
            if line["event"] == "begun":
                arrival = Arrival(self.name, line["at"], line["model"], line["request"])
                self._open[line["number"]] = arrival
                self.arrivals.append(arrival)
            elif line["event"] == "ended":
                arrival = self._open.pop(line["number"])
                arrival.ended, arrival.how = line["at"], line["how"]
        return self.arrivals

    def asked_since(self, at: float) -> bool:
        """Whether it was asked for its busy model after that time."""
        return any(a.at > at and a.model == BUSY for a in self.read())

    @property
    def working_on(self) -> int:
        """How many generation requests it was answering when the log was last read."""
        return len(self._open)
