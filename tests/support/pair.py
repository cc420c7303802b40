"""An endpoint that is preferred and plays scripts, alone or beside one that is well."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from router.settings.schema import Dialect
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Script, Upstream, whole

__all__ = ["by", "pair", "single"]

_PATIENT = {"connect": 10.0, "first_byte": 30.0, "idle": 30.0, "total": 30.0}


@contextlib.asynccontextmanager
async def pair(
    *scripts: Script,
    dialect: Dialect = "chat",
    fields: dict[str, Any] | None = None,
    **balance: Any,
) -> AsyncIterator[tuple[Router, Upstream, Upstream]]:
    """``one``, which plays the scripts and is preferred, and ``two``, which is well."""
    async with Upstream(*scripts) as one, Upstream(default=whole(SPEECH[dialect].whole)) as two:
        one.default = whole(SPEECH[dialect].whole)
        endpoints = [
            endpoint(one, dialect, "one", timeouts=_PATIENT, **(fields or {})),
            endpoint(two, dialect, "two", timeouts=_PATIENT, priority=2),
        ]
        async with routing(*endpoints, balance={"policy": "priority", **balance}) as router:
            yield router, one, two


@contextlib.asynccontextmanager
async def single(
    *scripts: Script, dialect: Dialect = "chat", **fields: Any
) -> AsyncIterator[tuple[Router, Upstream]]:
    """One endpoint, which plays the scripts and is then well."""
    good = whole(SPEECH[dialect].whole)
    async with (
        Upstream(*scripts, default=good) as upstream,
        routing(endpoint(upstream, dialect, **fields)) as router,
    ):
        yield router, upstream


def by(reply: Reply) -> str:
    """Who answered."""
    assert reply.status == 200, reply.body
    return reply.headers["X-Pointsman-Endpoint"]
