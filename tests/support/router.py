"""A router in the test's own loop, on a free port, that leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from structlog.testing import capture_logs

from router.app import ACCOUNTING, DIRECT, DISPATCHER, FLEET, create_app
from router.core.usage_record import UsageRecord
from router.endpoints.deployment import Deployment
from router.endpoints.plan import Plan
from router.endpoints.registry import Group
from router.http.direct import DirectSite
from router.pipeline.hedging import Fleet
from router.settings.schema import Dialect, Settings
from tests.support.speech import SPEECH
from tests.support.sse import Event, parse_events
from tests.support.upstream import Upstream
from tests.support.waiting import until

__all__ = [
    "API_KEY",
    "HELD",
    "Reply",
    "Router",
    "endpoint",
    "routing",
    "settings_for",
]

API_KEY = "sk-upstream-secret"
"""The key that every endpoint of the tests is called with; no client may ever see it."""

HELD = 15.0
"""Seconds that a stream waits for output before it is opened: a busy machine must not decide."""

PATIENCE = 60.0
"""Seconds until something that must happen counts as not happening."""

_ROOT = Path(__file__).parents[2]
_PACKAGES = tuple(str(_ROOT / name) for name in ("router", "plugins", "cache"))
_TIMEOUTS = {"connect": 30.0, "first_byte": 60.0, "idle": 60.0, "total": 120.0}
"""So long that none of them ends a test on a busy machine: tests of silence set their own."""


def endpoint(
    upstream: Upstream | str, dialect: Dialect, name: str = "one", **fields: Any
) -> dict[str, Any]:
    """The settings of an endpoint that serves the model ``m``, with short deadlines.

    The router's probe leaves no connection behind, so that each test counts its own only.
    """
    address = upstream if isinstance(upstream, str) else upstream.address
    if isinstance(upstream, Upstream):
        upstream.keeps_probes = False
    timeouts = {**_TIMEOUTS, **fields.pop("timeouts", {})}
    return {
        "name": name,
        "url": address + SPEECH[dialect].prefix,
        "dialect": dialect,
        "api_key": API_KEY,
        "models": ["m"],
        "timeouts": timeouts,
        **fields,
    }


def settings_for(*endpoints: dict[str, Any], **sections: Any) -> Settings:
    """Settings with these endpoints, probed once only."""
    return Settings.model_validate(
        {
            "endpoints": list(endpoints),
            "logging": {"access": False},
            "state": {"url": "sqlite:///:memory:"},
            **sections,
            "server": {"drain_timeout": 0.5, "open_after": HELD, **sections.get("server", {})},
            "balance": {"health_interval": 3600, **sections.get("balance", {})},
        }
    )


@dataclass
class Reply:
    """What a client got."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body, decoded."""
        value: dict[str, Any] = orjson.loads(self.body)
        return value

    @property
    def error(self) -> dict[str, Any]:
        """The error in the envelope, which has all four keys and nothing beside."""
        assert list(self.json) == ["error"], self.body
        error: dict[str, Any] = self.json["error"]
        assert sorted(error) == ["code", "message", "param", "type"], error
        return error

    @property
    def events(self) -> list[Event]:
        """The events of a stream."""
        assert self.headers["Content-Type"] == "text/event-stream; charset=utf-8", self.body
        return parse_events(self.body)


