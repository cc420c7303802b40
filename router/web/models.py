"""The list of models: everything that some endpoint serves, each once."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from router.accounts.scope import check_model
from router.endpoints.registry import Registry
from router.exchange import Exchange
from router.web.front import json_response

__all__ = ["ModelsApi"]


class ModelsApi:
    """Handlers under ``/v1/models``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._created = int(time.time())

    async def index(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /models: those that the caller's key may use."""
        key = exchange.key
        models = [
            self._model(name)
            for name in self._registry.public_models()
            if key is None or key.may_use(name)
        ]
        return json_response({"object": "list", "data": models})

    async def get(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /models/{id}: any name a request may ask for; ids may contain slashes."""
        name = request.match_info["id"]
        if exchange.key is not None:
            check_model(exchange.key, name)
        await self._registry.group(name)
        return json_response(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "switchyard"}
