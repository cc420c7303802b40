"""A router without file descriptors: nobody else is blamed for it, and it passes."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohappyeyeballs import start_connection

from router.balance.deployment_state import GRADES
from router.errors import NoFileDescriptors
from router.settings.endpoints import TlsSettings
from router.settings.schema import EndpointSettings
from router.upstream import dial
from router.upstream.http1 import Pool
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream, parse_events
from tests.support.upstream import Upstream
from tests.support.waiting import until
from tests.support.watched import LATEST, cold_ollama, one, state, watched

ROOT = Path(__file__).parents[2]
TOO_MANY = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
CODE = "file_descriptors_exhausted"


class Shortage:
    """No connection can be made while it lasts, which is found out once ``known`` is set.
    ``tried`` counts the connections that were to be made.
    """

    def __init__(self) -> None:
        self.lasts = True
        self.tried = 0
        self.known = asyncio.Event()
        self.known.set()
        self.error: Exception = TOO_MANY


@contextmanager
def shortage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shortage]:
    """None is kept either, as it is where many clients came at once."""
    connect = start_connection
    short = Shortage()

    async def starved(*args: Any, **options: Any) -> socket.socket:
        if not short.lasts:
            return await connect(*args, **options)
        await short.known.wait()
        short.tried += 1
        raise short.error

    with monkeypatch.context() as patch:
        patch.setattr(dial, "start_connection", starved)
        patch.setattr(Pool, "take", lambda self: None)
        yield short


def well(router: Router, *names: str) -> bool:
    """Whether these endpoints are thought to be as well as they are."""
    return all(
        GRADES[router.deployment(name).grade] == "ready"
        and router.deployment(name).endpoint.host.up
        and not router.deployment(name).breaker.failure_ratio(0.0)
        for name in names
    )


async def test_a_request_is_told_so_and_goes_nowhere_else(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = SPEECH["chat"].script()
    async with Upstream(default=script) as first, Upstream(default=script) as other:
        endpoints = [
            endpoint(first, "chat", "one", models=["m"]),
            endpoint(first, "chat", "two", models=["m"]),
            endpoint(other, "chat", "three", models=["spare"]),
        ]
        async with routing(*endpoints, fallbacks={"m": ["spare"]}) as router:
            with shortage(monkeypatch) as short:
                for _ in range(20):
                    reply = await router.ask(stream=stream)
                    assert (reply.status, reply.error["code"]) == (503, CODE)
                    assert reply.headers["Retry-After"] == "1"
                    assert "X-Pointsman-Fallback-Model" not in reply.headers
                assert short.tried == 20
                short.lasts = False
                assert (await router.ask(stream=stream)).status == 200
            assert well(router, "one", "two")
            assert not other.requests
            failed = {"fault": "router", "code": CODE}
            assert sum(await router.metric("pointsman_errors_total", **failed)) == 20


async def test_a_stream_that_is_open_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        Upstream(default=SPEECH["chat"].script()) as upstream,
        routing(endpoint(upstream, "chat"), server={"open_after": 0}) as router,
    ):
        with shortage(monkeypatch) as short:
            short.known.clear()
            async with router.request(stream=True) as response:
                assert response.status == 200
                begun = await response.content.readany()
                short.known.set()
                events = parse_events(begun + await response.read())
            assert short.tried == 1
        check_responses_stream(events)
        assert events[-1].type == "response.failed"
        assert well(router, "one")


@pytest.mark.parametrize(
    "error",
    [TOO_MANY, OSError("Multiple exceptions"), socket.gaierror(-2, "Name unknown")],
    ids=str,
)
async def test_a_probe_leaves_what_was_known(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Upstream(default=SPEECH["chat"].script()) as upstream:
        settings = one(upstream.address, "chat", models=["m"])
        async with watched(settings) as fleet:
            await until(lambda: fleet["one"].ready)
            await fleet.more()
            told = len(fleet.told)
            with shortage(monkeypatch) as short:
                short.error = error
                # Those errors do not say what it was.
                monkeypatch.setattr(dial, "is_shortage", lambda _: True)
                await until(lambda: short.tried >= 3)
                known = fleet.told[told:]
            assert all(up for _, up in known)
            assert fleet["one"].host.up
            assert fleet["one"].problem is None


async def test_a_load_is_not_the_models_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cold_ollama() as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        with shortage(monkeypatch) as short:
            with pytest.raises(NoFileDescriptors):
                await fleet.loads.ensure(deployment)
            assert state(deployment) == (False, "cold")
            short.lasts = False
            await fleet.loads.ensure(deployment)
        assert memory.loads == {LATEST: 1}


async def test_a_tls_context_that_trusts_nobody_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = EndpointSettings(
        name="one", url="https://127.0.0.1:1/v1", dialect="chat", tls=TlsSettings()
    )
    dialer = dial.Dialer(settings)
    with monkeypatch.context() as patch:
        patch.setattr(dial, "shortage", lambda: TOO_MANY)
        with pytest.raises(NoFileDescriptors):
            await dialer.dial(asyncio.get_running_loop(), asyncio.Protocol())
        assert dialer._context is None
    with pytest.raises(dial.CannotConnect, match="refused"):
        await dialer.dial(asyncio.get_running_loop(), asyncio.Protocol())
    assert dialer._context is not None


async def test_a_process_that_had_none_left_goes_on_as_before(tmp_path: Path) -> None:
    """A real one, whose limit is lowered to what it has open, and raised again."""
    file = tmp_path / "pointsman.yaml"
    async with asyncio.timeout(120), Upstream(default=SPEECH["chat"].script()) as upstream:
        file.write_text(
            "server: {port: 0}\nlogging: {format: json}\nbalance: {health_interval: 0.1}\n"
            "endpoints:\n"
            f"  - {{name: one, url: '{upstream.address}/v1', dialect: chat, models: [m]}}\n"
            f"state: {{url: 'sqlite:///{tmp_path}/state.db'}}\n"
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "router", "serve", "--config", str(file)),
            cwd=ROOT, stderr=PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        while b'"listening"' not in (line := await process.stderr.readline()):
            assert line, "it ended"
        url = orjson.loads(line)["url"]
        body = {"model": "m", "input": "x"}
        log: list[bytes] = []
        noticed = asyncio.Event()

        async def follow(stderr: asyncio.StreamReader) -> None:
            while line := await stderr.readline():
                log.append(line)
                if b"no file descriptors left" in line:
                    noticed.set()

        reading = asyncio.create_task(follow(process.stderr))
        async with aiohttp.ClientSession() as http:

            async def ask() -> tuple[int, dict[str, Any]]:
                async with http.post(f"{url}/v1/responses", json=body) as response:
                    return response.status, await response.json()

            assert (await ask())[0] == 200
            # What is open stays so; the endpoint closes the connections that were kept.
            before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (10, before[1]))
            for wire in upstream.open_wires:
                wire.close()
            refused = 0
            while refused < 20:
                status, answer = await ask()
                if status == 200:
                    continue  # by a connection that was still kept
                assert (status, answer["error"]["code"]) == (503, CODE), answer
                refused += 1
            await noticed.wait()
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
            assert (await ask())[0] == 200
        process.terminate()
        await reading
        assert await process.wait() == 0
    assert not [line for line in log if b"endpoint cannot be used" in line]
