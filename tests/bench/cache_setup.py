"""What every part of the cache's benchmark needs: routers, a Redis, measurements in processes."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from .bodies import get, post
from .cache_report import Findings
from .check import Checker
from .children import BenchError, Child, Children, free_port
from .load import ask, fetch
from .measure import Bench, Target
from .routers import Routers

__all__ = ["STORES", "OwnRedis", "Workshop", "tell"]

STORES: Final = ("memory", "disk", "redis")

_PACKAGE: Final = __package__ or "tests.bench"
_EXEC: Final = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
_MARK: Final = "FIGURES "
_READY_SECONDS: Final = 20.0
_END_SECONDS: Final = 600.0
_ADMIN_SECONDS: Final = 30.0


class OwnRedis:
    """A Redis of the run's own. ``directory`` is where ``SAVE`` writes, and a start reads."""

    def __init__(self, children: Children, core: int, directory: Path) -> None:
        self._children = children
        self._core = core
        self._directory = directory
        self._child: Child | None = None
        self._started = 0
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def dump(self) -> Path:
        """What ``SAVE`` writes."""
        return self._directory / "dump.rdb"

    async def start(self) -> None:
        """Start it, and wait until it answers; BenchError if it does not."""
        self._started += 1
        command = ["-c", _EXEC, "redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._directory)]
        name = f"redis-{self.port}-{self._started}"
        self._child = self._children.start(name, self._core, command)
        deadline = time.monotonic() + _READY_SECONDS
        while await self.command("PING") != b"+PONG\r\n":
            self._child.check()
            if time.monotonic() > deadline:
                raise BenchError("redis-server does not answer")
            await asyncio.sleep(0.02)

    def kill(self) -> None:
        """End it at once."""
        if self._child is not None:
            self._child.process.kill()
            self._child.process.wait()
            self._child = None

    async def command(self, *words: str, limit: float = 30.0) -> bytes:
        """The first piece of its answer, as it came; empty where there is none."""
        try:
            async with asyncio.timeout(limit):
                decoder, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(" ".join(words).encode() + b"\r\n")
                answer = await decoder.read(65536)
                writer.close()
                return answer
        except OSError:
            return b""

    async def used_memory(self) -> int:
        """Bytes, as Redis counts them."""
        for line in (await self.command("INFO", "memory")).split(b"\r\n"):
            if line.startswith(b"used_memory:"):
                return int(line.partition(b":")[2])
        raise BenchError("Redis does not say how much memory it uses")


@dataclass(slots=True)
class Workshop:
    """One run. The routers and measurements run on ``core``, all else on ``load_core``."""

    children: Children
    directory: Path
    core: int
    load_core: int
    bench: Bench
    routers: Routers
    rounds: int
    quick: bool
    say: Callable[[str], None]
    findings: Findings = field(default_factory=Findings)
    _names: dict[str, int] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.bench.mock_port

    @property
    def admin(self) -> str:
        """The key to the admin routes of every router."""
        return f"admin-{self.bench.key}"

    async def administer(
        self, port: int, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Status and answer of an admin route; a body makes it a POST."""
        wire = get(path, self.admin)
        if body is not None:
            wire = post(body, self.admin).replace(b"/v1/responses", path.encode(), 1)
        status, said = await ask(("127.0.0.1", port), wire, _ADMIN_SECONDS)
        return status, orjson.loads(said)

    def fresh(self, name: str) -> str:
        """A name that nothing else of the run has."""
        self._names[name] = self._names.get(name, 0) + 1
        return f"{name}-{self._names[name]}"

    async def redis(self) -> OwnRedis | None:
        """A running Redis; None, and noted, where there is none to be run."""
        if shutil.which("redis-server") is None:
            reason = "what needs Redis: there is no redis-server"
            if reason not in self.findings.left_out:
                self.findings.left_out.append(reason)
            return None
        redis = OwnRedis(self.children, self.load_core, self.directory / self.fresh("redis"))
        await redis.start()
        return redis

    async def stores(self) -> dict[str, str]:
        """The URL of a new, empty store of each kind that can be had here."""
        found = {"memory": "memory://", "disk": f"disk://{self.directory / self.fresh('disk')}"}
        redis = await self.redis()
        return found if redis is None else {**found, "redis": redis.url}

    async def router(
        self,
        name: str,
        dialect: str,
        cache: Mapping[str, Any] | None,
        checker: Checker | None = None,
    ) -> Target:
        """One more router; ``cache`` is its section of that name."""
        process = self.fresh(name)
        state = {"url": f"sqlite:///{self.directory / process}.db"}
        more: dict[str, Any] = {"admin": {"key": self.admin}}
        if cache is not None:
            more["cache"] = dict(cache)
        target = await self.routers.start(process, name, dialect, state, more)
        self.bench.proxies.append(target.child)
        if checker is None:
            return target
        return Target(name, target.port, target.upstream_path, target.child, checker, target.form)

    def stop(self, *targets: Target) -> None:
        """End routers that are not needed any more."""
        for target in targets:
            self.bench.proxies.remove(target.child)
            target.child.process.terminate()
        for target in targets:
            target.child.process.wait(10)

    async def calls(self, target: Target) -> int:
        """How many answers the upstream has begun for routers like this one."""
        status, body = await fetch(self.address, "/counts")
        if status != 200:
            raise BenchError(f"the mock answers GET /counts with status {status}")
        return int(orjson.loads(body)[target.upstream_path])

    async def measured(
        self, module: str, *arguments: str, core: int | None = None
    ) -> dict[str, Any]:
        """What ``tests.bench.MODULE``, run by itself, has told; BenchError where it fails."""
        name = self.fresh(module)
        where = self.core if core is None else core
        child = self.children.start(name, where, ["-m", f"{_PACKAGE}.{module}", *arguments])
        deadline = time.monotonic() + _END_SECONDS
        while (code := child.process.poll()) is None:
            if time.monotonic() > deadline:
                raise BenchError(f"{name} does not end")
            await asyncio.sleep(0.05)
        if code:
            raise BenchError(f"{name} failed (exit code {code}):\n{child.last_words()}")
        return told(child.log.read_bytes(), name)


def tell(figures: Mapping[str, Any]) -> None:
    """Hand figures to the runner: the last thing that a measurement in its own process does."""
    print(_MARK + orjson.dumps(figures, option=orjson.OPT_SERIALIZE_NUMPY).decode(), flush=True)


def told(output: bytes, name: str) -> dict[str, Any]:
    """What ``tell`` wrote, in the output of a process."""
    for line in reversed(output.decode(errors="replace").splitlines()):
        if line.startswith(_MARK):
            figures: dict[str, Any] = orjson.loads(line.removeprefix(_MARK))
            return figures
    raise BenchError(f"{name} has told nothing")
