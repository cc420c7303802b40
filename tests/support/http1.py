"""A transport to a scripted upstream, and what its tests ask again and again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from router.core.upstream import UpstreamRequest
from router.settings.schema import EndpointSettings
from router.upstream.answer import HttpAnswer
from router.upstream.http1 import HttpTransport
from tests.support.upstream import Script, Upstream, Wire

__all__ = [
    "KEY",
    "bytes_of",
    "endpoint_at",
    "everything",
    "post",
    "soon",
    "transport_to",
]

KEY = "sk-not-to-be-seen"


def endpoint_at(url: str, **settings: Any) -> EndpointSettings:
    """An endpoint with short names and a key."""
    return EndpointSettings.model_validate(
        {"name": "box", "url": url, "dialect": "chat", "api_key": KEY, **settings}
    )


@contextlib.asynccontextmanager
async def transport_to(upstream: Upstream | str, **settings: Any) -> AsyncIterator[HttpTransport]:
    """A transport that is closed in the end, after which no task may be left."""
    url = upstream if isinstance(upstream, str) else upstream.address
    transport = HttpTransport(endpoint_at(url, **settings))
    try:
        yield transport
    finally:
        await transport.close()


def post(body: bytes = b"{}", *, stream: bool = True) -> UpstreamRequest:
    """A request."""
    return UpstreamRequest("/chat/completions", body, stream)


async def everything(answer: HttpAnswer) -> bytes:
    """The content, read piece by piece, and the answer closed."""
    pieces = []
    try:
        while piece := await answer.read():
            pieces.append(piece)
    finally:
        answer.close()
    return b"".join(pieces)


def bytes_of(*pieces: bytes, pause: float = 0.0) -> Script:
    """These very bytes, each read by the other side before the next is written."""

    async def script(wire: Wire) -> None:
        for piece in pieces:
            wire.raw(piece)
            # Both ends live on one loop: after some turns of it the bytes have been read.
            for _ in range(4):
                await asyncio.sleep(pause)

    return script


async def soon(wire: Wire) -> None:
    """Wait until the upstream has noticed that the connection is gone."""
    async with asyncio.timeout(60):
        await wire.gone.wait()
