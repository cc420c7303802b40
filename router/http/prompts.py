"""Stored prompts: create, get, list, update, delete, and their versions."""

from __future__ import annotations

import time
from typing import Any, Final

import orjson
from aiohttp import web

from router.core.exchange import Exchange
from router.core.response_lifecycle import new_id
from router.dialects.paging import listing, parse_page
from router.dialects.responses.prompt_reference import version_number
from router.dialects.responses.prompts import changed, parse_changes, parse_prompt, prompt_object
from router.dialects.responses.schema import parse_object
from router.errors import NotFound
from router.http.dispatcher import Handler, RequestDispatcher, json_response
from router.state.prompts import Prompt, PromptStore

__all__ = ["PromptsApi", "no_prompt"]

_PLATFORM: Final = "/api/v1/"
"""Under this prefix, a new prompt is answered with 201."""


class PromptsApi:
    """Handlers under ``/v1/prompts``; ``{id}`` is a prompt's id or its name.

    Another owner's prompt is not there.
    """

    def __init__(self, dispatcher: RequestDispatcher, store: PromptStore) -> None:
        self._dispatcher = dispatcher
        self._store = store

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route."""
        return [
            ("POST", "/prompts", self.create),
            ("GET", "/prompts", self.index),
            ("GET", "/prompts/{id}", self.get),
            ("PUT", "/prompts/{id}", self.update),
            ("POST", "/prompts/{id}", self.update),
            ("DELETE", "/prompts/{id}", self.delete),
            ("GET", "/prompts/{id}/versions", self.versions),
        ]

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /prompts."""
        fields = parse_prompt(await self._body(request, exchange))
        prompt = await self._store.create(
            exchange.context.caller,
            new_id("pmpt_"),
            fields["name"],
            time.time(),
            orjson.dumps(fields),
        )
        status = 201 if exchange.request.route.startswith(_PLATFORM) else 200
        return json_response(_shown(prompt), status)

    async def index(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /prompts: each in its latest version."""
        page = parse_page(request.query)
        prompts, has_more = await self._store.page(exchange.context.caller, page)
        return json_response(listing([_shown(prompt) for prompt in prompts], has_more))

    async def get(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /prompts/{id}: the latest version, or that of the query's ``version``."""
        given = request.query.get("version")
        version = None if given is None else version_number(given, "version")
        return json_response(_shown(await self._existing(request, exchange, version)))

    async def update(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """PUT /prompts/{id}: a new version with these fields changed; null removes one."""
        key = request.match_info["id"]
        changes = parse_changes(await self._body(request, exchange))

        def change(body: bytes) -> tuple[str, bytes]:
            fields = changed(orjson.loads(body), changes)
            return fields["name"], orjson.dumps(fields)

        prompt = await self._store.update(exchange.context.caller, key, time.time(), change)
        if prompt is None:
            raise no_prompt(key)
        return json_response(_shown(prompt))

    async def delete(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /prompts/{id}: with all its versions."""
        prompt = await self._existing(request, exchange)
        if not await self._store.delete(exchange.context.caller, prompt.id):
            raise no_prompt(prompt.id)
        return json_response({"id": prompt.id, "object": "prompt.deleted", "deleted": True})

    async def versions(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /prompts/{id}/versions; ``after`` is the number of a version."""
        page = parse_page(request.query)
        prompt = await self._existing(request, exchange)
        found = await self._store.versions(exchange.context.caller, prompt.id, page)
        if found is None:
            raise no_prompt(prompt.id)
        versions, has_more = found
        answer = listing([_shown(version) for version in versions], has_more)
        if versions:
            answer["first_id"] = str(versions[0].version)
            answer["last_id"] = str(versions[-1].version)
        return json_response(answer)

    async def _body(self, request: web.Request, exchange: Exchange) -> dict[str, Any]:
        return await self._dispatcher.read(request, exchange, parse_object)

    async def _existing(
        self, request: web.Request, exchange: Exchange, version: int | None = None
    ) -> Prompt:
        key = request.match_info["id"]
        prompt = await self._store.get(exchange.context.caller, key, version)
        if prompt is None:
            raise no_prompt(key, version)
        return prompt


def _shown(prompt: Prompt) -> dict[str, Any]:
    # An earlier version may have had another name.
    fields = {**orjson.loads(prompt.body), "name": prompt.name}
    return prompt_object(
        prompt.id, prompt.version, prompt.created_at, prompt.version_created_at, fields
    )


def no_prompt(key: str, version: int | None = None, *, param: str | None = None) -> NotFound:
    """The error for a prompt, or a version of it, that this owner does not have."""
    where = "" if version is None else f" in version {version}"
    return NotFound.of("Prompt", key, param=param, where=where)
