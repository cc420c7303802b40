"""One call to the fleet, and everybody who waits for its answer.

The call is made by a task of its own, for a *carrier*: an exchange like the one that began it. Who
began it and who joined later are alike: what comes is passed on to each as their own, at once and
in the call that brings it, no matter when they came. A client that leaves ends the call only when
it was the last one there.

A slow client keeps only itself waiting, and is let go of when more is held for it than may be. When
all of them are slow, so is the call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cache.request import CachedAnswer
from router.plugin import Exchange, Frame, PluginSet, RouterError

if TYPE_CHECKING:
    from plugins.response_cache.subscriber import Subscriber
    from plugins.response_cache.surfaces import Surface

__all__ = ["CapturedOutput", "SharedCall"]

_END_SECONDS: Final = 2.0
"""So long the last that leaves waits to be told what the call cost."""

_MAX_HELD: Final = 16 * 1024 * 1024
"""So many bytes of events are kept for those who join late; past it nobody can join."""


@dataclass(slots=True)
class CapturedOutput:
    """Implements ``router.core.exchange.ExchangeRecord``: keeps what the records of the clients are
    given.

    ``final`` is the final Response object, ``left`` what there was of it where all have left.
    """

    final: dict[str, Any] | None = None
    encrypted_reasoning: Mapping[str, str] = field(default_factory=dict)
    left: dict[str, Any] | None = None

    async def finish(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> bool:
        """See ``ExchangeRecord.finish``."""
        self.final, self.encrypted_reasoning = response, encrypted_reasoning
        return True

    def abandon(self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> None:
        """See ``ExchangeRecord.abandon``: this is as far as it came."""
        self.left, self.encrypted_reasoning = response, encrypted_reasoning


class SharedCall:
    """Implements ``router.core.exchange.Sink`` for the call.

    ``frames`` are the events that came, less the first ``dropped`` of them; or ``body`` is the
    answer. ``complete`` is set when nothing more will come, ``done`` when the call is over, too.
    Whoever is among ``subscribers`` is told what comes; ``room`` is set when there may be one again
    that is not behind.

    ``promoted``: the call before it failed, and those who waited for that wait for this one.
    ``epoch`` is the store's of before it. ``captured`` is what the pipeline had to store.
    ``hosted``: an answer that hosted tools had a part in is kept.
    ``task`` is there once it runs.
    """

    def __init__(
        self,
        exchange: Exchange,
        surface: Surface,
        plugin_set: PluginSet,
        *,
        promoted: bool = False,
        epoch: int | None = None,
        hosted: bool = False,
    ) -> None:
        """For what ``exchange`` asks; ``plugin_set`` is its carrier's."""
        body = exchange.body
        if surface.asks_for_usage and body.get("stream"):
            # Those who do not want the usage are spared it; who wants it could not be given it.
            options = body.get("stream_options") or {}
            body = {**body, "stream_options": {**options, "include_usage": True}}
        self.captured = CapturedOutput()
        self.carrier = exchange.derive(body, plugin_set)
        if exchange.record is not None:
            self.carrier.record = self.captured
        self.promoted = promoted
        self.epoch = epoch
        self.hosted = hosted
        self.headers: dict[str, str] = {}
        self.body = b""
        self.frames: list[Frame] = []
        self.dropped = 0
        self.opened = False
        self.error: RouterError | None = None
        self.complete = asyncio.Event()
        self.done = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._given_up = False
        self.subscribers: list[Subscriber] = []
        self.room = asyncio.Event()
        self._surface = surface
        self._answer: tuple[CachedAnswer | None] | None = None
        self._came = 0
        self._held = 0
        self._paid = False

    @property
    def joinable(self) -> bool:
        """Whether somebody who comes now can still be told everything."""
        return not self._given_up and self.error is None and self._came <= _MAX_HELD

    @property
    def whole(self) -> Sequence[Frame]:
        """Every event that came; empty where they were too many to be kept."""
        return self.frames if self._came <= _MAX_HELD else ()

    async def leave(self, subscriber: Subscriber) -> None:
        """It wants to hear no more; the last that leaves ends the call."""
        first = self.subscribers[0] is subscriber
        self.subscribers.remove(subscriber)
        self.room.set()
        if not self.subscribers and not self.done.is_set():
            self._given_up = True
            if self.task is not None:
                self.task.cancel()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_END_SECONDS):
                        await self.done.wait()
        if first and not self._paid and self.done.is_set():
            # What the call cost is counted once: for who has been there longest.
            self._paid = True
            subscriber.exchange.result.take_costs(self.carrier.result)

    def answer(self) -> CachedAnswer | None:
        """What was answered, once the call is over, for those who did not ask in the same form;
        None where it can not be given again.
        """
        if self._answer is None:
            self._answer = (self._surface.answer(self),)
        return self._answer[0]

    @property
    def paused(self) -> bool:
        """See ``Sink.paused``."""
        for subscriber in self.subscribers:
            if not subscriber.behind:
                return False
        return bool(self.subscribers)

    async def resumed(self) -> None:
        """See ``Sink.resumed``."""
        while self.paused:
            self.room.clear()
            await self.room.wait()

    def made_room(self) -> None:
        """A subscriber has caught up."""
        self._forget()
        self.room.set()

    def open(self, headers: Mapping[str, str]) -> None:
        """See ``Sink.open``."""
        self.opened, self.headers = True, dict(headers)
        for subscriber in self.subscribers:
            subscriber.deliver()

    def feed(self, batch: Sequence[Frame]) -> None:
        """See ``Sink.feed``."""
        self.frames += batch
        size = 0
        for frame in batch:
            size += len(frame.data)
        self._came += size
        self._held += size
        for subscriber in self.subscribers:
            subscriber.deliver()
        if self._came > _MAX_HELD:
            self._forget()
            if self._held > _MAX_HELD:
                self._let_go()

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """See ``Sink.finish``."""
        self.body, self.headers = body, dict(headers)
        self.end()

    def end(self) -> None:
        """See ``Sink.end``."""
        self.complete.set()
        for subscriber in self.subscribers:
            subscriber.awake.set()

    def fail(self, error: RouterError | None) -> None:
        """The call has come to nothing, or (None) to no end."""
        self.error = error
        self.end()

    def _forget(self) -> None:
        """Drop what everybody has been told, once it is too much to be kept for others."""
        if self._came <= _MAX_HELD:
            return
        came = self.dropped + len(self.frames)
        told = min((one.position for one in self.subscribers if one.live), default=came)
        if told > self.dropped:
            count = told - self.dropped
            self._held -= sum(len(frame.data) for frame in self.frames[:count])
            del self.frames[:count]
            self.dropped = told

    def _let_go(self) -> None:
        """Let go of those for whom all of this is held: others have long been told."""
        for subscriber in self.subscribers:
            if subscriber.live and subscriber.behind and subscriber.position == self.dropped:
                subscriber.cut()
