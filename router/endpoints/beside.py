"""What would have answered beside an endpoint's URL: hints for the commonest slips.

A URL without its ``/v1``, or with one too many, and a wrong dialect all look alike: 404 for the
list of models, or a page for people. The lists of the other dialects, and of the URL with and
without ``/v1``, are asked for once, at the same origin only: the endpoint's key goes with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from router.endpoints.listing import Listing, list_models
from router.errors import UpstreamError
from router.settings.schema import EndpointSettings
from router.upstream.contract import Adapter, Transport

__all__ = ["HINT_SECONDS", "beside", "hint", "is_a_slip"]

Connect = Callable[[EndpointSettings], tuple[Adapter, Transport]]

HINT_SECONDS: Final = 2.0
"""What the search for a hint may take."""

_VERSION: Final = "/v1"
_NOT_THERE: Final = frozenset({404, 405})


def is_a_slip(listing: Listing) -> bool:
    """Whether a list of models failed as it does at a wrong URL, or in a wrong dialect."""
    return listing.error is not None and (listing.status == 200 or listing.status in _NOT_THERE)


def beside(url: str) -> str:
    """The same URL with ``/v1``, or without where it has that."""
    return url.removesuffix(_VERSION) if url.endswith(_VERSION) else url + _VERSION


async def hint(endpoint: EndpointSettings, connect: Connect, seconds: float = HINT_SECONDS) -> str:
    """What was tried beside an endpoint's URL, and what answered, within ``seconds`` in all."""
    others = list(_others(endpoint))
    found = await asyncio.gather(*(_answers(other, connect, seconds) for other in others))
    good = [
        f"{place} answers: set {_changes(endpoint, other)}"
        for other, (place, answers) in zip(others, found, strict=True)
        if answers
    ]
    if good:
        return "; or ".join(good)
    return f"nor does anything at {', '.join(place for place, _ in found)} list models"


def _others(endpoint: EndpointSettings) -> Iterator[EndpointSettings]:
    """The endpoint at the other URL, and in the other dialect at both."""
    dialect = "chat" if endpoint.dialect == "ollama" else "ollama"
    other = beside(endpoint.url)
    for update in (
        {"url": other},
        {"dialect": dialect},
        {"url": other, "dialect": dialect},
    ):
        yield endpoint.model_copy(update=update)


def _changes(endpoint: EndpointSettings, other: EndpointSettings) -> str:
    """What to write into the configuration."""
    changes = []
    if other.url != endpoint.url:
        changes.append(f"url: {other.url}")
    if other.dialect != endpoint.dialect:
        changes.append(f"dialect: {other.dialect}")
    return ", ".join(changes)


async def _answers(
    endpoint: EndpointSettings, connect: Connect, seconds: float
) -> tuple[str, bool]:
    """Where its models would be listed, and whether they are."""
    adapter, transport = connect(endpoint)
    place = endpoint.url + adapter.models_path()
    try:
        async with asyncio.timeout(seconds):
            listing = await list_models(adapter, transport, seconds)
        return place, listing.error is None
    except (TimeoutError, UpstreamError):
        return place, False
    finally:
        await transport.close()
