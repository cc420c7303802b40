"""The list of models, for keys that may not use all of them."""

from __future__ import annotations

from aiohttp import web

from plugins.api_keys import ApiKeys
from router.core.exchange import Operation
from router.core.key import AccountKeyResolver
from router.core.plugin_chain import PluginChain
from router.core.plugin_sets import PluginSets, proceed
from router.http.dispatcher import RequestDispatcher
from router.http.models import ModelsApi
from router.settings.schema import ServerSettings
from tests.support.depot import Depot, backend
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening
from tests.support.keys import configured
from tests.support.router import Reply

RING = AccountKeyResolver([configured("all"), configured("some", models=["a", "org/*"])])


async def test_only_those_that_the_key_may_use() -> None:
    dispatcher = RequestDispatcher(
        PluginSets(PluginChain([ApiKeys(RING)]), proceed), ServerSettings()
    )
    registry = Depot(backend("one", "a", "b", "org/z:1", "org/y")).registry
    api = ModelsApi(registry, dispatcher.default_model)
    app = web.Application()
    for path, handler in (("/models", api.index), ("/models/{id:.+}", api.get)):
        app.router.add_get(path, dispatcher.route(Operation.MODELS, path, handler))
    async with listening(app) as url, http_client() as http:

        async def get(path: str, key: str) -> Reply:
            headers = {"Authorization": f"Bearer sk-{key}"}
            return await fetch(http, "GET", url + path, headers=headers)

        async def listed(key: str) -> list[str]:
            return [model["id"] for model in (await get("/models", key)).json["data"]]

        assert await listed("all") == ["a", "b", "org/z:1", "org/y"]
        assert await listed("some") == ["a", "org/z:1", "org/y"]
        for name in ("a", "org/y"):
            assert (await get(f"/models/{name}", "some")).json["id"] == name
        assert (await get("/models/b", "all")).status == 200
        for name in ("b", "org", "nope"):
            refused = await get(f"/models/{name}", "some")
            assert (refused.status, refused.error["code"]) == (404, "model_not_found")
            assert "'a'" not in refused.error["message"]
        missing = await get("/models/org/z", "some")
        assert missing.error["message"] == (
            "The model 'org/z' does not exist here. Served: a, org/z:1, org/y."
        )
    await dispatcher.stop()
