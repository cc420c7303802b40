"""Probes over real sockets: what an endpoint serves, and whether it is there."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from router.endpoints import prober as prober_module
from router.endpoints.listing import list_models
from router.errors import ModelNotFound, UpstreamUnavailable
from router.upstream.adapters import make_adapter
from router.upstream.http1 import HttpTransport
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening, routed, simulated
from tests.support.router import eventually
from tests.support.upstream import refused_port
from tests.support.watched import Watched, one, settings_of, watched

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


@pytest.mark.parametrize(
    ("dialect", "paths"),
    [
        ("responses", {"/base/models"}),
        ("chat", {"/base/models"}),
        ("ollama", {"/base/api/tags", "/base/api/ps"}),
    ],
)
async def test_probes_are_gets_with_the_endpoints_key(dialect: str, paths: set[str]) -> None:
    backend = Backend("m")
    async with backend.serving() as url:
        settings = one(f"{url}/base", dialect, api_key="sk-upstream")
        async with watched(settings) as fleet:
            await fleet.more()
            assert fleet.registry.public_models() == ["m"]
            assert fleet["one"].ready
    assert {request.path for request in backend.asked} == paths
    for request in backend.asked:
        assert request.method == "GET"
        assert request.headers["Authorization"] == "Bearer sk-upstream"


async def test_without_a_key_none_is_sent() -> None:
    backend = Backend("m")
    async with backend.serving() as url, watched(one(url)) as fleet:
        await eventually(lambda: fleet.told)
    assert "Authorization" not in backend.asked[0].headers


async def served(fleet: Watched, model: str) -> list[str]:
    """The endpoints' own names for a model."""
    return [target.model for target in (await fleet.registry.group(model)).targets]


async def test_a_model_that_appears_or_vanishes_is_noticed() -> None:
    backend = Backend("a")
    async with backend.serving() as url, watched(one(url)) as fleet:
        assert await served(fleet, "a") == ["a"]
        backend.models = ("b", "c")
        await eventually(lambda: fleet.registry.public_models() == ["b", "c"])
        assert fleet.registry.known_model("b")
        with pytest.raises(ModelNotFound):
            await fleet.registry.group("a")


async def test_a_request_that_runs_keeps_the_slot_of_a_model_that_vanishes() -> None:
    backend = Backend("a", "b")
    async with backend.serving() as url, watched(one(url)) as fleet:
        (target,) = (await fleet.registry.group("a")).targets
        target.take()
        backend.models = ("b",)
        await eventually(lambda: fleet.registry.public_models() == ["b"])
        assert fleet["one"].in_flight == 1
        target.give_back(0.0)
        assert fleet["one"].in_flight == 0


async def test_an_endpoint_vanishes_and_comes_back_with_its_models() -> None:
    backend = Backend("m")
    async with AsyncExitStack() as first:
        url = await first.enter_async_context(backend.serving())
        port = int(url.rpartition(":")[2])
        with capture_logs() as log:
            async with watched(one(url)) as fleet:
                endpoint = fleet["one"]
                await eventually(lambda: endpoint.ready)
                await first.aclose()
                await eventually(lambda: not endpoint.host.up)
                await eventually(lambda: fleet.told[-1] == ("one", False))
                assert await served(fleet, "m") == ["m"]
                assert fleet.registry.public_models() == ["m"]
                await fleet.more()
                async with backend.serving(port):
                    await eventually(lambda: endpoint.ready)
                    await fleet.more()
    # Each turn is told once, however many probes there were.
    turns = ["endpoint answers", "endpoint cannot be used", "endpoint is back"]
    assert [line["event"] for line in log] == turns
    assert all(line["endpoint"] == "one" for line in log)


async def test_one_that_was_never_there_appears() -> None:
    async with refused_port() as nobody:
        port = int(nobody.rpartition(":")[2])
    async with watched(one(nobody)) as fleet:
        await eventually(lambda: fleet.told)
        with pytest.raises(UpstreamUnavailable):
            await fleet.registry.group("m")
        async with Backend("m").serving(port):
            await eventually(lambda: fleet["one"].ready)
            assert await served(fleet, "m") == ["m"]


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
    async with backend.serving() as url, watched(one(url)) as fleet:
        endpoint = fleet["one"]
        await eventually(lambda: len(fleet.told) >= 2)
        assert (endpoint.host.up, endpoint.catalogue.known) == (answers, known)
        assert fleet.registry.public_models() == []
        backend.answer, backend.models = backend.listing, ("m",)
        await eventually(lambda: endpoint.ready)
        # What it listed stays when the next answer is odd.
        backend.answer = answer
        await fleet.more()
        assert (fleet.registry.public_models() == ["m"]) is not known


async def test_a_list_is_cut_where_it_is_absurd() -> None:
    backend = Backend(*(f"m{number}" for number in range(12_000)))
    async with backend.serving() as url:
        settings = one(url, timeouts={"connect": 5})
        transport = HttpTransport(settings)
        listing = await list_models(make_adapter(settings), transport, 5)
        await transport.close()
    assert len(listing.models) == 10_000


