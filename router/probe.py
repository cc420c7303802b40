"""Asks one endpoint what it speaks and what it serves, for ``switchyard check``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import orjson

from router.endpoints.beside import HINT_SECONDS, beside, hint, is_a_slip
from router.endpoints.listing import Listing, list_models
from router.errors import UpstreamError, UpstreamModelMissing, UpstreamRejected
from router.settings.schema import EndpointSettings
from router.upstream.adapters import connect, make_adapter
from router.upstream.contract import UpstreamRequest
from router.upstream.http1 import HttpTransport

__all__ = ["ProbeResult", "probe"]

_PATHS: Final = {"responses": "/responses", "chat": "/chat/completions", "ollama": "/api/chat"}


_STREAM: Final = (
    "llama.cpp writes whole answers to their end although their clients have left; "
    "with stream_whole_answers: true it stops"
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What an endpoint answered.

    ``speaks`` are the dialects it was seen to take at this URL (empty when it does not let itself
    be asked), ``error`` why it cannot serve, ``latency`` in seconds that of its list of models.
    ``hint`` is what to change in its settings.
    """

    speaks: tuple[str, ...]
    models: tuple[str, ...]
    error: str | None
    latency: float
    hint: str = ""


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
        error = listing.error
        if error is not None and is_a_slip(listing):
            error = f"{error}; {await hint(endpoint, connect)}"
        said = ""
        if listing.answered and not speaks:
            said = await _spoken_beside(endpoint)
        elif _should_stream(endpoint, listing):
            said = _STREAM
        return ProbeResult(speaks, listing.names, error, listing.latency, said)
    finally:
        await transport.close()


def _should_stream(endpoint: EndpointSettings, listing: Listing) -> bool:
    """Whether it writes answers for clients that have left, and nobody has decided that it may."""
    if "stream_whole_answers" in endpoint.model_fields_set:
        return False
    return any(model.outlives_clients for model in listing.models)


async def _spoken_beside(endpoint: EndpointSettings) -> str:
    """Whether the dialect is spoken at the URL with, or without, its ``/v1``."""
    path = _PATHS[endpoint.dialect]
    url = beside(endpoint.url)
    transport = HttpTransport(endpoint.model_copy(update={"url": url}))
    try:
        async with asyncio.timeout(HINT_SECONDS):
            takes = await _takes(transport, path)
    except TimeoutError:
        takes = False
    finally:
        await transport.close()
    return f"{url}{path} answers: set url: {url}" if takes else ""


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
