"""A simulated backend as a process of its own."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from router.settings.schema import EndpointSettings
from router.simulate import DEFAULT_MODELS, Dialect, create_backend, listening

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; from router.simulate import run; sys.exit(run(sys.argv[1], port=0))"


async def launch(dialect: Dialect) -> tuple[Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, dialect, stdout=PIPE, stderr=PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        lines = [(await process.stdout.readline()).decode() for _ in range(3)]
    endpoint = EndpointSettings.model_validate(yaml.safe_load(lines[1]))
    assert endpoint.dialect == dialect
    assert DEFAULT_MODELS[dialect][0] in lines[2]
    return process, endpoint.url.removesuffix("/v1")


@pytest.mark.parametrize("dialect", list(DEFAULT_MODELS))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_serves_until_it_is_told_to_stop(
    http: aiohttp.ClientSession, dialect: Dialect, number: signal.Signals
) -> None:
    process, url = await launch(dialect)
    try:
        async with http.get(f"{url}/v1/models") as answer:
            models = await answer.json()
        assert [model["id"] for model in models["data"]] == list(DEFAULT_MODELS[dialect])
        process.send_signal(number)
        async with asyncio.timeout(30):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, out, err) == (0, b"", b"")


async def test_a_client_that_leaves_ends_its_stream(
    http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    # The whole stream would take minutes: only the client's leaving can end it in time.
    app = create_backend("chat", pace=0.2)
    ended = asyncio.Event()

    @web.middleware
    async def watch(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        finally:
            ended.set()

    app.middlewares.insert(0, watch)
    message = {"role": "user", "content": "count to 1000"}
    body = {"model": "sim-chat", "stream": True, "messages": [message]}
    async with listening(app) as url:
        async with http.post(f"{url}/chat/completions", json=body) as answer:
            assert await answer.content.readany()
            assert not ended.is_set()
            answer.close()
        async with asyncio.timeout(60):
            await ended.wait()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_taken_port_is_told_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = f"import sys; from router.simulate import run; sys.exit(run('chat', port={port}))"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=PIPE, stderr=PIPE, cwd=ROOT
        )
        async with asyncio.timeout(30):
            out, err = await process.communicate()
    told = (
        f"pointsman: cannot listen on 127.0.0.1 port {port}: it is already in use; "
        "choose another with --port\n"
    )
    assert (process.returncode, out, err.decode()) == (1, b"", told)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dialect": "soap"}, "unknown dialect"),
        ({"dialect": "chat", "models": [""]}, "name of a model is empty"),
        ({"dialect": "chat", "pace": -1}, "negative"),
        ({"dialect": "ollama", "load_seconds": -1}, "negative"),
        ({"dialect": "ollama", "max_loaded": 0}, "one model"),
    ],
)
def test_what_cannot_be_served_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_backend(**arguments)