async def test_a_probe_has_a_deadline_and_one_slow_endpoint_holds_up_no_other() -> None:
    slow, fast = Backend("s"), Backend("f")
    slow.gate.clear()
    async with slow.serving() as slow_url, fast.serving() as fast_url:
        endpoints = one(slow_url, name="slow"), one(fast_url, name="fast")
        async with watched(*endpoints) as fleet:
            await eventually(lambda: fleet.told.count(("fast", True)) >= 3)
            await eventually(lambda: ("slow", False) in fleet.told)
            assert fleet.registry.public_models() == ["f"]
            slow.gate.set()
            await eventually(lambda: fleet.registry.public_models() == ["s", "f"])


async def test_a_bug_in_a_probe_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend("m")
    calls = 0

    async def broken_once(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        return await list_models(*args)

    monkeypatch.setattr("router.endpoints.prober.list_models", broken_once)
    with capture_logs() as log:
        async with backend.serving() as url, watched(one(url)) as fleet:
            await eventually(lambda: fleet["one"].ready)
    assert log[0]["event"] == "probe failed"


async def test_an_endpoint_found_unreachable_is_asked_at_once() -> None:
    backend = Backend("m")
    with capture_logs() as log:
        async with backend.serving() as url, watched(one(url), interval=3600) as fleet:
            endpoint = fleet["one"]
            await eventually(lambda: endpoint.ready)
            endpoint.unreachable(time.monotonic())
            assert not endpoint.ready
            await eventually(lambda: endpoint.ready)
            assert fleet.told == [("one", True)] * 2
    assert [line["event"] for line in log] == ["endpoint answers", "endpoint is back"]


async def test_what_many_want_to_know_at_a_time_is_asked_once() -> None:
    backend = Backend("m")
    async with backend.serving() as url, watched(one(url), interval=3600) as fleet:
        await eventually(lambda: fleet["one"].ready)
        for _ in range(5):
            fleet["one"].probe_now.set()
            await asyncio.sleep(0)
        await eventually(lambda: len(fleet.told) == 2)
        assert len(backend.asked) == 2


async def test_one_that_is_away_is_asked_when_its_breaker_is_half_open() -> None:
    backend = Backend("m")
    backend.answer = lambda: web.json_response({}, status=500)
    async with backend.serving() as url, watched(one(url), interval=3600) as fleet:
        # The interval has nothing to do with these.
        await eventually(lambda: len(backend.asked) >= 4)
        backend.answer = backend.listing
        await eventually(lambda: fleet["one"].ready)


async def test_pauses_are_jittered(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return random.uniform(low, high)

    monkeypatch.setattr(prober_module, "uniform", uniform)
    async with Backend("m").serving() as url, watched(one(url)) as fleet:
        await eventually(lambda: len(fleet.told) >= 4)
    assert set(drawn) == {(0.8, 1.0)}


async def test_stop_ends_a_probe_that_hangs() -> None:
    backend = Backend("m")
    backend.gate.clear()
    async with backend.serving() as url, watched(one(url, timeouts={"connect": 60})):
        await eventually(lambda: backend.asked)
    backend.gate.set()


async def test_other_endpoints_are_followed() -> None:
    kept, gone, new = Backend("k"), Backend("g"), Backend("n")
    async with kept.serving() as kept_url, gone.serving() as gone_url, new.serving() as new_url:
        first = one(kept_url, name="kept"), one(gone_url, name="gone")
        async with watched(*first, interval=0.05) as fleet:
            await eventually(lambda: fleet.registry.public_models() == ["k", "g"])
            registry = fleet.registry
            registry.apply(registry.prepare(settings_of(first[0], one(new_url, name="new"))))
            fleet.prober.follow()
            await eventually(lambda: registry.public_models() == ["k", "n"])
            await fleet.more()
            asked = len(gone.asked)
            await fleet.more()
            assert len(gone.asked) == asked


async def test_other_settings_of_an_endpoint_are_tried_at_once() -> None:
    backend = Backend("m")
    async with backend.serving() as url, watched(one(url), interval=3600) as fleet:
        await eventually(lambda: fleet["one"].ready)
        registry = fleet.registry
        registry.apply(registry.prepare(settings_of(one(url, weight=2))))
        fleet.prober.follow()
        await eventually(lambda: len(backend.asked) == 2)


async def test_another_interval_holds_at_once() -> None:
    backend = Backend("m")
    async with backend.serving() as url, watched(one(url), interval=3600) as fleet:
        await eventually(lambda: fleet["one"].ready)
        fleet.prober.interval = 0.02
        fleet.prober.follow()
        await fleet.more()


async def test_what_was_asked_with_former_settings_says_nothing() -> None:
    backend = Backend("m")
    with capture_logs() as log:
        async with backend.serving() as url, watched(one(url), interval=3600) as fleet:
            endpoint, registry = fleet["one"], fleet.registry
            await eventually(lambda: endpoint.ready)
            backend.gate.clear()
            endpoint.probe_now.set()
            await eventually(lambda: len(backend.asked) == 2)
            registry.apply(registry.prepare(settings_of(one(url, weight=2))))
            fleet.prober.follow()

            def only_once() -> web.Response:
                backend.answer = backend.listing
                return web.json_response({}, status=500)

            backend.answer = only_once
            backend.gate.set()
            await eventually(lambda: len(fleet.told) == 2)
            assert fleet.told == [("one", True)] * 2
    assert [line["event"] for line in log] == ["endpoint answers"]


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
