"""Asks one endpoint what it speaks and what it serves, for ``pointsman check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from router.endpoints.beside import hint, is_a_slip, spoken, spoken_instead
from router.endpoints.listing import Listing, list_models
from router.settings.schema import EndpointSettings
from router.upstream.adapters import connect, make_adapter
from router.upstream.http1 import HttpTransport

__all__ = ["ProbeResult", "probe"]

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
        said = ""
        if listing.answered:
            speaks = await spoken(transport)
            said = await spoken_instead(endpoint, speaks, connect)
        error = listing.error
        if error is not None and is_a_slip(listing):
            error = f"{error}; {await hint(endpoint, connect)}"
        if not said and _should_stream(endpoint, listing):
            said = _STREAM
        return ProbeResult(speaks, listing.names, error, listing.latency, said)
    finally:
        await transport.close()


def _should_stream(endpoint: EndpointSettings, listing: Listing) -> bool:
    """Whether it writes answers for clients that have left, and nobody has decided that it may."""
    if "stream_whole_answers" in endpoint.model_fields_set:
        return False
    return any(model.outlives_clients for model in listing.models)
