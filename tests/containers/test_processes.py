"""Sandboxes of routers that are several processes, and of those that are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.fleet import http_client
from tests.support.processes import Processes
from tests.support.sandboxes import needs_sandboxes
from tests.support.upstream import Upstream, json_answer
from tests.support.waiting import until
from tests.support.worker_processes import ANSWER, Workers, working

pytestmark = [pytest.mark.integration, needs_sandboxes]

CODE = {"code_interpreter": {"local": {"disk_mb": 16}}}


def endpoint(upstream: Upstream) -> dict[str, Any]:
    return {"name": "one", "url": f"{upstream.address}/v1", "dialect": "chat", "models": ["m"]}


def sandboxes() -> set[int]:
    """The ids of all processes of sandboxes."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            if b"guest.supervisor" in command:
                found.add(int(name))
    return found


async def call(http: aiohttp.ClientSession, method: str, url: str, **more: Any) -> Any:
    async with http.request(method, url, **more) as answer:
        return answer.status, await answer.json()


async def put(http: aiohttp.ClientSession, url: str, name: str) -> Any:
    form = aiohttp.FormData()
    form.add_field("file", name.encode(), filename=name)
    return await call(http, "POST", url, data=form)


async def test_any_worker_reaches_a_container_and_its_end_is_not_the_containers(
    tmp_path: Path,
) -> None:
    async with working(tmp_path, {"tools": CODE}) as workers:
        base = f"{workers.url}/v1/containers"
        status, made = await call(workers.http, "POST", base, json={"name": "mine"})
        assert status == 200, made
        url = f"{base}/{made['id']}"
        answers = [await put(workers.http, f"{url}/files", f"{n}.txt") for n in range(8)]
        assert {status for status, _ in answers} == {200}
        own = [pid for pid in workers.pids if _is_worker(pid)]
        assert len(own) == 2
        for pid in own:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: _serving(workers, own), what="other workers")
        status, files = await call(workers.http, "GET", f"{url}/files")
        assert (status, len(files["data"])) == (200, 8)
        status, _ = await call(workers.http, "DELETE", url)
        assert status == 200


def _is_worker(pid: int) -> bool:
    return b"--worker" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}/cwd").exists()


async def _serving(workers: Workers, before: list[int]) -> bool:
    try:
        status, _ = await call(workers.http, "GET", f"{workers.url}/v1/containers")
    except (aiohttp.ClientError, OSError):
        return False
    return status == 200 and not any(map(_runs, before))


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_killed_router_leaves_no_sandbox_and_its_containers_expire(
    tmp_path: Path, workers: int
) -> None:
    before = sandboxes()
    with Processes(tmp_path) as processes:
        async with Upstream(default=json_answer(ANSWER)) as upstream, http_client() as http:
            settings = {
                "server": {"workers": workers},
                "state": {"url": f"sqlite:///{tmp_path}/state.db", "lease": 1},
                "endpoints": [endpoint(upstream)],
                "tools": CODE,
            }
            router = await processes.router("router", settings)
            base = f"{router.url}/v1/containers"
            _, made = await call(http, "POST", base, json={"name": "mine"})
            assert made["status"] == "running"
            assert sandboxes() - before
            router.kill()
            await until(lambda: not sandboxes() - before, what="the end of all sandboxes")
            router.start()
            await router.ready()

            async def expired() -> bool:
                _, found = await call(http, "GET", f"{base}/{made['id']}")
                return bool(found["status"] == "expired")

            await until(expired)
            status, error = await call(http, "GET", f"{base}/{made['id']}/files")
            assert (status, error["error"]["code"]) == (404, "container_expired")


async def test_another_router_says_where_the_container_is_not(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        async with Upstream(default=json_answer(ANSWER)) as upstream, http_client() as http:
            settings = {
                "state": {"url": f"sqlite:///{tmp_path}/state.db"},
                "endpoints": [endpoint(upstream)],
                "tools": CODE,
            }
            one = await processes.router("one", settings)
            other = await processes.router("other", settings)
            _, made = await call(http, "POST", f"{one.url}/v1/containers", json={"name": "mine"})
            there = f"{other.url}/v1/containers/{made['id']}"
            status, found = await call(http, "GET", there)
            assert (status, found["status"]) == (200, "running")
            for method, url in (("GET", f"{there}/files"), ("DELETE", there)):
                status, error = await call(http, method, url)
                assert (status, error["error"]["code"]) == (409, "container_elsewhere")
            status, _ = await call(http, "DELETE", f"{one.url}/v1/containers/{made['id']}")
            assert status == 200
