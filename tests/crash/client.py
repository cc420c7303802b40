"""Speaks HTTP to routers that come and go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
import orjson

__all__ = ["HANGS_AFTER", "Answer", "Client", "Frames", "Lost", "data_of"]

HANGS_AFTER = 45.0
"""Seconds until a request that got no answer counts as hanging."""


class Lost(Exception):
    """The connection broke, or could not be made: nobody knows what became of the request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that arrived."""

    status: int
    json: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


class Frames:
    """A stream that has begun; iterating gives its events, whole.

    Comments are left out. Half an event at the end is a lost connection.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        buffer = b""
        async for chunk in self._response.content.iter_any():
            *frames, buffer = (buffer + chunk).split(b"\n\n")
            for frame in frames:
                if not frame.startswith(b":"):
                    yield frame
        if buffer:
            raise Lost("the stream ended in the middle of an event")


class Client:
    """One client of several routers; ``urls`` are their addresses."""

    def __init__(self, urls: Sequence[str], rng: random.Random) -> None:
        self.refused = 0
        self._urls = urls
        self._rng = rng

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=HANGS_AFTER, sock_connect=5),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, **query: Any
    ) -> Answer:
        """The answer of one of the routers. Raises Lost, and TimeoutError where it hangs."""
        async with self._request(method, path, body, query) as response:
            return await _answer(response)

    async def insist(
        self, method: str, path: str, body: dict[str, Any] | None = None, **query: Any
    ) -> Answer:
        """The same, again and again until a router answers and its database is there.

        Only for what can be repeated. ``refused`` counts those that were told to come again.
        """
        async with asyncio.timeout(HANGS_AFTER):
            while True:
                with suppress(Lost):
                    answer = await self.call(method, path, body, **query)
                    if answer.status != 503:
                        return answer
                    self.refused += 1
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: dict[str, Any] | None = None, **query: Any
    ) -> AsyncIterator[Answer | Frames]:
        """A stream, or the answer where there is none. Raises Lost."""
        async with self._request(method, path, body, query) as response:
            if not response.headers["Content-Type"].startswith("text/event-stream"):
                yield await _answer(response)
            else:
                yield Frames(response)

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None, query: dict[str, Any]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = self._rng.choice(self._urls) + "/v1" + path
        data = None if body is None else orjson.dumps(body)
        params = {key: str(value) for key, value in query.items()}
        try:
            async with self._http.request(method, url, data=data, params=params) as response:
                yield response
        except TimeoutError:
            raise TimeoutError(f"{method} {path} {query} got no answer: {body}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from None


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    return Answer(response.status, orjson.loads(await response.read()), response.headers)


def data_of(frame: bytes) -> tuple[str, int, bytes]:
    """Type, number and data of an event."""
    head, _, data = frame.partition(b"\ndata: ")
    event = orjson.loads(data)
    assert head == b"event: " + event["type"].encode(), frame
    return event["type"], event["sequence_number"], data
