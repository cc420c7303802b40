"""Answers that come when the test says so, and clients that watch streams meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

from tests.crash.client import Answer, Client, Lost, data_of
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, Wire
from tests.support.waiting import until

__all__ = ["CHAT", "Stage", "Take", "Watcher", "until", "watching"]

CHAT = SPEECH["chat"]
"""Seconds until something that must happen counts as not happening."""


class Take:
    """One request to the upstream, answered piece by piece."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._kind = CHAT.kind
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    def say(self, *pieces: bytes) -> None:
        """Send these pieces of a chat stream; they may be for nobody."""
        for piece in pieces:
            self._pieces.put_nowait(piece)

    def finish(self, *pieces: bytes) -> None:
        """Send these, and the end of the answer."""
        self.say(*pieces, CHAT.closing)
        self._pieces.put_nowait(None)

    def answer(self) -> None:
        """Send a whole answer instead, to who has not asked for a stream."""
        self._kind = "application/json"
        self.say(CHAT.whole)
        self._pieces.put_nowait(None)

    async def play(self) -> None:
        """Be the script of the wire."""
        piece = await self._pieces.get()
        self.wire.head(200, {"Content-Type": self._kind})
        while piece is not None:
            self.wire.piece(piece)
            piece = await self._pieces.get()
        self.wire.end()


class Stage:
    """A chat upstream that waits for directions, or does its part ``by_itself``.

    ``takes`` are the requests that came to it.
    """

    def __init__(self) -> None:
        self.takes: list[Take] = []
        self.by_itself = False
        self.upstream = Upstream(default=self._play)

    async def take(self, number: int) -> Take:
        """The request of this number, waited for."""
        await until(lambda: len(self.takes) > number, what=f"request {number} at the upstream")
        return self.takes[number]

    def endpoint(self) -> dict[str, Any]:
        """The settings of the endpoint that it is."""
        return {
            "name": "stage",
            "url": self.upstream.address + CHAT.prefix,
            "dialect": "chat",
            "models": ["m"],
            "timeouts": {"first_byte": 120, "idle": 120},
        }

    async def _play(self, wire: Wire) -> None:
        take = Take(wire)
        self.takes.append(take)
        if self.by_itself:
            if wire.request.json.get("stream"):
                take.finish(CHAT.opening, *CHAT.words)
            else:
                take.answer()
        await take.play()


class Watcher:
    """What a client has seen of a stream so far; ``answer`` is what it got where it got none."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, bytes]] = []
        self.answer: Answer | None = None
        self.headers: Mapping[str, str] = {}
        self.over = False
        self.broken = False

    @property
    def text(self) -> str:
        """The text deltas, joined."""
        deltas = [orjson.loads(data) for kind, _, data in self.events if kind.endswith(".delta")]
        return "".join(event["delta"] for event in deltas)

    @property
    def id(self) -> str:
        """The id of the response; the first event must have come."""
        ident: str = orjson.loads(self.events[0][2])["response"]["id"]
        return ident

    @property
    def final(self) -> dict[str, Any]:
        """The Response object of the last event."""
        response: dict[str, Any] = orjson.loads(self.events[-1][2])["response"]
        return response

    @property
    def last(self) -> str:
        """The type of the last event."""
        return self.events[-1][0]

    async def until_text(self, text: str) -> None:
        """Wait until this is the text, and no more."""
        await until(lambda: len(self.text) >= len(text), what=repr(text))
        assert self.text == text

    async def until_over(self) -> None:
        """Wait for the end of the stream."""
        await until(lambda: self.over, what="the end of a stream")


@asynccontextmanager
async def watching(
    client: Client, method: str, path: str, body: dict[str, Any] | None = None, **query: Any
) -> AsyncIterator[Watcher]:
    """Watch a stream in the background."""
    watcher = Watcher()

    async def watch() -> None:
        try:
            async with client.stream(method, path, body, **query) as frames:
                if isinstance(frames, Answer):
                    watcher.answer = frames
                    return
                watcher.headers = frames.headers
                async for frame in frames:
                    watcher.events.append(data_of(frame))
        except Lost:
            watcher.broken = True
        finally:
            watcher.over = True

    task = asyncio.ensure_future(watch())
    try:
        yield watcher
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
