"""Anthropic's Messages API: messages, and counting their tokens."""

from __future__ import annotations

from aiohttp import web

from router.core.exchange import Exchange, Operation
from router.core.upstream import REASONING_DROPPED
from router.dialects.messages.decode_request import Translated, count_request, messages_request
from router.dialects.messages.encode_stream import CountTeller, MessagesTeller
from router.dialects.messages.schema import REQUEST_ID, anthropic_form
from router.dialects.responses.schema import parse_object
from router.http.front import Front, Handler
from router.http.telling import told_by

__all__ = ["MessagesApi"]


class MessagesApi:
    """Handlers under ``/v1/messages``."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> list[tuple[str, str, Operation, Handler]]:
        """Method, path, operation and handler of every route; each is let in by ``admit``."""
        return [
            ("POST", "/messages", Operation.MESSAGES, self.create),
            ("POST", "/messages/count_tokens", Operation.INPUT_TOKENS, self.count_tokens),
        ]

    async def admit(self, exchange: Exchange) -> None:
        """Ask the guards; whatever they say is said in the form of this API."""
        exchange.form = anthropic_form(exchange.id)
        exchange.notes[REQUEST_ID] = exchange.id
        await exchange.generation.chain.admit(exchange)

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /messages."""
        made = await self._front.read(
            request, exchange, lambda raw: messages_request(parse_object(raw))
        )
        _take(exchange, made)
        teller = MessagesTeller(made.show, exchange.id)
        return await self._front.run(request, exchange, told_by(teller))

    async def count_tokens(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /messages/count_tokens."""
        made = await self._front.read(
            request, exchange, lambda raw: count_request(parse_object(raw))
        )
        _take(exchange, made)
        return await self._front.run(request, exchange, told_by(CountTeller()))


def _take(exchange: Exchange, made: Translated) -> None:
    exchange.body = made.body
    exchange.model = made.body["model"]
    exchange.stream = bool(made.body.get("stream"))
    exchange.unsent = made.unsent
    if made.dropped:
        exchange.notes[REASONING_DROPPED] = str(made.dropped)
