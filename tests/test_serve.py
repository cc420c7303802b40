"""``pointsman serve`` in a process of its own: how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from tests.support.client import Client
from tests.support.router import endpoint
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream, parse_events
from tests.support.upstream import Script, Upstream, Wire, silent, streamed, whole

ROOT = Path(__file__).parents[1]
PATIENCE = 30
CHAT = SPEECH["chat"]


class Served:
    """A running process, its URL, and a client for it."""

    def __init__(self, process: Process, url: str, http: aiohttp.ClientSession) -> None:
        self.process = process
        self.url = url
        self.http = http

    async def end(self) -> str:
        """Wait for a proper end; what was logged."""
        async with asyncio.timeout(PATIENCE):
            _, log = await self.process.communicate()
        text = log.decode()
        assert self.process.returncode == 0, text
        assert "Traceback" not in text
        assert '"error"' not in text
        return text

    async def refused(self, http: aiohttp.ClientSession | None = None) -> dict[str, Any]:
        """Ask for a response; it must be refused, for shutting down."""
        body = orjson.dumps({"model": "m", "input": "hi"})
        async with (http or self.http).post(self.url + "/v1/responses", data=body) as response:
            assert response.status == 503
            assert response.headers["Retry-After"]
            error: dict[str, Any] = (await response.json())["error"]
            assert error["code"] == "shutting_down"
            return error

    async def draining(self, status: str = "draining") -> None:
        """Wait until it says that it is not ready any more, for this reason."""
        async with asyncio.timeout(PATIENCE):
            while True:
                async with self.http.get(self.url + "/ready") as response:
                    if (await response.json())["status"] == status:
                        assert response.status == 503
                        return
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def serving(upstream: Upstream, directory: Path, **server: Any) -> AsyncIterator[Served]:
    """The router in front of ``upstream``; killed at the end where it still runs."""
    one = endpoint(upstream, "chat", timeouts={"first_byte": 60, "idle": 60, "total": 60})
    config = {
        "server": {"port": 0, "shutdown_delay": 0, **server},
        "endpoints": [one],
        "state": {"url": f"sqlite:///{directory / 'state.db'}"},
        "logging": {"access": False},
    }
    path = directory / "pointsman.yaml"
    path.write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "serve", "--config", str(path)),
        stdout=PIPE,
        stderr=PIPE,
        cwd=ROOT,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while (line := orjson.loads(await process.stderr.readline()))["event"] != "listening":
                pass
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            yield Served(process, line["url"], http)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@dataclass
class Started:
    """A stream, and what of it has been read."""

    response: aiohttp.ClientResponse
    start: bytes


@contextlib.asynccontextmanager
async def streaming(served: Served) -> AsyncIterator[Started]:
    """A stream of which the first word has arrived."""
    body = orjson.dumps({"model": "m", "input": "hi", "stream": True})
    async with served.http.post(served.url + "/v1/responses", data=body) as response:
        start = b""
        while b"Hello" not in start:
            start += await response.content.readany()
        yield Started(response, start)


async def final_of(started: Started) -> dict[str, Any]:
    """The final Response object of a stream that ends properly."""
    rest = await started.response.read()
    return check_responses_stream(parse_events(started.start + rest))


def until(event: asyncio.Event) -> Script:
    """A stream that pauses after its first word."""

    async def goes_on(wire: Wire) -> None:
        await event.wait()
        for piece in (*CHAT.words[1:], CHAT.closing):
            wire.piece(piece)
        wire.end()

    return streamed(CHAT.opening, CHAT.words[0], kind=CHAT.kind, then=goes_on)


FOREVER = streamed(CHAT.opening, CHAT.words[0], kind=CHAT.kind, then=silent)


async def test_nothing_to_do(tmp_path: Path) -> None:
    async with Upstream() as upstream, serving(upstream, tmp_path) as served:
        async with served.http.get(served.url + "/health") as response:
            assert response.status == 200  # and the connection is kept
        served.process.send_signal(signal.SIGINT)
        assert '"draining"' in await served.end()


async def test_a_stream_that_ends_in_time(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with (
        Upstream(until(go_on)) as upstream,
        serving(upstream, tmp_path, drain_timeout=30) as served,
        streaming(served) as response,
    ):
        served.process.send_signal(signal.SIGTERM)
        await served.draining()
        await served.refused()
        async with aiohttp.ClientSession() as fresh:
            await served.refused(fresh)
        async with served.http.get(served.url + "/health") as health:
            assert health.status == 200
        go_on.set()
        assert (await final_of(response))["output_text"] == CHAT.text
        await served.end()
        assert len(upstream.requests) == 1


async def test_what_does_not_end_in_time(tmp_path: Path) -> None:
    async with (
        Upstream(FOREVER, silent) as upstream,
        serving(upstream, tmp_path, drain_timeout=0.3) as served,
        streaming(served) as response,
    ):
        asking = asyncio.create_task(served.refused())
        half = await Client.open(served.url)
        half.send(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{")
        async with asyncio.timeout(PATIENCE):
            while len(upstream.requests) < 2:  # noqa: ASYNC110 (there is no event for it)
                await asyncio.sleep(0.01)
        served.process.terminate()
        final = await final_of(response)
        assert (final["status"], final["output_text"]) == ("failed", "Hello")
        assert "shutting down" in final["error"]["message"]
        assert "shutting down" in (await asking)["message"]
        await served.end()
        for request in upstream.requests:
            await request.wire.gone.wait()
        half.leave()


async def test_a_second_signal(tmp_path: Path) -> None:
    async with (
        Upstream(FOREVER) as upstream,
        serving(upstream, tmp_path, drain_timeout=10 * PATIENCE) as served,
        streaming(served) as response,
    ):
        served.process.send_signal(signal.SIGTERM)
        await served.draining()
        served.process.send_signal(signal.SIGINT)
        assert (await final_of(response))["status"] == "failed"
        await served.end()


LONG = 100 * PATIENCE
"""Seconds that no test waits for: what begins after them has another cause."""


async def test_requests_are_served_until_the_delay_is_over(tmp_path: Path) -> None:
    """SIGTERM: first ``/ready``, then a delay that a further signal skips, then the drain."""
    answers = streamed(*CHAT.pieces, kind=CHAT.kind)
    async with (
        Upstream(FOREVER, whole(CHAT.whole), answers) as upstream,
        serving(upstream, tmp_path, shutdown_delay=LONG, drain_timeout=LONG) as served,
        streaming(served) as response,
    ):
        served.process.send_signal(signal.SIGTERM)
        await served.draining("stopping")
        for stream in (False, True):
            body = orjson.dumps({"model": "m", "input": "hi", "stream": stream})
            async with served.http.post(served.url + "/v1/responses", data=body) as answer:
                assert answer.status == 200
                assert answer.headers["Connection"] == "close"
                assert b'"completed"' in await answer.read()
        served.process.send_signal(signal.SIGTERM)
        await served.draining()
        await served.refused()
        served.process.send_signal(signal.SIGTERM)
        assert (await final_of(response))["status"] == "failed"
        log = await served.end()
        assert log.index('"stopping"') < log.index('"draining"')


async def test_the_delay_ends_by_itself(tmp_path: Path) -> None:
    async with Upstream() as upstream, serving(upstream, tmp_path, shutdown_delay=0.3) as served:
        served.process.send_signal(signal.SIGTERM)
        log = await served.end()
        assert log.index('"stopping"') < log.index('"draining"')


async def test_ctrl_c_waits_for_no_balancer(tmp_path: Path) -> None:
    async with Upstream() as upstream, serving(upstream, tmp_path, shutdown_delay=LONG) as served:
        served.process.send_signal(signal.SIGINT)
        assert '"stopping"' not in await served.end()


async def test_a_client_that_does_not_read(tmp_path: Path) -> None:
    flood = streamed(CHAT.opening, *[CHAT.words[0] * 500] * 500, kind=CHAT.kind, then=silent)
    async with (
        Upstream(flood) as upstream,
        serving(upstream, tmp_path, drain_timeout=0.3) as served,
    ):
        client = await Client.open(served.url, receive_buffer=8192)
        client.ask(stream=True)
        await client.until(b"Hello")
        client.pause()
        async with asyncio.timeout(PATIENCE):
            while all(wire.writable.is_set() for wire in upstream.wires):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        served.process.terminate()
        await served.end()
        client.leave()
