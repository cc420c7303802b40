"""A client that speaks to a router over a WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

__all__ = ["TERMINAL", "Socket", "connected", "is_closed"]

JSON = dict[str, Any]
TERMINAL = {"response.completed", "response.failed", "response.incomplete", "error"}


class Socket:
    """One connection. ``ws`` is aiohttp's."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws

    async def send(self, **fields: Any) -> None:
        """A ``response.create`` for the model ``m``, with nothing to be stored."""
        body = {"model": "m", "store": False, "input": "hi", **fields}
        await self.ws.send_str(orjson.dumps({"type": "response.create", **body}).decode())

    async def event(self) -> JSON:
        """The next event."""
        message = await self.ws.receive(timeout=60)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        event: JSON = orjson.loads(message.data)
        return event

    async def events(self) -> list[JSON]:
        """The events up to the next that ends a response, or is an error."""
        events = [await self.event()]
        while events[-1]["type"] not in TERMINAL:
            events.append(await self.event())
        return events

    async def until(self, kind: str, stream: str | None = None) -> JSON:
        """The next event of this type and stream; others before it are forgotten."""
        while True:
            event = await self.event()
            if event["type"] == kind and event.get("stream_id") == stream:
                return event

    async def ask(self, **fields: Any) -> JSON:
        """The response to a request, completed."""
        await self.send(**fields)
        last = (await self.events())[-1]
        assert last["type"] == "response.completed", last
        response: JSON = last["response"]
        return response

    async def refused(self, **fields: Any) -> JSON:
        """The error event that a request is answered with."""
        await self.send(**fields)
        [event] = await self.events()
        assert event["type"] == "error", event
        return event

    async def closed(self) -> int | None:
        """Wait for the other side to close; its code."""
        message = await self.ws.receive(timeout=60)
        assert is_closed(message), message
        return self.ws.close_code


def is_closed(message: aiohttp.WSMessage) -> bool:
    """Whether there is nothing more to come."""
    return message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


@asynccontextmanager
async def connected(
    url: str, path: str = "/v1/responses", key: str | None = None, **options: Any
) -> AsyncIterator[Socket]:
    """A connection to the router at this base URL."""
    headers = {**options.pop("headers", {})}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    options = {"max_msg_size": 0, **options}
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(url + path, headers=headers, **options) as ws,
    ):
        yield Socket(ws)
