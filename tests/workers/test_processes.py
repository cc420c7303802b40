"""Workers as processes: what comes and goes, and what does not show outside."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.support.processes import Processes, RouterProcess
from tests.support.upstream import Wire, json_answer
from tests.support.waiting import until
from tests.support.worker_processes import ANSWER, Workers, workers, working

pytestmark = pytest.mark.integration

__all__ = ["workers"]


async def test_the_metrics_of_any_are_those_of_all(workers: Workers) -> None:
    answers = await asyncio.gather(*(workers.ask() for _ in range(40)))
    assert {status for status, _ in answers} == {200}

    async def counted() -> bool:
        return await workers.metric("pointsman_requests_total") == 40

    await until(counted)
    for _ in range(4):  # whichever is asked
        assert await workers.metric("pointsman_requests_total") == 40
        assert await workers.metric("pointsman_workers") == 2
        assert await workers.metric("pointsman_endpoint_up") == 1


async def test_a_worker_that_is_killed_comes_back_and_its_counts_stay(workers: Workers) -> None:
    await asyncio.gather(*(workers.ask() for _ in range(20)))
    before = 0.0

    async def told() -> bool:
        return await workers.metric("pointsman_requests_total") == 20

    await until(told)
    await asyncio.sleep(2)  # so long the supervisor may not know of it
    victim, other = workers.pids
    os.kill(victim, signal.SIGKILL)
    await workers.ended(victim)
    await workers.settled()
    assert other in workers.pids
    before = await workers.metric("pointsman_requests_total")
    assert before == 20
    assert await workers.metric("pointsman_workers_ended_total") == 1
    await asyncio.gather(*(workers.ask() for _ in range(10)))

    async def more() -> bool:
        return await workers.metric("pointsman_requests_total") == 30

    await until(more)


async def test_workers_are_replaced_without_a_failed_request(tmp_path: Path) -> None:
    async with (
        working(tmp_path, {"server": {"shutdown_delay": 1}}) as workers,
        aiohttp.ClientSession() as kept,
    ):
        before = workers.pids
        failed: list[str] = []
        stopped = False

        async def client() -> None:
            while not stopped:
                try:
                    async with kept.post(
                        workers.url + "/v1/responses", json={"model": "m", "input": "hi"}
                    ) as response:
                        if response.status != 200:
                            failed.append(await response.text())
                except aiohttp.ClientError as error:
                    failed.append(repr(error))

        async def watcher() -> None:
            while not stopped:
                async with kept.get(workers.url + "/ready") as response:
                    if response.status != 200:
                        failed.append(await response.text())
                await asyncio.sleep(0.01)

        clients = [asyncio.ensure_future(client()) for _ in range(6)]
        clients.append(asyncio.ensure_future(watcher()))
        workers.process.signal(signal.SIGUSR2)
        await until(lambda: len(workers.pids) == 2 and not set(before) & set(workers.pids))
        stopped = True
        await asyncio.gather(*clients)
        assert failed == []
        assert await workers.metric("pointsman_workers_ended_total") == 0
        assert not workers.process.complaints()


async def test_a_worker_that_dies_while_it_is_replaced_is_replaced_once(workers: Workers) -> None:
    before = workers.pids
    workers.process.signal(signal.SIGUSR2)
    await until(lambda: len(workers.pids) == 3, what="a successor")
    os.kill(before[0], signal.SIGKILL)
    await until(lambda: len(workers.pids) == 2 and not set(before) & set(workers.pids))
    await workers.settled()
    assert (await workers.ask())[0] == 200


async def test_sigterm_drains_all(workers: Workers) -> None:
    release = asyncio.Event()

    async def slow(wire: Wire) -> None:
        await release.wait()
        await json_answer(ANSWER)(wire)

    workers.upstream.default = slow
    asked = [asyncio.ensure_future(workers.ask()) for _ in range(6)]
    await until(lambda: len(workers.upstream.requests) == 6)
    pids = workers.pids
    workers.process.signal(signal.SIGTERM)
    await until(lambda: "draining" in workers.process.last_words())
    release.set()
    assert {status for status, _ in await asyncio.gather(*asked)} == {200}
    assert await workers.process.ended() == 0
    for pid in pids:
        await workers.ended(pid)


async def test_workers_end_with_their_supervisor(workers: Workers) -> None:
    async def silent(wire: Wire) -> None:
        await wire.gone.wait()

    workers.upstream.default = silent
    asked = [asyncio.ensure_future(workers.ask()) for _ in range(4)]
    await until(lambda: len(workers.upstream.requests) == 4)
    pids = workers.pids
    os.kill(workers.supervisor, signal.SIGKILL)
    for pid in pids:
        await workers.ended(pid)
    for status, body in await asyncio.gather(*asked):
        assert (status, body["error"]["message"]) == (503, "The router is shutting down.")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"state": {"url": "sqlite:///:memory:"}}, "state.url: cannot be in memory with"),
        ({"plugins": ["no_such_plugin"]}, "no_such_plugin"),
    ],
)
async def test_settings_that_cannot_be_used_are_refused(
    tmp_path: Path, more: dict[str, object], said: str
) -> None:
    settings = {
        "server": {"workers": 2},
        "state": {"url": f"sqlite:///{tmp_path}/state.db"},
        "endpoints": [{"name": "one", "url": "http://127.0.0.1:9", "dialect": "ollama"}],
        **more,
    }
    process = RouterProcess("refused", tmp_path, settings)
    with Processes(tmp_path) as processes:
        processes._all.append(process)
        process.start()
        assert await process.ended() == 1
    assert said in process.last_words()
    assert "Traceback" not in process.last_words()


async def test_an_address_that_is_taken_is_said(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with Processes(tmp_path / "second") as processes:
        second = RouterProcess("second", tmp_path / "second", {})
        second._command = workers.process._command
        processes._all.append(second)
        second.start()
        assert await second.ended() == 1
        assert "it is already in use" in second.last_words()
