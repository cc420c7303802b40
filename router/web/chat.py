"""Chat Completions, passed through."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from router.exchange import Exchange
from router.plugin import Proceed
from router.web.body import read_body
from router.web.front import Front
from router.wire.checks import missing, wrong_type
from router.wire.responses import parse_object

__all__ = ["ChatApi"]


class ChatApi:
    """Handlers under ``/v1/chat/completions``. ``answer`` is the chain and its core."""

    def __init__(self, front: Front, answer: Proceed) -> None:
        self._front = front
        self._answer = answer

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /chat/completions. What a field means is for the endpoint to judge."""
        body = parse_object(await read_body(request, self._front.max_body))
        _check(body)
        exchange.body = body
        exchange.model = body["model"]
        exchange.stream = bool(body.get("stream"))
        return await self._front.run(request, exchange, self._answer)


def _check(body: dict[str, Any]) -> None:
    """Check the fields that the router itself reads."""
    for name, kind, what in (
        ("model", str, "a string"),
        ("messages", list, "an array"),
        ("stream", bool, "a boolean"),
        ("stream_options", dict, "an object"),
    ):
        value = body.get(name)
        if value is None or (name == "model" and value == ""):
            if name in ("model", "messages"):
                raise missing(name)
        elif type(value) is not kind:
            raise wrong_type(name, what, value)
