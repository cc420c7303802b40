"""Embeddings, legacy completions and reranking: passed through, or translated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from router.core.exchange import Exchange, Operation
from router.core.plugin_sets import proceed
from router.dialects.embeddings.schema import check_completions, check_embeddings, check_rerank
from router.dialects.responses.schema import parse_object
from router.http.body import without_misspelt
from router.http.connection import HttpRequest
from router.http.dispatcher import DirectHandler, RequestDispatcher

__all__ = ["EmbeddingsApi"]


class EmbeddingsApi:
    """Handlers under ``/v1/embeddings``, ``/v1/completions`` and ``/v1/rerank``."""

    def __init__(self, dispatcher: RequestDispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self) -> list[tuple[str, str, Operation, DirectHandler]]:
        """Method, path, operation and handler of each, below the prefixes of the API."""
        return [
            ("POST", "/embeddings", Operation.EMBEDDINGS, self.embeddings),
            ("POST", "/completions", Operation.COMPLETIONS, self.completions),
            ("POST", "/rerank", Operation.RERANK, self.rerank),
        ]

    def elsewhere(self) -> list[tuple[str, str, Operation, DirectHandler]]:
        """The same for paths that clients of Jina, and of Cohere's second version, ask."""
        return [
            ("POST", "/rerank", Operation.RERANK, self.rerank),
            ("POST", "/v2/rerank", Operation.RERANK, self.rerank),
        ]

    async def embeddings(self, request: HttpRequest, exchange: Exchange) -> web.StreamResponse:
        """POST /embeddings."""
        return await self._answered(request, exchange, check_embeddings)

    async def completions(self, request: HttpRequest, exchange: Exchange) -> web.StreamResponse:
        """POST /completions. What a field means is for the endpoint to judge."""
        return await self._answered(request, exchange, check_completions)

    async def rerank(self, request: HttpRequest, exchange: Exchange) -> web.StreamResponse:
        """POST /rerank."""
        return await self._answered(request, exchange, check_rerank)

    async def _answered(
        self, request: HttpRequest, exchange: Exchange, check: Callable[[dict[str, Any]], None]
    ) -> web.StreamResponse:
        def decoded(raw: bytes) -> dict[str, Any]:
            body = parse_object(raw)
            check(body)
            return body

        body = await self._dispatcher.read(request, exchange, decoded)
        exchange.ask(*without_misspelt(body))
        exchange.stream &= exchange.request.operation is Operation.COMPLETIONS
        return await self._dispatcher.run(request, exchange, proceed)
