"""Having one endpoint change its models: pull, push, create, copy, delete, as Ollama has them.

An endpoint's answer is its progress, line by line, and how it ended. Nothing else is made of it
here: whoever asks several of them puts their answers together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from router.core.upstream import Deadlines, UpstreamRequest
from router.dialects.ndjson import NDJSONDecoder
from router.endpoints.endpoint import Endpoint
from router.errors import UpstreamFailure
from router.response.frame import EventTooLarge

__all__ = ["Progress", "change", "follow"]

_QUICK: Final = Deadlines(60.0, 60.0, 120.0)
_LONG: Final = Deadlines(120.0, 900.0, 24 * 3600.0)
"""Ollama is silent for minutes while it checks what it has fetched."""

_SHOWN: Final = 500

Progress = Callable[[dict[str, Any]], Awaitable[None]]
"""Takes a line; what it raises ends the request."""


async def change(endpoint: Endpoint, method: str, path: str, body: dict[str, Any]) -> None:
    """Have it copied or deleted; raises UpstreamError: UpstreamModelMissing where there is none."""
    request = UpstreamRequest(path, orjson.dumps(body), False, method=method, patience=_QUICK)
    answer = await endpoint.transport.send(request)
    try:
        await answer.body()
    finally:
        answer.close()


async def follow(endpoint: Endpoint, path: str, body: dict[str, Any], progress: Progress) -> None:
    """Have it pulled, pushed or created, and each line told; raises UpstreamError where it failed.

    ``success`` is not told: it is when this returns.
    """
    request = UpstreamRequest(path, orjson.dumps({**body, "stream": True}), True, patience=_LONG)
    answer = await endpoint.transport.send(request)
    decoder = NDJSONDecoder()
    done = False
    try:
        while data := await answer.read():
            for line in decoder.decode(data):
                done = await _take(endpoint, line, progress) or done
        for line in decoder.flush():
            done = await _take(endpoint, line, progress) or done
    except EventTooLarge as exc:
        raise UpstreamFailure(f"Endpoint '{endpoint.name}' sent progress that is {exc}.") from exc
    finally:
        answer.close()
    if not done:
        raise UpstreamFailure(f"Endpoint '{endpoint.name}' ended before it was done.")


async def _take(endpoint: Endpoint, data: bytes, progress: Progress) -> bool:
    """Tell one line; whether it says that all is done."""
    try:
        line = orjson.loads(data)
    except orjson.JSONDecodeError:
        line = None
    if not isinstance(line, dict):
        raise UpstreamFailure(f"Endpoint '{endpoint.name}' sent progress that is no JSON object.")
    if error := line.get("error"):
        said = error if isinstance(error, str) else orjson.dumps(error).decode()
        raise UpstreamFailure.quoting(endpoint.redacted(said)[:_SHOWN])
    if line.get("status") == "success":
        return True
    await progress(line)
    return False
