"""What there may be few or many of, and what a request or an event costs with each number."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any, Final

import orjson

from . import procfs
from .bodies import Request, make_requests, post, wire
from .children import BenchError
from .load import Load, ask
from .measure import Bench, Measure, Target, Values
from .report import Figures
from .routers import DIALECTS, OWNER, Routers
from .shapes import Shape
from .stored import Store, Stored

__all__ = ["AXES", "Axis", "Scaling"]

_ANSWER: Final = Shape(64, 0)
_EVENTS_PER_S: Final = 2000
"""Of all open streams together, however many there are."""

_OPENED_PER_S: Final = 250
_WINDOW: Final = 6.0
_OPENING: Final = 30.0
_END: Final = 3.0
_BODIES_AT_ONCE: Final = 8
_MADE_AT_ONCE: Final = 16
_FRESH: Final = 65.0
"""So long what has changed of a key is looked for again and again."""

_MESSAGE: Final = "What does the router do with a request that is as long as this one? " * 14
_QUIET: Final[Mapping[str, Any]] = {"balance": {"health_interval": 3600}}
"""What is done every ten seconds for each endpoint is no part of a request."""

Measures = Mapping[int, tuple[Target, Measure]]
"""By the number of whatever it is: what is asked, and how it is measured."""


@dataclass(frozen=True, slots=True)
class Axis:
    """``title`` is what grows and what is measured, ``sizes`` the numbers, ``unit`` theirs."""

    title: str
    sizes: Sequence[int]
    begin: Callable[[Scaling], Awaitable[Measures]]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Starts what an axis needs, and measures its sizes in turn, forwards and backwards."""

    routers: Routers
    bench: Bench
    figures: Figures

    async def measure(self, axis: Axis, rounds: int) -> None:
        """Add ``axis.title`` to the figures of each size."""
        async with self._alone():
            measures = await axis.begin(self)
            for number in range(1, rounds + 1):
                for size in axis.sizes if number % 2 else axis.sizes[::-1]:
                    target, measure = measures[size]
                    values = await self.bench.quiet(measure, target)
                    self.figures.add(str(size), number, {axis.title: values["cpu_us"]})

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Routers that are started meanwhile end with it."""
        try:
            yield
        finally:
            for child in self.bench.proxies:
                child.process.terminate()
                await asyncio.to_thread(child.process.wait, _OPENING)
            self.bench.proxies.clear()

    async def router(self, dialect: str, more: Mapping[str, Any] = _QUIET) -> Target:
        """One with a database of its own."""
        name = f"scaling-{secrets.token_hex(4)}"
        state = {"url": f"sqlite:///{self.routers.directory / name}.db"}
        target = await self.routers.start(name, name, dialect, state, more)
        self.bench.proxies.append(target.child)
        await self.bench.warm_up(target)
        return target

    def endpoint(self, number: int, models: str, **more: Any) -> dict[str, Any]:
        """The settings of an endpoint for ``models``, which is the mock."""
        base, _ = DIALECTS["responses"]
        return {
            "name": f"mock-{number}",
            "url": f"http://127.0.0.1:{self.routers.mock_port}{base}",
            "dialect": "responses",
            "models": [models],
            "max_in_flight": 8192,
            **more,
        }

    async def cost(
        self, target: Target, *, requests: Sequence[Request], at_once: int, seconds: float
    ) -> Values:
        """CPU per request."""
        result, spent = await self.bench.load(
            target, "load", requests, at_once, sample_every=11, seconds=seconds
        )
        cpu_us = spent["cpu_s"] / max(1, result.answers) * 1e6
        return {"cpu_us": cpu_us, "foreign_share": spent["foreign_share"]}

    async def steady(self, target: Target, *, streams: int) -> Values:
        """CPU per event while so many streams are open, none of which begins or ends."""
        delay_ms = max(1, streams * 1000 // _EVENTS_PER_S)
        opening = streams / _OPENED_PER_S
        deltas = math.ceil((opening + 2 * _WINDOW + 5) * 1000 / delay_ms)
        requests = make_requests(Shape(deltas, delay_ms), stream=True, key=self.bench.key)
        address = ("127.0.0.1", target.port)
        async with Load(address, requests, streams, sample_every=1 << 30) as load:
            running = asyncio.ensure_future(load.run(limit=300, each=1, spread=opening))
            try:
                values = await self._window(target, load, streams, opening)
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
        await asyncio.sleep(_END)  # the router ends what its clients have left
        return values

    async def _window(self, target: Target, load: Load, streams: int, opening: float) -> Values:
        async with asyncio.timeout(opening + _OPENING):
            while load.streaming < streams:
                if failures := load.result.failures:
                    raise BenchError(f"{target.name}, {streams} open streams: {failures[0]}")
                await asyncio.sleep(0.1)
        own, core, events = (
            procfs.cpu_seconds(target.child.pid),
            procfs.core_seconds(self.bench.core),
            load.events,
        )
        await asyncio.sleep(_WINDOW)
        own = procfs.cpu_seconds(target.child.pid) - own
        core = procfs.core_seconds(self.bench.core) - core
        if load.streaming < streams or load.result.failures:
            raise BenchError(f"{target.name}: not all of {streams} streams stayed open")
        came = load.events - events
        return {"cpu_us": own / came * 1e6, "foreign_share": max(0.0, core - own) / _WINDOW}


def _requests(scaling: Scaling, **more: Any) -> list[Request]:
    return make_requests(_ANSWER, stream=False, key=scaling.bench.key, **more)


async def _endpoints(scaling: Scaling, *, all_serve_it: bool) -> Measures:
    """``all_serve_it``: each of them has the model that is asked for, else the first one."""
    measures = {}
    measure = partial(scaling.cost, requests=_requests(scaling), at_once=64, seconds=1.0)
    for count in _COUNTS:
        endpoints = [
            scaling.endpoint(n, "mock-*" if all_serve_it or not n else f"other-{n}")
            for n in range(count)
        ]
        target = await scaling.router("responses", {**_QUIET, "endpoints": endpoints})
        measures[count] = target, measure
    return measures


async def _streams(scaling: Scaling) -> Measures:
    more = {**_QUIET, "endpoints": [scaling.endpoint(0, "mock-*")]}
    target = await scaling.router("responses", more)
    return {count: (target, partial(scaling.steady, streams=count)) for count in _OPEN}


async def _bodies(scaling: Scaling, *, dialect: str) -> Measures:
    target = await scaling.router(dialect)
    measures = {}
    for size in _SIZES:
        count = max(1, size * 1024 // (len(_MESSAGE) + 35))
        items = [{"role": "user", "content": _MESSAGE}] * count
        body = {"model": _ANSWER.model, "stream": False, "store": False, "input": items}
        request = Request(post(body, scaling.bench.key), _ANSWER, False)
        at_once, seconds = _BODIES_AT_ONCE, 1.0 if size < 1000 else 4.0
        measures[size] = (
            target,
            partial(scaling.cost, requests=[request], at_once=at_once, seconds=seconds),
        )
    return measures


async def _chains(scaling: Scaling) -> Measures:
    target = await scaling.router("responses")
    stored = Stored(scaling.bench, scaling.figures)
    chain = await stored.make_chain(Store(target, ""), max(_TURNS))
    measures = {}
    for turns in _TURNS:
        requests = stored.requests(more={"previous_response_id": chain[turns - 1]})
        measures[turns] = target, partial(scaling.cost, requests=requests, at_once=1, seconds=1.0)
    return measures


async def _keys(scaling: Scaling) -> Measures:
    """Each request comes with another of the keys."""
    admin = f"admin-{secrets.token_hex(16)}"
    keys = {"auth": {"keys": [{"name": OWNER, "key": scaling.bench.key}]}, "admin": {"key": admin}}
    plain = _requests(scaling)
    measures = {}
    for count in _KEYS:
        target = await scaling.router("responses", {**_QUIET, **keys})
        made = await _made_keys(target, admin, count)
        old = scaling.bench.key.encode()
        requests = [
            Request(request.wire.replace(old, key.encode(), 1), request.shape, request.stream)
            for key, request in zip(made, cycle(plain), strict=False)
        ]
        # Twice: the first time a key is used it is looked up.
        await scaling.bench.load(target, "first use", requests, 16, each=math.ceil(count / 16))
        measures[count] = target, partial(scaling.cost, requests=requests, at_once=64, seconds=2.0)
    await asyncio.sleep(_FRESH)
    return measures


async def _made_keys(target: Target, admin: str, count: int) -> list[str]:
    _, _, head = post({}, admin).partition(b"\r\n")
    head = b"POST / HTTP/1.1\r\n" + head.partition(b"\r\n\r\n")[0]

    async def made(number: int) -> str:
        request = wire("/admin/keys", head, {"name": f"key-{number}"})
        status, body = await ask(("127.0.0.1", target.port), request, limit=30)
        if status != 201:
            raise BenchError(f"{target.name}: a key is made with status {status}: {body[:200]!r}")
        return str(orjson.loads(body)["key"])

    keys: list[str] = []
    for first in range(0, count, _MADE_AT_ONCE):
        numbers = range(first, min(count, first + _MADE_AT_ONCE))
        keys += await asyncio.gather(*map(made, numbers))
    return keys


_COUNTS: Final = (1, 10, 100, 1000)
_OPEN: Final = (10, 1000, 5000)
_SIZES: Final = (1, 100, 5120)
_TURNS: Final = (1, 20, 200)
_KEYS: Final = (10, 10_000)

AXES: Final = {
    "endpoints": Axis(
        "endpoints that serve the model: CPU per request, µs",
        _COUNTS,
        partial(_endpoints, all_serve_it=True),
    ),
    "models": Axis(
        "endpoints, one of which serves the model: CPU per request, µs",
        _COUNTS,
        partial(_endpoints, all_serve_it=False),
    ),
    "streams": Axis("open streams: CPU per event, µs", _OPEN, _streams),
    "bodies": Axis(
        "bytes of a body, passed through: CPU per request, µs",
        _SIZES,
        partial(_bodies, dialect="responses"),
        " KB",
    ),
    "translated": Axis(
        "bytes of a body, translated to chat: CPU per request, µs",
        _SIZES,
        partial(_bodies, dialect="chat"),
        " KB",
    ),
    "chains": Axis("turns of a stored chain: CPU per request, µs", _TURNS, _chains),
    "keys": Axis("virtual keys, all in use: CPU per request, µs", _KEYS, _keys),
}
"""By the name for ``--only``."""
