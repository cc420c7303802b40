"""Responses that are stored: retrieve, resume, delete, cancel, input items."""

from __future__ import annotations

from aiohttp import web

from router.core.exchange import Exchange, Sink
from router.dialects.paging import listing, page_of, parse_include, parse_page
from router.errors import InvalidRequest, NotFound
from router.http.body import is_true, starting_after
from router.http.dispatcher import RequestDispatcher, json_response
from router.sessions.runs import Runs
from router.sessions.turns import Turns
from router.state.responses import ResponseStore, StoredResponse

__all__ = ["StoredApi"]


class StoredApi:
    """Handlers under ``/v1/responses/{id}``."""

    def __init__(
        self, dispatcher: RequestDispatcher, responses: ResponseStore, runs: Runs, turns: Turns
    ) -> None:
        self._dispatcher = dispatcher
        self._responses = responses
        self._runs = runs
        self._turns = turns

    async def retrieve(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /responses/{id}, and its events with ``stream=true``."""
        stream = is_true(request.query.get("stream"))
        after = starting_after(request.query) if stream else -1
        include = parse_include(request.query)
        stored = await self._get(request, exchange)
        if not stream:
            body = stored.public(include)
            return web.Response(body=body, headers={"Content-Type": "application/json"})
        if not stored.resumable:
            raise InvalidRequest(
                "This response cannot be streamed because it was not created with background=true.",
                param="stream",
            )

        async def follow(exchange: Exchange, sink: Sink) -> None:
            await self._turns.follow(exchange, stored.id, after, sink)

        exchange.stream = True
        return await self._dispatcher.run(request, exchange, follow)

    async def delete(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /responses/{id}. A run that goes on is cancelled before."""
        stored = await self._get(request, exchange)
        await self._dispatcher.see_through(exchange, self._delete(exchange, stored))
        return json_response({"id": stored.id, "object": "response", "deleted": True})

    async def cancel(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /responses/{id}/cancel."""
        stored = await self._get(request, exchange)
        if not stored.resumable:
            raise InvalidRequest(
                "This response cannot be cancelled because it was not created with background=true."
            )
        # Half cancelled it would be found, and ended as failed.
        await self._dispatcher.see_through(
            exchange, self._runs.cancel(exchange.context.caller, stored.id)
        )
        stored = await self._get(request, exchange)
        body = stored.public()
        return web.Response(body=body, headers={"Content-Type": "application/json"})

    async def input_items(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /responses/{id}/input_items: the items of this very request."""
        page = parse_page(request.query)
        include = parse_include(request.query)
        stored = await self._get(request, exchange)
        items, has_more = page_of(stored.input_items(include), page)
        return json_response(listing(items, has_more))

    async def _delete(self, exchange: Exchange, stored: StoredResponse) -> None:
        if stored.resumable:
            await self._runs.cancel(exchange.context.caller, stored.id)
        if not await self._responses.delete(exchange.context.caller, stored.id):
            raise _not_found(stored.id)

    async def _get(self, request: web.Request, exchange: Exchange) -> StoredResponse:
        ident = request.match_info["id"]
        stored = await self._responses.get(exchange.context.caller, ident)
        if stored is None:
            raise _not_found(ident)
        return stored


def _not_found(ident: str) -> NotFound:
    return NotFound.of("Response", ident)
