"""Asking an endpoint to bring a model into memory: the conversation, and how it can end."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from router.core.upstream import LoadRequest
from router.endpoints.deployment import Deployment
from router.endpoints.listing import is_loading, list_models
from router.errors import UpstreamTimeout

__all__ = ["CannotBeAsked", "LoadFailed", "LoadRefused", "load", "wait_until_ready"]

_POLL_SECONDS: Final = 0.5
_HEALTH: Final = "/health"
_NO_SUCH_ROUTE: Final = frozenset({404, 405, 501})
_NOT_THE_REQUEST: Final = frozenset({401, 403, 408, 429})
_REFUSED: Final = 400
_NOT_GENERATING: Final = re.compile(rb"does not support (?:generat|complet)", re.IGNORECASE)
_OF_THE_MODEL: Final = re.compile(rb"\bmodel\b", re.IGNORECASE)
_SHOWN: Final = 300


class LoadRefused(Exception):
    """The endpoint does not want to load this model, in its own words."""


class CannotBeAsked(Exception):
    """The endpoint does not know such requests."""


class LoadFailed(Exception):
    """The endpoint tried, and could not. ``words`` are its own, for the log."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(reason)
        self.words = words


async def load(deployment: Deployment, request: LoadRequest, timeout: float) -> float | None:
    """Have it loaded, or unloaded; what that took in seconds, where the endpoint tells.

    The caller bounds the time; ``timeout`` seconds is what the first answer may take. Raises
    Refused, CannotBeAsked, Failed, and UpstreamError where there is no answer.
    """
    endpoint = deployment.endpoint
    adapter = endpoint.adapter
    status, body = await endpoint.transport.post(request, timeout)
    if status == _REFUSED and request.instead is not None and _NOT_GENERATING.search(body):
        status, body = await endpoint.transport.post(request.instead, timeout)
    if status == 200:
        if request.at_once and not request.unloads:
            await _wait_until_loaded(deployment, None)
        return adapter.load_seconds(body)
    if status in _NO_SUCH_ROUTE and not _OF_THE_MODEL.search(body):
        raise CannotBeAsked(f"HTTP {status} for {request.path}")
    words = endpoint.redacted(f"HTTP {status}: {body[:_SHOWN].decode(errors='replace')}")
    if not 400 <= status < 500 or status in _NOT_THE_REQUEST:
        raise LoadFailed(f"HTTP {status}", words)
    if request.unloads:
        raise LoadRefused(words)
    # What is being loaded already may be refused for that.
    await _wait_until_loaded(deployment, words)
    return None


async def _wait_until_loaded(deployment: Deployment, refusal: str | None) -> None:
    """Wait until the endpoint lists the model as loaded.

    Raises Failed when it is not on its way there, or Refused where there was a ``refusal``.
    """
    endpoint = deployment.endpoint
    while True:
        seconds = endpoint.settings.timeouts.first_byte
        listing = await list_models(endpoint.adapter, endpoint.transport, seconds)
        listed = next((model for model in listing.models if model.name == deployment.model), None)
        if listed is not None and listed.loaded:
            return
        if listing.error is None and (listed is None or not listed.loading):
            if refusal is not None:
                raise LoadRefused(refusal)
            reason = "it began to, and did not go on"
            raise LoadFailed(reason, reason)
        await asyncio.sleep(_POLL_SECONDS)


async def wait_until_ready(deployment: Deployment) -> None:
    """Wait until the endpoint no longer says that it is loading its model, of its own accord.

    The caller bounds the time. Raises UpstreamError where it is gone.
    """
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        if not await _says_loading(deployment):
            return


async def _says_loading(deployment: Deployment) -> bool:
    """What ``/health`` says, as llama.cpp has it, and where that says nothing of it the list."""
    endpoint = deployment.endpoint
    seconds = endpoint.settings.timeouts.first_byte
    transport = endpoint.transport
    try:
        if is_loading(*await transport.get(_HEALTH, seconds, unversioned=True)):
            return True
        return is_loading(*await transport.get(endpoint.adapter.models_path(), seconds))
    except UpstreamTimeout:
        return True  # it may be too busy loading to answer