@dataclass
class Router:
    """A running router. ``log`` is what it logged, ``faults`` what nobody may ever see, ``rows``
    what was recorded.
    """

    url: str
    app: web.Application
    runner: web.AppRunner
    http: aiohttp.ClientSession
    log: list[MutableMapping[str, Any]]
    faults: list[str] = field(default_factory=list)
    rows: list[UsageRecord] = field(default_factory=list)

    def request(
        self, *, stream: bool = False, chat: bool = False, **fields: Any
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Ask the model ``m`` for an answer; a context manager for the client's response."""
        body: dict[str, Any] = {"model": "m", "stream": stream, "input": "hi", **fields}
        path = "/v1/responses"
        if chat:
            path = "/v1/chat/completions"
            body["messages"] = [{"role": "user", "content": body.pop("input")}]
        return self.http.post(self.url + path, data=orjson.dumps(body))

    async def ask(self, *, stream: bool = False, chat: bool = False, **fields: Any) -> Reply:
        """Ask the model ``m`` and read the whole answer."""
        async with self.request(stream=stream, chat=chat, **fields) as response:
            body = await response.read()
            return Reply(response.status, response.headers, body)

    async def in_flight(self) -> float:
        """Requests in flight, as the metrics have it."""
        name = "pointsman_requests_in_flight"
        # A whole scrape after every test would be a good part of what they all take.
        found = self.fleet._metrics.registry.restricted_registry([name]).collect()
        return sum(sample.value for gauge in found for sample in gauge.samples)

    async def metric(self, name: str, **labels: str) -> list[float]:
        """The values of a metric, for all label sets that include ``labels``."""
        async with self.http.get(self.url + "/metrics") as response:
            lines = (await response.text()).splitlines()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return [
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith((f"{name}{{", f"{name} ")) and all(w in line for w in wanted)
        ]

    async def metric_becomes(self, total: float, name: str, **labels: str) -> None:
        """Wait until the values of a metric add up to ``total``: what is counted when an exchange
        is over may come a moment after its answer. Fails when they never do.
        """
        async with asyncio.timeout(PATIENCE):
            while sum(await self.metric(name, **labels)) != total:  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0.005)

    @property
    def fleet(self) -> Fleet:
        """The endpoints, and what decides between them."""
        return self.app[FLEET]

    def deployment(self, endpoint: str = "one", model: str = "m") -> Deployment:
        """A model at an endpoint."""
        [found] = [e for e in self.fleet.registry.endpoints if e.name == endpoint]
        return found.deployment(model)

    @contextlib.contextmanager
    def occupied(self, *endpoints: str) -> Iterator[None]:
        """A slot for the model ``m`` is taken at each of these endpoints."""
        selector = self.fleet.selector
        held = []
        for name in endpoints:
            deployment = self.deployment(name)
            plan = Plan(Group("m", [deployment]), [deployment], "somebody")
            held.append(selector._taken(plan, deployment))
        try:
            yield
        finally:
            for reservation in held:
                selector.release(reservation)

    @property
    def taken(self) -> int:
        """How many slots are taken."""
        return sum(endpoint.in_flight for endpoint in self.fleet.registry.endpoints)

    @property
    def waiting(self) -> int:
        """How many requests stand in the queue."""
        return len(self.fleet.selector.queue)

    @property
    def running(self) -> int:
        """How many exchanges run."""
        return len(self.app[DISPATCHER]._running)

    @property
    def held(self) -> int:
        """Bytes that wait in this process for clients to read."""
        server = self.runner.server
        assert server is not None
        transports = [c.transport for c in server.connections]
        transports += [c.transport for c in self.app[DIRECT].connections]
        return sum(one.get_write_buffer_size() for one in transports if one is not None)

    def forgive(self, event: str) -> None:
        """This much may be logged, as an error too."""
        self.log[:] = [line for line in self.log if line["event"] != event]

    async def idle(self) -> None:
        """Wait until no exchange runs; then nothing may be in flight, but for the end of a run."""
        await until(lambda: not self.running)
        await until(lambda: not self.taken)
        assert not self.waiting
        assert await self.in_flight() == 0


@contextlib.asynccontextmanager
async def routing(
    *endpoints: dict[str, Any],
    handler_cancellation: bool = True,
    foreign: bool | web.Application = False,
    idle: bool = True,
    **sections: Any,
) -> AsyncIterator[Router]:
    """A router for these endpoints; at the end it must have left nothing behind.

    ``foreign`` mounts it under ``/llm`` in somebody else's application, which may be given.
    ``idle`` is whether nothing may run any more when the test is through.
    """
    others = set(_own_tasks())
    app = create_app(settings_for(*endpoints, **sections))
    outer = app
    if foreign is not False:
        outer = web.Application() if foreign is True else foreign
        outer.add_subapp("/llm", app)
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    with _watched() as (log, faults):
        runner = web.AppRunner(
            outer,
            handler_cancellation=handler_cancellation,
            access_log=None,
            shutdown_timeout=1.0,
        )
        await runner.setup()
        try:
            site: web.BaseSite = web.TCPSite(runner, "127.0.0.1", 0)
            if outer is app and handler_cancellation:
                site = DirectSite(runner, app[DIRECT], "127.0.0.1", 0)
            await site.start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            async with aiohttp.ClientSession(timeout=timeout) as http:
                rows: list[UsageRecord] = []
                app[ACCOUNTING].listen(rows.append)
                url += "/llm" if foreign else ""
                router = Router(url, app, runner, http, log, faults, rows)
                yield router
                if idle:
                    await router.idle()
        finally:
            await runner.cleanup()
        await asyncio.sleep(0)
        assert [task for task in _own_tasks() if task not in others] == []


def _own_tasks() -> list[asyncio.Task[Any]]:
    """Tasks that run the router's code."""
    found = []
    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        if code is not None and code.co_filename.startswith(_PACKAGES):
            found.append(task)
    return found


@contextlib.contextmanager
def _watched() -> Iterator[tuple[list[MutableMapping[str, Any]], list[str]]]:
    """Collect logs, and fail for what only a bug puts there.

    That is: anything logged as an error, tasks destroyed, exceptions that nobody retrieved.
    """
    faults: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(repr(context)))

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            faults.append(self.format(record))

    handler = Handler(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("aiohttp", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with capture_logs() as log:
            yield log, faults
        gc.collect()
    finally:
        loop.set_exception_handler(None)
        for logger in loggers:
            logger.removeHandler(handler)
    faults += [repr(line) for line in log if line["log_level"] in ("error", "critical")]
    assert not faults, "\n".join(faults)
