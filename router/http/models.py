"""The list of models: everything that some endpoint serves, each once."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from router.core.exchange import Exchange
from router.core.key import check_model
from router.dialects.messages.models import model_info, models_page, parse_models_page
from router.dialects.messages.schema import anthropic_format
from router.endpoints.registry import Registry
from router.http.dispatcher import json_response

__all__ = ["ModelsApi"]


class ModelsApi:
    """Handlers under ``/v1/models``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._created = int(time.time())

    async def index(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /models: those that the caller's key may use."""
        key = exchange.context.key
        names = [
            name for name in self._registry.public_models() if key is None or key.may_use(name)
        ]
        if _is_anthropic(exchange):
            page = parse_models_page(request.query)
            return json_response(models_page(names, page, self._created))
        models = [self._model(name) for name in names]
        return json_response({"object": "list", "data": models})

    async def get(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /models/{id}: any name a request may ask for; ids may contain slashes."""
        anthropic = _is_anthropic(exchange)
        name = request.match_info["id"]
        if exchange.context.key is not None:
            check_model(exchange.context.key, name)
        await self._registry.group(name, exchange.context.key)
        return json_response(model_info(name, self._created) if anthropic else self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "pointsman"}


def _is_anthropic(exchange: Exchange) -> bool:
    """Whether one of Anthropic's clients asks: it wants another form, of errors too."""
    if "anthropic-version" not in exchange.request.headers:
        return False
    exchange.context.api_format = anthropic_format(exchange.request.id)
    return True
