"""A client that is given the answer of a call which it may share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from plugins.response_cache.shared_call import SharedCall
from plugins.response_cache.surfaces import Rendering
from plugins.response_cache.telling import tell
from router.plugin import (
    DELTAS,
    ClientGone,
    Exchange,
    Frame,
    Overloaded,
    PartialOutput,
    RouterError,
    Sink,
    client_headers,
    internal_error,
    output_text,
    persist,
    persist_whole,
)

__all__ = ["Subscriber", "TryAgain"]

_OF_ITS_CALL: Final = ("X-Pointsman-Endpoint", "X-Pointsman-Attempts")
"""Headers that are true for the client whose call it was only."""


class TryAgain(Exception):
    """The call came to nothing that this client could be told, and it has been told nothing.

    ``answered``: there is an answer, but only for those who asked in the same form.
    """

    def __init__(self, *, answered: bool) -> None:
        super().__init__()
        self.answered = answered


@dataclass(slots=True, eq=False)
class Subscriber:
    """One client of a shared call. ``leads``: the call was begun for it. ``open_after`` is that of
    ``server``, in seconds.

    ``live``: it is told the events as they come; ``position`` is how many of them it was told, and
    ``behind`` that it reads more slowly than they come. ``awake`` is set when there is something to
    do that takes waiting.
    """

    exchange: Exchange
    sink: Sink
    rendering: Rendering
    call: SharedCall
    leads: bool
    open_after: float
    live: bool = False
    position: int = 0
    behind: bool = False
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    _same: bool = False
    _opened: bool = False
    _last: Frame | None = None
    _patience: asyncio.Timeout | None = None
    _fault: Exception | None = None

    async def run(self) -> None:
        """Tell the client everything, to the end.

        Raises TryAgain, ClientGone, and RouterError as long as nothing has been sent.
        """
        exchange, theirs = self.exchange, self.call.carrier
        self._same = exchange.request.operation is theirs.request.operation
        self.live = exchange.stream and theirs.stream and self._same
        self.call.subscribers.append(self)
        self.call.room.set()
        told = again = left = False
        try:
            await (self._follow() if self.live else self._wait())
            told = True
            await self.call.done.wait()  # what the call took is known then
        except TryAgain:
            again = True
            raise
        except asyncio.CancelledError:
            if told:
                raise
            left = exchange.abort is None
            if exchange.abort is None or not self.sink.opened:
                raise
            await self._fail(exchange.abort)
        except ClientGone:
            left = True
            raise
        except RouterError as error:
            if not self.sink.opened:
                raise
            await self._fail(error)
        finally:
            await self.call.leave(self)
            if not again:
                exchange.result.take_over(theirs.result, leads=self.leads)
            if left:
                self._abandon()

    def deliver(self) -> None:
        """Pass on what has come; never raises, so that no client is a burden to the others."""
        call, sink, exchange, rendering = self.call, self.sink, self.exchange, self.rendering
        result, theirs = exchange.result, call.carrier.result
        if not self.live or self.behind or self._fault is not None or self._last is not None:
            return
        try:
            if not self._opened:
                self._opened = True
                sink.open(self._headers())
            batch = call.frames[self.position - call.dropped :]
            if batch:
                self.position += len(batch)
                result.served_model = theirs.served_model
                frames = rendering.follow(batch)
                if exchange.record is not None and rendering.final is not None:
                    self._last = frames.pop()
                if result.first_output is None and theirs.first_output is not None:
                    exchange.context.plugin_set.chain.first_output(exchange)
                if frames:
                    sink.feed(frames)
                    self.behind = sink.paused
        except Exception as exc:
            self._fault = exc
        if self.behind or self._fault is not None or self._last is not None:
            self.awake.set()

    def cut(self) -> None:
        """It has fallen too far behind the others."""
        self._fault = Overloaded(
            "The stream was read too slowly: it is shared with others, who are far ahead."
        )
        self.behind = False  # the call need not wait for it any more
        if self._patience is not None:
            self._patience.reschedule(0)
        self.awake.set()

    async def _follow(self) -> None:
        """Wait until everything is told: ``deliver`` does it but for what takes waiting."""
        call, sink = self.call, self.sink
        if call.opened:
            self.deliver()
        while True:
            if not call.complete.is_set():
                await self.awake.wait()
                self.awake.clear()
            if self.behind:
                await self._room()
                self.deliver()
                call.made_room()
            if self._fault is not None:
                raise self._fault
            if self._last is not None:
                builder, final = self.rendering.builder, self.rendering.final
                assert builder is not None
                assert final is not None
                blobs = call.captured.encrypted_reasoning
                sink.feed([await persist(self.exchange, builder, final, blobs, self._last)])
                break
            if call.complete.is_set():
                if call.error is None:
                    break
                await self._failed(call.error)
                return
        sink.end()

    async def _room(self) -> None:
        """Wait until the client has read enough, or is let go of."""
        try:
            async with asyncio.timeout(None) as self._patience:
                await self.sink.resumed()
        except TimeoutError:
            if self._fault is None:
                raise
        finally:
            self._patience = None
        self.behind = False

    async def _wait(self) -> None:
        """Be told the whole answer once it is there."""
        call, exchange, sink = self.call, self.exchange, self.sink
        if exchange.stream:
            await self._open_in_time()
        await call.complete.wait()
        if call.error is not None:
            await self._failed(call.error)
            return
        exchange.result.served_model = call.carrier.result.served_model
        if call.body and self._same and not exchange.stream:
            body = self.rendering.follow_whole(call.body)
            if (final := self.rendering.final) is not None:
                blobs = call.captured.encrypted_reasoning
                body = await persist_whole(exchange, final, blobs, body)
            sink.finish(200, body, self._headers())
            return
        answer = call.answer()
        if answer is None:
            await self._failed(None)
            return
        await tell(exchange, sink, self.rendering, answer, self._headers())

    async def _open_in_time(self) -> None:
        """Wait for the answer, for a while; open the stream when that takes long."""
        try:
            async with asyncio.timeout(self.open_after):
                await self.call.complete.wait()
        except TimeoutError:
            self.sink.open(self._headers())
            if opening := self.rendering.opening():
                self.sink.feed(opening)

    async def _failed(self, error: RouterError | None) -> None:
        """The call has failed (None: it has an answer, but none for this client)."""
        if not self.sink.opened:
            if error is None or not (self.leads or self.call.promoted):
                raise TryAgain(answered=error is None)
            raise error
        await self._fail(error or internal_error(self.exchange))

    async def _fail(self, error: RouterError) -> None:
        """End a stream that has begun with the events that say why."""
        self._fault = error  # what comes meanwhile is not told any more
        self.exchange.result.fail(error.code)
        frames = self.rendering.fail(error, self._so_far())
        builder, final = self.rendering.builder, self.rendering.final
        if frames and builder is not None and final is not None:
            frames[-1] = await persist(self.exchange, builder, final, {}, frames[-1])
        if frames:
            self.sink.feed(frames)
        self.sink.end()

    def _headers(self) -> dict[str, str]:
        headers = client_headers(self.exchange, self.call.headers)
        if not self.leads:
            for name in _OF_ITS_CALL:
                headers.pop(name, None)
        return headers

    def _abandon(self) -> None:
        """The client is gone: what there is of a response that was to be stored is kept."""
        record, builder = self.exchange.record, self.rendering.builder
        if record is None or builder is None:
            return
        captured = self.call.captured
        output = self._so_far() if captured.left is None else captured.left["output"]
        told = {"output": output, "output_text": output_text(output)}
        blobs = {} if captured.left is None else captured.encrypted_reasoning
        record.abandon({**builder.snapshot("cancelled"), **told}, blobs)

    def _so_far(self) -> list[dict[str, Any]]:
        """The output that it was told, the unfinished item marked as such."""
        partial = PartialOutput()
        for frame in self.call.whole[: self.position] if self.live and self._same else ():
            if (kind := DELTAS.get(frame.type)) is not None:
                partial.delta(kind, frame.json())
            elif frame.type:
                partial.follow(frame.type, frame.json())
        return partial.so_far()
