"""The body of a request, read within bounds of size and time, and its query parameters.

A field that is nearly a known one is left out of the body and named in a header, because its client
meant the known one: what is one letter away from a long name that an API has, or is it in another
spelling (``maxTokens``). Engines' own fields (``top_k``, ``guided_json`` …) pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from aiohttp import HttpVersion11, hdrs, web

from router.dialects.chat.schema import CHAT_FIELDS
from router.dialects.embeddings.schema import PLAIN_FIELDS
from router.dialects.responses.fields import PRIVATE_FIELDS, RESPONSES_FIELDS
from router.errors import InvalidRequest, PayloadTooLarge
from router.http.connection import DirectRequest, HttpRequest
from router.telemetry.tasks import ValueCount, most_values, takes_long

__all__ = [
    "IDLE_SECONDS",
    "RequestBody",
    "counted",
    "expect_later",
    "is_true",
    "let_it_come",
    "misspelt",
    "only",
    "read_body",
    "read_counted",
    "starting_after",
    "without_misspelt",
]

_COUNTED_BYTES: Final = 64 * 1024
"""What is in smaller bodies is not counted. In larger ones it is, so much at a time."""

_PIECE_BYTES: Final = 1024 * 1024
"""What is looked at in one go of a body that came in one piece."""

IDLE_SECONDS: Final = 30.0
"""A client that sends nothing for so long in the midst of its body is given up."""


class RequestBody(NamedTuple):
    """A body, and whether work on all of it is too much for the event loop's own thread."""

    raw: bytes
    large: bool


async def expect_later(request: web.Request) -> None:
    """For ``Expect: 100-continue``: the client is told to go on by ``read_body``, not before.

    So a client whose key is refused need not send a body at all. Any other expectation is
    disregarded, as HTTP allows.
    """


async def read_body(request: web.Request, limit: int) -> bytes:
    """The whole body, of ``limit`` bytes at most; raises like ``read_counted``."""
    return (await read_counted(request, limit, limit)).raw


async def read_counted(request: HttpRequest, limit: int, values: int) -> RequestBody:
    """The whole body; ``limit`` is in bytes, ``values`` how many JSON values may be in it.

    Raises PayloadTooLarge past either, InvalidRequest for a body that is broken or does not arrive.
    """
    if isinstance(request, DirectRequest):
        if request.body is None:
            raise ConnectionResetError("The client left in the midst of its body.")
        raw = request.body
        return RequestBody(raw, False) if len(raw) <= _COUNTED_BYTES else await counted(raw, values)
    # Read here and not by aiohttp, so that the limit holds in a foreign application too.
    if request.content_length is not None and request.content_length > limit:
        raise _too_large(limit)
    if hdrs.EXPECT in request.headers:
        await let_it_come(request)
    content = request.content
    pieces: list[bytes] = []
    size = 0
    tally: _Tally | None = None
    try:
        while True:
            if content.is_eof():
                piece = await content.readany()  # all there: no timer is needed
            else:
                async with asyncio.timeout(IDLE_SECONDS):
                    piece = await content.readany()
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            if size > _COUNTED_BYTES:
                tally = tally or _Tally(values)
                await tally.go_on(pieces)
    except TimeoutError:
        raise InvalidRequest(
            f"Invalid body: nothing of it arrived for {IDLE_SECONDS:g} seconds, after "
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
    raw = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return RequestBody(raw, tally is not None and takes_long(size, tally.most))


class _Tally:
    """Counts the JSON values of a body that arrives. ``most`` is how many there may be so far; they
    are counted exactly only where that is more than ``limit``.
    """

    def __init__(self, limit: int) -> None:
        self.most = 0
        self._limit = limit
        self._looked = 0
        self._counted = 0
        self._count = ValueCount()

    async def go_on(self, pieces: list[bytes]) -> None:
        """Look at the pieces that are new; raises PayloadTooLarge past the limit. Others have their
        turn in between.
        """
        self.most += sum(map(most_values, pieces[self._looked :]))
        self._looked = len(pieces)
        if self.most <= self._limit:
            return
        for piece in pieces[self._counted :]:
            for start in range(0, len(piece), _COUNTED_BYTES):
                if self._count.feed(piece[start : start + _COUNTED_BYTES]) > self._limit:
                    raise PayloadTooLarge(
                        f"The request body holds more than {self._limit} JSON values (strings, "
                        "objects and arrays; ten numbers count as one), the limit of "
                        "server.max_body_values."
                    )
                await asyncio.sleep(0)
        self._counted = len(pieces)


async def counted(raw: bytes, values: int) -> RequestBody:
    """A body that is there, with ``values`` JSON values at most; raises PayloadTooLarge."""
    if len(raw) <= _COUNTED_BYTES:
        return RequestBody(raw, False)
    tally = _Tally(values)
    pieces: list[bytes] = []
    for start in range(0, len(raw), _PIECE_BYTES):
        pieces.append(raw[start : start + _PIECE_BYTES])
        await tally.go_on(pieces)
        await asyncio.sleep(0)
    return RequestBody(raw, takes_long(len(raw), tally.most))


async def let_it_come(request: web.Request) -> None:
    """Have a client send its body that waits to be told so."""
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


_KNOWN: Final = RESPONSES_FIELDS | PRIVATE_FIELDS | CHAT_FIELDS | PLAIN_FIELDS
_SHORTEST: Final = 8
"""Letters of a known name from which on one that is a letter away is taken for it: shorter ones
have neighbours among the engines' fields (``top_k`` and ``top_p``, ``models`` and ``model``).
"""
_LONGEST: Final = 64


def misspelt(names: Iterable[str]) -> list[str]:
    """Those of the names that are nearly, but not quite, known fields."""
    return [name for name in names if name not in _KNOWN and _is_near(name[: _LONGEST + 1])]


def without_misspelt(body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body without such fields, and their names; itself where it has none."""
    if body.keys() <= _KNOWN or not (names := misspelt(body)):
        return body, ()
    return {name: value for name, value in body.items() if name not in names}, tuple(names)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _shorter(name: str) -> set[str]:
    """The name without one of its letters, each in turn."""
    return {name[:at] + name[at + 1 :] for at in range(len(name))}


_SPELLINGS: Final = frozenset(map(_plain, _KNOWN))
_LONG: Final = frozenset(name for name in _SPELLINGS if len(name) >= _SHORTEST)
_SHORTENED: Final = frozenset(short for name in _LONG for short in _shorter(name))


@lru_cache(maxsize=1024)
def _is_near(name: str) -> bool:
    if len(name) > _LONGEST:
        return False
    plain = _plain(name)
    if plain in _SPELLINGS or plain in _SHORTENED:
        return True
    shorter = _shorter(plain)
    # A letter too much; or another letter, or two in the wrong order.
    return not shorter.isdisjoint(_LONG) or not shorter.isdisjoint(_SHORTENED)
