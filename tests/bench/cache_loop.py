"""The longest time for which the cache holds up the event loop of a router.

    python -m tests.bench.cache_loop PORT CONTROL SETTINGS

A process of its own serves a router on PORT with asyncio's loop under watch; ``GET /mark`` on
CONTROL tells what was seen since the last time. The load comes from the runner.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, Final

import orjson
from aiohttp import web

from router.app import CACHE, create_app
from router.serve import freeze
from router.settings.schema import Settings
from tests.cache.quality.unrelated import unrelated

from .bodies import Request
from .cache_memory import as_requests
from .cache_setup import Workshop
from .cache_warm import MAX_BYTES
from .cache_watch import Watch
from .children import Child, free_port
from .load import Load, Result, fetch

__all__ = ["loop"]

_ENTRIES: Final = 50_000
_LIMIT_MS: Final = 5.0
_AT_ONCE: Final = 4
_PATIENCE: Final = 120.0


async def loop(shop: Workshop) -> None:
    """Measure a router that begins with many entries; adds to the findings."""
    for kind, url in (await shop.stores()).items():
        if kind == "memory":
            continue
        shop.say(f"loop: filling {kind}")
        await shop.measured("cache_warm", "fill", url, str(_ENTRIES), "real")
        await _Router(shop, kind, url).measure()


class _Router:
    """One router under watch."""

    def __init__(self, shop: Workshop, kind: str, url: str) -> None:
        self._shop = shop
        self._part = f"event loop: longest step, {kind}, {_ENTRIES:,} entries".replace(",", " ")
        self._port, self._control = free_port(), free_port()
        self._seconds = 3.0 if shop.quick else 8.0
        self._settings = {
            "server": {"host": "127.0.0.1", "port": self._port},
            "auth": {"keys": [{"name": "bench", "key": shop.bench.key}]},
            "endpoints": [
                {
                    "name": "mock",
                    "url": f"http://127.0.0.1:{shop.bench.mock_port}/v1",
                    "dialect": "responses",
                    "models": ["mock-*"],
                    "max_in_flight": 4096,
                }
            ],
            "admin": {"key": shop.admin},
            "state": {"url": "sqlite:///:memory:"},
            "cache": {
                "mode": "always",
                "store": url,
                "max_bytes": MAX_BYTES,
                "semantic": {"enabled": True, "self_check": {"share": 0}},
            },
        }

    async def measure(self) -> None:
        """All phases, in this order."""
        settings = orjson.dumps(self._settings).decode()
        arguments = [str(self._port), str(self._control), settings]
        child = self._shop.children.start(
            self._shop.fresh("loop"), self._shop.core, ["-m", "tests.bench.cache_loop", *arguments]
        )
        try:
            await child.ready(self._control, "/mark")
            self._tell("calibration: nothing to do", await self._idle(), judged=False)
            await fetch(("127.0.0.1", self._control), "/begin", 60.0)
            await child.ready(self._port, "/ready")
            await self._warm(child)
            self._tell("warm start", await self._mark())
            asks = unrelated(6000)
            phases = {
                "new questions, while the graph grows": self._asking(asks[:2000], store=False),
                "answers kept": self._asking(asks[2000:], store=True),
                "exact hits": self._asking(asks[2000:2064], store=False),
            }
            for title, load in phases.items():
                await self._mark()
                result = await load
                self._tell(f"{title} ({result.answers} requests)", await self._mark())
            await self._mark()
            await self._invalidate()
            await asyncio.sleep(self._seconds)
            self._tell("everything invalidated", await self._mark())
        finally:
            child.process.terminate()
            child.process.wait(20)

    async def _invalidate(self) -> None:
        """Everything at once; an answer that is no success is a failure of the run."""
        began, path = time.perf_counter(), "/admin/cache/invalidate"
        status, said = await self._shop.administer(self._port, path, {"all": True})
        spent = (time.perf_counter() - began) * 1000
        if status != 200:
            self._shop.bench.failures[f"loop: invalidation: status {status}: {said}"] += 1
        self._shop.findings.add(self._part, "the call that invalidates everything", spent, "ms",
                                note=f"status {status}")  # fmt: skip

    def _tell(self, title: str, seen: dict[str, Any], *, judged: bool = True) -> None:
        add, bound = self._shop.findings.add, _LIMIT_MS if judged else None
        where = seen["where"][0] if seen["where"] else "nothing notable"
        add(self._part, f"{title}: CPU without gc", seen["own"], "ms", at_most=bound, note=where)
        add(
            self._part, "  by the clock, without gc", seen["wall"], "ms", at_most=bound,
            note=f"gc {seen['gc']:.1f}; ticker late {seen['late']:.1f}, p99 {seen['late_p99']:.1f}",
        )  # fmt: skip
        for line in seen["where"]:
            self._shop.say(f"    {title}: {line}")

    async def _mark(self) -> dict[str, Any]:
        _, body = await fetch(("127.0.0.1", self._control), "/mark", 30.0)
        seen: dict[str, Any] = orjson.loads(body)
        return seen

    async def _idle(self) -> dict[str, Any]:
        await self._mark()
        await asyncio.sleep(self._seconds)
        return await self._mark()

    async def _warm(self, child: Child) -> None:
        """Wait until all entries are in the index."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                child.check()
                _, said = await self._shop.administer(self._port, "/admin/cache")
                if ((said.get("semantic") or {}).get("index") or {}).get("entries") == _ENTRIES:
                    return
                await asyncio.sleep(0.25)

    async def _asking(self, asked: list[str], *, store: bool) -> Result:
        requests: list[Request] = as_requests(
            self._shop.bench.key, asked, **({} if store else {"cache": {"store": False}})
        )
        async with Load(("127.0.0.1", self._port), requests, _AT_ONCE) as load:
            result = await load.run(limit=self._seconds + 60, seconds=self._seconds)
        for failure in result.failures:
            self._shop.bench.failures[f"loop: {failure}"] += 1
        return result


async def _serve(port: int, control: int, settings: dict[str, Any]) -> None:
    watch, begin = Watch(), asyncio.Event()

    async def mark(request: web.Request) -> web.Response:
        report = watch.report()
        watch.reset()
        return web.json_response(report)

    async def started(request: web.Request) -> web.Response:
        begin.set()
        return web.Response()

    controls = web.Application()
    controls.add_routes([web.get("/mark", mark), web.get("/begin", started)])
    first, runner = web.AppRunner(controls, access_log=None), None
    with watch.watching():
        await first.setup()
        await web.TCPSite(first, "127.0.0.1", control).start()
        await begin.wait()
        app = create_app(Settings.model_validate(settings))
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        watch.reset()  # before, there is nobody to be held up
        await freeze(app[CACHE])
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), orjson.loads(sys.argv[3])))
