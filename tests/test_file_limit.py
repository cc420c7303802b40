"""A router and the file descriptors that it may have."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import orjson

ROOT = Path(__file__).parents[1]
FEW = 60
_START = """
import resource, sys
from router.cli.main import main
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
sys.exit(main(sys.argv[1:]))
"""


async def started(tmp_path: Path, soft: int, hard: int) -> tuple[asyncio.subprocess.Process, int]:
    """A router in a process with these limits, and its port."""
    file = tmp_path / "pointsman.yaml"
    file.write_text(
        "server: {port: 0}\nlogging: {format: json}\n"
        "endpoints: [{name: one, url: 'http://127.0.0.1:1/v1', dialect: chat, models: [m]}]\n"
        f"state: {{url: 'sqlite:///{tmp_path}/state.db'}}\n"
    )
    start = _START.format(soft=soft, hard=hard)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", start, "serve", "--config", str(file)), cwd=ROOT, stderr=PIPE
    )
    assert process.stderr is not None
    while b'"listening"' not in (line := await process.stderr.readline()):
        assert line, "it ended"
    return process, int(orjson.loads(line)["url"].rpartition(":")[2])


async def test_the_soft_limit_is_raised_at_the_start(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        process, _ = await started(tmp_path, 200, 300)
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (300, 300)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_running_out_is_logged_and_counted_and_passes(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        process, port = await started(tmp_path, FEW, FEW)
        assert process.stderr is not None
        writers = []
        try:
            for _ in range(2 * FEW):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(writer)
            while b"no file descriptors left" not in (line := await process.stderr.readline()):
                assert line, "it ended"
            logged = orjson.loads(line)
            assert (logged["level"], logged["reason"]) == ("error", "Too many open files")
        finally:
            for writer in writers:
                writer.close()
        counted = b""
        while b"pointsman_file_descriptors_exhausted_total" not in counted:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
                counted = await reader.read()
                writer.close()
            except ConnectionError:
                await asyncio.sleep(0.05)  # not all of the others have been noticed to be gone
        [line] = [
            each
            for each in counted.splitlines()
            if each.startswith(b"pointsman_file_descriptors_exhausted_total ")
        ]
        assert float(line.split()[1]) >= 1
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
