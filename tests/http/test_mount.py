"""The router as a part of somebody else's application, two in one process, and plugins by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from router import create_app
from router.settings.load import SettingsError
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening, routed, simulated
from tests.support.plugins import Recorder

ASK = {"model": "sim-chat", "input": "count to 3"}
PLUGINS = "tests.support.plugins"


@pytest.fixture(autouse=True)
def recorders() -> Iterator[list[Recorder]]:
    """The recorders made in a test."""
    Recorder.made.clear()
    yield Recorder.made
    Recorder.made.clear()


def foreign(settings: dict[str, Any], prefix: str = "/llm") -> web.Application:
    """Somebody's application, with a middleware and routes of its own and a small body limit."""

    @web.middleware
    async def stamp(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response = await handler(request)
        if not response.prepared:
            response.headers["X-Foreign"] = "yes"
        return response

    async def home(request: web.Request) -> web.Response:
        return web.Response(text="home")

    outer = web.Application(middlewares=[stamp], client_max_size=100)
    outer.router.add_get("/", home)
    state = {"url": "sqlite:///:memory:"}
    outer.add_subapp(prefix, create_app({"state": state, **settings}))
    return outer


async def test_mounted_under_a_prefix() -> None:
    async with simulated("chat") as endpoints, http_client() as http:
        outer = foreign({"endpoints": endpoints, "logging": {"access": False}})
        async with listening(outer) as url:
            assert (await fetch(http, "GET", f"{url}/")).body == b"home"
            long = {**ASK, "instructions": "x" * 5000}
            reply = await fetch(http, "POST", f"{url}/llm/v1/responses", json=long)
            assert reply.json["output_text"] == "1, 2, 3"
            assert reply.headers["X-Foreign"] == "yes"
            stream = {**ASK, "stream": True}
            reply = await fetch(http, "POST", f"{url}/llm/api/v1/responses", json=stream)
            assert reply.events[-1].type == "response.completed"
            assert (await fetch(http, "GET", f"{url}/llm/ready")).status == 200
            assert b"pointsman_" in (await fetch(http, "GET", f"{url}/llm/metrics")).body


async def test_errors_of_a_mounted_router() -> None:
    async with simulated("chat") as endpoints, http_client() as http:
        outer = foreign({"endpoints": endpoints, "logging": {"access": False}})
        async with listening(outer) as url:
            reply = await fetch(http, "GET", f"{url}/llm/v1/nothing")
            assert (reply.status, reply.error["code"]) == (404, "unknown_url")
            assert "/llm/v1/nothing" in reply.error["message"]
            reply = await fetch(http, "DELETE", f"{url}/llm/v1/models")
            assert (reply.status, reply.headers["Allow"]) == (405, "GET")
            reply = await fetch(http, "GET", f"{url}/v1/models")
            assert reply.status == 404
            assert b"error" not in reply.body  # that one is the foreign application's


async def test_two_routers_in_one_process_share_nothing() -> None:
    async with (
        simulated("chat") as ones,
        simulated("ollama") as others,
        http_client() as http,
    ):
        outer = web.Application()
        quiet = {"logging": {"access": False}, "state": {"url": "sqlite:///:memory:"}}
        keys = {"keys": [{"name": "a", "key": "sk-a"}]}
        outer.add_subapp("/a", create_app({"endpoints": ones, **quiet}))
        outer.add_subapp("/b", create_app({"endpoints": others, "auth": keys, **quiet}))
        key = {"Authorization": "Bearer sk-a"}
        async with listening(outer) as url:
            first, second = await asyncio.gather(
                fetch(http, "GET", f"{url}/a/v1/models"),
                fetch(http, "GET", f"{url}/b/v1/models", headers=key),
            )
            assert [model["id"] for model in first.json["data"]] == ["sim-chat", "sim-embed"]
            assert [model["id"] for model in second.json["data"]] == [
                "sim-llama:latest",
                "sim-embed:latest",
            ]
            assert (await fetch(http, "GET", f"{url}/b/v1/models")).status == 401
            assert (await fetch(http, "POST", f"{url}/a/v1/responses", json=ASK)).status == 200
            reply = await fetch(http, "POST", f"{url}/b/v1/responses", json=ASK, headers=key)
            assert reply.status == 404
            metrics = (await fetch(http, "GET", f"{url}/b/metrics")).body
            assert b'outcome="refused"' in metrics
            assert b"sim-chat" not in metrics


async def test_plugins_by_name_and_their_life(recorders: list[Recorder]) -> None:
    plugins = [f"{PLUGINS}:Recorder", f"{PLUGINS}:Parrot"]
    async with simulated("chat") as endpoints, http_client() as http:
        async with routed(*endpoints, plugins=plugins) as url:
            (recorder,) = recorders
            assert recorder.heard == ["start"]
            await fetch(http, "POST", f"{url}/v1/responses", json=ASK)
            await fetch(http, "POST", f"{url}/v1/responses", json={**ASK, "stream": True})
            await fetch(http, "GET", f"{url}/v1/models")
            await fetch(http, "POST", f"{url}/v1/responses", json={})
            said = {"model": "parrot", "input": "Polly"}
            reply = await fetch(http, "POST", f"{url}/v1/responses", json=said)
            assert reply.json == {"parrot": True}
            assert reply.headers["X-Parrot"] == "whole"
            reply = await fetch(http, "POST", f"{url}/v1/responses", json={**said, "stream": True})
            assert [event.data for event in reply.events] == [
                {"type": "parrot.said", "text": "Polly"}
            ]
        asked = ["admit", "started"]
        assert recorder.heard == [
            "start",
            *(*asked, "ended"),
            *(*asked, "first_output", "ended"),
            *("admit", "ended"),
            *("admit", "ended"),
            *(*asked, "ended"),
            *(*asked, "ended"),
            "stop",
        ]
        found = [
            (e.result.status, e.result.outcome.value if e.result.outcome else "")
            for e in recorder.ended_as
        ]
        assert found == [(200, "ok")] * 3 + [(400, "refused")] + [(200, "ok")] * 2
        assert all(e.result.finished is not None for e in recorder.ended_as)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["no_such_package.at_all:make"], "plugins[0]: no_such_package.at_all:make: there is no"),
        ([f"{PLUGINS}:Recorder", f"{PLUGINS}:missing"], f"plugins[1]: {PLUGINS}:missing: the modu"),
        ([f"{PLUGINS}:NOT_CALLABLE"], "cannot be called"),
        ([f"{PLUGINS}:nothing"], "it made NoneType, which is not a router.plugin.Plugin"),
    ],
)
def test_plugins_that_are_none(names: list[str], message: str) -> None:
    endpoint = {"name": "one", "url": "http://127.0.0.1:1", "dialect": "chat"}
    with pytest.raises(SettingsError) as caught:
        create_app({"endpoints": [endpoint], "plugins": names})
    assert message in str(caught.value)


def test_an_error_in_a_factory_is_not_hidden() -> None:
    endpoint = {"name": "one", "url": "http://127.0.0.1:1", "dialect": "chat"}
    with pytest.raises(ZeroDivisionError):
        create_app({"endpoints": [endpoint], "plugins": [f"{PLUGINS}:broken"]})
