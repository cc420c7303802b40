"""Conversations: create, get, update, delete, list, and their items."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from aiohttp import web

from router.core.exchange import Exchange
from router.core.response_lifecycle import new_id
from router.dialects.paging import listing, parse_include, parse_page
from router.dialects.responses.conversations import (
    conversation_object,
    parse_added,
    parse_metadata,
    parse_new,
)
from router.dialects.responses.input_items import check_items, item_type
from router.dialects.responses.schema import parse_object, stored_items
from router.errors import NotFound
from router.http.dispatcher import Handler, RequestDispatcher, json_response
from router.state.conversations import Conversation, ConversationStore
from router.state.items import ENCRYPTED

__all__ = ["ConversationsApi", "FindItems"]

FindItems = Callable[[str, Collection[str]], Awaitable[dict[str, dict[str, Any]]]]
"""This owner's items by id, from wherever they are stored, hidden reasoning put back."""

_PLATFORM: Final = "/api/v1/"
"""Under this prefix, a new conversation is answered with 201 and with its items."""

_BLOB: Final = "encrypted_content"


class ConversationsApi:
    """Handlers under ``/v1/conversations``. Another owner's conversation is not there."""

    def __init__(
        self, dispatcher: RequestDispatcher, store: ConversationStore, find_items: FindItems
    ) -> None:
        self._dispatcher = dispatcher
        self._store = store
        self._find_items = find_items

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route."""
        return [
            ("POST", "/conversations", self.create),
            ("GET", "/conversations", self.index),
            ("GET", "/conversations/{id}", self.get),
            ("POST", "/conversations/{id}", self.update),
            ("DELETE", "/conversations/{id}", self.delete),
            ("POST", "/conversations/{id}/items", self.add_items),
            ("GET", "/conversations/{id}/items", self.items),
            ("GET", "/conversations/{id}/items/{item}", self.item),
            ("DELETE", "/conversations/{id}/items/{item}", self.delete_item),
        ]

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /conversations; the body may be empty."""
        metadata, given = parse_new(await self._body(request, exchange, may_be_empty=True))
        whole = await self._resolved(exchange, given)
        items, encrypted_reasoning = _stored(given, whole, frozenset())
        created = await self._store.create(
            exchange.context.caller,
            new_id("conv_"),
            time.time(),
            metadata,
            items,
            encrypted_reasoning,
        )
        if exchange.request.route.startswith(_PLATFORM):
            return json_response({**_shown(created), "items": items}, 201)
        return json_response(_shown(created))

    async def index(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /conversations."""
        page = parse_page(request.query)
        conversations, has_more = await self._store.page(exchange.context.caller, page)
        return json_response(listing([_shown(each) for each in conversations], has_more))

    async def get(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /conversations/{id}."""
        ident = request.match_info["id"]
        return json_response(_shown(await self._existing(exchange, ident)))

    async def update(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /conversations/{id}: other metadata."""
        ident = request.match_info["id"]
        metadata = parse_metadata(await self._body(request, exchange))
        updated = await self._store.update(exchange.context.caller, ident, metadata)
        if updated is None:
            raise _no_conversation(ident)
        return json_response(_shown(updated))

    async def delete(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /conversations/{id}. Responses that were made in it stay."""
        ident = request.match_info["id"]
        if not await self._store.delete(exchange.context.caller, ident):
            raise _no_conversation(ident)
        return json_response({"id": ident, "object": "conversation.deleted", "deleted": True})

    async def add_items(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /conversations/{id}/items."""
        ident = request.match_info["id"]
        given = parse_added(await self._body(request, exchange))
        await self._existing(exchange, ident)
        whole = await self._resolved(exchange, given)
        items, encrypted_reasoning = _stored(
            given, whole, await self._taken(exchange, ident, whole)
        )
        if not await self._store.add_items(
            exchange.context.caller, ident, items, encrypted_reasoning
        ):
            raise _no_conversation(ident)
        return json_response({**listing(items, has_more=False), "items": items})

    async def items(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /conversations/{id}/items."""
        ident = request.match_info["id"]
        found = await self._store.items(exchange.context.caller, ident, parse_page(request.query))
        if found is None:
            raise _no_conversation(ident)
        items, has_more = found
        return json_response(listing(await self._asked_for(request, exchange, items), has_more))

    async def item(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /conversations/{id}/items/{item}."""
        ident, key = request.match_info["id"], request.match_info["item"]
        item = await self._store.item(exchange.context.caller, ident, key)
        if item is None:
            raise await self._no_item(exchange, ident, key)
        [shown] = await self._asked_for(request, exchange, [item])
        return json_response(shown)

    async def delete_item(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /conversations/{id}/items/{item}."""
        ident, key = request.match_info["id"], request.match_info["item"]
        if not await self._store.delete_item(exchange.context.caller, ident, key):
            raise await self._no_item(exchange, ident, key)
        return json_response({"id": key, "object": "conversation.item.deleted", "deleted": True})

    async def _body(
        self, request: web.Request, exchange: Exchange, *, may_be_empty: bool = False
    ) -> dict[str, Any]:
        decode = _object_or_nothing if may_be_empty else parse_object
        return await self._dispatcher.read(request, exchange, decode)

    async def _existing(self, exchange: Exchange, ident: str) -> Conversation:
        conversation = await self._store.get(exchange.context.caller, ident)
        if conversation is None:
            raise _no_conversation(ident)
        return conversation

    async def _resolved(
        self, exchange: Exchange, items: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The items, with copies of those that are referred to, and hidden reasoning put back."""
        wanted = {item["id"] for item in items if _is_reference(item) or _may_be_hidden(item)}
        found = await self._find_items(exchange.context.caller, sorted(wanted)) if wanted else {}
        resolved = []
        for i, item in enumerate(items):
            if _is_reference(item):
                ident = item["id"]
                if ident not in found:
                    raise NotFound.of("Item", ident, param=f"items[{i}]")
                item = found[ident]
            elif _may_be_hidden(item):
                item = _revealed(item, found)
            resolved.append(item)
        if wanted:
            check_items(resolved, "items")  # endpoints make odd items, too
        return resolved

    async def _taken(
        self, exchange: Exchange, ident: str, items: list[dict[str, Any]]
    ) -> frozenset[str]:
        """Those ids of ``items`` that the conversation has already."""
        given = {item["id"] for item in items if isinstance(item.get("id"), str)}
        return frozenset(
            {key for key in given if await self._store.item(exchange.context.caller, ident, key)}
        )

    async def _asked_for(
        self, request: web.Request, exchange: Exchange, items: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The items, with reasoning that was hidden from the client if it asks for that now."""
        if ENCRYPTED not in parse_include(request.query):
            return items
        encrypted_reasoning = {item["id"] for item in items if _may_be_hidden(item)}
        found = (
            await self._find_items(exchange.context.caller, sorted(encrypted_reasoning))
            if encrypted_reasoning
            else {}
        )
        return [_revealed(item, found) if _may_be_hidden(item) else item for item in items]

    async def _no_item(self, exchange: Exchange, ident: str, item: str) -> NotFound:
        await self._existing(exchange, ident)
        return NotFound.of("Item", item, where=" in conversation")


def _stored(
    given: list[dict[str, Any]], whole: list[dict[str, Any]], taken: frozenset[str]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """``whole`` as it is stored, and what of its encrypted reasoning was not ``given``, by id."""
    items = stored_items(whole, new_id, taken)
    encrypted_reasoning = {}
    for sent, item in zip(given, items, strict=True):
        blob = item.get(_BLOB)
        if item["type"] == "reasoning" and isinstance(blob, str) and not sent.get(_BLOB):
            encrypted_reasoning[item["id"]] = item.pop(_BLOB)
    return items, encrypted_reasoning


def _is_reference(item: dict[str, Any]) -> bool:
    return bool(item_type(item) == "item_reference")


def _may_be_hidden(item: dict[str, Any]) -> bool:
    kind, ident = item.get("type"), item.get("id")
    return kind == "reasoning" and isinstance(ident, str) and not item.get(_BLOB)


def _revealed(item: dict[str, Any], found: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    blob = found.get(item["id"], {}).get(_BLOB)
    return item if blob is None else {**item, _BLOB: blob}


def _shown(conversation: Conversation) -> dict[str, Any]:
    return conversation_object(conversation.id, conversation.created_at, conversation.metadata)


def _no_conversation(ident: str) -> NotFound:
    return NotFound.of("Conversation", ident)


def _object_or_nothing(raw: bytes) -> dict[str, Any]:
    return parse_object(raw) if raw else {}
