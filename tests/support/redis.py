"""Redis for tests: the one on 127.0.0.1, a part of it each, and servers of a test's own."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Self

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.support.processes import free_port

__all__ = ["REDIS_URL", "RedisServer", "redis_prefix", "redis_server"]

REDIS_URL = os.environ.get("TEST_REDIS_URL", "redis://127.0.0.1:6379")
_PATIENCE = 60.0


@asynccontextmanager
async def redis_prefix() -> AsyncIterator[str]:
    """What nobody else's keys at ``REDIS_URL`` begin with; they are removed afterwards. Skips
    where no Redis answers.
    """
    prefix = f"pointsman-test:{secrets.token_hex(8)}"
    async with Redis.from_url(REDIS_URL, socket_timeout=5) as redis:
        try:
            await redis.ping()
        except (RedisError, OSError):
            pytest.skip(f"no Redis answers at {REDIS_URL}")
        try:
            yield prefix
        finally:
            names = [name async for name in redis.scan_iter(f"{{{prefix}}}*", count=10_000)]
            if names:
                await redis.delete(*names)


class RedisServer:
    """One that keeps nothing on disk, on a port of its own. ``options`` are of its command line."""

    def __init__(self, binary: str, *options: str) -> None:
        self._binary = binary
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Returns when it answers."""
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly"]
        self._process = subprocess.Popen(
            [self._binary, *words, "no", *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(5) == b"+PONG":
                        return self
            except OSError:
                pass
            if self._process.poll() is not None:
                pytest.skip("this redis-server does not know the options that the test needs")
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """End it at once; what it held is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self, frozen: bool) -> None:
        """Have it hang, or go on."""
        assert self._process is not None
        self._process.send_signal(19 if frozen else 18)

    async def command(self, *words: str) -> None:
        """Have it carry out a command."""
        async with Redis.from_url(self.url, socket_timeout=5) as redis:
            await asyncio.wait_for(redis.execute_command(*words), 5)  # type: ignore[no-untyped-call]


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """A running one; skips where there is no ``redis-server`` to run."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("there is no redis-server here")
    server = RedisServer(binary, *options)
    try:
        yield server.start()
    finally:
        server.kill()
