"""The demo as a newcomer meets it: start it, paste what it prints, stop it."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest

from router.demo import welcome
from router.simulate import DEFAULT_MODELS

ROOT = Path(__file__).parents[1]
MODELS = {name: models for name, models in DEFAULT_MODELS.items() if name != "messages"}
"""Those of the demo, which has three backends."""

DEADLINE = 40


async def launch(port: int) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "demo", "--port", str(port)),
        stdout=PIPE,
        stderr=PIPE,
        cwd=ROOT,
    )


class Demo:
    """A running demo: its process, its address and what it printed."""

    def __init__(self, process: Process, printed: str) -> None:
        self.process = process
        self.printed = printed
        found = re.search(r"http://127\.0\.0\.1:\d+", printed)
        assert found, printed
        self.url = found[0]

    def command(self, start: str) -> str:
        """The printed command that begins with ``start``, as one would paste it."""
        at = self.printed.index(f"\n{start}") + 1
        return self.printed[at : self.printed.index("\n\n", at)]

    async def stop(self, number: signal.Signals) -> tuple[int | None, bytes]:
        """Send a signal and wait for the end: the exit code, the log."""
        self.process.send_signal(number)
        async with asyncio.timeout(DEADLINE):
            _, log = await self.process.communicate()
        return self.process.returncode, log


@pytest.fixture
async def demo() -> AsyncIterator[Demo]:
    process = await launch(0)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            printed = await process.stdout.readuntil(b"Ctrl-C stops it.\n")
        yield Demo(process, printed.decode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def shell(command: str) -> str:
    """What a command prints; it must succeed."""
    process = await asyncio.create_subprocess_shell(command, stdout=PIPE, stderr=PIPE, cwd=ROOT)
    async with asyncio.timeout(DEADLINE):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_what_it_prints_works_as_printed(demo: Demo) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    asked = orjson.loads(await shell(demo.command("curl http")))
    text = asked["output"][0]["content"][0]["text"]
    assert text.startswith("You asked: “What is a pointsman?” I am sim-chat")
    stream = await shell(demo.command("curl -N"))
    assert stream.startswith("event: response.created\n")
    assert "event: response.output_text.delta\n" in stream
    assert "19, 20" in stream.split("event: response.completed\n")[1]
    python = demo.command("python3").replace("python3", f"'{sys.executable}'", 1)
    assert await shell(python) == ("Hello! I am sim-native, a simulated model. How can I help?\n")
    look = demo.command(f"curl {demo.url}/v1/models").splitlines()
    listed = orjson.loads(await shell(look[0]))
    served = {model for models in MODELS.values() for model in models}
    assert {model["id"] for model in listed["data"]} == served
    assert "pointsman_requests_total{" in await shell(look[1])
    code, log = await demo.stop(signal.SIGINT)
    assert code == 0
    assert b"Traceback" not in log


async def test_every_model_answers_and_sigterm_ends_it(demo: Demo) -> None:
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        for model in (models[0] for models in MODELS.values()):
            url, body = f"{demo.url}/v1/responses", {"model": model, "input": "count to 3"}
            async with http.post(url, json=body) as answer:
                response = await answer.json()
            assert response["output"][0]["content"][0]["text"] == "1, 2, 3", model
            async with http.post(url, json={**body, "stream": True}) as answer:
                assert b"event: response.completed" in await answer.read(), model
            assert model in demo.printed
    code, log = await demo.stop(signal.SIGTERM)
    assert code == 0
    assert b"Traceback" not in log


async def test_a_stream_that_runs_does_not_hold_up_the_end(demo: Demo) -> None:
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        # Uncut, this stream would take most of a minute.
        body = {"model": "sim-chat", "input": "count from 1000 to 1", "stream": True}
        async with http.post(f"{demo.url}/v1/responses", json=body) as answer:
            assert await answer.content.readany()
            ending = asyncio.create_task(demo.stop(signal.SIGINT))
            rest = await answer.read()
    code, log = await ending
    assert code == 0
    assert rest.rstrip().rpartition(b"event: ")[2].startswith(b"response.failed\n")
    assert b"Traceback" not in log


async def test_a_taken_port_is_told_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await launch(port)
        async with asyncio.timeout(DEADLINE):
            out, err = await process.communicate()
    assert process.returncode == 1
    assert out == b""
    assert f"port {port}" in err.decode()
    assert "--port" in err.decode()
    assert b"Traceback" not in err


def test_the_welcome_is_short_and_fits_a_terminal() -> None:
    lines = welcome("http://127.0.0.1:8080").splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80
