"""Workers that are killed under load: the others go on, and what was promised is kept."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.crash.campaign import Campaign
from tests.support.processes import RouterProcess
from tests.support.seed import seed
from tests.support.waiting import until
from tests.support.worker_processes import children_of


class WorkerCampaign(Campaign):
    """Of one router with two workers, one is killed at a time; now and then the supervisor is,
    or is stopped.
    """

    def _settings(self, endpoints: list[dict[str, Any]]) -> dict[str, Any]:
        settings = super()._settings(endpoints)
        return {**settings, "server": {"workers": 2}}

    async def _kill(self) -> None:
        rng = self._rng
        await asyncio.sleep(rng.uniform(0, 0.4) if rng.random() < 0.3 else rng.uniform(0.2, 3.0))
        if rng.random() < 0.1:
            await super()._kill()
            return
        [router] = self._routers
        workers = children_of(_pid(router))
        if workers:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(workers), signal.SIGKILL)
            self._kills += 1
            self._ledger.restarts.append(time.monotonic())
        if rng.random() > 0.2:  # else the other one may die while this one starts
            await until(lambda: _serving(router, 2), what="two workers")
        await until(lambda: _serving(router, 1), what="a worker")
        self._ledger.restarts.append(time.monotonic())

    async def _all_over(self) -> None:
        [router] = self._routers
        await until(lambda: _serving(router, 2), what="two workers")
        await super()._all_over()


async def _serving(router: RouterProcess, count: int) -> bool:
    """Whether so many workers can serve, at least."""
    with suppress(aiohttp.ClientError, TimeoutError):
        async with aiohttp.ClientSession() as http, http.get(router.url + "/metrics") as response:
            found = re.search(r"^pointsman_workers (\S+)", await response.text(), re.MULTILINE)
            return found is not None and float(found[1]) >= count
    return False


def _pid(router: RouterProcess) -> int:
    assert router._process is not None
    return router._process.pid


async def kept(directory: Path, kills: list[int]) -> None:
    """Nothing is broken after so many kills in each round."""
    url = f"sqlite:///{directory}/state.db"
    campaign = WorkerCampaign(
        url, directory, routers=1, seed=seed(), lease=2.0, stops=0.5, workers=12
    )
    report = await campaign.run(kills)
    print("\n".join(report.lines()))
    assert not report.ledger.violations
    assert report.ledger.counts["acknowledged"]


@pytest.mark.integration
async def test_a_few_kills(tmp_path: Path) -> None:
    await kept(tmp_path, [4])


@pytest.mark.soak
async def test_many_kills(tmp_path: Path) -> None:
    await kept(tmp_path, [10, 10])
