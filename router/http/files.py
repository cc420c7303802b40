"""Files: upload, list, get, read, delete."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from typing import Final
from urllib.parse import quote

from aiohttp import hdrs, web

from router.core.exchange import Exchange
from router.dialects.paging import Page, listing, parse_limit
from router.dialects.parameters import integer, missing, one_of
from router.errors import InvalidRequest, NotFound, RouterError
from router.files.store import FileStore, StoredFile, Upload, files_are_off
from router.http.body import only
from router.http.dispatcher import Handler, json_response
from router.http.form import FormPart, FormReader
from router.telemetry.log import get_logger

__all__ = ["EXPIRY", "MOST_LISTED", "PURPOSES", "FilesApi"]

_log = get_logger("router.http.files")

PURPOSES: Final = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
EXPIRY: Final = (3600, 30 * 86_400)
"""The shortest and longest time, in seconds, that a file may be asked to be kept."""

MOST_LISTED: Final = 10_000
_BATCH: Final = "batch"
_ANCHOR: Final = "created_at"
_FIELDS: Final = ("purpose", "expires_after[anchor]", "expires_after[seconds]")
_LONGEST_NAME: Final = 255
_LONGEST_TYPE: Final = 128
_SLACK: Final = 64 * 1024
"""What a form has beside its file, at most."""

_MIB: Final = 1024 * 1024
_WRITE_SECONDS: Final = 60.0
"""A client that reads nothing for so long is given up."""

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN: Final = re.compile(r"[\w!#$&+.^`~-]+/[\w!#$&+.^`~-]+", re.ASCII)
_DIGITS: Final = re.compile(r"-?[0-9]{1,12}", re.ASCII)

_check_purpose = one_of(*PURPOSES)
_check_limit = integer(1, MOST_LISTED)
_check_order = one_of("asc", "desc")
_check_anchor = one_of(_ANCHOR)
_check_seconds = integer(*EXPIRY)


class FilesApi:
    """Handlers under ``/v1/files``. Another owner's file is not there."""

    def __init__(self, store: FileStore) -> None:
        self._store = store

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route."""
        return [
            ("POST", "/files", self.create),
            ("GET", "/files", self.index),
            ("GET", "/files/{id}", self.get),
            ("DELETE", "/files/{id}", self.delete),
            ("GET", "/files/{id}/content", self.content),
        ]

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /files: a form, whose fields may come in any order."""
        self._check_on()
        length = request.content_length
        if length is not None and length > self._store.settings.max_mb * _MIB + _SLACK:
            raise self._store.too_large()
        async with aclosing(await self._store.begin(exchange.context.caller)) as upload:
            form = _FileForm()
            reader = await FormReader.of(request)
            while (part := await reader.next()) is not None:
                await form.take(part, upload)
            return json_response((await form.finish(upload)).as_object())

    async def index(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /files."""
        self._check_on()
        query = request.query
        only(query, "after", "limit", "order", "purpose")
        limit, order = parse_limit(query, str(MOST_LISTED)), query.get("order", "desc")
        _check_limit(limit, "limit")
        _check_order(order, "order")
        page = Page(limit, order == "desc", query.get("after") or None)
        files, has_more = await self._store.page(
            exchange.context.caller, page, query.get("purpose") or None
        )
        return json_response(listing([file.as_object() for file in files], has_more))

    async def get(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /files/{id}."""
        return json_response((await self._existing(request, exchange)).as_object())

    async def delete(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """DELETE /files/{id}."""
        file = await self._existing(request, exchange)
        if not await self._store.delete(exchange.context.caller, file.id):
            raise _no_file(file.id)
        return json_response({"id": file.id, "object": "file", "deleted": True})

    async def content(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /files/{id}/content."""
        file = await self._existing(request, exchange)
        async with aclosing(self._store.content(file)) as pieces:
            first = await anext(pieces, b"")
            response = web.StreamResponse(headers=_headers(file, exchange))
            await response.prepare(request)
            try:
                await _sent(response, first)
                async for piece in pieces:
                    await _sent(response, piece)
                await response.write_eof()
            except (TimeoutError, RouterError):
                # The head has gone: that the connection ends says that this is not all.
                _log.warning("file not sent to its end", file=file.id)
                if request.transport is not None:
                    request.transport.abort()
        return response

    def _check_on(self) -> None:
        if not self._store.on:
            raise files_are_off()

    async def _existing(self, request: web.Request, exchange: Exchange) -> StoredFile:
        self._check_on()
        ident = request.match_info["id"]
        file = await self._store.find(exchange.context.caller, ident)
        if file is None:
            raise _no_file(ident)
        return file


class _FileForm:
    """What a form says of its file."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self._filename: str | None = None
        self._media_type: str | None = None

    async def take(self, part: FormPart, upload: Upload) -> None:
        """Read a part; raises RouterError for one that cannot be, and for a wrong value."""
        if part.name == "file":
            if part.filename is None:
                raise _invalid("file", "expected a file, with a filename", "invalid_type")
            if self._filename is not None:
                raise _invalid("file", "expected one file, but there are several", "invalid_value")
            self._filename = _named(part.filename)
            self._media_type = _typed(part.media_type)
            while piece := await part.piece():
                await upload.write(piece)
            return
        if part.name not in _FIELDS:
            only({part.name: ""}, "file", *_FIELDS)
        if part.name in self.fields:
            raise _invalid(part.name, "expected one value, but there are several", "invalid_value")
        self.fields[part.name] = await part.text()
        self._check(part.name)

    async def finish(self, upload: Upload) -> StoredFile:
        """The file, now that all has arrived; raises InvalidRequest for what is missing."""
        purpose = self.fields.get("purpose")
        if self._filename is None or purpose is None:
            raise missing("file" if self._filename is None else "purpose")
        anchor, seconds = (self.fields.get(name) for name in _FIELDS[1:])
        if (anchor is None) != (seconds is None):
            raise missing(_FIELDS[1] if anchor is None else _FIELDS[2])
        expires_after = int(seconds) if seconds is not None else None
        if expires_after is None and purpose == _BATCH:
            expires_after = EXPIRY[1]
        return await upload.finish(
            self._filename, purpose, media_type=self._media_type, expires_after=expires_after
        )

    def _check(self, name: str) -> None:
        value = self.fields[name]
        if name == "purpose":
            _check_purpose(value, name)
        elif name == _FIELDS[1]:
            _check_anchor(value, name)
        elif not _DIGITS.fullmatch(value):
            raise _invalid(name, "expected an integer", "invalid_type")
        else:
            _check_seconds(int(value), name)


def _named(filename: str) -> str:
    """The name without directories and control characters; raises InvalidRequest for none."""
    name = _CONTROLS.sub("", re.split(r"[\\/]", filename)[-1]).strip()[-_LONGEST_NAME:]
    if name in ("", ".", ".."):
        raise _invalid("file", "expected a file, with a filename", "invalid_value")
    return name


def _typed(media_type: str | None) -> str | None:
    plain = (media_type or "").partition(";")[0].strip().lower()
    fits = len(plain) <= _LONGEST_TYPE and _PLAIN.fullmatch(plain)
    return plain if fits else None


def _headers(file: StoredFile, exchange: Exchange) -> dict[str, str]:
    # Never as what its client said: a browser would run a page in the router's name.
    return {
        hdrs.CONTENT_TYPE: "application/octet-stream",
        hdrs.CONTENT_LENGTH: str(file.bytes),
        hdrs.CONTENT_DISPOSITION: f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "X-Request-Id": exchange.request.id,
    }


async def _sent(response: web.StreamResponse, piece: bytes) -> None:
    async with asyncio.timeout(_WRITE_SECONDS):
        await response.write(piece)


def _invalid(param: str, why: str, code: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid '{param}': {why}.", code=code, param=param)


def _no_file(ident: str) -> NotFound:
    return NotFound.of("File", ident)
