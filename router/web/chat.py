"""Chat Completions, passed through."""

from __future__ import annotations

from aiohttp import web

from router.exchange import Exchange
from router.generations import proceed
from router.web.body import read_body
from router.web.front import Front
from router.wire.chat import check_chat
from router.wire.responses import parse_object

__all__ = ["ChatApi"]


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
