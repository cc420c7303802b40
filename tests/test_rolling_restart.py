"""Two routers behind a balancer that asks for ``/ready``, restarted one after the other."""

from __future__ import annotations

import asyncio
import signal
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.balancer import Backend, Balancer, balancing
from tests.support.fleet import simulated
from tests.support.processes import Processes, RouterProcess
from tests.support.waiting import until

CLIENTS = 6
LONG = 1000
"""Seconds that nobody waits for: whatever ends them is a signal."""


class Traffic:
    """Clients that ask one thing after the other, and never try again. ``failed`` is what went
    wrong for them.
    """

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.done = 0
        self.failed: list[str] = []
        self.stopped = False
        self._url = url
        self._http = http

    async def client(self) -> None:
        """One of them."""
        for number in count():
            if self.stopped:
                return
            stream = number % 2 == 0
            path = "/v1/responses"
            asked: dict[str, Any] = {"input": f"Count from 1 to {number % 20 + 1}"}
            if number % 3 == 0:
                path = "/v1/chat/completions"
                asked = {"messages": [{"role": "user", "content": "Say exactly: hello"}]}
            body = {"model": "sim-chat", "stream": stream, **asked}
            await self._ask(self._url + path, body)

    async def _ask(self, url: str, body: dict[str, Any]) -> None:
        try:
            async with self._http.post(url, json=body) as response:
                text = await response.text()
                status = response.status
        except aiohttp.ClientError as error:
            self.failed.append(repr(error))
            return
        ends = ("response.completed", "[DONE]") if body["stream"] else ('"completed"', '"stop"')
        if status != 200 or not any(end in text for end in ends):
            self.failed.append(f"{status} {text[-500:]}")
        self.done += 1


async def restart(
    router: RouterProcess, backend: Backend, balancer: Balancer, http: aiohttp.ClientSession
) -> None:
    """Stop a router and start it again, as a supervisor does."""

    async def stopping() -> None:
        status = ""
        while status != "stopping":
            async with http.get(router.url + "/ready") as response:
                status = (await response.json())["status"]

    balancer.watching.clear()
    router.signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        await stopping()
    before = backend.answered
    await until(lambda: backend.answered >= before + 2 * CLIENTS)  # nobody has told the balancer
    balancer.watching.set()
    await until(lambda: not backend.ready and not backend.waiting)
    router.signal(signal.SIGTERM)  # which ends the delay, as time would
    assert await router.ended() == 0
    router.start()
    await router.ready()
    await until(lambda: backend.ready)
    before = backend.answered
    await until(lambda: backend.answered >= before + CLIENTS)


@pytest.mark.soak
async def test_no_request_fails(tmp_path: Path) -> None:
    server = {"shutdown_delay": LONG, "drain_timeout": LONG}
    async with simulated("chat", pace=0.002) as endpoints:
        settings = {
            "endpoints": endpoints,
            "server": server,
            "state": {"url": "sqlite:///:memory:"},
        }
        with Processes(tmp_path) as processes:
            routers = [await processes.router(name, settings) for name in ("a", "b")]
            async with (
                balancing(*[router.url for router in routers]) as balancer,
                aiohttp.ClientSession() as http,
            ):
                await until(lambda: all(backend.ready for backend in balancer.backends))
                traffic = Traffic(balancer.url, http)
                clients = [asyncio.create_task(traffic.client()) for _ in range(CLIENTS)]
                try:
                    for router, backend in zip(routers, balancer.backends, strict=True):
                        await restart(router, backend, balancer, http)
                finally:
                    traffic.stopped = True
                    await asyncio.gather(*clients)
            assert traffic.failed == []
            assert traffic.done > 6 * CLIENTS
