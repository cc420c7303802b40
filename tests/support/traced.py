"""A router whose traces are on, and what asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson

from tests.support.router import Router, routing

__all__ = ["PROMPT", "ask", "traced"]

PROMPT: Final = "tell me a secret"


@asynccontextmanager
async def traced(*endpoints: dict[str, Any], **sections: Any) -> AsyncIterator[Router]:
    """A router with tracing on, whose spans are all out when the context is left."""
    sections["tracing"] = {"enabled": True, **sections.get("tracing", {})}
    async with routing(*endpoints, **sections) as router:
        yield router


async def ask(router: Router, headers: Mapping[str, str] | None = None, **fields: Any) -> int:
    """The status of a request with ``PROMPT``."""
    body = {"model": "m", "input": PROMPT, **fields}
    url = router.url + "/v1/responses"
    async with router.http.post(url, data=orjson.dumps(body), headers=headers) as response:
        await response.read()
        return response.status
