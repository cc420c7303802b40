"""How the simulated Ollama gets other models."""

from __future__ import annotations

from typing import Any

import aiohttp
import orjson
import pytest

from tests.simulate.conftest import Start

HERE = "sim-llama:latest"


async def ask(
    http: aiohttp.ClientSession, url: str, path: str, body: Any, method: str = "POST"
) -> tuple[int, bytes]:
    async with http.request(method, f"{url}/api{path}", json=body) as reply:
        return reply.status, await reply.read()


async def names(http: aiohttp.ClientSession, url: str) -> list[str]:
    async with http.get(f"{url}/api/tags") as reply:
        return [model["name"] for model in (await reply.json())["models"]]


async def test_a_life(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start("ollama", HERE)
    status, told = await ask(http, url, "/pull", {"model": "tiny"})
    lines = [orjson.loads(line) for line in told.splitlines()]
    assert status == 200
    assert [line["status"] for line in (lines[0], lines[-1])] == ["pulling manifest", "success"]
    assert [line["completed"] for line in lines[1:-1]] == [250_000, 500_000, 750_000, 1_000_000]
    assert await ask(http, url, "/copy", {"source": "tiny", "destination": "b:1"}) == (200, b"")
    body = {"model": "c", "from": "b:1", "stream": False}
    assert await ask(http, url, "/create", body) == (200, b'{"status":"success"}')
    status, told = await ask(http, url, "/push", {"model": "c"})
    assert told.splitlines()[-1] == b'{"status":"success"}'
    assert await ask(http, url, "/delete", {"model": "tiny"}, "DELETE") == (200, b"")
    assert await names(http, url) == [HERE, "b:1", "c:latest"]


@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_in_no_library(
    start: Start, http: aiohttp.ClientSession, stream: bool
) -> None:
    url = await start("ollama", HERE)
    status, told = await ask(http, url, "/pull", {"model": "no-such", "stream": stream})
    assert status == (200 if stream else 500)
    assert list(orjson.loads(told.splitlines()[-1])) == ["error"]
    assert await names(http, url) == [HERE]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/push", {"model": "nope"}),
        ("POST", "/create", {"model": "x", "from": "nope"}),
        ("POST", "/copy", {"source": "nope", "destination": "x"}),
        ("DELETE", "/delete", {"model": "nope"}),
    ],
)
async def test_what_is_not_there(
    start: Start, http: aiohttp.ClientSession, method: str, path: str, body: Any
) -> None:
    url = await start("ollama", HERE)
    status, told = await ask(http, url, path, body, method)
    assert status == 404
    assert orjson.loads(told) == {"error": "model 'nope' not found"}
