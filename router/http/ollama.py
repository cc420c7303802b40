"""Ollama's own API in front of every dialect: what models write, and embeddings.

A request goes its way as one of the Responses API (or of embeddings), so that everything that
holds for those holds for it; its answer is told as Ollama would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from router.core.exchange import Exchange, Operation
from router.dialects.embeddings.schema import check_embeddings
from router.dialects.ollama.decode_request import (
    DecodedRequest,
    decode_chat_request,
    decode_generate_request,
    is_empty,
)
from router.dialects.ollama.embeddings import OllamaEmbedEncoder, embed_request, embeddings_request
from router.dialects.ollama.encode_stream import OllamaEncoder
from router.dialects.responses.schema import parse_object, validate_create
from router.errors import AuthenticationFailed
from router.http.dispatcher import Admit, Handler, RequestDispatcher
from router.http.ollama_moves import OllamaMoves
from router.http.translated import ExchangeTimes, encoded_by

__all__ = ["OllamaApi", "Route"]

Route = tuple[str, str, Operation, Handler, Admit | None]
"""Method, path, operation, handler, and who lets it in where that is not the guards."""


class OllamaApi:
    """Handlers under ``/api`` that make an exchange with an endpoint."""

    def __init__(self, dispatcher: RequestDispatcher, moves: OllamaMoves) -> None:
        self._dispatcher = dispatcher
        self._moves = moves

    def routes(self) -> list[Route]:
        """See ``Route``."""
        admit = self._moves.admit
        embed = Operation.OLLAMA_EMBED
        return [
            ("POST", "/chat", Operation.OLLAMA_CHAT, self.chat, admit),
            ("POST", "/generate", Operation.OLLAMA_GENERATE, self.generate, admit),
            ("POST", "/embed", embed, self.embed, None),
            ("POST", "/embeddings", embed, self.embeddings, None),
        ]

    async def chat(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /api/chat. Without messages the model is loaded, or unloaded."""
        body = await self._dispatcher.read(request, exchange, parse_object)
        if is_empty(body, "messages"):
            return await self._moves.move(request, exchange, body, chat=True)
        self._check_caller(exchange)
        asked = await exchange.compute(_valid, decode_chat_request, body)
        return await self._run(request, exchange, asked, chat=True)

    async def generate(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /api/generate. Without a prompt the model is loaded, or unloaded."""
        body = await self._dispatcher.read(request, exchange, parse_object)
        if is_empty(body, "prompt"):
            return await self._moves.move(request, exchange, body, chat=False)
        self._check_caller(exchange)
        asked = await exchange.compute(_valid, decode_generate_request, body)
        return await self._run(request, exchange, asked, chat=False)

    async def embed(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /api/embed."""
        asked = embed_request(await self._dispatcher.read(request, exchange, parse_object))
        return await self._embed(request, exchange, asked, one=False)

    async def embeddings(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /api/embeddings, the older one."""
        asked = embeddings_request(await self._dispatcher.read(request, exchange, parse_object))
        return await self._embed(request, exchange, asked, one=True)

    def _check_caller(self, exchange: Exchange) -> None:
        if self._moves.only_moves(exchange):
            raise AuthenticationFailed(
                "The admin key is for managing models. Use an API key to ask them.",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _run(
        self, request: web.Request, exchange: Exchange, asked: DecodedRequest, *, chat: bool
    ) -> web.StreamResponse:
        exchange.ask(asked.body, asked.dropped)
        encoder = OllamaEncoder(asked.body["model"], ExchangeTimes(exchange), chat=chat)
        return await self._dispatcher.run(request, exchange, encoded_by(encoder))

    async def _embed(
        self, request: web.Request, exchange: Exchange, asked: DecodedRequest, *, one: bool
    ) -> web.StreamResponse:
        exchange.ask(asked.body, asked.dropped)
        given = asked.body["input"]
        encoder = OllamaEmbedEncoder(asked.body["model"], ExchangeTimes(exchange), one=one)
        if given in ("", []):
            return await self._dispatcher.run(
                request, exchange, self._moves.loaded(encoder.nothing)
            )
        check_embeddings(asked.body)
        return await self._dispatcher.run(request, exchange, encoded_by(encoder))


def _valid(
    translate: Callable[[dict[str, Any]], DecodedRequest], body: dict[str, Any]
) -> DecodedRequest:
    """What is asked, as a valid request; raises InvalidRequest."""
    asked = translate(body)
    validate_create(asked.body)
    return asked
