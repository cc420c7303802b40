"""A model of embeddings that Ollama has to load first, which it does not do by generating."""

from __future__ import annotations

import orjson
import pytest

from router.settings.schema import EndpointSettings
from router.simulate import create_backend
from router.simulate.backend import BACKEND
from router.upstream.ollama import OllamaAdapter
from tests.support.admin import ADMIN, ADMIN_KEY
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening, routed


@pytest.mark.parametrize("num_ctx", [None, 2048])
async def test_it_is_loaded_by_making_no_embeddings(num_ctx: int | None) -> None:
    app = create_backend("ollama", ["sim-embed:latest"], pace=0, load_seconds=0.05)
    async with listening(app) as url, http_client() as http:
        endpoint = {"name": "box", "url": url, "dialect": "ollama", "num_ctx": num_ctx}
        async with routed(endpoint) as router:
            body = {"model": "sim-embed", "input": "hi"}
            for _ in range(2):
                reply = await fetch(http, "POST", f"{router}/v1/embeddings", json=body)
                assert reply.status == 200, reply.body
            assert app[BACKEND].memory.loads.total() == 1


async def test_it_is_warmed_and_taken_out_of_memory() -> None:
    app = create_backend("ollama", ["sim-embed:latest"], pace=0)
    async with (
        listening(app) as url,
        http_client() as http,
        routed({"name": "box", "url": url, "dialect": "ollama"}, admin=ADMIN) as router,
    ):
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        for keep_alive, listed in (("5m", 1), (0, 0)):
            body = {"model": "sim-embed", "keep_alive": keep_alive}
            path = f"{router}/admin/endpoints/box/load"
            reply = await fetch(http, "POST", path, json=body, headers=headers)
            assert reply.status == 200, reply.body
            assert len(app[BACKEND].memory.listed()) == listed


def test_what_is_asked_instead() -> None:
    fields = {"name": "a", "url": "http://a", "dialect": "ollama", "num_ctx": 9, "keep_alive": "1h"}
    adapter = OllamaAdapter(EndpointSettings.model_validate(fields))
    request = adapter.load("m")
    assert request is not None
    assert request.instead is not None
    assert request.instead.path == "/api/embed"
    assert orjson.loads(request.instead.body) == {
        "model": "m",
        "input": [],
        "keep_alive": "1h",
        "options": {"num_ctx": 9},
    }
    unload = adapter.load("m", 0)
    assert unload is not None
    assert (unload.instead, unload.unloads) == (None, True)
