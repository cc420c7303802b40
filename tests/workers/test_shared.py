"""What holds for all workers together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support.upstream import Wire, json_answer, whole
from tests.support.waiting import until
from tests.support.worker_processes import ANSWER, Workers, workers, working

pytestmark = pytest.mark.integration

__all__ = ["workers"]

KEYS = [
    {"name": "plain", "key": "plain-key"},
    {"name": "spent", "key": "spent-key", "budgets": [{"period": "total", "tokens": 200}]},
]


async def test_a_budget_is_one_for_all(tmp_path: Path) -> None:
    async with working(tmp_path, {"auth": {"keys": KEYS}}) as workers:
        # Each may come to 4 tokens at most, and does: what is reserved is what is used.
        answers = await asyncio.gather(
            *(workers.ask("spent-key", max_output_tokens=1) for _ in range(300))
        )
        passed = [body for status, body in answers if status == 200]
        assert {status for status, _ in answers} == {200, 429}
        assert 0 < len(passed) <= 50
        while (await workers.ask("spent-key", max_output_tokens=1))[0] == 200:
            passed.append({})
        used = len(passed) * ANSWER["usage"]["total_tokens"]  # type: ignore[index]
        assert 196 <= used <= 200

        async def booked() -> bool:
            report = await workers.admin("GET", "/usage?by=key")
            rows = [row for row in report["data"] if row["key"] == "spent"]
            return [row["tokens"]["input"] + row["tokens"]["output"] for row in rows] == [used]

        await until(booked)


@pytest.mark.parametrize("most", [1, 3])
async def test_slots_of_an_endpoint_are_shared(tmp_path: Path, most: int) -> None:
    at_once = highest = 0

    async def counting(wire: Wire) -> None:
        nonlocal at_once, highest
        at_once += 1
        highest = max(highest, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        await json_answer(ANSWER)(wire)

    async with working(tmp_path, max_in_flight=most) as workers:
        workers.upstream.default = counting
        answers = await asyncio.gather(*(workers.ask() for _ in range(40)))
        assert [body for status, body in answers if status != 200] == []
        assert highest == most
        assert await workers.metric("pointsman_slots") == most


async def test_a_killed_worker_gives_back_its_slots(tmp_path: Path) -> None:
    async def silent(wire: Wire) -> None:
        await wire.gone.wait()

    async with working(tmp_path, max_in_flight=2) as workers:
        workers.upstream.default = silent
        held = [asyncio.ensure_future(workers.ask()) for _ in range(2)]
        await until(lambda: len(workers.upstream.requests) == 2)
        workers.upstream.default = json_answer(ANSWER)
        waiting = asyncio.ensure_future(workers.ask())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        for pid in workers.pids:
            os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*held, waiting, return_exceptions=True)
        await workers.settled()
        answers = await asyncio.gather(*(workers.ask() for _ in range(4)))
        assert {status for status, _ in answers} == {200}


async def test_what_an_operator_does_is_done_by_all(workers: Workers) -> None:
    await workers.admin("POST", "/endpoints/one/drain")
    for _ in range(6):
        report = await workers.admin("GET", "/endpoints")
        assert [one["state"] for one in report["endpoints"]] == ["drained"]
        assert (await workers.ask())[0] == 503
    victim = workers.pids[0]

    os.kill(victim, signal.SIGKILL)
    await workers.ended(victim)
    await workers.settled()

    async def drained_too() -> bool:
        reports = [await workers.admin("GET", "/endpoints") for _ in range(4)]
        states = {one["state"] for report in reports for one in report["endpoints"]}
        return states == {"drained"}

    await until(drained_too)
    await workers.admin("POST", "/endpoints/one/undrain")
    for _ in range(6):
        assert (await workers.ask())[0] == 200


@pytest.mark.parametrize("by", ["admin", "signal"])
async def test_all_take_over_another_configuration(workers: Workers, by: str) -> None:
    config = workers.process.config
    settings: dict[str, Any] = json.loads(config.read_text())
    settings["endpoints"][0]["aliases"] = {"other": "m"}
    config.write_text(json.dumps(settings))
    if by == "admin":
        assert (await workers.admin("POST", "/reload"))["ok"]
    else:
        workers.process.signal(signal.SIGHUP)

        async def reloaded() -> bool:
            return await workers.metric("pointsman_reloads_total") == 2

        await until(reloaded)
    for _ in range(6):
        assert (await workers.ask(model="other"))[0] == 200


async def test_keys_made_at_one_open_all_and_none_once_revoked(tmp_path: Path) -> None:
    async with working(tmp_path, {"auth": {"keys": KEYS}}) as workers:
        key = (await workers.admin("POST", "/keys", name="new"))["key"]
        for _ in range(4):
            assert (await workers.ask(key))[0] == 200
        await workers.admin("DELETE", "/keys/new")
        for _ in range(4):
            assert (await workers.ask(key))[0] == 401


async def test_runs_are_polled_streamed_and_cancelled_at_any(workers: Workers) -> None:
    pieces = [
        {**ANSWER, "object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
        ]}
    ]  # fmt: skip

    async def slow(wire: Wire) -> None:
        wire.head(200, {"Content-Type": "text/event-stream"})
        wire.piece(b"data: " + json.dumps(pieces[0]).encode() + b"\n\n")
        await wire.gone.wait()

    workers.upstream.default = slow
    status, run = await workers.ask(background=True, stream=False)
    assert status == 200
    url = f"{workers.url}/v1/responses/{run['id']}"
    for _ in range(4):
        async with workers.http.get(url) as response:
            assert (await response.json())["status"] in ("queued", "in_progress")
    for _ in range(2):
        async with workers.http.get(url + "?stream=true") as response:
            async for line in response.content:
                if line.startswith(b"event: response.output_text.delta"):
                    break
    async with workers.http.post(url + "/cancel") as response:
        assert (await response.json())["status"] == "cancelled"
    for _ in range(4):
        async with workers.http.get(url) as response:
            assert (await response.json())["status"] == "cancelled"


@pytest.mark.parametrize("store", ["memory://", "disk://"])
async def test_what_one_has_cached_all_answer_with(tmp_path: Path, store: str) -> None:
    url = store if store == "memory://" else f"disk://{tmp_path}/cache"
    async with working(tmp_path, {"cache": {"mode": "always", "store": url}}) as workers:
        assert (await workers.ask())[0] == 200
        answers = await asyncio.gather(*(workers.ask() for _ in range(20)))
        assert {status for status, _ in answers} == {200}
        assert len(workers.upstream.requests) == 1
        os.kill(workers.pids[0], signal.SIGKILL)
        await workers.settled()
        assert (await workers.ask())[0] == 200
        assert len(workers.upstream.requests) == 1
        stats = await workers.admin("GET", "/cache")
        assert stats["store"]["entries"] == 1

        async def counted() -> bool:  # a worker asks the store every few seconds
            return await workers.metric("pointsman_cache_entries") == 1

        await until(counted)
        await workers.admin("POST", "/cache/invalidate", all=True)
        assert (await workers.ask())[0] == 200
        assert len(workers.upstream.requests) == 2


async def test_a_pause_that_an_endpoint_asks_for_is_kept_by_all(workers: Workers) -> None:
    workers.upstream.default = whole(b"{}", 429, {"Retry-After": "600"})
    for _ in range(4):  # so that both know the model
        workers.upstream.scripts.append(json_answer(ANSWER))
        assert (await workers.ask())[0] == 200
    asked = len(workers.upstream.requests)
    assert (await workers.ask())[0] == 429

    async def cooling() -> bool:
        reports = [await workers.admin("GET", "/endpoints") for _ in range(4)]
        models = [one for report in reports for one in report["endpoints"][0]["models"]]
        return all(one["grade"] == "cooling" and one["rate_limited"] for one in models)

    await until(cooling)
    for _ in range(6):
        assert (await workers.ask())[0] == 429
    assert len(workers.upstream.requests) == asked + 1


async def test_what_is_left_of_a_rate_limit_is_known_to_all(workers: Workers) -> None:
    for _ in range(4):  # so that both know the model
        assert (await workers.ask())[0] == 200
    spent = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "600s"}
    workers.upstream.scripts.append(whole(orjson.dumps(ANSWER), headers=spent))
    assert (await workers.ask())[0] == 200

    async def resting() -> bool:
        reports = [await workers.admin("GET", "/endpoints") for _ in range(4)]
        models = [one for report in reports for one in report["endpoints"][0]["models"]]
        return all(one["grade"] == "cooling" and one["rate_limited"] for one in models)

    await until(resting)


async def test_a_breaker_that_opens_at_one_opens_at_all(tmp_path: Path) -> None:
    breaker = {"failures": 3, "open_seconds": 600, "max_open_seconds": 600}
    async with working(tmp_path, {"balance": {"breaker": breaker}}) as workers:
        for _ in range(4):
            assert (await workers.ask())[0] == 200
        workers.upstream.default = json_answer({"error": {"message": "broken"}}, 500)
        # All on one connection, so that one worker has all the failures.
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
            for _ in range(3):
                body = {"model": "m", "input": "hi"}
                async with http.post(workers.url + "/v1/responses", json=body) as response:
                    assert response.status == 502

        async def open_everywhere() -> bool:
            reports = [await workers.admin("GET", "/endpoints") for _ in range(4)]
            models = [one for report in reports for one in report["endpoints"][0]["models"]]
            return all(one["breaker"]["state"] == "open" for one in models)

        await until(open_everywhere)
