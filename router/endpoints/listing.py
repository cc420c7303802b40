"""Asking an endpoint what it serves, and what of that is in its memory."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

import orjson

from router.core.upstream import Adapter, Listed, Transport
from router.errors import NoFileDescriptors, UpstreamError, UpstreamFailure, UpstreamTimeout
from router.response.upstream_errors import reported, says_loading

__all__ = ["Listing", "is_loading", "list_models", "list_resident"]

_KEY_REFUSED: Final = frozenset({401, 403})
_UNAVAILABLE: Final = 503
_MAX_MODELS: Final = 10_000
_MAX_NAME: Final = 256


@dataclass(frozen=True, slots=True)
class Listing:
    """What an endpoint said: its models, or why there are none. ``latency`` is in seconds.

    ``answered``: it is up and takes the router's key, whether it lists models or not. ``status`` is
    the HTTP status of the answer, None where none came; ``late``: none came in time. ``loading``:
    it says that it is still bringing its model into memory. ``unasked``: the router had no file
    descriptor to ask with, which says nothing of the endpoint.
    """

    models: tuple[Listed, ...]
    error: str | None
    answered: bool
    latency: float
    status: int | None = None
    late: bool = False
    loading: bool = False
    unasked: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What the models are called."""
        return tuple(model.name for model in self.models)


async def list_models(adapter: Adapter, transport: Transport, timeout: float) -> Listing:
    """Ask one endpoint for its models; errors are in the result."""
    began = time.monotonic()
    models: tuple[Listed, ...] = ()
    error: str | None = None
    answered = late = loading = unasked = False
    status: int | None = None
    try:
        status, body = await transport.get(adapter.models_path(), timeout)
        # A redirect is no answer: requests are not sent after it.
        answered = (status < 300 or 400 <= status < 500) and status not in _KEY_REFUSED
        if status == 200:
            models = _usable(adapter.models(orjson.loads(body)))
            models = await _with_context(models, adapter, transport, timeout)
        elif status in _KEY_REFUSED:
            error = f"HTTP {status} for {adapter.models_path()}: it refuses the api_key"
        elif is_loading(status, body):
            answered = loading = True
            error = "it is still loading its model"
        else:
            error = f"HTTP {status} for {adapter.models_path()}"
    except orjson.JSONDecodeError:
        error = f"{adapter.models_path()} is not JSON"
    except UpstreamFailure as exc:
        error = exc.message
    except UpstreamError as exc:
        answered, error = False, exc.message
        late, unasked = isinstance(exc, UpstreamTimeout), isinstance(exc, NoFileDescriptors)
    latency = time.monotonic() - began
    return Listing(models, error, answered, latency, status, late, loading, unasked)


def is_loading(status: int, body: bytes) -> bool:
    """Whether an answer says that the endpoint is still bringing its model into memory."""
    if status != _UNAVAILABLE:
        return False
    try:
        return says_loading(reported(orjson.loads(body), status))
    except orjson.JSONDecodeError:
        return False


async def _with_context(
    models: tuple[Listed, ...], adapter: Adapter, transport: Transport, timeout: float
) -> tuple[Listed, ...]:
    """The models with the context that the endpoint tells beside its list, where it does."""
    path = adapter.context_path()
    if path is None:
        return models
    try:
        status, body = await transport.get(path, timeout, unversioned=True)
        context = adapter.context(orjson.loads(body)) if status == 200 else None
    except (orjson.JSONDecodeError, UpstreamError):
        return models  # it is not needed for anything else
    return tuple([replace(model, context_length=context) for model in models])


async def list_resident(adapter: Adapter, transport: Transport, timeout: float) -> list[str] | None:
    """Ask one endpoint what is in memory, where it tells that beside its list of models.

    None where it does not, or not this time: that leaves everything as it was known.
    """
    path = adapter.loaded_path()
    if path is None:
        return None
    try:
        status, body = await transport.get(path, timeout)
        return adapter.loaded(orjson.loads(body))[:_MAX_MODELS] if status == 200 else None
    except (orjson.JSONDecodeError, UpstreamError):
        return None


def _usable(models: list[Listed]) -> tuple[Listed, ...]:
    """What of a list of models can be asked for by name; its length is bounded."""
    usable = [model for model in models if 0 < len(model.name) <= _MAX_NAME]
    return tuple(usable[:_MAX_MODELS])
