"""Chat Completions, passed through."""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp import web

from router.core.exchange import Exchange
from router.core.known_requests import recalled
from router.core.plugin_sets import proceed
from router.dialects.chat.schema import check_chat
from router.dialects.responses.schema import parse_object
from router.http.body import without_misspelt
from router.http.connection import HttpRequest
from router.http.dispatcher import RequestDispatcher

__all__ = ["ChatApi"]


class ChatApi:
    """Handlers under ``/v1/chat/completions``."""

    def __init__(self, dispatcher: RequestDispatcher) -> None:
        self._dispatcher = dispatcher

    async def create(self, request: HttpRequest, exchange: Exchange) -> web.StreamResponse:
        """POST /chat/completions. What a field means is for the endpoint to judge."""
        decode = partial(recalled, exchange, partial(self._decoded, exchange))
        body = await self._dispatcher.read(request, exchange, decode)
        known = exchange.known
        if known is not None and known.body is not None:
            exchange.ask(body, known.dropped)
        else:
            exchange.ask(*without_misspelt(body))
        exchange.context.truncates_chat = self._dispatcher.truncates_chat
        return await self._dispatcher.run(request, exchange, proceed)

    def _decoded(self, exchange: Exchange, raw: bytes) -> dict[str, Any]:
        body = parse_object(raw)
        if not body.get("model"):
            exchange.known = None  # there is more to it than its bytes
            body["model"] = self._dispatcher.default_model(exchange)
        check_chat(body)
        return body
