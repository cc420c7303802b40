"""Forms of the type multipart/form-data, read piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from aiohttp import BodyPartReader, MultipartReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from router.errors import InvalidRequest, UnsupportedMediaType
from router.http.body import IDLE_SECONDS, let_it_come

__all__ = ["FormPart", "FormReader"]

T = TypeVar("T")

_TYPE: Final = "multipart/form-data"
_MOST_PARTS: Final = 32
_MOST_TEXT: Final = 4096
_PIECE: Final = 128 * 1024


class FormPart:
    """One field of a form. ``filename`` is None for what is no file; ``media_type`` is that of a
    file, as its client put it.
    """

    def __init__(self, part: BodyPartReader) -> None:
        self._part = part
        self.name = _clean(part.name or "")
        self.filename = None if part.filename is None else _clean(part.filename)
        self.media_type = part.headers.get(hdrs.CONTENT_TYPE)

    async def text(self) -> str:
        """The value of a field that is no file; raises InvalidRequest."""
        value = b""
        while piece := await self.piece():
            value += piece
            if len(value) > _MOST_TEXT:
                raise InvalidRequest(
                    f"Invalid '{self.name}': it is longer than {_MOST_TEXT} bytes.",
                    code="string_above_max_length",
                    param=self.name,
                )
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(
                f"Invalid '{self.name}': it is no UTF-8 text.",
                code="invalid_value",
                param=self.name,
            ) from None

    async def piece(self) -> bytes:
        """What comes next of the content, empty at its end; raises InvalidRequest for a form that
        is broken.
        """
        piece = await _arriving(self._part.read_chunk(_PIECE))
        if not piece and not self._part.at_eof():
            raise _broken("it ends in the midst of a part")
        return piece


class FormReader:
    """Reads the fields of a form in their order, each to its end before the next one."""

    def __init__(self, reader: MultipartReader) -> None:
        self._reader = reader
        self._count = 0

    @classmethod
    async def of(cls, request: web.Request) -> FormReader:
        """For the body of this request; raises UnsupportedMediaType, InvalidRequest."""
        if request.content_type != _TYPE:
            raise UnsupportedMediaType(
                f"Invalid body: expected {_TYPE}, with the file in a part of its own."
            )
        await let_it_come(request)
        try:
            return cls(await request.multipart())
        except ValueError:
            raise _broken("its Content-Type names no boundary") from None

    async def next(self) -> FormPart | None:
        """The next field, None at the end; raises InvalidRequest for what is no form, or does not
        arrive.
        """
        self._count += 1
        if self._count > _MOST_PARTS:
            raise _broken(f"it has more than {_MOST_PARTS} parts")
        part = await _arriving(self._reader.next())
        if part is not None and not isinstance(part, BodyPartReader):
            raise _broken("there is a form in it")
        if part is not None and not part.name:
            raise _broken("a part of it has no name")
        return None if part is None else FormPart(part)


async def _arriving(work: Awaitable[T]) -> T:
    """What has been read; raises InvalidRequest for what is broken, or does not arrive."""
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return await work
    except TimeoutError:
        raise InvalidRequest(
            f"Invalid body: nothing of it arrived for {IDLE_SECONDS:g} seconds.",
            code="incomplete_body",
        ) from None
    except web.RequestPayloadError:
        raise _broken("it ends too early, or is not what its Content-Encoding says") from None
    except (ValueError, RuntimeError, HttpProcessingError):
        raise _broken(f"it is no {_TYPE} as its boundary says, or ends too early") from None


def _clean(text: str) -> str:
    """What can be stored: bytes that are not UTF-8 are replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _broken(why: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid body: {why}.", code="invalid_body")
