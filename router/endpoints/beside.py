"""What would have answered beside an endpoint's URL: hints for the commonest slips.

A URL without its ``/v1``, or with one too many, and a wrong dialect all look alike: 404 for the
list of models, or a page for people. The lists of the other dialects, and of the URL with and
without ``/v1``, are asked for once, at the same origin only: the endpoint's key goes with them.

Some servers list their models in both places, and answer requests in one: where the list is well
and requests meet 404, the paths of requests are tried, with a body that asks for no token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Final

import orjson

from router.core.upstream import Adapter, Transport, UpstreamRequest
from router.endpoints.listing import Listing, list_models
from router.errors import UpstreamError, UpstreamModelMissing, UpstreamRejected
from router.settings.schema import Dialect, EndpointSettings

__all__ = [
    "HINT_SECONDS",
    "beside",
    "hint",
    "is_a_slip",
    "request_hint",
    "spoken",
    "spoken_instead",
]

Connect = Callable[[EndpointSettings], tuple[Adapter, Transport]]

HINT_SECONDS: Final = 2.0
"""What the search for a hint may take."""

_VERSION: Final = "/v1"
_NOT_THERE: Final = frozenset({404, 405})
_PATHS: Final[dict[Dialect, str]] = {
    "responses": "/responses",
    "chat": "/chat/completions",
    "ollama": "/api/chat",
    "messages": "/messages",
}


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


async def request_hint(
    endpoint: EndpointSettings, connect: Connect, seconds: float = HINT_SECONDS
) -> str:
    """What to set where requests meet 404 although the models are listed, as for
    ``spoken_instead``; each of its two steps may take ``seconds``.
    """
    _, transport = connect(endpoint)
    try:
        async with asyncio.timeout(seconds):
            speaks = await spoken(transport)
    except TimeoutError:
        return ""
    finally:
        await transport.close()
    return await spoken_instead(endpoint, speaks, connect, seconds)


async def spoken(transport: Transport) -> tuple[Dialect, ...]:
    """The dialects in which the endpoint takes requests at its URL; no token is generated."""
    return tuple([name for name, path in _PATHS.items() if await _takes(transport, path)])


async def spoken_instead(
    endpoint: EndpointSettings,
    speaks: Collection[Dialect],
    connect: Connect,
    seconds: float = HINT_SECONDS,
) -> str:
    """What to set so that requests are taken: the dialects ``speaks`` of the endpoint's URL, or
    that with, or without, its ``/v1``, if it takes the endpoint's dialect.

    Empty where the endpoint speaks its dialect, and where nothing would help.
    """
    if endpoint.dialect in speaks:
        return ""
    others = [endpoint.model_copy(update={"dialect": name}) for name in speaks]
    moved = endpoint.model_copy(update={"url": beside(endpoint.url)})
    if await _takes_requests(moved, connect, seconds):
        others.insert(0, moved)
    return "; or ".join(
        f"{other.url}{_PATHS[other.dialect]} answers: set {_changes(endpoint, other)}"
        for other in others
    )


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


async def _takes_requests(endpoint: EndpointSettings, connect: Connect, seconds: float) -> bool:
    """Whether requests are taken at its URL in its dialect, and that is known in ``seconds``."""
    _, transport = connect(endpoint)
    try:
        async with asyncio.timeout(seconds):
            path = _PATHS.get(endpoint.dialect)
            return path is not None and await _takes(transport, path)
    except TimeoutError:
        return False
    finally:
        await transport.close()


async def _takes(transport: Transport, path: str) -> bool:
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
