"""Asks one endpoint what it speaks and what it serves, for ``switchyard check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from router.endpoints.listing import list_models
from router.errors import UpstreamError, UpstreamModelMissing, UpstreamRejected
from router.settings.schema import EndpointSettings
from router.upstream.adapters import make_adapter
from router.upstream.contract import UpstreamRequest
from router.upstream.http1 import HttpTransport

__all__ = ["ProbeResult", "probe"]

_PATHS: Final = {"responses": "/responses", "chat": "/chat/completions", "ollama": "/api/chat"}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What an endpoint answered.

    ``speaks`` are the dialects it was seen to take at this URL (empty when it does not let itself
    be asked), ``error`` why it cannot serve, ``latency`` in seconds that of its list of models.
    """

    speaks: tuple[str, ...]
    models: tuple[str, ...]
    error: str | None
    latency: float


async def probe(endpoint: EndpointSettings) -> ProbeResult:
    """List the endpoint's models and try its dialects, without generating a token."""
    transport = HttpTransport(endpoint)
    try:
        timeouts = endpoint.timeouts
        seconds = max(timeouts.connect, min(timeouts.first_byte, 10.0))
        listing = await list_models(make_adapter(endpoint), transport, seconds)
        speaks: tuple[str, ...] = ()
        if listing.answered:
            speaks = tuple([name for name in _PATHS if await _takes(transport, _PATHS[name])])
        return ProbeResult(speaks, listing.names, listing.error, listing.latency)
    finally:
        await transport.close()


async def _takes(transport: HttpTransport, path: str) -> bool:
    """Whether the path exists: an empty request is refused as such, not as unknown."""
    try:
        answer = await transport.send(UpstreamRequest(path, b"{}", stream=True))
        try:
            return not _is_error(await answer.body())
        finally:
            answer.close()
    except UpstreamRejected:
        return True
    except UpstreamModelMissing as error:
        # Some look for the model before anything else; an unknown path has no word for it.
        return "model" in error.message.lower() and "HTTP 404" not in error.message
    except UpstreamError:
        return False


def _is_error(body: bytes) -> bool:
    """Some answer an unknown path with status 200 and say in the body that it is none."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and bool(value.get("error"))
