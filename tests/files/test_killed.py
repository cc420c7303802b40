"""Two workers are killed in the midst of uploads: nothing half is ever seen, and nothing stays."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support.processes import free_port
from tests.support.state import postgresql_url
from tests.support.waiting import until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
HEAD = (
    "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n"
    "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    '--b\r\nContent-Disposition: form-data; name="file"; filename="half.txt"\r\n\r\n'
)


async def started(config: Path, port: int) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "serve", "--config", str(config), "--workers", "2"),
        cwd=ROOT,
        start_new_session=True,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with aiohttp.ClientSession() as http:
        for _ in range(300):
            try:
                async with http.get(f"http://127.0.0.1:{port}/health") as response:
                    if response.status == 200:
                        return process
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
    raise AssertionError("it does not start")


async def listed(http: aiohttp.ClientSession, url: str) -> list[dict[str, Any]]:
    async with http.get(url + "/v1/files") as response:
        data: list[dict[str, Any]] = orjson.loads(await response.read())["data"]
        return data


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_killed_while_files_arrive(tmp_path: Path, database: str) -> None:
    async with asyncio.timeout(120), postgresql_url() as postgresql:
        state = postgresql if database == "postgresql" else f"sqlite:///{tmp_path}/state.db"
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        config = tmp_path / "pointsman.yaml"
        config.write_text(
            f"server: {{port: {port}, shutdown_delay: 0}}\nstate: {{url: '{state}'}}\n"
            f"files: {{path: '{tmp_path}/files'}}\n"
            "endpoints: [{name: a, url: 'http://127.0.0.1:1/v1', dialect: chat, models: [m]}]\n"
        )

        def kept() -> list[Path]:
            return list((tmp_path / "files").rglob("file-*"))

        process = await started(config, port)
        async with aiohttp.ClientSession() as http:
            whole = []
            for number in range(6):  # by either worker, and seen by both
                data = aiohttp.FormData({"purpose": "user_data"})
                data.add_field("file", b"whole", filename=f"{number}.txt")
                async with http.post(url + "/v1/files", data=data) as response:
                    whole.append((await response.json())["id"])
            assert [file["id"] for file in await listed(http, url)] == whole[::-1]
        writers = []
        for _ in range(4):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD.encode() + b"x" * 500_000)
            writers.append(writer)
        await until(lambda: len(kept()) == 10)
        os.killpg(process.pid, 9)
        await process.wait()
        for writer in writers:
            writer.close()
        assert len(kept()) == 10
        for path in kept():
            os.utime(path, (0, 0))

        process = await started(config, port)
        await until(lambda: sorted(path.name for path in kept()) == whole)
        async with aiohttp.ClientSession() as http:
            assert [file["id"] for file in await listed(http, url)] == whole[::-1]
            for ident in whole:
                async with http.get(f"{url}/v1/files/{ident}/content") as response:
                    assert await response.read() == b"whole"
        process.terminate()
        assert await process.wait() == 0
