"""The routes of one API on real sockets, over a real database, for clients with two keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from pydantic import SecretStr

from plugins.api_keys import ApiKeys
from router.core.exchange import Operation
from router.core.key import AccountKeyResolver
from router.core.plugin_chain import PluginChain
from router.core.plugin_sets import PluginSets, proceed
from router.http.body import expect_later
from router.http.dispatcher import Handler, RequestDispatcher
from router.http.routes import PREFIXES
from router.settings.schema import ApiKey, ServerSettings
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening
from tests.support.router import Reply

__all__ = ["KEYS", "Mounted", "mounted"]

KEYS = {"alice": "sk-alice", "bob": "sk-bob"}
"""Owners, and the keys of theirs."""

Routes = list[tuple[str, str, Handler]]


@dataclass
class Mounted:
    """An API that listens."""

    url: str
    http: aiohttp.ClientSession

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        owner: str = "alice",
        prefix: str = "/v1",
        **options: Any,
    ) -> Reply:
        """Send a request as ``owner``; ``options`` are those of aiohttp's client."""
        if body is not None:
            options["json"] = body
        headers = {"Authorization": f"Bearer {KEYS[owner]}"}
        return await fetch(self.http, method, self.url + prefix + path, headers=headers, **options)


@asynccontextmanager
async def mounted(routes: Callable[[RequestDispatcher], Routes]) -> AsyncIterator[Mounted]:
    """Serve what ``routes`` makes for a dispatcher, under every prefix; bodies may have 64 KiB."""
    key_resolver = AccountKeyResolver(
        [ApiKey(name=name, key=SecretStr(key)) for name, key in KEYS.items()]
    )
    dispatcher = RequestDispatcher(
        PluginSets(PluginChain([ApiKeys(key_resolver)]), proceed),
        ServerSettings(max_body_mb=1 / 16),
    )
    app = web.Application(client_max_size=dispatcher.max_body)
    for prefix in PREFIXES:
        for method, path, handler in routes(dispatcher):
            guarded = dispatcher.route(Operation.OTHER, prefix + path, handler)
            app.router.add_route(method, prefix + path, guarded, expect_handler=expect_later)
    async with listening(app) as url, http_client() as http:
        yield Mounted(url, http)
