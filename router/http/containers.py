"""Containers and their files: create, list, get, content, delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from aiohttp import hdrs, web

from router.containers.files import file_name
from router.containers.service import Containers, shown_container
from router.core.exchange import Exchange
from router.dialects.paging import listing, parse_page
from router.dialects.parameters import missing, string
from router.dialects.responses.containers import parse_container
from router.dialects.responses.schema import parse_object
from router.errors import Forbidden, RouterError
from router.http.dispatcher import Handler, RequestDispatcher, json_response
from router.http.form import FormPart, FormReader
from router.state.containers import StoredContainer
from router.telemetry.log import get_logger

__all__ = ["ContainersApi"]

_log = get_logger("router.http")

_WRITE_SECONDS: Final = 60.0
"""A client that reads nothing of a file for so long is gone."""

_PLATFORM: Final = "/api/v1/"
"""Under this prefix, what is new is answered with 201."""


class ContainersApi:
    """Handlers under ``/v1/containers``. Another owner's container is not there."""

    def __init__(self, dispatcher: RequestDispatcher, containers: Containers) -> None:
        self._dispatcher = dispatcher
        self._containers = containers

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route."""
        return [
            ("POST", "/containers", self.create),
            ("GET", "/containers", self.index),
            ("GET", "/containers/{id}", self.get),
            ("DELETE", "/containers/{id}", self.delete),
            ("POST", "/containers/{id}/files", self.add_file),
            ("GET", "/containers/{id}/files", self.files),
            ("GET", "/containers/{id}/files/{file}", self.file),
            ("GET", "/containers/{id}/files/{file}/content", self.content),
            ("DELETE", "/containers/{id}/files/{file}", self.delete_file),
        ]

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /containers."""
        _check_allowed(exchange)
        given = parse_container(await self._body(request, exchange))
        container = await self._containers.create(
            exchange.context.caller,
            name=given.name,
            memory=given.memory,
            minutes=given.minutes,
            file_ids=given.file_ids,
        )
        return json_response(shown_container(container), _created(exchange))

    async def index(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /containers; ``name`` in the query shows those of this name only."""
        page, name = parse_page(request.query), request.query.get("name")
        found, has_more = await self._containers.page(exchange.context.caller, page, name)
        return json_response(listing([shown_container(one) for one in found], has_more))

    async def get(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /containers/{id}."""
        return json_response(shown_container(await self._existing(request, exchange)))

    async def delete(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /containers/{id}: it ends, with everything in it."""
        ident = request.match_info["id"]
        await self._containers.delete(exchange.context.caller, ident)
        return json_response({"id": ident, "object": "container.deleted", "deleted": True})

    async def add_file(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /containers/{id}/files: an upload, or JSON with the id of a file."""
        _check_allowed(exchange)
        container = await self._existing(request, exchange)
        if request.content_type == "application/json":
            body = await self._body(request, exchange)
            if body.get("file_id") is None:
                raise missing("file_id")
            string(body["file_id"], "file_id")
            made = await self._containers.files.copy(container, body["file_id"], "file_id")
        else:
            made = await self._uploaded(request, container)
        return json_response(made, _created(exchange))

    async def _uploaded(self, request: web.Request, container: StoredContainer) -> dict[str, Any]:
        form = await FormReader.of(request)
        while (part := await form.next()) is not None:
            if part.name == "file":
                name = file_name(part.filename or "file")
                return await self._containers.files.put(container, name, _pieces(part))
            if part.name == "file_id":
                return await self._containers.files.copy(container, await part.text(), "file_id")
            await part.text()
        raise missing("file")

    async def files(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /containers/{id}/files."""
        page = parse_page(request.query)
        container = await self._existing(request, exchange)
        return json_response(listing(*await self._containers.files.page(container, page)))

    async def file(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /containers/{id}/files/{file}."""
        _, file = await self._existing_file(request, exchange)
        return json_response(file)

    async def content(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /containers/{id}/files/{file}/content."""
        container, file = await self._existing_file(request, exchange)
        pieces = self._containers.files.content(container, file)
        first = await anext(pieces, b"")  # what goes wrong there is still an error of its own
        response = web.StreamResponse()
        response.content_type = "application/octet-stream"
        response.headers[hdrs.CONTENT_DISPOSITION] = "attachment"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Request-Id"] = exchange.request.id
        await response.prepare(request)
        try:
            await _sent(response, first)
            async for piece in pieces:
                await _sent(response, piece)
            await response.write_eof()
        except (TimeoutError, RouterError):
            # The head has gone: that the connection ends says that this is not all.
            _log.warning("file not sent to its end", container=container.id)
            if request.transport is not None:
                request.transport.abort()
        return response

    async def delete_file(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /containers/{id}/files/{file}."""
        container, file = await self._existing_file(request, exchange)
        await self._containers.files.remove(container, file)
        return json_response(
            {"id": file["id"], "object": "container.file.deleted", "deleted": True}
        )

    async def _body(self, request: web.Request, exchange: Exchange) -> dict[str, Any]:
        return await self._dispatcher.read(request, exchange, parse_object)

    async def _existing(self, request: web.Request, exchange: Exchange) -> StoredContainer:
        return await self._containers.find(exchange.context.caller, request.match_info["id"])

    async def _existing_file(
        self, request: web.Request, exchange: Exchange
    ) -> tuple[StoredContainer, dict[str, Any]]:
        container = await self._existing(request, exchange)
        return container, await self._containers.files.find(container, request.match_info["file"])


async def _sent(response: web.StreamResponse, piece: bytes) -> None:
    async with asyncio.timeout(_WRITE_SECONDS):
        await response.write(piece)


async def _pieces(part: FormPart) -> AsyncIterator[bytes]:
    while piece := await part.piece():
        yield piece


def _created(exchange: Exchange) -> int:
    return 201 if exchange.request.route.startswith(_PLATFORM) else 200


def _check_allowed(exchange: Exchange) -> None:
    key = exchange.context.key
    if key is not None and not key.may_run("code_interpreter", "router"):
        raise Forbidden("This key may not use the code interpreter.", code="tool_not_allowed")
