"""Liveness, readiness, and the metrics after real requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.support.fetch import fetch
from tests.support.fleet import http_client, routed, simulated
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import (
    Script,
    Upstream,
    Wire,
    json_answer,
    refused_port,
    whole,
)
from tests.support.waiting import until

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


async def get(router: Router, path: str, **headers: str) -> Reply:
    return await fetch(router.http, "GET", router.url + path, headers=headers)


class Samples:
    """The samples of one scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.all = [sample for family in families for sample in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """The sum over all label sets that have these labels; the metric must be there."""
        values = [
            sample.value
            for sample in self.all
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(values)

    def values(self, label: str) -> set[str]:
        """Every value of a label of the router's own metrics."""
        return {
            s.labels[label]
            for s in self.all
            if s.name.startswith("pointsman_") and label in s.labels
        }


async def scrape(router: Router) -> Samples:
    reply = await get(router, "/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=")
    return Samples(parse_text(reply.body.decode()))


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A chat upstream that answers as it is asked to."""
    async with Upstream(default=SPEECH["chat"].script()) as server:
        yield server


@pytest.fixture
async def router(upstream: Upstream) -> AsyncIterator[Router]:
    async with routing(endpoint(upstream, "chat", aliases={"small": "m"})) as router:
        yield router


async def test_health(router: Router) -> None:
    reply = await get(router, "/health")
    assert (reply.status, reply.json) == (200, {"status": "ok"})
    async with router.http.head(router.url + "/health") as answer:
        assert answer.status == 200


async def test_ready_follows_the_endpoints() -> None:
    async def ready(status: int) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                async with http.get(f"{url}/ready") as answer:
                    if answer.status == status:
                        body: dict[str, Any] = await answer.json()
                        return body
                await asyncio.sleep(0.02)

    async with refused_port() as nobody:
        port = int(nobody.rpartition(":")[2])
    fields = {"name": "one", "url": nobody, "dialect": "chat"}
    async with (
        routed(fields, balance={"health_interval": 0.05}) as url,
        http_client() as http,
    ):
        assert await ready(503) == {
            "status": "no endpoint can serve",
            "endpoints": {"one": False},
            "state": True,
            "limits": True,
        }
        async with Upstream(port=port):
            assert await ready(200) == {
                "status": "ready",
                "endpoints": {"one": True},
                "state": True,
                "limits": True,
            }
        await ready(503)


@pytest.mark.parametrize(
    ("status", "ready"), [(401, 503), (302, 503), (403, 200), (500, 200), (404, 200)]
)
async def test_an_endpoint_that_lets_nobody_in_is_not_ready(status: int, ready: int) -> None:
    async with Upstream(on_get=json_answer({}, status)) as upstream:
        fields = {"name": "one", "url": upstream.address, "dialect": "chat", "models": ["m"]}
        async with routed(fields) as url, http_client() as http:
            async with http.get(f"{url}/v1/models/unknown") as answer:
                assert answer.status == 404  # and the first probe is over
            async with http.get(f"{url}/ready") as answer:
                assert answer.status == ready


async def test_an_endpoint_without_a_model_is_not_ready() -> None:
    async with (
        Upstream(models=()) as upstream,
        routing(endpoint(upstream, "chat", models=None)) as router,
    ):
        assert (await get(router, "/v1/models/m")).status == 404  # the first probe is over
        assert (await get(router, "/ready")).status == 503


async def test_requests_are_counted(router: Router) -> None:
    for stream in (False, True, True):
        for model in ("m", "small"):
            assert (await router.ask(stream=stream, model=model)).status == 200
    assert (await router.ask(chat=True)).status == 200
    assert (await router.ask(model="nobody's")).status == 404
    assert (await router.ask(model=5)).status == 400
    await get(router, "/v1/models")
    await get(router, "/v1/none-such")
    found = await scrape(router)

    def requests(**labels: str) -> float:
        return found.sum("pointsman_requests_total", **labels)

    assert requests(operation="responses", model="m", outcome="ok", status="200") == 3
    assert requests(operation="responses", model="small", outcome="ok", status="200") == 3
    assert requests(operation="chat_completions", model="m", endpoint="one") == 1
    assert requests(model="other", outcome="refused", status="404", endpoint="") == 1
    assert requests(operation="responses", model="", outcome="refused", status="400") == 1
    assert requests(operation="models", outcome="ok") == 1
    assert requests(operation="other", outcome="refused", status="404") == 1
    assert requests() == 11

    name = "pointsman_request_duration_seconds"
    assert found.sum(f"{name}_count") == 11
    assert found.sum(f"{name}_bucket", le="+Inf") == 11
    assert 0 < found.sum(f"{name}_sum", operation="responses") < 20

    name = "pointsman_time_to_first_token_seconds"
    assert found.sum(f"{name}_count", operation="responses", endpoint="one", model="m") == 2
    assert found.sum(f"{name}_count") == 4  # streams only

    assert found.sum("pointsman_upstream_attempts_total", endpoint="one", result="ok") == 7
    assert found.sum("pointsman_endpoint_up", endpoint="one") == 1
    assert found.sum("pointsman_build_info") == 1


@pytest.mark.parametrize(
    ("reason", "answer"),
    [("cooling", whole(b"{}", 429, {"Retry-After": "60"})), ("open", whole(b"{}", 500))],
    ids=["cooling", "open"],
)
async def test_what_is_left_alone_is_counted(reason: str, answer: Script) -> None:
    breaker = {"failures": 1, "open_seconds": 60}
    async with (
        Upstream(answer) as upstream,
        routing(endpoint(upstream, "chat"), balance={"breaker": breaker}) as router,
    ):
        await until(router.deployment().endpoint.probed.is_set)
        name = "pointsman_models_left_alone"
        assert (await scrape(router)).sum(name, endpoint="one") == 0
        await router.ask()
        found = await scrape(router)
        assert found.sum(name, endpoint="one") == found.sum(name, reason=reason) == 1


async def test_tokens_are_counted(router: Router) -> None:
    reply = await router.ask()
    await router.ask(stream=True)
    usage = reply.json["usage"]
    found = await scrape(router)
    for kind, count in (("input", usage["input_tokens"]), ("output", usage["output_tokens"])):
        assert count > 0
        labels = {"endpoint": "one", "model": "m", "kind": kind, "provenance": "reported"}
        assert found.sum("pointsman_tokens_total", **labels) == 2 * count
    assert found.sum("pointsman_tokens_total", provenance="estimated") == 0


async def test_what_is_in_flight(upstream: Upstream) -> None:
    gate = asyncio.Event()

    async def held(wire: Wire) -> None:
        await gate.wait()
        await whole(SPEECH["chat"].whole)(wire)

    upstream.default = held
    one = endpoint(upstream, "chat", max_in_flight=2, timeouts={"first_byte": 8})
    async with routing(one, balance={"queue_size": 5}) as router:
        asked = [asyncio.create_task(router.ask()) for _ in range(5)]
        await until(lambda: len(upstream.requests) == 2)
        await eventually_metric(router, "pointsman_queue_depth", 3)
        found = await scrape(router)
        assert found.sum("pointsman_requests_in_flight", endpoint="one", model="m") == 2
        gate.set()
        assert {reply.status for reply in await asyncio.gather(*asked)} == {200}
        found = await scrape(router)
        assert found.sum("pointsman_requests_in_flight") == 0
        assert found.sum("pointsman_queue_depth") == 0


async def eventually_metric(router: Router, name: str, value: float) -> None:
    for _ in range(200):
        if (await scrape(router)).sum(name) == value:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{name} never was {value}")


async def test_labels_are_bounded_whatever_clients_ask_for(upstream: Upstream) -> None:
    async with routing(endpoint(upstream, "chat", models=["m", "any-*"])) as router:
        for number in range(30):
            assert (await router.ask(model=f"any-{number}")).status == 200
            assert (await router.ask(model=f"none-{number}")).status == 404
            await get(router, f"/v1/secret-{number}")
            await get(router, f"/v1/responses/resp_{number}")
            await get(router, f"/v1/models/any-{number}")
        found = await scrape(router)
    assert found.values("model") == {"", "other"}
    assert found.values("endpoint") == {"", "one"}
    assert found.values("operation") == {"responses", "stored_responses", "models", "other"}
    assert found.values("status") == {"200", "404"}
    assert found.sum("pointsman_requests_total", model="other", outcome="ok") == 30
    assert found.sum("pointsman_requests_in_flight") == 0


async def test_errors_of_an_upstream_are_not_labels(upstream: Upstream) -> None:
    async with routing(endpoint(upstream, "chat")) as router:
        for number in range(5):
            error = b'{"error": {"message": "No.", "code": "made_up_%d"}}' % number
            upstream.scripts.append(whole(error, 400))
            assert (await router.ask()).status == 400
        found = await scrape(router)
    assert found.sum("pointsman_upstream_attempts_total") == 5
    assert not any("made_up" in value for value in found.values("result"))


async def test_openmetrics_for_who_asks_for_it(router: Router) -> None:
    await router.ask()
    reply = await get(router, "/metrics", Accept=OPENMETRICS)
    assert reply.headers["Content-Type"].startswith("application/openmetrics-text")
    assert reply.body.endswith(b"# EOF\n")
    found = Samples(parse_openmetrics(reply.body.decode()))  # type: ignore[no-untyped-call]
    assert found.sum("pointsman_requests_total") == 1
    plain = await get(router, "/metrics", Accept="text/html, */*;q=0.1")
    assert plain.headers["Content-Type"].startswith("text/plain")


async def test_every_metric_is_ours_and_explained(router: Router) -> None:
    await router.ask(stream=True)
    reply = await get(router, "/metrics")
    for family in parse_text(reply.body.decode()):
        assert family.name.startswith("pointsman_")
        assert family.documentation
        assert family.type != "unknown"


async def test_metrics_behind_a_key() -> None:
    async with (
        simulated("chat") as endpoints,
        routed(
            *endpoints,
            auth={"keys": [{"name": "a", "key": "sk-a"}]},
            metrics={"require_key": True},
        ) as url,
        http_client() as http,
    ):
        async with http.get(f"{url}/metrics") as answer:
            assert answer.status == 401
            assert (await answer.json())["error"]["code"] == "invalid_api_key"
        async with http.get(f"{url}/metrics", headers={"Authorization": "Bearer sk-a"}) as answer:
            assert answer.status == 200
            assert b'outcome="refused"' in await answer.read()


async def test_metrics_with_a_key_of_their_own() -> None:
    """It opens nothing else, and no other key opens them."""
    async with (
        simulated("chat") as endpoints,
        routed(
            *endpoints,
            auth={"keys": [{"name": "a", "key": "sk-a"}]},
            admin={"key": "sk-admin"},
            metrics={"key": "sk-scraper"},
        ) as url,
        http_client() as http,
    ):

        async def status(path: str, key: str | None) -> int:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            async with http.get(url + path, headers=headers) as answer:
                if answer.status == 401:
                    assert answer.headers["WWW-Authenticate"] == "Bearer"
                    assert (await answer.json())["error"]["code"] == "invalid_api_key"
                return answer.status

        for key in (None, "sk-a", "sk-admin", "sk-scraper2", "sk-scrape", "ü"):
            assert await status("/metrics", key) == 401
        assert await status("/metrics", "sk-scraper") == 200
        for path in ("/v1/models", "/admin/endpoints"):
            assert await status(path, "sk-scraper") == 401
        assert await status("/ready", None) == 200
