"""Changing the models of a fleet's Ollamas: who may, where, and how it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.http.test_ollama import call, error, lines, ollamas
from tests.support.admin import ADMIN, ADMIN_KEY
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.upstream import Upstream, Wire, silent, streamed, whole
from tests.support.waiting import until

CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/pull", {"model": "tiny"}),
    ("POST", "/push", {"model": "shared"}),
    ("POST", "/create", {"model": "new", "from": "shared"}),
    ("POST", "/copy", {"source": "shared", "destination": "new"}),
    ("DELETE", "/delete", {"model": "shared"}),
)


@contextlib.asynccontextmanager
async def managed(dialect: Dialect = "ollama") -> AsyncIterator[tuple[Upstream, Router]]:
    """A scripted upstream, and the router in front of it."""
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, dialect), admin=ADMIN) as router,
    ):
        yield upstream, router


async def manage(router: Router, method: str, path: str, body: Any, at: str | None = None) -> Reply:
    """A request with the admin key, to one endpoint or to all."""
    aim = {} if at is None else {"X-Pointsman-Endpoint": at}
    return await call(router, method, path, body, key=ADMIN_KEY, **aim)


def served(router: Router, name: str) -> set[str]:
    """What an endpoint serves."""
    found = router.fleet.registry.named(name)
    assert found is not None
    return set(found.catalogue.public_names())


async def test_everywhere() -> None:
    async with ollamas("a", "b") as endpoints, routing(*endpoints, admin=ADMIN) as router:
        told = lines(await manage(router, "POST", "/pull", {"model": "tiny"}))
        assert told[-1] == {"status": "success"}
        assert {line["endpoint"] for line in told[:-1]} == {"a", "b"}
        for name in ("a", "b"):
            of_one = [line["status"] for line in told[:-1] if line["endpoint"] == name]
            assert of_one[0] == "pulling manifest"
            assert of_one[-1] == f"success at {name}"
        await until(lambda: "tiny:latest" in served(router, "a") & served(router, "b"))
        body = {"model": "tiny", "stream": False}
        reply = await manage(router, "POST", "/pull", body)
        assert reply.json == {"status": "success", "endpoints": {"a": "success", "b": "success"}}
        assert reply.headers["Cache-Control"] == "no-store"
        reply = await manage(router, "DELETE", "/delete", {"model": "tiny"})
        assert reply.json["status"] == "success"
        await until(lambda: "tiny:latest" not in served(router, "a") | served(router, "b"))
        [line] = [line for line in router.log if line.get("route") == "/api/delete"]
        assert (line["endpoints"], line["failed"]) == (["a", "b"], {})


async def test_at_one_endpoint() -> None:
    async with ollamas("a", "b") as endpoints, routing(*endpoints, admin=ADMIN) as router:
        told = lines(await manage(router, "POST", "/pull", {"model": "tiny"}, at="b"))
        assert {line["endpoint"] for line in told[:-1]} == {"b"}
        assert told[-1] == {"status": "success"}
        await until(lambda: "tiny:latest" in served(router, "b"))
        assert "tiny:latest" not in served(router, "a")
        body = {"source": "of-a", "destination": "mine"}
        assert "'of-a' not found" in error(await manage(router, "POST", "/copy", body, at="b"), 404)


async def test_what_one_has_not_another_may_have() -> None:
    async with ollamas("a", "b") as endpoints, routing(*endpoints, admin=ADMIN) as router:
        reply = await manage(router, "DELETE", "/delete", {"model": "of-a"})
        assert reply.status == 200, reply.body
        assert reply.json["endpoints"] == {"a": "success", "b": "not there"}
        said = error(await manage(router, "DELETE", "/delete", {"model": "of-a"}), 404)
        assert said.startswith("2 of 2 endpoints failed (a: ")


async def test_a_failure_at_one_is_told_in_the_end() -> None:
    async with ollamas("a") as endpoints, Upstream() as upstream:
        other = endpoint(upstream, "ollama", "b")
        async with routing(*endpoints, other, admin=ADMIN) as router:
            upstream.default = streamed(
                b'{"status":"pulling manifest"}\n', b'{"error":"the disk is full"}\n'
            )
            body = {"model": "tiny"}
            told = lines(await manage(router, "POST", "/pull", body))
            assert {"status": "success at a", "endpoint": "a"} in told
            assert {"status": "failed at b: the disk is full", "endpoint": "b"} in told
            assert told[-1] == {"error": "1 of 2 endpoints failed (b: the disk is full)"}
            reply = await manage(router, "POST", "/pull", {**body, "stream": False})
            assert "the disk is full" in error(reply, 502)
            await until(lambda: "tiny:latest" in served(router, "a"))


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([b'{"status":"pulling manifest"}\n'], "ended before it was done"),
        ([b"nonsense\n"], "no JSON object"),
        ([b"[1]"], "no JSON object"),
        ([b'{"error":{"message":"sk-upstream-secret"}}'], "[api_key]"),
    ],
)
async def test_an_endpoint_that_does_not_keep_to_it(pieces: list[bytes], said: str) -> None:
    async with managed() as (upstream, router):
        upstream.default = streamed(*pieces)
        reply = await manage(router, "POST", "/pull", {"model": "x", "stream": False})
        assert said in error(reply, 502)
        streamed_reply = await manage(router, "POST", "/pull", {"model": "x"})
        assert said in orjson.loads(streamed_reply.body.splitlines()[-1])["error"]


async def test_a_client_that_leaves_ends_it() -> None:
    gone = asyncio.Event()

    async def pulling(wire: Wire) -> None:
        wire.head()
        while wire.transport is not None:
            wire.piece(b'{"status":"pulling"}\n')
            await asyncio.sleep(0.01)
        gone.set()

    async with managed() as (upstream, router):
        upstream.default = pulling
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        url = f"{router.url}/api/pull"
        async with router.http.post(url, json={"model": "x"}, headers=headers) as reply:
            assert await reply.content.readline()
            reply.close()
        async with asyncio.timeout(60):
            await gone.wait()


async def test_an_endpoint_that_is_silent_holds_nobody_up() -> None:
    """Its own deadlines, which are short, are not those of a pull."""
    async with managed() as (upstream, router):

        async def slow(wire: Wire) -> None:
            wire.head()
            await asyncio.sleep(0.8)  # endpoints of tests have 0.4 s
            wire.piece(b'{"status":"success"}\n')
            wire.end()

        upstream.default = slow
        assert lines(await manage(router, "POST", "/pull", {"model": "x"})) == [
            {"status": "success"}
        ]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_only_with_the_admin_key(method: str, path: str, body: dict[str, Any]) -> None:
    auth = {"keys": [{"name": "team", "key": "sk-of-a-client"}]}
    async with Upstream() as upstream:
        one = endpoint(upstream, "ollama")
        async with routing(one, admin=ADMIN, auth=auth) as router:
            assert "admin key" in error(await call(router, method, path, body), 401)
            reply = await call(router, method, path, body, key="sk-of-a-client")
            assert "admin key" in error(reply, 401)
            assert reply.headers["Cache-Control"] == "no-store"
        async with routing(one) as router:
            assert "admin.key" in error(await manage(router, method, path, body), 403)
        assert upstream.requests == []


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_what_is_sent_on(method: str, path: str, body: dict[str, Any]) -> None:
    async with managed() as (upstream, router):
        upstream.default = whole(b'{"status":"success"}')
        given = {**body, "stream": False, "more": [1]}
        reply = await manage(router, method, path, given)
        assert reply.json["status"] == "success", reply.body
        [request] = upstream.requests
        assert (request.method, request.path) == (method, f"/api{path}")
        assert request.headers["authorization"] == "Bearer sk-upstream-secret"
        follows = path in ("/pull", "/push", "/create")
        assert request.json == {**given, "stream": follows}


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("POST", "/pull", {}, "'model'"),
        ("POST", "/pull", {"model": 5}, "'model'"),
        ("POST", "/pull", {"model": "x", "stream": 5}, "'stream'"),
        ("POST", "/copy", {"source": "x"}, "'destination'"),
        ("POST", "/copy", {"source": 5, "destination": "y"}, "'source'"),
        ("DELETE", "/delete", {}, "'model'"),
    ],
)
async def test_bad_requests(method: str, path: str, body: Any, said: str) -> None:
    async with managed() as (upstream, router):
        assert said in error(await manage(router, method, path, body), 400)
        assert upstream.requests == []


async def test_where_there_is_nothing_to_manage() -> None:
    async with managed("chat") as (_, router):
        body = {"model": "x"}
        assert "no endpoint" in error(await manage(router, "POST", "/pull", body), 501)
        said = error(await manage(router, "POST", "/pull", body, at="one"), 400)
        assert "does not speak" in said
        said = error(await manage(router, "POST", "/pull", body, at="two"), 404)
        assert "There are: none" in said


async def test_an_endpoint_that_is_away() -> None:
    async with ollamas("a") as endpoints:
        gone = endpoint("http://127.0.0.1:9", "ollama", "gone")
        async with routing(*endpoints, gone, admin=ADMIN) as router:
            told = lines(await manage(router, "POST", "/pull", {"model": "tiny"}))
            assert "1 of 2 endpoints failed (gone: " in told[-1]["error"]
            reply = await manage(router, "POST", "/pull", {"model": "tiny"}, at="gone")
            assert error(reply, 503)


async def test_files_are_not_passed_on() -> None:
    async with managed() as (_, router):
        reply = await manage(router, "POST", "/blobs/sha256:abc", None)
        assert "Files are not passed on" in error(reply, 501)
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        url = f"{router.url}/api/blobs/sha256:abc"
        assert (await fetch(router.http, "HEAD", url, headers=headers)).status == 501


async def test_a_client_that_leaves_ends_a_copy() -> None:
    async with managed() as (upstream, router):
        upstream.default = silent
        body = {"source": "a", "destination": "b"}
        waiting = asyncio.ensure_future(manage(router, "POST", "/copy", body))
        await until(lambda: upstream.requests)
        assert router.running == 1
        waiting.cancel()
        await until(lambda: not router.running)
        await until(upstream.wires[-1].gone.is_set)
