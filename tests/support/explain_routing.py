"""Fleets whose choices are explained, and what the explanations say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from router.settings.schema import Dialect
from tests.support.admin import ADMIN
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole

__all__ = ["FUNCTION", "PARAMETERS", "PICTURE", "fleet", "left_out", "messages", "tried"]

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
PICTURE = [{"role": "user", "content": [{"type": "input_text", "text": "what?"}, IMAGE]}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
FUNCTION = {"type": "function", "name": "f", "parameters": PARAMETERS}


@asynccontextmanager
async def fleet(
    *endpoints: dict[str, Any], dialect: Dialect = "chat", **sections: Any
) -> AsyncIterator[tuple[Router, list[Upstream]]]:
    """A router before as many upstreams, ``e0`` and so on, each with these settings."""
    async with AsyncExitStack() as stack:
        upstreams = []
        settings = []
        for number, fields in enumerate(endpoints):
            spoken = fields.get("dialect", dialect)
            upstream = Upstream(default=whole(SPEECH[spoken].whole))
            upstreams.append(await stack.enter_async_context(upstream))
            settings.append({**endpoint(upstream, spoken, f"e{number}"), **fields})
        router = await stack.enter_async_context(routing(*settings, admin=ADMIN, **sections))
        yield router, upstreams


def left_out(explanation: dict[str, Any], plan: int = 0) -> dict[str, str | None]:
    """The code for each endpoint, None for those that are not left out."""
    return {
        candidate["endpoint"]: candidate["left_out"] and candidate["left_out"]["code"]
        for candidate in explanation["plans"][plan]["candidates"]
    }


def messages(explanation: dict[str, Any], plan: int = 0) -> list[str]:
    """What is said of those that are left out."""
    candidates = explanation["plans"][plan]["candidates"]
    return [one["left_out"]["message"] for one in candidates if one["left_out"]]


def tried(explanation: dict[str, Any], plan: int = 0) -> list[str]:
    """The endpoints that would be asked, in their order."""
    return [attempt["endpoint"] for attempt in explanation["plans"][plan]["attempts"]]
