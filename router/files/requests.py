"""The files of requests: what endpoints are sent of those that were uploaded, that are somewhere
else, or that come as data which the endpoint does not read.
"""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import re
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from router.core.exchange import Exchange
from router.dialects.input_files import (
    PDF,
    FileForm,
    InputFile,
    decoded_data,
    file_key,
    lacks,
    named_files,
)
from router.dialects.parts import Where, path_of
from router.errors import InvalidRequest, NoFileDescriptors, NotFound, RouterError
from router.fetch.guard import FetchGuard, NotFetched
from router.files.extraction import (
    ExtractedText,
    ExtractionFailed,
    TextExtractor,
    UnsupportedFile,
)
from router.files.store import FileStore, StoredFile
from router.settings.files import FilesSettings
from router.telemetry.log import get_logger

__all__ = ["RequestFiles"]

_log = get_logger("router.files")

_MIB: Final = 1024 * 1024
_MOST: Final = 64
"""Files that are got for one request."""

_HELD_CHARACTERS: Final = 16_000_000
"""Of texts that are kept, since the next turn of a conversation has the same files."""

_OURS: Final = re.compile(r"file-[0-9a-f]{48}")
_PDF: Final = b"%PDF-"
_HEAD: Final = 1024
_UNNAMED: Final = "file"
_SOURCES: Final = ("file_data", "file_id", "file_url")
_UNKNOWN: Final = "application/octet-stream"

Form = Literal["data", "text"]


class RequestFiles:
    """Gets the files of requests in the form in which endpoints read them. URLs are fetched through
    ``guard``.
    """

    def __init__(
        self,
        settings: FilesSettings,
        store: FileStore,
        extractor: TextExtractor,
        guard: FetchGuard,
    ) -> None:
        self._settings = settings
        self._store = store
        self._extractor = extractor
        self._guard = guard
        self._texts: OrderedDict[str, ExtractedText] = OrderedDict()
        self._held = 0

    async def prepare(self, exchange: Exchange, form: FileForm) -> None:
        """Have what endpoints of this form need of the request's files in ``exchange.files``.

        Raises InvalidRequest that names the first file that cannot be had, NotFound for an id that
        is nobody's or another key's, StateUnavailable, Overloaded.
        """
        wanted = {
            key: (part, where, lack)
            for key, (part, where) in named_files(exchange.responses_body).items()
            if (lack := lacks(part, form, exchange.files.get(key))) is not None
        }
        if not wanted:
            return
        if len(wanted) > _MOST:
            _, where, _ = list(wanted.values())[_MOST]
            why = f"No more than {_MOST} files are read for one request."
            raise _invalid(exchange, where, why, "too_many_files")
        total = _Total(int(self._settings.max_request_mb * _MIB))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    key: group.create_task(self._one(exchange, part, where, lack, form, total))
                    for key, (part, where, lack) in wanted.items()
                }
        except* RouterError as failures:
            raise failures.exceptions[0] from None
        got = {key: file for key, task in tasks.items() if (file := task.result()) is not None}
        exchange.files = {**exchange.files, **got}

    async def _one(
        self,
        exchange: Exchange,
        part: Mapping[str, Any],
        where: Where,
        lack: Form,
        form: FileForm,
        total: _Total,
    ) -> InputFile | None:
        """One file; None for an id of an endpoint's own files."""
        key = file_key(part)
        known = exchange.files.get(key) if key is not None else None
        source = next(name for name in _SOURCES if isinstance(part.get(name), str))
        where = (*where, source)
        try:
            if source == "file_id":
                stored = await self._found(exchange, part["file_id"], where)
                if stored is None:
                    return None
                total.add(stored.bytes)
                return await self._uploaded(stored, lack, form, known)
            if source == "file_data":
                content, media_type = _decoded(part["file_data"])
                name = part.get("filename") or _UNNAMED
                total.add(len(content))
            else:
                content, media_type = await self._fetched(part["file_url"], total)
                name = part.get("filename") or _name_in(part["file_url"])
            return await self._given(content, name, media_type, lack, form, known)
        except _NotUsable as error:
            _log.info(
                "file not used",
                request_id=exchange.request.id,
                param=exchange.named(path_of(where)),
                error=error.message,
            )
            raise _invalid(exchange, where, error.message, error.code) from error

    async def _found(self, exchange: Exchange, ident: str, where: Where) -> StoredFile | None:
        file = await self._store.find(exchange.context.caller, ident)
        if file is None and self._store.on and _OURS.fullmatch(ident):
            raise NotFound.of("File", ident, param=exchange.named(path_of(where)))
        return file

    async def _uploaded(
        self, stored: StoredFile, lack: Form, form: FileForm, known: InputFile | None
    ) -> InputFile:
        """An uploaded file: its text, or its data."""
        path = self._store.path(stored)
        if lack == "text" and not (form == "pdf" and await self._is_pdf(stored)):
            text = await self._text(
                stored.id, self._extractor.extract(path, stored.filename, stored.media_type)
            )
            return _with_text(stored.filename, text, known)
        async with aclosing(self._store.content(stored)) as pieces:
            content = b"".join([piece async for piece in pieces])
        return await self._as_data(content, stored.filename, stored.media_type or "", known)

    async def _given(
        self,
        content: bytes,
        filename: str,
        media_type: str,
        lack: Form,
        form: FileForm,
        known: InputFile | None,
    ) -> InputFile:
        """A file that came with the request, or was fetched for it."""
        if lack == "text" and not (form == "pdf" and _PDF in content[:_HEAD]):
            marks = f"{filename.rpartition('.')[2]}\0{media_type}\0".encode("utf-8", "replace")
            digest = blake2b(marks, digest_size=16)
            await self._store.work(digest.update, content)
            text = await self._text(
                digest.hexdigest(), self._extractor.extract_data(content, filename, media_type)
            )
            return _with_text(filename, text, known)
        return await self._as_data(content, filename, media_type, known)

    async def _as_data(
        self, content: bytes, filename: str, media_type: str, known: InputFile | None
    ) -> InputFile:
        encoded = (await self._store.work(base64.b64encode, content)).decode()
        kind = PDF if _PDF in content[:_HEAD] else _media_type(media_type, filename)
        return InputFile(filename, kind, encoded, None if known is None else known.text)

    async def _is_pdf(self, stored: StoredFile) -> bool:
        async with aclosing(self._store.content(stored)) as pieces:
            return _PDF in (await anext(pieces, b""))[:_HEAD]

    async def _text(self, key: str, extraction: Any) -> ExtractedText:
        """The text that ``extraction`` brings, or what it brought before."""
        if (held := self._texts.get(key)) is not None:
            extraction.close()
            self._texts.move_to_end(key)
            return held
        try:
            text: ExtractedText = await extraction
        except UnsupportedFile as error:
            raise _NotUsable(str(error), "unsupported_file") from error
        except ExtractionFailed as error:
            raise _NotUsable(str(error), "invalid_file") from error
        if key not in self._texts:
            self._texts[key] = text
            self._held += len(text.text)
            while self._held > _HELD_CHARACTERS:
                _, oldest = self._texts.popitem(last=False)
                self._held -= len(oldest.text)
        return text

    async def _fetched(self, url: str, total: _Total) -> tuple[bytes, str]:
        if not self._guard.settings.files:
            raise _NotUsable(
                "This router fetches no files, as it is configured. Send the content in "
                "'file_data', or upload it and send its 'file_id'.",
                "unsupported_value",
            )
        try:
            file = await self._guard.fetch(url, types=None, count=total.add)
        except NotFetched as error:
            raise _NotUsable(error.message, error.code.replace("image", "file")) from error
        except NoFileDescriptors:
            raise
        return file.body, file.media_type


