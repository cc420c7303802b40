"""A Prometheus of a test's own. Tests are skipped where it is not installed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import isnan
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.support.processes import free_port

__all__ = ["CONFIG", "ROOT", "Prometheus", "binary", "prometheus"]

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config" / "prometheus.yml"
_PATIENCE = 90.0


def binary(name: str) -> str:
    """Where a program of Prometheus is; skips where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install prometheus)")
    return found


class Prometheus:
    """One that runs, asked by its API."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http

    async def get(self, path: str, **parameters: str) -> Any:
        """The ``data`` of an answer of the API; fails where it is an error."""
        async with self._http.post(f"{self._url}/api/v1/{path}", data=parameters) as answer:
            body = await answer.json()
        assert body["status"] == "success", (path, parameters, body)
        return body["data"]

    async def rules(self) -> list[dict[str, Any]]:
        """Every rule, and how its last evaluation went."""
        async with self._http.get(f"{self._url}/api/v1/rules") as answer:
            groups = (await answer.json())["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    async def query(self, expr: str) -> list[float]:
        """What the query says now: the numbers that are any."""
        data = await self.get("query", query=expr)
        found = data["result"]
        values = [float(one["value"][1]) for one in found]
        return [value for value in values if not isnan(value)]

    async def scraped_since(self, moment: float) -> None:
        """Wait until what was so at this moment (Unix time) has been scraped, and rules too."""
        for expr in ('timestamp(up{job="pointsman"})', "timestamp(pointsman:requests:rate5m)"):
            async with asyncio.timeout(_PATIENCE):
                while not any(at > moment for at in await self.query(expr)):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


@asynccontextmanager
async def prometheus(target: str, directory: Path) -> AsyncIterator[Prometheus]:
    """One with this repository's configuration and rules, that scrapes ``target`` (an URL), and
    five times a second at that. What it keeps is in ``directory``.
    """
    program = binary("prometheus")
    config = yaml.safe_load(CONFIG.read_text())
    config["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
    config["rule_files"] = [str((CONFIG.parent / path).resolve()) for path in config["rule_files"]]
    [job] = config["scrape_configs"]
    job["static_configs"] = [{"targets": [target.removeprefix("http://")]}]
    written = directory / "prometheus.yml"
    written.write_text(yaml.safe_dump(config))
    port = free_port()
    process = _started(
        directory / "log",
        program,
        f"--config.file={written}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    )
    try:
        timeout = aiohttp.ClientTimeout(total=_PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            url = f"http://127.0.0.1:{port}"
            await _ready(http, url, directory / "log")
            yield Prometheus(url, http)
    finally:
        process.kill()
        process.wait(_PATIENCE)


def _started(log: Path, *command: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def _said(log: Path) -> str:
    return log.read_text()


async def _ready(http: aiohttp.ClientSession, url: str, log: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            async with http.get(f"{url}/-/ready") as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientConnectionError:
            pass
        await asyncio.sleep(0.05)
    raise AssertionError(_said(log))
