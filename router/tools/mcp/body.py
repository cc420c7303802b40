"""An answer of an MCP server on its way to the SDK, within bounds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import urljoin, urlsplit

import anyio
import httpcore2
import httpx2

from router.tools.mcp.errors import McpError, McpProtocolError, McpTimeout, McpUnreachable

__all__ = ["BROKEN", "Body", "named_endpoint", "stream_starts_at"]

BROKEN: Final = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    OSError,
)
"""How a connection breaks."""

_LONGEST_START: Final = 16 * 1024


class Body(httpx2.AsyncByteStream):
    """It ends early and quietly where something is wrong, and ``fail`` is told.

    ``take`` is asked whether so many more bytes may come, ``check`` sees them first and raises
    McpError, ``done`` is called once, at the end. ``limit`` is the time when it must have ended.
    """

    def __init__(
        self,
        answer: httpcore2.Response,
        who: str,
        *,
        fail: Callable[[McpError], None],
        take: Callable[[int], bool],
        check: Callable[[bytes], None] | None = None,
        done: Callable[[], None],
        limit: float = math.inf,
    ) -> None:
        self._answer = answer
        self._fail = fail
        self._who = who
        self._take = take
        self._check = check
        self._done: Callable[[], None] | None = done
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._pieces():
                if not self._take(len(data)):
                    raise McpProtocolError(f"{self._who} sent too much.")
                if self._check is not None:
                    self._check(data)
                yield data
        except McpError as error:
            self._fail(error)

    async def aclose(self) -> None:
        """Give the connection back, or close it where the answer is not at its end."""
        done, self._done = self._done, None
        if done is None:
            return
        try:
            await self._answer.aclose()
        except BROKEN:
            pass  # it is closed, then
        finally:
            done()

    async def _pieces(self) -> AsyncIterator[bytes]:
        iterator = self._answer.aiter_stream()
        while True:
            data = None
            with anyio.CancelScope(deadline=self._limit):
                try:
                    data = await anext(iterator)
                except StopAsyncIteration:
                    return
                except BROKEN as error:
                    raise McpUnreachable(f"{self._who} broke the connection.") from error
            if data is None:
                raise McpTimeout(f"{self._who} did not finish its answer in time.")
            yield data


def stream_starts_at(url: str, who: str) -> Callable[[bytes], None]:
    """For ``Body``: checks the endpoint that the older transport's stream names first, which must
    be on the origin of ``url``. The SDK does so, too, but says it to nobody.
    """
    start: bytearray | None = bytearray()

    def check(data: bytes) -> None:
        nonlocal start
        if start is None:
            return
        start += data
        named = named_endpoint(bytes(start))
        if named is None and len(start) < _LONGEST_START:
            return
        start = None
        if not named or not _is_within(url, named):
            raise McpProtocolError(f"{who} names an endpoint on another origin, or none.")

    return check


def named_endpoint(start: bytes) -> str | None:
    """The data of the first event that is not empty; "" where that is no ``endpoint``, None where
    it is not complete.
    """
    text = start.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    for event in text.removeprefix("\ufeff").split("\n\n")[:-1]:
        fields = [line.partition(":")[::2] for line in event.split("\n")]
        values = {name: value.removeprefix(" ") for name, value in fields if name}
        if values:
            return values.get("data", "") if values.get("event") == "endpoint" else ""
    return None


def _is_within(url: str, named: str) -> bool:
    try:
        base, parts = urlsplit(url), urlsplit(urljoin(url, named))
    except ValueError:
        return False
    return (parts.scheme, parts.netloc) == (base.scheme, base.netloc)