class _NotUsable(Exception):
    """Why a file cannot be used: a sentence, and a code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class _Total:
    """Counts the bytes of all files of one request."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._limit = limit

    def add(self, size: int) -> None:
        """Raises past the limit."""
        self._left -= size
        if self._left < 0:
            raise _NotUsable(
                f"All files of the request together are larger than {self._limit / _MIB:g} MiB.",
                "file_too_large",
            )


def _with_text(filename: str, text: ExtractedText, known: InputFile | None) -> InputFile:
    data = None if known is None else known.data
    return InputFile(filename, text.media_type, data, text.text)


def _decoded(data: str) -> tuple[bytes, str]:
    try:
        return decoded_data(data)
    except ValueError:
        raise _NotUsable(
            "It is no 'data:…;base64,…' URL, or its base64 is broken.", "invalid_value"
        ) from None


def _name_in(url: str) -> str:
    """What a URL calls its file."""
    try:
        return unquote(PurePosixPath(urlsplit(url).path).name, errors="replace") or _UNNAMED
    except ValueError:
        return _UNNAMED


def _media_type(said: str, filename: str) -> str:
    if said and said != _UNKNOWN:
        return said
    return mimetypes.guess_type(filename)[0] or _UNKNOWN


def _invalid(exchange: Exchange, where: Where, why: str, code: str) -> InvalidRequest:
    path = exchange.named(path_of(where))
    return InvalidRequest(f"The file of '{path}' cannot be used. {why}", code=code, param=path)
