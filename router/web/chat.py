"""Chat Completions, passed through."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from router.exchange import Exchange
from router.generations import proceed
from router.web.body import read_body
from router.web.front import Front
from router.wire.checks import missing, wrong_type
from router.wire.responses import parse_object

__all__ = ["ChatApi", "check_chat"]


class ChatApi:
    """Handlers under ``/v1/chat/completions``."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /chat/completions. What a field means is for the endpoint to judge."""
        body = parse_object(await read_body(request, self._front.max_body))
        check_chat(body)
        exchange.body = body
        exchange.model = body["model"]
        exchange.stream = bool(body.get("stream"))
        return await self._front.run(request, exchange, proceed)


def check_chat(body: dict[str, Any]) -> None:
    """Check the fields that the router itself reads; raises InvalidRequest."""
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
