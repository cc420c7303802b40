"""Probes over real sockets: what an endpoint serves, and whether it is there."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from router.endpoints import prober as prober_module
from router.endpoints.listing import list_models
from router.errors import ModelNotFound, UpstreamUnavailable
from router.upstream.adapters import make_adapter
from router.upstream.http1 import HttpTransport
from tests.support.fetch import fetch
from tests.support.fleet import http_client, routed, simulated
from tests.support.upstream import (
    Script,
    Upstream,
    Wire,
    json_answer,
    refused_port,
    whole,
)
from tests.support.waiting import until
from tests.support.watched import Watched, one, settings_of, watched


@pytest.mark.parametrize(
    ("dialect", "paths"),
    [
        ("responses", {"/base/models"}),
        ("chat", {"/base/models"}),
        ("ollama", {"/base/api/tags", "/base/api/ps"}),
    ],
)
async def test_probes_are_gets_with_the_endpoints_key(dialect: str, paths: set[str]) -> None:
    backend = Upstream()
    async with backend:
        settings = one(f"{backend.address}/base", dialect, api_key="sk-upstream")
        async with watched(settings) as fleet:
            await fleet.more()
            assert fleet.registry.public_models() == ["m"]
            assert fleet["one"].ready
    assert {request.path for request in backend.probes} == paths
    for request in backend.probes:
        assert request.method == "GET"
        assert request.headers["authorization"] == "Bearer sk-upstream"


async def test_without_a_key_none_is_sent() -> None:
    backend = Upstream()
    async with backend, watched(one(backend.address)) as fleet:
        await until(lambda: fleet.told)
    assert "authorization" not in backend.probes[0].headers


async def served(fleet: Watched, model: str) -> list[str]:
    """The endpoints' own names for a model."""
    return [deployment.model for deployment in (await fleet.registry.group(model)).deployments]


async def test_a_model_that_appears_or_vanishes_is_noticed() -> None:
    backend = Upstream(models=("a",))
    async with backend, watched(one(backend.address)) as fleet:
        assert await served(fleet, "a") == ["a"]
        backend.models = ("b", "c")
        await until(lambda: fleet.registry.public_models() == ["b", "c"])
        assert "b" in fleet.registry.known_models
        with pytest.raises(ModelNotFound):
            await fleet.registry.group("a")


async def test_a_request_that_runs_keeps_the_slot_of_a_model_that_vanishes() -> None:
    backend = Upstream(models=("a", "b"))
    async with backend, watched(one(backend.address)) as fleet:
        (deployment,) = (await fleet.registry.group("a")).deployments
        deployment.take()
        backend.models = ("b",)
        await until(lambda: fleet.registry.public_models() == ["b"])
        assert fleet["one"].in_flight == 1
        deployment.give_back(0.0)
        assert fleet["one"].in_flight == 0


async def test_an_endpoint_vanishes_and_comes_back_with_its_models() -> None:
    backend = Upstream()
    async with AsyncExitStack() as first:
        await first.enter_async_context(backend)
        with capture_logs() as log:
            async with watched(one(backend.address)) as fleet:
                endpoint = fleet["one"]
                await until(lambda: endpoint.ready)
                await first.aclose()
                await until(lambda: not endpoint.host.up)
                await until(lambda: fleet.told[-1] == ("one", False))
                assert await served(fleet, "m") == ["m"]
                assert fleet.registry.public_models() == ["m"]
                await fleet.more()
                async with backend:
                    await until(lambda: endpoint.ready)
                    await fleet.more()
    # Each turn is told once, however many probes there were.
    turns = ["endpoint answers", "endpoint cannot be used", "endpoint is back"]
    assert [line["event"] for line in log] == turns
    assert all(line["endpoint"] == "one" for line in log)


async def test_one_that_was_never_there_appears() -> None:
    async with refused_port() as nobody:
        port = int(nobody.rpartition(":")[2])
    async with watched(one(nobody)) as fleet:
        await until(lambda: fleet.told)
        with pytest.raises(UpstreamUnavailable):
            await fleet.registry.group("m")
        async with Upstream(port=port):
            await until(lambda: fleet["one"].ready)
            assert await served(fleet, "m") == ["m"]


@pytest.mark.parametrize(
    ("answer", "answers", "known"),
    [
        (whole(b"nonsense"), True, False),
        (whole(b""), True, False),
        (json_answer([]), True, False),
        (json_answer({"data": None}), True, False),
        (json_answer({"data": [{"id": 5}, 7, None, {}]}), True, True),
        (json_answer({"data": [{"id": ""}, {"id": "x" * 9999}]}), True, True),
        (json_answer({}, 404), True, False),
        (json_answer({}, 429), True, False),
        (json_answer({}, 401), False, False),
        (json_answer({}, 403), False, False),
        (json_answer({}, 500), False, False),
        (json_answer({}, 503), False, False),
        (whole(b"", 302, {"Location": "/x"}), False, False),
    ],
)
async def test_odd_answers(answer: Script, answers: bool, known: bool) -> None:
    backend = Upstream(models=())
    backend.on_get = answer
    async with backend, watched(one(backend.address)) as fleet:
        endpoint = fleet["one"]
        await until(lambda: len(fleet.told) >= 2)
        assert (endpoint.host.up, endpoint.catalogue.known) == (answers, known)
        assert fleet.registry.public_models() == []
        backend.on_get, backend.models = None, ("m",)
        await until(lambda: endpoint.ready)
        # What it listed stays when the next answer is odd.
        backend.on_get = answer
        await fleet.more()
        assert (fleet.registry.public_models() == ["m"]) is not known


