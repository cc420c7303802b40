"""The list of models, and each of them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from router.balance.capability import Abilities
from tests.support.anthropic import VERSION
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.upstream import Upstream, refused_port
from tests.support.waiting import until


async def get(router: Router, path: str, **headers: str) -> Reply:
    return await fetch(router.http, "GET", router.url + path, headers=headers)


async def listed(router: Router) -> list[str]:
    """The names under ``/v1/models``, which have OpenAI's form."""
    listing = (await get(router, "/v1/models")).json
    assert listing["object"] == "list"
    for model in listing["data"]:
        assert set(model) == {"id", "object", "created", "owned_by"}
        assert model["object"] == "model"
        assert type(model["created"]) is int
    assert (await get(router, "/api/v1/models")).json == listing
    return [model["id"] for model in listing["data"]]


async def test_every_model_is_listed_once_in_the_order_of_the_configuration() -> None:
    fields: dict[str, Any] = {"aliases": {"small": "b"}, "models": ["b", "a", "gpt-*"]}
    async with (
        Upstream(models=("gpt-5", "a", "secret")) as first,
        Upstream(models=("a", "org/z:1")) as second,
        routing(
            endpoint(first, "chat", "first", **fields),
            endpoint(second, "chat", "second", models=None),
        ) as router,
    ):
        await until(lambda: first.probes and second.probes)
        assert await listed(router) == ["b", "a", "gpt-5", "small", "org/z:1"]
        for name in ("a", "b", "gpt-5", "small", "org/z:1", "gpt-unlisted"):
            reply = await get(router, f"/v1/models/{name}")
            assert (reply.status, reply.json["id"]) == (200, name)
        for name in ("secret", "A", "gpt", "org/z", "x" * 5000):
            reply = await get(router, f"/v1/models/{name}")
            assert (reply.status, reply.error["code"]) == (404, "model_not_found")
            assert reply.error["param"] == "model"
            assert "Served: b, a, gpt-5, small, org/z:1." in reply.error["message"]
            assert len(reply.error["message"]) < 500


async def test_a_model_that_is_asked_for_at_once_waits_for_the_first_probe() -> None:
    async with (
        Upstream(models=("late",)) as upstream,
        routing(endpoint(upstream, "ollama", models=None)) as router,
    ):
        assert (await get(router, "/v1/models/late")).status == 200
        assert [probe.path for probe in upstream.probes].count("/api/tags") == 1


async def test_nobody_knows_while_an_endpoint_was_never_heard_of() -> None:
    async with (
        refused_port() as nobody,
        routing(endpoint(nobody, "chat", models=None)) as router,
    ):
        reply = await get(router, "/v1/models/any")
        assert (reply.status, reply.error["code"]) == (503, "upstream_unavailable")
        assert "one" in reply.error["message"]
        assert "Retry-After" in reply.headers
        assert await listed(router) == []


MODELS = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ("", "abcde", False),
        ("?limit=2", "ab", True),
        ("?limit=2&after_id=b", "cd", True),
        ("?limit=2&after_id=c", "de", False),
        ("?after_id=e", "", False),
        ("?limit=2&before_id=d", "bc", True),
        ("?limit=2&before_id=c", "ab", False),
        ("?after_id=a&before_id=d", "bc", False),
    ],
)
async def test_clients_of_anthropic_get_their_own_form(query: str, ids: str, more: bool) -> None:
    fields: dict[str, Any] = {"models": list(MODELS)}
    async with (
        Upstream(models=MODELS) as upstream,
        routing(endpoint(upstream, "chat", **fields)) as router,
    ):
        listing = (await get(router, f"/v1/models{query}", **VERSION)).json
        assert sorted(listing) == ["data", "first_id", "has_more", "last_id"]
        assert [model["id"] for model in listing["data"]] == list(ids)
        assert listing["has_more"] is more
        assert listing["first_id"] == (ids[0] if ids else None)
        assert listing["last_id"] == (ids[-1] if ids else None)
        for model in listing["data"]:
            assert model == (await get(router, f"/v1/models/{model['id']}", **VERSION)).json
            assert (model["type"], model["display_name"]) == ("model", model["id"])
            assert model["created_at"].endswith("Z")


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/models?limit=0", 400, "invalid_request_error"),
        ("/v1/models?limit=x", 400, "invalid_request_error"),
        ("/v1/models?limit=1001", 400, "invalid_request_error"),
        ("/v1/models?after_id=z", 400, "invalid_request_error"),
        ("/v1/models/z", 404, "not_found_error"),
    ],
)
async def test_and_their_own_errors(path: str, status: int, kind: str) -> None:
    async with (
        Upstream(models=MODELS) as upstream,
        routing(endpoint(upstream, "chat", models=list(MODELS))) as router,
    ):
        reply = await get(router, path, **VERSION)
        assert (reply.status, reply.json["error"]["type"]) == (status, kind)
        assert reply.json["request_id"] == reply.headers["X-Request-Id"]


async def test_codex_reads_a_list_of_its_own_beside() -> None:
    capabilities = {"b": {"vision": False, "context_length": 8192}}
    keys = [{"name": "all", "key": "sk-all"}, {"name": "some", "key": "sk-some", "models": ["a"]}]
    async with (
        Upstream() as one,
        Upstream() as two,
        routing(
            endpoint(one, "chat", models=["a", "b"], context_length=4096),
            endpoint(two, "chat", "two", models=["b"], capabilities=capabilities),
            auth={"keys": keys},
            default_model="b",
        ) as router,
    ):
        path, key = "/v1/models?client_version=0.169.0", {"Authorization": "Bearer sk-all"}
        reply = await get(router, path, **key)
        assert [model["id"] for model in reply.json["data"]] == ["a", "b"]
        b, a = reply.json["models"]
        assert [(one["slug"], one["priority"]) for one in (b, a)] == [("b", 0), ("a", 1)]
        assert (a["context_window"], b["context_window"]) == (4096, 8192)
        assert b["input_modalities"] == ["text", "image"], "the other endpoint takes images"
        etag = reply.headers["ETag"]
        assert (await get(router, path, **key)).headers["ETag"] == etag
        router.deployment("one", "a").learn(Abilities(context=2048), time.monotonic())
        reply = await get(router, path, **key)
        assert reply.json["models"][1]["context_window"] == 2048, "a refusal taught it"
        assert reply.headers["ETag"] != etag
        some = await get(router, path, Authorization="Bearer sk-some")
        assert [model["slug"] for model in some.json["models"]] == ["a"]
        plain = await get(router, "/v1/models", **key)
        assert "models" not in plain.json
        assert "ETag" not in plain.headers


async def test_claude_code_finds_the_names_that_are_spelt_out() -> None:
    aliases = {"claude-local": "m", "anthropic/small": "m", "claude-*": "m"}
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, "chat", aliases=aliases)) as router,
    ):
        page = (await get(router, "/v1/models?limit=1000", **VERSION)).json
        assert [model["id"] for model in page["data"]] == ["m", "claude-local", "anthropic/small"]
        assert not page["has_more"]
        assert (await get(router, "/v1/models/claude-opus-4-8")).status == 200
        async with router.http.head(router.url + "/") as reply:
            assert reply.status == 200
