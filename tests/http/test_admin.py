"""The admin routes: their key, and what they do to endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from router.app import DISPATCHER, RELOADER
from tests.support.admin import ADMIN, ADMIN_KEY, call_admin, reported
from tests.support.fetch import fetch
from tests.support.router import API_KEY, Router, endpoint, routing, settings_for
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Script, Upstream, Wire, streamed, whole
from tests.support.waiting import until

CHAT = SPEECH["chat"]
KEYS: dict[str, Any] = {"keys": [{"name": "a", "key": "sk-a"}]}
ROUTES = [
    ("GET", "/endpoints"),
    ("POST", "/endpoints/one/drain"),
    ("POST", "/endpoints/one/undrain"),
    ("POST", "/endpoints/one/load"),
    ("POST", "/reload"),
    ("POST", "/explain"),
    ("GET", "/nope"),
    ("DELETE", "/endpoints"),
]


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream(default=whole(CHAT.whole)) as upstream:
        yield upstream


@pytest.fixture
async def router(upstream: Upstream) -> AsyncIterator[Router]:
    """A router with one endpoint, a client's key and an admin's."""
    async with routing(endpoint(upstream, "chat"), auth=KEYS, admin=ADMIN) as router:
        router.http.headers["Authorization"] = "Bearer sk-a"
        yield router


@pytest.mark.parametrize("auth", [KEYS, {}], ids=["with client keys", "open"])
@pytest.mark.parametrize("key", ["sk-a", "None", ADMIN_KEY])
async def test_closed_without_a_key(upstream: Upstream, auth: dict[str, Any], key: str) -> None:
    async with routing(endpoint(upstream, "chat"), auth=auth) as router:
        for method, path in ROUTES:
            reply = await call_admin(router, method, path, key=key)
            assert (reply.status, reply.error["code"]) == (403, "forbidden")
            assert "set admin.key" in reply.error["message"]
            assert reply.headers["Cache-Control"] == "no-store"
            assert reply.headers["X-Request-Id"]


async def test_a_client_key_is_no_admin_key(router: Router) -> None:
    for method, path in ROUTES:
        reply = await call_admin(router, method, path, key="sk-a")
        assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")
        assert reply.headers["Cache-Control"] == "no-store"
    assert not router.deployment().host.drained


async def test_an_admin_key_is_no_client_key(router: Router) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    reply = await fetch(router.http, "GET", f"{router.url}/v1/models", headers=headers)
    assert reply.status == 401


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", ADMIN_KEY, f"Basic {ADMIN_KEY}", f"Bearer {ADMIN_KEY}x",
     f"Bearer {ADMIN_KEY[:-1]}", f"Bearer {ADMIN_KEY} {ADMIN_KEY}", "Bearer schlüssel"],
)  # fmt: skip
async def test_keys_that_are_refused(router: Router, given: str) -> None:
    headers = {"Authorization": given}
    reply = await fetch(router.http, "GET", f"{router.url}/admin/endpoints", headers=headers)
    assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")
    assert reply.headers["WWW-Authenticate"] == "Bearer"
    [line] = [line for line in router.log if line["event"] == "admin refused"]
    assert line["remote"] == "127.0.0.1"
    assert ADMIN_KEY not in repr(router.log)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
async def test_keys_that_are_taken(router: Router, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {ADMIN_KEY}", "X-Request-Id": "mine"}
    reply = await fetch(router.http, "GET", f"{router.url}/admin/endpoints", headers=headers)
    assert (reply.status, reply.headers["X-Request-Id"]) == (200, "mine")
    assert reply.headers["Cache-Control"] == "no-store"
    assert API_KEY not in reply.body.decode()


async def test_another_key_after_a_reload(upstream: Upstream) -> None:
    one = endpoint(upstream, "chat")
    async with routing(one, admin=ADMIN) as router:
        await router.app[RELOADER].reload(settings_for(one, admin={"key": "sk-new"}))
        assert (await call_admin(router, "GET", "/endpoints")).status == 401
        assert (await call_admin(router, "GET", "/endpoints", key="sk-new")).status == 200
        await router.app[RELOADER].reload(settings_for(one))
        assert (await call_admin(router, "GET", "/endpoints", key="sk-new")).status == 403


async def test_what_is_not_there(router: Router) -> None:
    reply = await call_admin(router, "GET", "/nope")
    assert (reply.status, reply.headers["Cache-Control"]) == (404, "no-store")
    reply = await call_admin(router, "POST", "/endpoints")
    assert (reply.status, reply.headers["Allow"]) == (405, "GET")
    for what in ("drain", "undrain", "load"):
        reply = await call_admin(router, "POST", f"/endpoints/two/{what}")
        assert reply.status == 404
        assert reply.error["message"] == "There is no endpoint 'two'. There are: one."
        assert (await call_admin(router, "GET", f"/endpoints/one/{what}")).status == 405


async def test_in_an_application_of_somebody_else(upstream: Upstream) -> None:
    async with routing(endpoint(upstream, "chat"), admin=ADMIN, foreign=True) as router:
        assert router.url.endswith("/llm")
        assert (await call_admin(router, "POST", "/endpoints/one/drain")).json["state"] == "drained"
        assert (await call_admin(router, "GET", "/nope")).status == 404


async def test_not_while_the_router_stops(router: Router) -> None:
    await router.app[DISPATCHER].drain(0)
    assert (await call_admin(router, "GET", "/endpoints")).error["code"] == "shutting_down"


async def test_what_is_done_is_logged(router: Router) -> None:
    await call_admin(router, "POST", "/endpoints/one/drain", headers={"X-Request-Id": "r1"})
    await call_admin(router, "POST", "/endpoints/two/drain", headers={"X-Request-Id": "r2"})
    await call_admin(router, "GET", "/endpoints")
    route = "/admin/endpoints/{name}/drain"
    lines = [line for line in router.log if line["event"] == "admin"]
    assert [
        (line["request_id"], line["remote"], line["route"], line["endpoint"], line["outcome"])
        for line in lines
    ] == [("r1", "127.0.0.1", route, "one", "ok"), ("r2", "127.0.0.1", route, "two", "NotFound")]
    assert ADMIN_KEY not in repr(router.log)


async def test_counted_as_what_they_are(router: Router) -> None:
    await call_admin(router, "POST", "/endpoints/one/drain")
    await call_admin(router, "GET", "/endpoints", key="wrong")
    labels = {"operation": "admin"}
    assert await router.metric("pointsman_requests_total", status="200", **labels) == [1.0]
    assert await router.metric("pointsman_requests_total", status="401", **labels) == [1.0]


def held(until: asyncio.Event) -> Script:
    """A stream whose second half waits for the event."""
    first, *rest = CHAT.words

    async def the_rest(wire: Wire) -> None:
        await until.wait()
        for piece in (*rest, CHAT.closing):
            wire.piece(piece)
        wire.end()

    return streamed(CHAT.opening, first, kind=CHAT.kind, then=the_rest)


async def test_a_drained_endpoint_ends_what_it_has_begun() -> None:
    go_on = asyncio.Event()
    patient = {"first_byte": 30, "idle": 30, "total": 30}
    async with (
        Upstream(held(go_on), held(go_on)) as one,
        Upstream(default=whole(CHAT.whole)) as two,
        routing(
            endpoint(one, "chat", "one", timeouts=patient, priority=1),
            endpoint(two, "chat", "two", priority=2),
            admin=ADMIN,
            balance={"policy": "priority", "affinity": 0},
        ) as router,
    ):
        asking = asyncio.gather(router.ask(stream=True), router.ask(stream=True))
        await until(lambda: len(one.requests) == 2)
        reply = await call_admin(router, "POST", "/endpoints/one/drain")
        assert (reply.status, reply.json["state"], reply.json["in_flight"]) == (200, "drained", 2)
        assert reply.json["models"][0]["grade"] == "drained"
        for _ in range(5):
            assert (await router.ask()).headers["X-Pointsman-Endpoint"] == "two"
        assert len(one.requests) == 2
        go_on.set()
        for streamed_reply in await asking:
            final = check_responses_stream(streamed_reply.events)
            assert (final["status"], final["output_text"]) == ("completed", CHAT.text)
        assert (await reported(router))["in_flight"] == 0
        one.default = whole(CHAT.whole)
        reply = await call_admin(router, "POST", "/endpoints/one/undrain")
        assert reply.json["state"] == "up"
        assert reply.json["models"][0]["grade"] == "warming"


async def test_without_another_endpoint(router: Router, upstream: Upstream) -> None:
    await call_admin(router, "POST", "/endpoints/one/drain")
    for stream in (False, True):
        reply = await router.ask(stream=stream)
        assert (reply.status, reply.error["code"]) == (503, "overloaded")
        assert reply.error["message"] == "Every endpoint that serves the model 'm' is drained."
        assert int(reply.headers["Retry-After"]) > 0
    assert not upstream.requests
    async with router.http.get(router.url + "/ready") as ready:
        assert ready.status == 503
    await call_admin(router, "POST", "/endpoints/one/undrain")
    assert (await router.ask()).status == 200


async def test_those_who_wait_look_again(upstream: Upstream) -> None:
    async with routing(endpoint(upstream, "chat", max_in_flight=1), admin=ADMIN) as router:
        with router.occupied("one"):
            asking = asyncio.create_task(router.ask())
            await until(lambda: router.waiting)
            await call_admin(router, "POST", "/endpoints/one/drain")
            reply = await asking
            assert (reply.status, reply.error["code"]) == (503, "overloaded")
            assert "is drained" in reply.error["message"]


async def test_those_who_wait_are_not_sent_there(upstream: Upstream) -> None:
    async with (
        Upstream(default=whole(CHAT.whole)) as other,
        routing(
            endpoint(upstream, "chat", "one", max_in_flight=1),
            endpoint(other, "chat", "two", max_in_flight=1),
            admin=ADMIN,
        ) as router,
    ):
        with router.occupied("two"):
            with router.occupied("one"):
                asking = asyncio.create_task(router.ask())
                await until(lambda: router.waiting)
                await call_admin(router, "POST", "/endpoints/one/drain")
                await until(lambda: router.waiting)
            assert not asking.done()
        assert (await asking).headers["X-Pointsman-Endpoint"] == "two"
        assert not upstream.requests


async def test_again_and_again(router: Router) -> None:
    await router.ask()
    deployment = router.deployment()
    for _ in range(3):
        reply = await call_admin(router, "POST", "/endpoints/one/drain")
        assert (reply.status, reply.json["state"]) == (200, "drained")
    for _ in range(3):
        reply = await call_admin(router, "POST", "/endpoints/one/undrain")
        assert (reply.status, reply.json["state"]) == (200, "up")
        recovering = deployment.warm_from
    assert deployment.warm_from == recovering


async def test_undraining_what_is_not_drained(router: Router) -> None:
    await router.ask()
    reply = await call_admin(router, "POST", "/endpoints/one/undrain")
    assert (reply.json["state"], reply.json["models"][0]["grade"]) == ("up", "ready")


@pytest.mark.parametrize(
    "changed", [{}, {"weight": 2.0}, {"api_key": "sk-another"}], ids=["same", "weight", "api_key"]
)
async def test_drained_over_a_reload(upstream: Upstream, changed: dict[str, Any]) -> None:
    one = endpoint(upstream, "chat")
    async with routing(one, admin=ADMIN) as router:
        await router.ask()
        await call_admin(router, "POST", "/endpoints/one/drain")
        settings = settings_for({**one, **changed}, admin=ADMIN, balance={"queue_size": 7})
        await router.app[RELOADER].reload(settings)
        assert (await reported(router))["state"] == "drained"
        assert (await router.ask()).status == 503
        await call_admin(router, "POST", "/endpoints/one/undrain")
        assert (await router.ask()).status == 200


async def test_not_drained_once_it_was_gone(upstream: Upstream) -> None:
    one, two = endpoint(upstream, "chat"), endpoint(upstream, "chat", "two")
    async with routing(one, two, admin=ADMIN) as router:
        await call_admin(router, "POST", "/endpoints/one/drain")
        await router.app[RELOADER].reload(settings_for(two, admin=ADMIN))
        assert (await call_admin(router, "POST", "/endpoints/one/undrain")).status == 404
        await router.app[RELOADER].reload(settings_for(one, two, admin=ADMIN))
        assert (await reported(router))["state"] != "drained"
