"""A supervisor with two workers, in front of an upstream of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio

from tests.support.processes import Processes, RouterProcess
from tests.support.upstream import Upstream, json_answer
from tests.support.waiting import until

ADMIN = {"Authorization": "Bearer admin-secret"}

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello"},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


def children_of(pid: int) -> list[int]:
    """The processes that this one started and that run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.name))
    return sorted(found)


class Workers:
    """A router of several processes. Each request of ``http`` comes on a connection of its own, so
    that it may be answered by another worker than the one before.
    """

    def __init__(
        self, process: RouterProcess, upstream: Upstream, http: aiohttp.ClientSession
    ) -> None:
        self.process = process
        self.upstream = upstream
        self.http = http
        self.url = process.url

    @property
    def supervisor(self) -> int:
        """The id of the supervisor's process."""
        assert self.process._process is not None
        return self.process._process.pid

    @property
    def pids(self) -> list[int]:
        """The ids of the workers' processes."""
        return children_of(self.supervisor)

    async def ask(self, key: str | None = None, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Ask for an answer; the status, and the body."""
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        body = {"model": "m", "input": "hi", **fields}
        async with self.http.post(
            self.url + "/v1/responses", json=body, headers=headers
        ) as response:
            return response.status, await response.json()

    async def admin(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """What the admin route answers."""
        async with self.http.request(
            method, f"{self.url}/admin{path}", headers=ADMIN, json=body or None
        ) as response:
            assert response.status < 300, await response.text()
            answer: dict[str, Any] = await response.json()
            return answer

    async def metric(self, name: str) -> float:
        """The sum of a metric's values."""
        async with self.http.get(self.url + "/metrics") as response:
            assert response.status == 200, await response.text()
            lines = (await response.text()).splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith((f"{name}{{", f"{name} "))
        )

    async def settled(self, count: int = 2) -> None:
        """Wait until so many workers can serve."""

        async def serving() -> bool:
            return len(self.pids) == count and await self.metric("pointsman_workers") == count

        await until(serving, what=f"{count} workers")

    async def ended(self, pid: int) -> None:
        """Wait until a process is no more."""
        await until(lambda: not _runs(pid), what=f"the end of {pid}")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@asynccontextmanager
async def working(
    directory: Path, settings: Mapping[str, Any] | None = None, **endpoint: Any
) -> AsyncIterator[Workers]:
    """Two workers that are ready; at the end nothing of them is left."""
    given = dict(settings or {})
    async with (
        Upstream(default=json_answer(ANSWER)) as upstream,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0)) as http,
    ):
        with Processes(directory) as processes:
            server = {"workers": 2, **given.pop("server", {})}
            process = await processes.router(
                "router",
                {
                    "server": server,
                    "state": {"url": f"sqlite:///{directory}/state.db"},
                    "admin": {"key": "admin-secret"},
                    "endpoints": [
                        {
                            "name": "one",
                            "url": upstream.address + "/v1",
                            "dialect": "chat",
                            "models": ["m"],
                            **endpoint,
                        }
                    ],
                    **given,
                },
            )
            workers = Workers(process, upstream, http)
            await workers.settled()
            pids = workers.pids
            try:
                yield workers
            finally:
                pids += workers.pids
                process.kill()
        for pid in pids:
            await workers.ended(pid)


@pytest_asyncio.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Workers]:
    """Two of them, with the default settings."""
    async with working(tmp_path) as made:
        yield made


__all__ = ["ADMIN", "Workers", "workers", "working"]
