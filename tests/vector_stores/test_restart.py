"""Ingestion after kill -9: a router in a process of its own is killed, and another one goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from openai import AsyncOpenAI

from tests.support.fleet import listening
from tests.support.processes import free_port
from tests.support.searchable import FAST, pgvector_url, store_settings, uploaded
from tests.support.waiting import until

pytestmark = pytest.mark.integration
FILES = 12


class SlowVectors:
    """An endpoint that makes embeddings; ``open`` lets it answer, ``asked`` counts requests."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked += 1
        if self.asked > FILES // 3:
            await self.open.wait()
        data = [
            {"index": n, "embedding": [float(len(text)), 1.0, 2.0]}
            for n, text in enumerate(body["input"])
        ]
        return web.json_response({"data": data})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "sim-embed"}]})


@asynccontextmanager
async def process(config: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A router that listens; killed at the end."""
    command = [sys.executable, "-m", "router", "serve", "--config", str(config)]
    started = await asyncio.create_subprocess_exec(
        *command, "--port", str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | None]:
    if request.param == "sqlite":
        yield None
        return
    with pgvector_url() as url:
        yield url


async def test_another_router_goes_on_after_kill_9(tmp_path: Path, database: str | None) -> None:
    vectors = SlowVectors()
    app = web.Application()
    app.router.add_post("/v1/embeddings", vectors.answer)
    app.router.add_get("/v1/models", vectors.models)
    async with listening(app) as address:
        settings = store_settings(tmp_path, database)
        settings["state"]["lease"] = 1.0
        endpoint = {"name": "vectors", "url": f"{address}/v1", "dialect": "chat"}
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump({"endpoints": [endpoint], **settings}))
        port = free_port()
        client = AsyncOpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="x", timeout=30, max_retries=10
        )
        async with process(config, port) as first:
            ids = [await uploaded(client, f"{n}.txt", f"Text {n} " * (n + 1)) for n in range(FILES)]
            store = await client.vector_stores.create(file_ids=ids)
            await until(lambda: vectors.asked > FILES // 3)
            before = await client.vector_stores.retrieve(store.id)
            assert before.status == "in_progress"
            first.send_signal(signal.SIGKILL)
            await first.wait()
        vectors.open.set()
        async with process(config, port), process(config, free_port()):
            for ident in ids:
                done = await client.vector_stores.files.poll(
                    ident, vector_store_id=store.id, **FAST
                )
                assert done.status == "completed", done.last_error
            after = await client.vector_stores.retrieve(store.id)
            assert (after.status, after.file_counts.completed) == ("completed", FILES)
            found = await client.vector_stores.search(store.id, query="text", max_num_results=50)
            assert sorted(one.file_id for one in found.data) == sorted(ids)
        await client.close()
