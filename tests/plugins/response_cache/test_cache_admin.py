"""The cache's admin routes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugins.response_cache.conftest import caching, wholes
from tests.support.admin import ADMIN, call_admin
from tests.support.router import Reply, Router
from tests.support.speech import SPEECH


async def call(router: Router, path: str, body: Any = None) -> Reply:
    """Call one of the cache's admin routes."""
    return await call_admin(router, "GET" if body is None else "POST", f"/cache{path}", body)


async def test_the_stats() -> None:
    async with wholes(SPEECH["responses"]) as upstream, caching(upstream, admin=ADMIN) as router:
        await router.ask(store=False)
        stats = (await call(router, "")).json
        assert (stats["mode"], stats["scope"], stats["semantic"]) == ("always", "key", None)
        assert stats["store"]["entries"] == 1
        assert 0 < stats["store"]["bytes"] < stats["store"]["max_bytes"]


async def test_a_request_is_explained() -> None:
    async with wholes(SPEECH["responses"]) as upstream, caching(upstream, admin=ADMIN) as router:
        request = {"model": "m", "input": "hi"}
        before = (await call(router, "/lookup", {"request": request})).json
        assert (before["cacheable"], before["tier"], before["entry"]) == (True, None, None)
        await router.ask(store=False)
        hit = await router.ask(store=False)
        after = (await call(router, "/lookup", {"request": request})).json
        assert (after["tier"], after["semantic"]["skipped"]) == ("exact", "off")
        assert after["entry"]["key"] == after["key"] == hit.headers["X-Cache-Entry"]
        assert after["entry"]["answer"]["output"][0]["content"][0]["text"] == "Hello, wörld!"
        assert (await call(router, "/lookup", {"entry": after["key"]})).json == {
            **after["entry"],
            "age": pytest.approx(after["entry"]["age"], abs=5),
        }
        other = {"request": {**request, "tools": [{"type": "web_search"}]}}
        refused = (await call(router, "/lookup", other)).json
        assert refused == {"cacheable": False, "reason": "server_tools"}


@pytest.mark.parametrize("by", ["entry", "tag", "model", "namespace", "all"])
async def test_answers_are_taken_back(by: str) -> None:
    async with wholes(SPEECH["responses"]) as upstream, caching(upstream, admin=ADMIN) as router:
        await router.ask(store=False, cache={"tags": ["news"]})
        hit = await router.ask(store=False)
        entry = (await call(router, "/lookup", {"entry": hit.headers["X-Cache-Entry"]})).json
        values = {
            "entry": entry["key"],
            "tag": "news",
            "model": "m",
            "namespace": entry["namespace"],
            "all": True,
        }
        assert entry["tags"] == ["news"]
        reply = await call(router, "/invalidate", {by: values[by]})
        assert reply.json == {"invalidated": {by: values[by]}, "removed": 1}
        assert (await router.ask(store=False)).headers["X-Cache"] == "MISS"
        assert (await router.ask(store=False)).headers["X-Cache"] == "HIT"


async def test_what_others_have_stays() -> None:
    async with wholes(SPEECH["responses"]) as upstream, caching(upstream, admin=ADMIN) as router:
        await router.ask(store=False)
        for rule in ({"tag": "news"}, {"model": "other"}, {"namespace": "0" * 32}):
            assert (await call(router, "/invalidate", rule)).json["removed"] == 0
        assert (await router.ask(store=False)).headers["X-Cache"] == "HIT"


async def test_a_bad_hit_goes() -> None:
    async with wholes(SPEECH["responses"]) as upstream, caching(upstream, admin=ADMIN) as router:
        await router.ask(store=False)
        key = (await router.ask(store=False)).headers["X-Cache-Entry"]
        reply = await call(router, "/feedback", {"entry": key})
        assert reply.json == {"removed": key, "required_similarity": None}
        assert (await call(router, "/feedback", {"entry": key})).status == 404
        assert (await router.ask(store=False)).headers["X-Cache"] == "MISS"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/invalidate", {}, None),
        ("/invalidate", {"tag": "a", "model": "m"}, None),
        ("/invalidate", {"tag": 1}, "tag"),
        ("/invalidate", {"all": False}, "all"),
        ("/invalidate", {"key": "x"}, "key"),
        ("/feedback", {}, "entry"),
        ("/feedback", {"entry": ["x"]}, "entry"),
        ("/forgive", {}, "namespace"),
        ("/lookup", {}, "request"),
        ("/lookup", {"request": "hi"}, "request"),
        ("/lookup", {"request": {"model": "m", "input": "hi"}, "caller": 3}, "caller"),
        ("/lookup", {"entry": "x", "request": {}}, "request"),
        ("/lookup", {"request": {"model": "m", "input": 1}}, "input"),
    ],
)
async def test_what_is_wrong_is_named(path: str, body: dict[str, Any], param: str | None) -> None:
    async with wholes(SPEECH["responses"]) as upstream, caching(upstream, admin=ADMIN) as router:
        reply = await call(router, path, body)
        assert (reply.status, reply.error["param"]) == (400, param)


async def test_what_is_not_there() -> None:
    async with wholes(SPEECH["responses"]) as upstream, caching(upstream, admin=ADMIN) as router:
        assert (await call(router, "/lookup", {"entry": "0" * 32})).status == 404
        assert (await call(router, "/forgive", {"namespace": "0" * 32})).status == 404
