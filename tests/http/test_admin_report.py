"""What the admin routes tell of the endpoints, and loading a model by hand."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from router.app import RELOADER
from router.endpoints.report import BreakerReport, EndpointReport, ModelReport, QueueReport, Unasked
from router.http.admin import FleetReport, Reload
from router.settings.document import SettingsError
from tests.support.admin import ADMIN, call_admin, reported
from tests.support.fleet import simulated
from tests.support.router import Router, endpoint, routing, settings_for
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, Wire, refused_port, streamed, whole
from tests.support.waiting import until

CHAT = SPEECH["chat"]
OLLAMA = SPEECH["ollama"]


async def fleet_report(router: Router) -> dict[str, Any]:
    return (await call_admin(router, "GET", "/endpoints")).json


async def model(router: Router, name: str = "one") -> dict[str, Any]:
    """The report of the only model that was asked for at an endpoint."""
    [found] = (await reported(router, name))["models"]
    report: dict[str, Any] = found
    return report


async def test_everything_that_is_documented_is_there() -> None:
    async with (
        Upstream(default=whole(CHAT.whole)) as upstream,
        routing(endpoint(upstream, "chat", models=["m", "n"]), admin=ADMIN) as router,
    ):
        await router.ask()
        report = await fleet_report(router)
        assert report.keys() == FleetReport.__annotations__.keys()
        assert report["queue"].keys() == QueueReport.__annotations__.keys()
        [one] = report["endpoints"]
        assert one.keys() == EndpointReport.__annotations__.keys()
        assert one["connection"].keys() == BreakerReport.__annotations__.keys()
        assert one["models"][0].keys() == ModelReport.__annotations__.keys()
        assert one["models"][0]["breaker"].keys() == BreakerReport.__annotations__.keys()
        assert one["unasked"][0].keys() == Unasked.__annotations__.keys()
        await router.app[RELOADER].reload(router.app[RELOADER].settings)
        assert (await fleet_report(router))["reload"].keys() == Reload.__annotations__.keys()


async def test_a_healthy_endpoint() -> None:
    stream = streamed(*CHAT.pieces, kind=CHAT.kind)
    one: dict[str, Any] = {"max_in_flight": 4, "weight": 2.0, "priority": 3, "capabilities": {
        "m": {"vision": False, "tools": False, "context_length": 4096}}}  # fmt: skip
    async with (
        Upstream(default=stream) as upstream,
        routing(
            endpoint(upstream, "chat", models=["m", "n"], aliases={"big": "n"}, **one),
            admin=ADMIN,
            balance={"policy": "round-robin", "queue_size": 9, "retry_budget": {"reserve": 5}},
        ) as router,
    ):
        await until(lambda: upstream.probes)
        for _ in range(20):
            await router.ask(stream=True)
        with router.occupied("one"):
            report = await fleet_report(router)
        assert report["policy"] == "round-robin"
        assert report["queue"] == {"waiting": 0, "size": 9}
        assert 5 <= report["retries_left"] <= 9  # the reserve, and a share of what was asked
        assert report["reload"] is None
        [found] = report["endpoints"]
        assert (found["name"], found["state"], found["dialect"]) == ("one", "up", "chat")
        assert found["url"] == f"{upstream.address}/v1"
        assert (found["priority"], found["weight"], found["in_flight"]) == (3, 2.0, 1)
        closed = {"state": "closed", "half_open_in": None, "failure_ratio": 0.0}
        assert found["connection"] == closed
        assert found["unasked"] == [{"model": "n", "loaded": None}]
        [m] = found["models"]
        assert (m["model"], m["grade"], m["breaker"]) == ("m", "ready", closed)
        assert (m["in_flight"], m["limit"], m["load"]) == (1, 4, 0.125)
        assert (m["cooling_for"], m["rate_limited"], m["loading_for"]) == (None, False, None)
        assert m["loaded"] is None  # it does not tell
        assert (m["lacks"], m["context"]) == (["tools", "vision"], 4096)
        assert 0 <= m["first_token"] < 10
        assert 0 <= m["first_token_p95"] < 10
        assert m["held"] >= 0


async def test_before_anything_is_known() -> None:
    answered = asyncio.Event()

    async def late(wire: Wire) -> None:
        await answered.wait()
        await whole(CHAT.whole)(wire)

    async with (
        Upstream(late) as upstream,
        routing(endpoint(upstream, "chat"), admin=ADMIN) as router,
    ):
        router.deployment().endpoint.probed.clear()
        asking = asyncio.create_task(router.ask())
        await until(lambda: upstream.requests)
        found = await reported(router)
        assert found["state"] == "unknown"
        [m] = found["models"]
        assert (m["first_token"], m["first_token_p95"], m["held"]) == (None, None, None)
        answered.set()
        await asking
        assert (await model(router))["held"] is not None


async def test_an_endpoint_that_is_away() -> None:
    patient = {"breaker": {"open_seconds": 50, "max_open_seconds": 60}}
    async with (
        refused_port() as down,
        routing(endpoint(down, "chat"), admin=ADMIN, balance=patient) as router,
    ):
        await router.ask()
        found = await reported(router)
        assert (found["state"], found["connection"]["state"]) == ("down", "open")
        assert 30 < found["connection"]["half_open_in"] <= 60
        [m] = found["models"]
        assert (m["grade"], m["breaker"]["state"]) == ("open", "closed")
        await call_admin(router, "POST", "/endpoints/one/drain")
        found = await reported(router)
        assert (found["state"], found["connection"]["state"]) == ("drained", "open")


async def test_a_model_that_fails() -> None:
    rules = {"failures": 2, "open_seconds": 50, "max_open_seconds": 60}
    async with (
        Upstream(default=whole(b"{}", 500)) as upstream,
        routing(
            endpoint(upstream, "chat"), admin=ADMIN, balance={"breaker": rules, "max_attempts": 1}
        ) as router,
    ):
        for _ in range(2):
            await router.ask()
        found = await reported(router)
        assert (found["state"], found["connection"]["state"]) == ("up", "closed")
        [m] = found["models"]
        assert (m["grade"], m["breaker"]["state"]) == ("open", "open")
        assert 30 < m["breaker"]["half_open_in"] <= 60
        assert 0.5 < m["breaker"]["failure_ratio"] <= 1.0


async def test_time_changes_a_grade() -> None:
    """Though nobody has asked since."""
    async with (
        Upstream(default=whole(b"{}", 429, {"Retry-After": "0.05"})) as upstream,
        routing(endpoint(upstream, "chat"), admin=ADMIN, balance={"max_attempts": 1}) as router,
    ):
        await router.ask()
        deployment = router.deployment()
        await until(lambda: time.monotonic() > deployment.cool_until)
        m = await model(router)
        assert (m["grade"], m["cooling_for"], m["rate_limited"]) == ("ready", None, False)


async def test_a_rate_limit() -> None:
    async with (
        Upstream(default=whole(b"{}", 429, {"Retry-After": "40"})) as upstream,
        routing(endpoint(upstream, "chat"), admin=ADMIN) as router,
    ):
        await router.ask()
        m = await model(router)
        assert (m["grade"], m["rate_limited"]) == ("cooling", True)
        assert 10 < m["cooling_for"] <= 40


async def test_reloads() -> None:
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, "chat"), admin=ADMIN) as router,
    ):
        reloader = router.app[RELOADER]
        changed = settings_for(endpoint(upstream, "chat", weight=2.0), admin=ADMIN)
        await reloader.reload(changed)
        told = (await fleet_report(router))["reload"]
        assert (told["ok"], told["said"]) == (True, ["endpoint changed: one (weight)"])
        assert abs(told["at"] - time.time()) < 60
        refused = settings_for(endpoint(upstream, "chat"), server={"port": 1}, admin=ADMIN)
        with pytest.raises(SettingsError):
            await reloader.reload(refused)
        told = (await fleet_report(router))["reload"]
        assert (told["ok"], len(told["said"])) == (False, 1)
        assert "server.port" in told["said"][0]
        assert (await reported(router))["weight"] == 2.0


async def test_not_from_a_file() -> None:
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, "chat"), admin=ADMIN) as router,
    ):
        reply = await call_admin(router, "POST", "/reload")
        assert (reply.status, reply.error["code"]) == (501, "not_supported")
        assert "configuration file" in reply.error["message"]


async def test_what_is_in_memory() -> None:
    async with (
        simulated("ollama", models=["a", "b"]) as [ollama],
        routing({**ollama, "aliases": {"first": "a"}}, admin=ADMIN) as router,
    ):
        [endpoint] = router.fleet.registry.endpoints
        await until(lambda: endpoint.catalogue.in_memory("a") is not None)
        unloaded = [{"model": "a", "loaded": False}, {"model": "b", "loaded": False}]
        assert (await reported(router, "ollama"))["unasked"] == unloaded
        reply = await call_admin(router, "POST", "/endpoints/ollama/load", {"model": "first"})
        assert reply.status == 200, reply.body
        [m] = reply.json["models"]
        assert (m["model"], m["loaded"], m["grade"]) == ("a", True, "ready")
        assert reply.json["unasked"] == unloaded[1:]
        body = {"model": "a:latest", "keep_alive": 0}
        reply = await call_admin(router, "POST", "/endpoints/ollama/load", body)
        [m] = reply.json["models"]
        assert (m["loaded"], m["grade"]) == (False, "cold")


async def test_while_a_model_is_loaded() -> None:
    """A second one who wants it waits for it; who leaves takes nothing away."""
    ready = asyncio.Event()

    async def loading(wire: Wire) -> None:
        await ready.wait()
        await whole(b'{"done": true, "load_duration": 2000000000}')(wire)

    async with (
        Upstream(loading, default=whole(OLLAMA.whole)) as upstream,
        routing(endpoint(upstream, "ollama", keep_alive="7m"), admin=ADMIN) as router,
    ):
        deployment = router.deployment()
        deployment.in_memory(time.monotonic(), False)
        load = call_admin(router, "POST", "/endpoints/one/load", {"model": "m"})
        asking = asyncio.create_task(load)
        await until(lambda: upstream.requests)
        m = await model(router)
        assert (m["grade"], m["loaded"]) == ("cold", False)
        assert 0 <= m["loading_for"] < 10
        asking.cancel()
        answering = asyncio.create_task(router.ask())
        await until(lambda: router.taken)
        ready.set()
        assert (await answering).status == 200
        load_request, _ = upstream.requests
        assert load_request.json == {"model": "m", "stream": False, "keep_alive": "7m"}
        assert (await model(router))["loading_for"] is None


@pytest.mark.parametrize("keep_alive", [0, -1, 300, "10m", "-1s"])
async def test_how_long_it_is_kept(keep_alive: int | str) -> None:
    async with (
        Upstream(whole(b"{}")) as upstream,
        routing(endpoint(upstream, "ollama"), admin=ADMIN) as router,
    ):
        body = {"model": "m", "keep_alive": keep_alive}
        assert (await call_admin(router, "POST", "/endpoints/one/load", body)).status == 200
        assert upstream.requests[0].json["keep_alive"] == keep_alive


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b"[]", "invalid_type", None),
        (b"{}", "missing_required_parameter", "model"),
        (b'{"model": null}', "missing_required_parameter", "model"),
        (b'{"model": ""}', "missing_required_parameter", "model"),
        (b'{"model": 1}', "invalid_type", "model"),
        (b'{"model": "m", "keepalive": 1}', "unknown_parameter", "keepalive"),
        (b'{"model": "m", "keep_alive": "long"}', "invalid_value", "keep_alive"),
        (b'{"model": "m", "keep_alive": true}', "invalid_value", "keep_alive"),
        (b'{"model": "m", "keep_alive": [1]}', "invalid_value", "keep_alive"),
        (b'{"model": "m", "keep_alive": 99999999999999999999}', "invalid_value", "keep_alive"),
        (b'{"model": "m", "keep_alive": 1e99}', "invalid_value", "keep_alive"),
    ],
)  # fmt: skip
async def test_odd_loads(body: bytes, code: str, param: str | None) -> None:
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, "ollama"), admin=ADMIN) as router,
    ):
        reply = await call_admin(router, "POST", "/endpoints/one/load", data=body)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, code, param)
        assert not upstream.requests


async def test_a_load_that_is_too_large_to_be_one() -> None:
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, "ollama"), admin=ADMIN) as router,
    ):
        body = {"model": "m" * 70_000}
        reply = await call_admin(router, "POST", "/endpoints/one/load", body)
        assert (reply.status, reply.error["code"]) == (413, "request_too_large")


async def test_loads_that_cannot_be() -> None:
    async with (
        Upstream(default=whole(b"no room", 500)) as upstream,
        routing(
            endpoint(upstream, "ollama", "a"), endpoint(upstream, "chat", "b"), admin=ADMIN
        ) as router,
    ):
        reply = await call_admin(router, "POST", "/endpoints/a/load", {"model": "x"})
        assert (reply.status, reply.error["code"]) == (404, "model_not_found")
        assert reply.error["message"] == "The endpoint 'a' does not serve the model 'x'."
        reply = await call_admin(router, "POST", "/endpoints/b/load", {"model": "m"})
        assert (reply.status, reply.error["code"]) == (501, "not_supported")
        assert "cannot be asked to load" in reply.error["message"]
        router.deployment("a").in_memory(time.monotonic(), False)
        reply = await call_admin(router, "POST", "/endpoints/a/load", {"model": "m"})
        assert (reply.status, reply.error["code"]) == (503, "model_load_failed")
        assert (await model(router, "a"))["grade"] == "cooling"
