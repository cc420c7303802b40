"""What models there are, as Ollama tells it, over the whole fleet."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiohttp import web

from router.balance.capability import Feature
from router.core.exchange import Exchange, Operation
from router.core.key import check_model
from router.dialects.ollama.decode_request import model_of
from router.dialects.ollama.schema import timestamp
from router.dialects.parameters import boolean
from router.dialects.responses.schema import parse_object
from router.endpoints.described import Described, speaks_ollama
from router.endpoints.endpoint import Endpoint
from router.endpoints.registry import Group, Registry
from router.errors import ModelNotFound
from router.http.body import read_body
from router.http.dispatcher import Admit, Handler, RequestDispatcher, json_response
from router.settings.model_names import LATEST

__all__ = ["LEVEL", "OllamaModels", "heartbeat"]

LEVEL: Final = "0.12.11"
"""The version that is told: of the newest Ollama whose requests are understood here, which is the
one that brought ``logprobs``. Clients ask for it to learn what they may send.
"""

_MAX_BODY: Final = 64 * 1024
_BILLION: Final = 1_000_000_000
_FOREVER: Final = 100 * 365 * 86_400
_DETAILS: Final[Mapping[str, Any]] = {
    "parent_model": "",
    "format": "",
    "family": "",
    "families": [],
    "parameter_size": "",
    "quantization_level": "",
}
_FEATURES: Final = (
    (Feature.TOOLS, "tools"),
    (Feature.VISION, "vision"),
    (Feature.REASONING, "thinking"),
)
_UNLESS_LACKING: Final = Feature.TOOLS
"""Taken for granted until a refusal teaches otherwise. Clients show images, and ask for reasoning,
as soon as they are told that a model can: that has to be configured.
"""

_EMBEDS: Final = "embed"
"""What is in the name of every model for embeddings, or nearly so; nothing else tells."""


class OllamaModels:
    """Handlers under ``/api`` that tell about models. ``version`` is the router's own."""

    def __init__(
        self, dispatcher: RequestDispatcher, registry: Registry, described: Described, version: str
    ) -> None:
        self._dispatcher = dispatcher
        self._registry = registry
        self._described = described
        self._version = version
        self._since = time.time_ns()

    def routes(self) -> list[tuple[str, str, Operation, Handler, Admit | None]]:
        """See ``router.http.ollama.Route``."""
        operation = Operation.OLLAMA
        return [
            ("GET", "/tags", operation, self.tags, None),
            ("GET", "/ps", operation, self.ps, None),
            ("POST", "/show", operation, self.show, None),
            ("GET", "/version", operation, self.version, None),
        ]

    async def version(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /api/version."""
        response = json_response({"version": LEVEL})
        response.headers["X-Pointsman-Version"] = self._version
        return response

    async def tags(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /api/tags: the models that the caller's key may use, each once."""
        endpoints = self._reachable(exchange)
        told = await asyncio.gather(*(self._described.models(one) for one in endpoints))
        found: dict[str, Mapping[str, Any]] = {}
        for endpoint, known in zip(endpoints, told, strict=True):
            for name in endpoint.catalogue.public_names():
                if exchange.context.key is None or exchange.context.key.may_use(name):
                    own = endpoint.catalogue.resolve(name) or name
                    found[name] = found.get(name) or known.get(_short(own), {})
        models = [self._tag(name, known) for name, known in found.items()]
        return json_response({"models": models})

    async def ps(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /api/ps: what is in memory, once for each endpoint where it is."""
        endpoints = self._reachable(exchange)
        told = await asyncio.gather(*(self._described.resident(one) for one in endpoints))
        models = []
        for endpoint, known in zip(endpoints, told, strict=True):
            for name in _resident(endpoint, known):
                if exchange.context.key is not None and not exchange.context.key.may_use(name):
                    continue
                own = endpoint.catalogue.resolve(name) or name
                models.append(self._running(name, own, endpoint, known.get(_short(own), {})))
        return json_response({"models": models})

    async def show(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /api/show: asked of an endpoint that tells, else what the router knows."""
        body = parse_object(await read_body(request, _MAX_BODY))
        name = model_of(body)
        if (verbose := body.get("verbose")) is not None:
            boolean(verbose, "verbose")
        if exchange.context.key is not None:
            check_model(exchange.context.key, name)
        group = await self._registry.group(name, exchange.context.key)
        endpoints = self._reachable(exchange)
        fields = {"verbose": True} if verbose else {}
        for deployment in group.deployments:
            if deployment.endpoint in endpoints and speaks_ollama(deployment.endpoint):
                told = await self._described.show(deployment.endpoint, deployment.model, fields)
                if told is not None:
                    return json_response(told)
        if not any(deployment.endpoint in endpoints for deployment in group.deployments):
            raise ModelNotFound(f"model '{name[:200]}' not found", param="model")
        return json_response(self._shown(name, group))

    def _reachable(self, exchange: Exchange) -> list[Endpoint]:
        key = exchange.context.key
        return [e for e in self._registry.endpoints if key is None or key.may_reach(e.name)]

    def _tag(self, name: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """A model as a list has it; clients cut the digest, so there always is one."""
        digest = told.get("digest")
        size, details = told.get("size"), told.get("details")
        modified = told.get("modified_at")
        return {
            "name": name,
            "model": name,
            "modified_at": modified if isinstance(modified, str) else timestamp(self._since),
            "size": size if type(size) is int else 0,
            "digest": digest if isinstance(digest, str) and digest else _digest(name),
            "details": {**_DETAILS, **(details if isinstance(details, dict) else {})},
        }

    def _running(
        self, name: str, own: str, endpoint: Endpoint, told: Mapping[str, Any]
    ) -> dict[str, Any]:
        tag = self._tag(name, told)
        del tag["modified_at"]
        expires, vram = told.get("expires_at"), told.get("size_vram")
        context = told.get("context_length")
        if type(context) is not int:
            context = endpoint.deployment(own).context or 0
        forever = timestamp(self._since + _FOREVER * _BILLION)
        return {
            **tag,
            "expires_at": expires if isinstance(expires, str) else forever,
            "size_vram": vram if type(vram) is int else 0,
            "context_length": context,
            "endpoint": endpoint.name,
        }

    def _shown(self, name: str, group: Group) -> dict[str, Any]:
        """What the router itself knows of a model."""
        contexts = [
            deployment.context for deployment in group.deployments if deployment.context is not None
        ]
        info: dict[str, Any] = {"general.architecture": "unknown", "general.basename": name}
        if contexts:
            info["unknown.context_length"] = max(contexts)
        return {
            "license": "",
            "modelfile": "",
            "parameters": "",
            "template": "",
            "details": dict(_DETAILS),
            "model_info": info,
            "capabilities": _capabilities(name, group),
            "modified_at": timestamp(self._since),
        }


async def heartbeat(request: web.Request) -> web.Response:
    """GET and HEAD /: somebody is there, which is what the ``ollama`` command asks before all."""
    return web.Response(text="Pointsman is running")


def _capabilities(name: str, group: Group) -> list[str]:
    if _EMBEDS in name.lower():
        return ["embedding"]
    able = ["completion"]
    for feature, told in _FEATURES:
        for deployment in group.deployments:
            has = deployment.endpoint.abilities(deployment.model).has & feature
            if not deployment.lacks & feature and (has or feature & _UNLESS_LACKING):
                able.append(told)
                break
    return able


def _resident(endpoint: Endpoint, told: Mapping[str, Any]) -> Iterable[str]:
    """The names that clients have for what is in an endpoint's memory, aliases among them.

    Where the endpoint is not asked here, it is what its list of models said the last time.
    """
    catalogue = endpoint.catalogue
    for name in catalogue.public_names():
        own = catalogue.resolve(name)
        if own is None:
            continue
        short = _short(own)
        resident = short in told if speaks_ollama(endpoint) else catalogue.in_memory(own) is True
        if resident:
            yield name


def _short(name: str) -> str:
    return name.removesuffix(LATEST)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
