"""Anthropic's Messages API: messages, and counting their tokens."""

from __future__ import annotations

from aiohttp import web

from router.core.exchange import Exchange, Operation
from router.core.upstream import REASONING_DROPPED
from router.dialects.messages.decode_request import (
    DecodedMessagesRequest,
    decode_count_request,
    decode_messages_request,
)
from router.dialects.messages.encode_stream import MessagesEncoder, TokenCountEncoder
from router.dialects.messages.schema import REQUEST_ID, anthropic_format
from router.dialects.responses.schema import parse_object
from router.http.dispatcher import Handler, RequestDispatcher
from router.http.encoding import encoded_by

__all__ = ["MessagesApi"]


class MessagesApi:
    """Handlers under ``/v1/messages``."""

    def __init__(self, dispatcher: RequestDispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self) -> list[tuple[str, str, Operation, Handler]]:
        """Method, path, operation and handler of every route; each is let in by ``admit``."""
        return [
            ("POST", "/messages", Operation.MESSAGES, self.create),
            ("POST", "/messages/count_tokens", Operation.INPUT_TOKENS, self.count_tokens),
        ]

    async def admit(self, exchange: Exchange) -> None:
        """Ask the guards; whatever they say is said in the form of this API."""
        exchange.api_format = anthropic_format(exchange.id)
        exchange.response_headers[REQUEST_ID] = exchange.id
        await exchange.plugin_set.chain.admit(exchange)

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /messages."""
        made = await self._dispatcher.read(
            request, exchange, lambda raw: decode_messages_request(parse_object(raw))
        )
        _take(exchange, made)
        encoder = MessagesEncoder(made.show, exchange.id)
        return await self._dispatcher.run(request, exchange, encoded_by(encoder))

    async def count_tokens(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /messages/count_tokens."""
        made = await self._dispatcher.read(
            request, exchange, lambda raw: decode_count_request(parse_object(raw))
        )
        _take(exchange, made)
        return await self._dispatcher.run(request, exchange, encoded_by(TokenCountEncoder()))


def _take(exchange: Exchange, made: DecodedMessagesRequest) -> None:
    exchange.body = made.body
    exchange.model = made.body["model"]
    exchange.stream = bool(made.body.get("stream"))
    exchange.dropped = made.dropped
    if made.dropped_thinking:
        exchange.response_headers[REASONING_DROPPED] = str(made.dropped_thinking)
