"""Probes over real sockets: what an endpoint serves, and whether it is there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from router.endpoints import prober as prober_module
from router.endpoints.prober import Prober, list_models
from router.endpoints.registry import Endpoint, Registry
from router.errors import ModelNotFound, UpstreamUnavailable
from router.settings.schema import Balance, EndpointSettings
from router.upstream.adapters import make_adapter
from router.upstream.http1 import HttpTransport
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening, routed, simulated
from tests.support.router import eventually
from tests.support.upstream import refused_port

Answer = Callable[[], web.Response]


class Backend:
    """A backend that lists its models, or answers whatever ``answer`` makes; it counts."""

    def __init__(self, *models: str) -> None:
        self.models: tuple[str, ...] = models
        self.answer: Answer = self.listing
        self.asked: list[web.Request] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def listing(self) -> web.Response:
        names = [{"id": name, "name": name} for name in self.models]
        return web.json_response({"data": names, "models": names})

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[str]:
        async def handle(request: web.Request) -> web.Response:
            self.asked.append(request)
            await self.gate.wait()
            return self.answer()

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        async with listening(app, port) as url:
            yield url


def settings(url: str, dialect: str = "chat", name: str = "one", **fields: Any) -> EndpointSettings:
    timeouts = {"connect": 0.3, "first_byte": 0.3, **fields.pop("timeouts", {})}
    return EndpointSettings.model_validate(
        {"name": name, "url": url, "dialect": dialect, "timeouts": timeouts, **fields}
    )


@asynccontextmanager
async def watched(
    *endpoints: EndpointSettings, interval: float = 0.02
) -> AsyncIterator[tuple[Registry, list[tuple[str, bool]]]]:
    """A registry whose endpoints are probed, and what the prober told."""
    made = [Endpoint(one, make_adapter(one), HttpTransport(one)) for one in endpoints]
    registry = Registry(made, Balance(), lambda slot, count: None)
    told: list[tuple[str, bool]] = []
    prober = Prober(registry, interval, lambda e: told.append((e.name, e.answers)))
    prober.start()
    try:
        yield registry, told
    finally:
        await prober.stop()
        for endpoint in made:
            await endpoint.transport.close()


@pytest.mark.parametrize(
    ("dialect", "path"), [("responses", "/models"), ("chat", "/models"), ("ollama", "/api/tags")]
)
async def test_probes_are_gets_with_the_endpoints_key(dialect: str, path: str) -> None:
    backend = Backend("m")
    async with backend.serving() as url:
        one = settings(f"{url}/base", dialect, api_key="sk-upstream")
        async with watched(one) as (registry, told):
            await eventually(lambda: len(told) >= 3)
            assert registry.public_models() == ["m"]
            assert registry.endpoints[0].ready
    for request in backend.asked:
        assert (request.method, request.path) == ("GET", f"/base{path}")
        assert request.headers["Authorization"] == "Bearer sk-upstream"


async def test_without_a_key_none_is_sent() -> None:
    backend = Backend("m")
    async with backend.serving() as url, watched(settings(url)) as (_, told):
        await eventually(lambda: told)
    assert "Authorization" not in backend.asked[0].headers


async def test_a_list_that_changes_is_followed() -> None:
    backend = Backend("a")
    async with backend.serving() as url, watched(settings(url)) as (registry, _):
        assert (await registry.targets("a"))[0].model == "a"
        backend.models = ("b", "c")
        await eventually(lambda: registry.public_models() == ["b", "c"])
        assert registry.known_model("b")
        with pytest.raises(ModelNotFound):
            await registry.targets("a")


async def test_an_endpoint_vanishes_and_comes_back_with_its_models() -> None:
    backend = Backend("m")
    async with AsyncExitStack() as first:
        url = await first.enter_async_context(backend.serving())
        port = int(url.rpartition(":")[2])
        with capture_logs() as log:
            async with watched(settings(url)) as (registry, told):
                (endpoint,) = registry.endpoints
                await eventually(lambda: endpoint.ready)
                await first.aclose()
                await eventually(lambda: not endpoint.answers)
                assert told[-1] == ("one", False)
                assert [target.model for target in await registry.targets("m")] == ["m"]
                assert registry.public_models() == ["m"]
                await more(told)
                async with backend.serving(port):
                    await eventually(lambda: endpoint.ready)
                    await more(told)
    # Each turn is told once, however many probes there were.
    turns = ["endpoint answers", "endpoint cannot be used", "endpoint answers"]
    assert [line["event"] for line in log] == turns
    assert all(line["endpoint"] == "one" for line in log)


async def more(told: list[tuple[str, bool]]) -> None:
    """Wait for a few more probes."""
    seen = len(told)
    await eventually(lambda: len(told) >= seen + 3)


async def test_one_that_was_never_there_appears() -> None:
    async with refused_port() as nobody:
        port = int(nobody.rpartition(":")[2])
    async with watched(settings(nobody)) as (registry, told):
        await eventually(lambda: told)
        with pytest.raises(UpstreamUnavailable):
            await registry.targets("m")
        async with Backend("m").serving(port):
            await eventually(lambda: registry.endpoints[0].ready)
            assert [target.model for target in await registry.targets("m")] == ["m"]


@pytest.mark.parametrize(
    ("answer", "answers", "known"),
    [
        (lambda: web.Response(text="nonsense"), True, False),
        (lambda: web.Response(text=""), True, False),
        (lambda: web.json_response([]), True, False),
        (lambda: web.json_response({"data": None}), True, False),
        (lambda: web.json_response({"data": [{"id": 5}, 7, None, {}]}), True, True),
        (lambda: web.json_response({"data": [{"id": ""}, {"id": "x" * 9999}]}), True, True),
        (lambda: web.json_response({}, status=404), True, False),
        (lambda: web.json_response({}, status=429), True, False),
        (lambda: web.json_response({}, status=401), False, False),
        (lambda: web.json_response({}, status=403), False, False),
        (lambda: web.json_response({}, status=500), False, False),
        (lambda: web.json_response({}, status=503), False, False),
        (lambda: web.Response(status=302, headers={"Location": "/x"}), False, False),
    ],
)
async def test_odd_answers(answer: Answer, answers: bool, known: bool) -> None:
    backend = Backend()
    backend.answer = answer
    async with backend.serving() as url, watched(settings(url)) as (registry, told):
        (endpoint,) = registry.endpoints
        await eventually(lambda: len(told) >= 2)
        assert (endpoint.answers, endpoint.catalogue.known) == (answers, known)
        assert registry.public_models() == []
        backend.answer, backend.models = backend.listing, ("m",)
        await eventually(lambda: endpoint.ready)
        # What it listed stays when the next answer is odd.
        backend.answer = answer
        await more(told)
        assert (registry.public_models() == ["m"]) is not known


async def test_a_list_is_cut_where_it_is_absurd() -> None:
    backend = Backend(*(f"m{number}" for number in range(12_000)))
    async with backend.serving() as url:
        one = settings(url, timeouts={"connect": 5})
        transport = HttpTransport(one)
        listing = await list_models(make_adapter(one), transport, 5)
        await transport.close()
    assert len(listing.models) == 10_000


async def test_a_probe_has_a_deadline_and_one_slow_endpoint_holds_up_no_other() -> None:
    slow, fast = Backend("s"), Backend("f")
    slow.gate.clear()
    async with slow.serving() as slow_url, fast.serving() as fast_url:
        endpoints = settings(slow_url, name="slow"), settings(fast_url, name="fast")
        async with watched(*endpoints) as (registry, told):
            await eventually(lambda: told.count(("fast", True)) >= 3)
            await eventually(lambda: ("slow", False) in told)
            assert registry.public_models() == ["f"]
            slow.gate.set()
            await eventually(lambda: registry.public_models() == ["s", "f"])


async def test_a_bug_in_a_probe_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend("m")
    real = prober_module.list_models
    calls = 0

    async def broken_once(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        return await real(*args)

    monkeypatch.setattr(prober_module, "list_models", broken_once)
    with capture_logs() as log:
        async with backend.serving() as url, watched(settings(url)) as (registry, _):
            await eventually(lambda: registry.endpoints[0].ready)
    assert log[0]["event"] == "probe failed"


async def test_a_failed_connection_asks_for_a_probe_at_once() -> None:
    backend = Backend("m")
    async with backend.serving() as url, watched(settings(url), interval=1.2) as (registry, told):
        (endpoint,) = registry.endpoints
        await eventually(lambda: endpoint.ready)
        endpoint.failed_to_connect()
        assert not endpoint.ready
        asked = len(backend.asked)
        await eventually(lambda: endpoint.ready)
        assert len(backend.asked) == asked + 1
        assert told == [("one", True)] * 2


async def test_pauses_are_jittered(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return random.uniform(low, high)

    monkeypatch.setattr(prober_module, "uniform", uniform)
    async with Backend("m").serving() as url, watched(settings(url)) as (_, told):
        await eventually(lambda: len(told) >= 4)
    assert set(drawn) == {(0.9, 1.1)}


async def test_stop_ends_a_probe_that_hangs() -> None:
    backend = Backend("m")
    backend.gate.clear()
    async with backend.serving() as url, watched(settings(url, timeouts={"connect": 60})):
        await eventually(lambda: backend.asked)
    backend.gate.set()


# What a client sees of it


async def test_the_first_request_waits_for_the_first_probe() -> None:
    async with (
        simulated("chat", models=["late"]) as endpoints,
        routed(*endpoints) as url,
        http_client() as http,
    ):
        body = {"model": "late", "input": "count to 2"}
        reply = await fetch(http, "POST", f"{url}/v1/responses", json=body)
        assert reply.json["output_text"] == "1, 2"
        body["model"] = "unknown"
        reply = await fetch(http, "POST", f"{url}/v1/responses", json=body)
        assert (reply.status, reply.error["param"]) == (404, "model")
        assert "Served: late." in reply.error["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_whose_endpoint_is_down_is_a_503_and_no_404(stream: bool) -> None:
    async with AsyncExitStack() as backend, AsyncExitStack() as stack:
        backend_url = await backend.enter_async_context(Backend("m").serving())
        fields = {"name": "one", "url": backend_url, "dialect": "chat"}
        url = await stack.enter_async_context(routed(fields))
        http = await stack.enter_async_context(http_client())
        assert (await fetch(http, "GET", f"{url}/v1/models/m")).status == 200
        await backend.aclose()
        body = {"model": "m", "input": "hi", "stream": stream}
        reply = await fetch(http, "POST", f"{url}/v1/responses", json=body)
        assert (reply.status, reply.error["type"]) == (503, "server_error")
        body["model"] = "unknown"
        reply = await fetch(http, "POST", f"{url}/v1/responses", json=body)
        assert reply.status == 404
