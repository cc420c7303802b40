"""A router with a cache, in front of one scripted endpoint."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from router.settings.schema import Dialect
from tests.support.dialects import dialect, speech
from tests.support.router import Router, endpoint, routing
from tests.support.speech import Speech
from tests.support.upstream import Upstream, streamed, whole

__all__ = ["ALWAYS", "caching", "dialect", "speech", "streams", "wholes"]

ALWAYS = {"mode": "always"}


@contextlib.asynccontextmanager
async def caching(
    upstream: Upstream, dialect: Dialect = "responses", **sections: Any
) -> AsyncIterator[Router]:
    """A router that always uses its cache, unless the sections say otherwise."""
    sections = {"cache": ALWAYS, **sections}
    async with routing(endpoint(upstream, dialect), **sections) as router:
        yield router


def streams(speech: Speech) -> Upstream:
    """An upstream that answers every request with the same stream."""
    return Upstream(default=streamed(*speech.pieces, kind=speech.kind))


def wholes(speech: Speech) -> Upstream:
    """An upstream that answers every request with the same body."""
    return Upstream(default=whole(speech.whole))
