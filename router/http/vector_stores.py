"""Vector stores: the stores, their files and batches, and searches."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from aiohttp import web

from router.core.exchange import Exchange
from router.dialects.paging import listing
from router.dialects.responses.schema import parse_object
from router.http.dispatcher import Handler, RequestDispatcher, json_response
from router.usage.embeddings import EmbeddingFor
from router.vector_stores.requests import (
    parse_batch,
    parse_changed_attributes,
    parse_file,
    parse_file_page,
    parse_new_store,
    parse_search,
    parse_store_changes,
    parse_store_page,
)
from router.vector_stores.service import VectorStores

__all__ = ["VectorStoresApi"]

T = TypeVar("T")


class VectorStoresApi:
    """Handlers under ``/v1/vector_stores``. Another owner's stores are not there."""

    def __init__(self, dispatcher: RequestDispatcher, stores: VectorStores) -> None:
        self._dispatcher = dispatcher
        self._stores = stores

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route."""
        store = "/vector_stores/{id}"
        batch = store + "/file_batches/{batch}"
        return [
            ("POST", "/vector_stores", self.create),
            ("GET", "/vector_stores", self.index),
            ("GET", store, self.get),
            ("POST", store, self.update),
            ("DELETE", store, self.delete),
            ("POST", store + "/search", self.search),
            ("POST", store + "/files", self.add_file),
            ("GET", store + "/files", self.files),
            ("GET", store + "/files/{file}", self.file),
            ("POST", store + "/files/{file}", self.update_file),
            ("DELETE", store + "/files/{file}", self.remove_file),
            ("GET", store + "/files/{file}/content", self.content),
            ("POST", store + "/file_batches", self.add_batch),
            ("GET", batch, self.batch),
            ("POST", batch + "/cancel", self.cancel),
            ("GET", batch + "/files", self.batch_files),
        ]

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /vector_stores."""
        new = parse_new_store(await self._body(request, exchange, empty=True))
        created = self._stores.create(exchange.context.caller, new)
        return json_response((await self._done(exchange, created)).as_object())

    async def index(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /vector_stores."""
        asked = parse_store_page(request.query)
        found, more = await self._stores.page(exchange.context.caller, asked)
        return json_response(listing([store.as_object() for store in found], more))

    async def get(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /vector_stores/{id}."""
        store = await self._stores.get(exchange.context.caller, request.match_info["id"])
        return json_response(store.as_object())

    async def update(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /vector_stores/{id}."""
        changes = parse_store_changes(await self._body(request, exchange))
        ident = request.match_info["id"]
        store = await self._stores.update(exchange.context.caller, ident, changes)
        return json_response(store.as_object())

    async def delete(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /vector_stores/{id}."""
        ident = request.match_info["id"]
        await self._done(exchange, self._stores.delete(exchange.context.caller, ident))
        return json_response({"id": ident, "object": "vector_store.deleted", "deleted": True})

    async def search(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /vector_stores/{id}/search."""
        search = parse_search(await self._body(request, exchange))
        store = await self._stores.usable(exchange.context.caller, request.match_info["id"])
        found = await self._stores.search(
            [store], search, EmbeddingFor(exchange.context.caller, exchange.request.id)
        )
        return json_response(
            {
                "object": "vector_store.search_results.page",
                "search_query": list(search.queries),
                "data": [one.as_result() for one in found],
                "has_more": False,
                "next_page": None,
            }
        )

    async def add_file(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /vector_stores/{id}/files."""
        file = parse_file(await self._body(request, exchange))
        ident = request.match_info["id"]
        added = self._stores.add_file(exchange.context.caller, ident, file)
        return json_response((await self._done(exchange, added)).as_object())

    async def files(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /vector_stores/{id}/files."""
        return await self._files(request, exchange, None)

    async def batch_files(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /vector_stores/{id}/file_batches/{batch}/files."""
        return await self._files(request, exchange, request.match_info["batch"])

    async def file(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /vector_stores/{id}/files/{file}."""
        found = await self._stores.file(exchange.context.caller, *_ids(request, "file"))
        return json_response(found.as_object())

    async def update_file(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /vector_stores/{id}/files/{file}: other attributes."""
        body = await self._body(request, exchange)
        attributes = parse_changed_attributes(body)
        changed = self._stores.set_attributes(
            exchange.context.caller, *_ids(request, "file"), attributes
        )
        return json_response((await self._done(exchange, changed)).as_object())

    async def remove_file(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /vector_stores/{id}/files/{file}."""
        ident, file = _ids(request, "file")
        await self._done(exchange, self._stores.remove_file(exchange.context.caller, ident, file))
        return json_response({"id": file, "object": "vector_store.file.deleted", "deleted": True})

    async def content(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /vector_stores/{id}/files/{file}/content: the pieces of its text."""
        texts = await self._stores.texts(exchange.context.caller, *_ids(request, "file"))
        return json_response(
            {
                "object": "vector_store.file_content.page",
                "data": [{"type": "text", "text": text} for text in texts],
                "has_more": False,
                "next_page": None,
            }
        )

    async def add_batch(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /vector_stores/{id}/file_batches."""
        files = parse_batch(await self._body(request, exchange))
        ident = request.match_info["id"]
        added = self._stores.add_batch(exchange.context.caller, ident, files)
        return json_response((await self._done(exchange, added)).as_object())

    async def batch(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /vector_stores/{id}/file_batches/{batch}."""
        found = await self._stores.batch(exchange.context.caller, *_ids(request, "batch"))
        return json_response(found.as_object())

    async def cancel(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /vector_stores/{id}/file_batches/{batch}/cancel."""
        cancelled = self._stores.cancel(exchange.context.caller, *_ids(request, "batch"))
        return json_response((await self._done(exchange, cancelled)).as_object())

    async def _files(
        self, request: web.Request, exchange: Exchange, batch: str | None
    ) -> web.StreamResponse:
        asked = parse_file_page(request.query)
        found, more = await self._stores.files(
            exchange.context.caller, request.match_info["id"], asked, batch
        )
        return json_response(listing([file.as_object() for file in found], more))

    async def _body(
        self, request: web.Request, exchange: Exchange, *, empty: bool = False
    ) -> dict[str, Any]:
        """The JSON object of a request; where it may be ``empty``, no body is an object, too."""
        if empty and not request.can_read_body:
            return {}
        return await self._dispatcher.read(request, exchange, parse_object)

    async def _done(self, exchange: Exchange, work: Coroutine[Any, Any, T]) -> T:
        """What a change returns or raises; a client that leaves does not interrupt it."""
        return await self._dispatcher.see_through(exchange, work)


def _ids(request: web.Request, name: str) -> tuple[str, str]:
    return request.match_info["id"], request.match_info[name]
