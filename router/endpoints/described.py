"""What endpoints that speak Ollama's API tell of their models, for clients who ask.

The router itself does not need it, so it is asked for when somebody wants it, of every endpoint at
most once in a few seconds whoever asks, and never of one that is away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.core.upstream import LoadRequest
from router.endpoints.endpoint import Endpoint
from router.endpoints.registry import Registry
from router.errors import UpstreamError
from router.settings.model_names import LATEST

__all__ = ["Described", "speaks_ollama"]

_SECONDS: Final = 3.0
_FRESH_SECONDS: Final = 3.0
_MAX_MODELS: Final = 10_000

Models = Mapping[str, dict[str, Any]]
"""What is told of models, by their names without ``:latest``."""


def speaks_ollama(endpoint: Endpoint) -> bool:
    """Whether an endpoint can be asked in this API."""
    return endpoint.settings.dialect == "ollama"


class _Snapshot:
    """What an endpoint answered, and when."""

    __slots__ = ("at", "models", "turn")

    def __init__(self) -> None:
        self.at = -_FRESH_SECONDS
        self.models: Models = {}
        self.turn = asyncio.Lock()


class Described:
    """Asks the endpoints of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._asked: dict[tuple[Endpoint, str | None], _Snapshot] = {}

    async def models(self, endpoint: Endpoint) -> Models:
        """What there is, from ``/api/tags``: what it said before where it does not say now."""
        return await self._listed(endpoint, endpoint.adapter.models_path(), keeps=True)

    async def resident(self, endpoint: Endpoint) -> Models:
        """What is in memory, from ``/api/ps``; empty where it does not say."""
        return await self._listed(endpoint, endpoint.adapter.loaded_path(), keeps=False)

    async def show(self, endpoint: Endpoint, model: str, fields: Mapping[str, Any]) -> Any:
        """Everything about a model, from ``/api/show``; None where it does not say."""
        if not _may_be_asked(endpoint):
            return None
        request = LoadRequest("/api/show", orjson.dumps({**fields, "model": model}))
        try:
            status, body = await endpoint.transport.post(request, _SECONDS)
            told = orjson.loads(body) if status == 200 else None
        except (UpstreamError, orjson.JSONDecodeError):
            return None
        return told if isinstance(told, dict) else None

    def forget(self, endpoint: Endpoint) -> None:
        """It has other models now."""
        for key in [key for key in self._asked if key[0] is endpoint]:
            del self._asked[key]

    async def _listed(self, endpoint: Endpoint, path: str | None, *, keeps: bool) -> Models:
        if path is None or not _may_be_asked(endpoint):
            return {}
        for gone in {one for one, _ in self._asked} - set(self._registry.endpoints):
            self.forget(gone)
        asked = self._asked.setdefault((endpoint, path), _Snapshot())
        async with asked.turn:
            if time.monotonic() - asked.at >= _FRESH_SECONDS:
                told = await _ask(endpoint, path)
                if told is not None or not keeps:
                    asked.models = told or {}
                asked.at = time.monotonic()
        return asked.models


def _may_be_asked(endpoint: Endpoint) -> bool:
    return speaks_ollama(endpoint) and endpoint.host.up


async def _ask(endpoint: Endpoint, path: str) -> Models | None:
    """The models of a list, by name; None where there is no list to be had."""
    try:
        status, body = await endpoint.transport.get(path, _SECONDS)
        told = orjson.loads(body) if status == 200 else None
    except (UpstreamError, orjson.JSONDecodeError):
        return None
    models = told.get("models") if isinstance(told, dict) else None
    if not isinstance(models, list):
        return None
    return {
        name.removesuffix(LATEST): model
        for model in models[:_MAX_MODELS]
        if isinstance(model, dict)
        and isinstance(name := model.get("name") or model.get("model"), str)
    }
