"""The body of a request: read when it is wanted, within bounds of size and time.

Beside it, what is checked of its query parameters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiohttp import HttpVersion11, hdrs, web

from router.core.worker import ValueCount, most_values
from router.errors import InvalidRequest, PayloadTooLarge

__all__ = [
    "RequestBody",
    "expect_later",
    "is_true",
    "only",
    "read_body",
    "read_counted",
    "starting_after",
]

_COUNTED_BYTES: Final = 64 * 1024
"""What is in smaller bodies is not counted. In larger ones it is, so much at a time."""

_IDLE_SECONDS: Final = 30.0
"""A client that sends nothing for so long in the midst of its body is given up."""


class RequestBody(NamedTuple):
    """A body, and how many JSON values may be in it at most; 0 where there cannot be many."""

    raw: bytes
    most_values: int


async def expect_later(request: web.Request) -> None:
    """For ``Expect: 100-continue``: the client is told to go on by ``read_body``, not before.

    So a client whose key is refused need not send a body at all. Any other expectation is
    disregarded, as HTTP allows.
    """


async def read_body(request: web.Request, limit: int) -> bytes:
    """The whole body, of ``limit`` bytes at most; raises like ``read_counted``."""
    return (await read_counted(request, limit, limit)).raw


async def read_counted(request: web.Request, limit: int, values: int) -> RequestBody:
    """The whole body; ``limit`` is in bytes, ``values`` how many JSON values may be in it.

    Raises PayloadTooLarge past either, InvalidRequest for a body that is broken or does not arrive.
    """
    # Read here and not by aiohttp, so that the limit holds in a foreign application too.
    if request.content_length is not None and request.content_length > limit:
        raise _too_large(limit)
    await _let_it_come(request)
    pieces = []
    size = most = looked = counted = 0
    count = ValueCount()
    try:
        while piece := await _next_piece(request):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            if size <= _COUNTED_BYTES:
                continue
            most += sum(map(most_values, pieces[looked:]))
            looked = len(pieces)
            if most <= values:
                continue
            for each in pieces[counted:]:
                await _counted(count, each, values)
            counted = len(pieces)
    except TimeoutError:
        raise InvalidRequest(
            f"Invalid body: nothing of it arrived for {_IDLE_SECONDS:g} seconds, after "
            f"{size} bytes.",
            code="incomplete_body",
        ) from None
    except web.RequestPayloadError:
        # What follows cannot be understood, and aiohttp should not try and log a failure of its.
        request.content.feed_eof()
        request.protocol.close()
        raise InvalidRequest(
            "Invalid body: it is not what its Content-Encoding says.", code="invalid_body"
        ) from None
    return RequestBody(pieces[0] if len(pieces) == 1 else b"".join(pieces), most)


async def _counted(count: ValueCount, piece: bytes, values: int) -> None:
    """Count on; raises PayloadTooLarge past ``values``. Others have their turn in between."""
    for start in range(0, len(piece), _COUNTED_BYTES):
        if count.feed(piece[start : start + _COUNTED_BYTES]) > values:
            raise PayloadTooLarge(
                f"The request body holds more than {values} JSON values (strings, objects and "
                "arrays; ten numbers count as one), the limit of server.max_body_values."
            )
        await asyncio.sleep(0)


async def _next_piece(request: web.Request) -> bytes:
    content = request.content
    if content.is_eof():
        return await content.readany()  # all there: no timer is needed
    async with asyncio.timeout(_IDLE_SECONDS):
        return await content.readany()


async def _let_it_come(request: web.Request) -> None:
    expected = request.headers.get(hdrs.EXPECT)
    if expected is None or request.version < HttpVersion11 or request.content.is_eof():
        return
    if expected.lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself has not begun


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request body exceeds the limit of {limit / 1024 / 1024:g} MiB.")


_TRUE: Final = frozenset({"true", "1"})
_MAX_DIGITS: Final = 20
_MAX_EVENT: Final = 2**53
_SHOWN: Final = 200


def is_true(value: str | None) -> bool:
    """Whether a query parameter says yes."""
    return value is not None and value.lower() in _TRUE


def starting_after(query: Mapping[str, str]) -> int:
    """The number of the last event that the client has, -1 for none; raises InvalidRequest."""
    given = query.get("starting_after")
    if given is None:
        return -1
    try:
        after = int(given[:_MAX_DIGITS])
    except ValueError:
        raise InvalidRequest(
            "Invalid 'starting_after': expected an integer, the sequence number of an event.",
            code="invalid_type",
            param="starting_after",
        ) from None
    if not -1 <= after <= _MAX_EVENT:
        raise InvalidRequest(
            "Invalid 'starting_after': expected the sequence number of an event.",
            code="invalid_value",
            param="starting_after",
        )
    return after


def only(query: Mapping[str, str], *known: str) -> None:
    """Raises InvalidRequest for a parameter that is not known."""
    for name in query:
        if name not in known:
            shown = name[:_SHOWN]
            raise InvalidRequest(
                f"Unknown parameter: '{shown}'.", code="unknown_parameter", param=shown
            )