async def test_a_list_is_cut_where_it_is_absurd() -> None:
    backend = Upstream(models=tuple(f"m{number}" for number in range(12_000)))
    async with backend:
        settings = one(backend.address, timeouts={"connect": 5})
        transport = HttpTransport(settings)
        listing = await list_models(make_adapter(settings), transport, 5)
        await transport.close()
    assert len(listing.models) == 10_000


async def test_a_probe_has_a_deadline_and_one_slow_endpoint_holds_up_no_other() -> None:
    slow, fast = Upstream(models=("s",)), Upstream(models=("f",))
    slow.gate.clear()
    async with slow, fast:
        endpoints = one(slow.address, name="slow"), one(fast.address, name="fast")
        async with watched(*endpoints) as fleet:
            await until(lambda: fleet.told.count(("fast", True)) >= 3)
            await until(lambda: ("slow", False) in fleet.told)
            assert fleet.registry.public_models() == ["f"]
            slow.gate.set()
            await until(lambda: fleet.registry.public_models() == ["s", "f"])


async def test_a_bug_in_a_probe_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Upstream()
    calls = 0

    async def broken_once(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        return await list_models(*args)

    monkeypatch.setattr("router.endpoints.prober.list_models", broken_once)
    with capture_logs() as log:
        async with backend, watched(one(backend.address)) as fleet:
            await until(lambda: fleet["one"].ready)
    assert log[0]["event"] == "probe failed"


async def test_an_endpoint_found_unreachable_is_asked_at_once() -> None:
    backend = Upstream()
    with capture_logs() as log:
        async with backend, watched(one(backend.address), interval=3600) as fleet:
            endpoint = fleet["one"]
            await until(lambda: endpoint.ready)
            endpoint.unreachable(time.monotonic())
            assert not endpoint.ready
            await until(lambda: endpoint.ready)
            assert fleet.told == [("one", True)] * 2
    assert [line["event"] for line in log] == ["endpoint answers", "endpoint is back"]


async def test_what_many_want_to_know_at_a_time_is_asked_once() -> None:
    backend = Upstream()
    async with backend, watched(one(backend.address), interval=3600) as fleet:
        await until(lambda: fleet["one"].ready)
        for _ in range(5):
            fleet["one"].probe_now.set()
            await asyncio.sleep(0)
        await until(lambda: len(fleet.told) == 2)
        assert len(backend.probes) == 2


async def test_one_that_is_away_is_asked_when_its_breaker_is_half_open() -> None:
    backend = Upstream()
    backend.on_get = json_answer({}, 500)
    async with backend, watched(one(backend.address), interval=3600) as fleet:
        # The interval has nothing to do with these.
        await until(lambda: len(backend.probes) >= 4)
        backend.on_get = None
        await until(lambda: fleet["one"].ready)


async def test_pauses_are_jittered(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return random.uniform(low, high)

    monkeypatch.setattr(prober_module, "uniform", uniform)
    async with Upstream() as upstream, watched(one(upstream.address)) as fleet:
        await until(lambda: len(fleet.told) >= 4)
    assert set(drawn) == {(0.8, 1.0)}


async def test_stop_ends_a_probe_that_hangs() -> None:
    backend = Upstream()
    backend.gate.clear()
    async with backend, watched(one(backend.address, timeouts={"connect": 60})):
        await until(lambda: backend.probes)
    backend.gate.set()


async def test_other_endpoints_are_followed() -> None:
    kept, gone, new = Upstream(models=("k",)), Upstream(models=("g",)), Upstream(models=("n",))
    async with kept, gone, new:
        first = one(kept.address, name="kept"), one(gone.address, name="gone")
        async with watched(*first, interval=0.05) as fleet:
            await until(lambda: fleet.registry.public_models() == ["k", "g"])
            registry = fleet.registry
            registry.apply(registry.prepare(settings_of(first[0], one(new.address, name="new"))))
            fleet.prober.follow()
            await until(lambda: registry.public_models() == ["k", "n"])
            await fleet.more()
            asked = len(gone.probes)
            await fleet.more()
            assert len(gone.probes) == asked


async def test_other_settings_of_an_endpoint_are_tried_at_once() -> None:
    backend = Upstream()
    async with backend, watched(one(backend.address), interval=3600) as fleet:
        await until(lambda: fleet["one"].ready)
        registry = fleet.registry
        registry.apply(registry.prepare(settings_of(one(backend.address, weight=2))))
        fleet.prober.follow()
        await until(lambda: len(backend.probes) == 2)


async def test_another_interval_holds_at_once() -> None:
    backend = Upstream()
    async with backend, watched(one(backend.address), interval=3600) as fleet:
        await until(lambda: fleet["one"].ready)
        fleet.prober.interval = 0.02
        fleet.prober.follow()
        await fleet.more()


async def test_what_was_asked_with_former_settings_says_nothing() -> None:
    backend = Upstream()
    with capture_logs() as log:
        async with backend, watched(one(backend.address), interval=3600) as fleet:
            endpoint, registry = fleet["one"], fleet.registry
            await until(lambda: endpoint.ready)
            backend.gate.clear()
            endpoint.probe_now.set()
            await until(lambda: len(backend.probes) == 2)
            registry.apply(registry.prepare(settings_of(one(backend.address, weight=2))))
            fleet.prober.follow()

            async def only_once(wire: Wire) -> None:
                backend.on_get = None
                await json_answer({}, 500)(wire)

            backend.on_get = only_once
            backend.gate.set()
            await until(lambda: len(fleet.told) == 2)
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
        served = await backend.enter_async_context(Upstream())
        fields = {"name": "one", "url": served.address, "dialect": "chat"}
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
