"""The list of models: everything that some endpoint serves, each once.

Codex reads a list of its own, under ``models``, which it asks for by ``client_version``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, Final

from aiohttp import hdrs, web

from router.core.exchange import Exchange
from router.core.key import check_model
from router.dialects.messages.models import model_info, models_page, parse_models_page
from router.dialects.messages.schema import anthropic_format
from router.dialects.responses.codex_models import codex_model
from router.endpoints.registry import Registry
from router.http.dispatcher import json_response

__all__ = ["ModelsApi"]


_MOST_FOR_CODEX: Final = 500
"""Models; each has several kilobytes, and Codex waits for five seconds."""


class ModelsApi:
    """Handlers under ``/v1/models``; ``default_model`` is that of requests that name none."""

    def __init__(self, registry: Registry, default_model: Callable[[Exchange], str | None]) -> None:
        self._registry = registry
        self._default_model = default_model
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
        listing: dict[str, Any] = {"object": "list", "data": [self._model(name) for name in names]}
        if "client_version" not in request.query:
            return json_response(listing)
        response = json_response({**listing, "models": self._for_codex(names, exchange)})
        assert isinstance(response.body, bytes)
        response.headers[hdrs.ETAG] = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
        return response

    async def get(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /models/{id}: any name a request may ask for; ids may contain slashes."""
        anthropic = _is_anthropic(exchange)
        name = request.match_info["id"]
        if exchange.context.key is not None:
            check_model(exchange.context.key, name)
        await self._registry.group(name, exchange.context.key)
        return json_response(model_info(name, self._created) if anthropic else self._model(name))

    def _for_codex(self, names: list[str], exchange: Exchange) -> list[dict[str, Any]]:
        """The models as Codex reads them. Without a model in its configuration it takes the first:
        the default model.
        """
        default = self._default_model(exchange)
        key = exchange.context.key
        ordered = sorted(names, key=lambda name: name != default)[:_MOST_FOR_CODEX]
        return [
            codex_model(name, place, self._registry.abilities(name, key))
            for place, name in enumerate(ordered)
        ]

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "pointsman"}


def _is_anthropic(exchange: Exchange) -> bool:
    """Whether one of Anthropic's clients asks: it wants another form, of errors too."""
    if "anthropic-version" not in exchange.request.headers:
        return False
    exchange.context.api_format = anthropic_format(exchange.request.id)
    return True
