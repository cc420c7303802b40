"""The cache while the configuration changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.response_cache.conftest import caching, wholes
from tests.support.admin import ADMIN, call_admin
from tests.support.reloading import refused, reload
from tests.support.router import endpoint
from tests.support.speech import SPEECH


@pytest.mark.parametrize("kind", ["memory", "disk"])
async def test_it_is_switched_off_and_on(kind: str, tmp_path: Path) -> None:
    url = "memory://" if kind == "memory" else f"disk://{tmp_path}/cache"
    on, off = {"mode": "always", "store": url}, {"mode": "off", "store": url}
    async with (
        wholes(SPEECH["responses"]) as upstream,
        caching(upstream, cache=off, admin=ADMIN) as router,
    ):
        one = endpoint(upstream, "responses")
        assert "X-Cache" not in (await router.ask(store=False)).headers
        reply = await call_admin(router, "GET", "/cache")
        assert (reply.status, reply.error["code"]) == (501, "not_supported")
        for expected in ("MISS", "HIT"):
            await reload(router, one, cache=on, admin=ADMIN)
            assert (await router.ask(store=False)).headers["X-Cache"] == expected
            assert (await router.ask(store=False)).headers["X-Cache"] == "HIT"
            await reload(router, one, cache=off, admin=ADMIN)
            assert "X-Cache" not in (await router.ask(store=False)).headers


async def test_what_it_is_built_on_takes_a_restart() -> None:
    async with wholes(SPEECH["responses"]) as upstream, caching(upstream) as router:
        one = endpoint(upstream, "responses")
        for cache in ({"store": "disk://elsewhere"}, {"max_bytes": 2_000_000}):
            said = await refused(router, one, cache={"mode": "always", **cache})
            assert "takes a restart" in said
        semantic = {"enabled": True, "threshold": 0.9}
        said = await refused(router, one, cache={"mode": "always", "semantic": semantic})
        assert "cache.semantic.enabled" in said
        await reload(router, one, cache={"mode": "always", "ttl": 60, "scope": "shared"})
        assert (await router.ask(store=False)).headers["X-Cache"] == "MISS"
