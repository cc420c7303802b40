"""A client that is given the answer of a call which it may share, or one that is already there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cache.request import CachedAnswer
from plugins.response_cache.shared_call import CapturedOutput, SharedCall
from plugins.response_cache.surfaces import Rendering
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
    first_output,
    frame_tokens,
    internal_error,
    output_text,
    persist,
    persist_whole,
)

__all__ = ["Subscriber", "TryAgain", "begin_output", "tell"]

_OF_ITS_CALL: Final = ("X-Pointsman-Endpoint", "X-Pointsman-Attempts")
"""Headers that are true for the client whose call it was only."""


class TryAgain(Exception):
    """The call came to nothing that this client could be told, and it has been told nothing.

    ``answered``: there is an answer, but only for those who asked in the same form.
    """

    def __init__(self, *, answered: bool) -> None:
        super().__init__()
        self.answered = answered


class Subscriber:
    """One client of a shared call. ``leads``: the call was begun for it.

    ``live``: it is told the events as they come; ``position`` is how many of them it was told.
    """

    def __init__(
        self,
        exchange: Exchange,
        sink: Sink,
        rendering: Rendering,
        shared_call: SharedCall,
        *,
        leads: bool,
        open_after: float,
    ) -> None:
        self.exchange = exchange
        self.position = 0
        self._sink = sink
        self._rendering = rendering
        self._shared_call = shared_call
        self._leads = leads
        self._open_after = open_after
        self._same = exchange.request.operation is shared_call.carrier.request.operation
        self.live = exchange.stream and shared_call.carrier.stream and self._same
        self._last: Frame | None = None
        self._told = False
        self._again = False
        self._left = False
        self._patience: asyncio.Timeout | None = None
        self._fault: Exception | None = None
        self._awake = asyncio.Event()

    @property
    def behind(self) -> bool:
        """Whether it reads more slowly than the answer comes."""
        return self.live and self._fault is None and self._sink.paused

    def wake(self) -> None:
        """There is something to do that takes waiting."""
        self._awake.set()

    def cut(self) -> None:
        """It has fallen too far behind the others."""
        self._fault = Overloaded(
            "The stream was read too slowly: it is shared with others, who are far ahead."
        )
        if self._patience is not None:
            self._patience.reschedule(0)
        self.wake()

    async def run(self) -> None:
        """Tell the client everything, to the end.

        Raises TryAgain, ClientGone, and RouterError as long as nothing has been sent.
        """
        shared_call = self._shared_call
        shared_call.join(self)
        try:
            if self.live:
                self.deliver()
                if shared_call.complete.is_set():
                    self.wake()
                await self._follow()
            else:
                await self._wait()
            self._told = True
            await shared_call.done.wait()  # what the call took is known then
        except TryAgain:
            self._again = True
            raise
        except asyncio.CancelledError:
            if self._told:
                raise
            self._left = self.exchange.abort is None
            if self.exchange.abort is None or not self._sink.opened:
                raise
            await self._fail(self.exchange.abort)
        except ClientGone:
            self._left = True
            raise
        except RouterError as error:
            if not self._sink.opened:
                raise
            await self._fail(error)
        finally:
            await shared_call.leave(self)
            if not self._again:
                self._take_over_facts()
            if self._left:
                self._abandon()

    def deliver(self) -> None:
        """Pass on what has come; never raises, so that no client is a burden to the others."""
        if not self.live or self._fault is not None or self._last is not None:
            return
        try:
            self._deliver()
        except Exception as exc:
            self._fault = exc
        if self._fault is not None or self._last is not None or self._sink.paused:
            self.wake()

    def _deliver(self) -> None:
        shared_call, sink = self._shared_call, self._sink
        if not shared_call.opened or sink.paused:
            return
        if not sink.opened:
            sink.open(self._headers())
        batch = shared_call.since(self.position)
        if not batch:
            return
        self.position += len(batch)
        self.exchange.result.served_model = shared_call.carrier.result.served_model
        frames = self._rendering.follow(batch)
        if self.exchange.record is not None and self._rendering.final is not None:
            self._last = frames.pop()
        if shared_call.carrier.result.first_output is not None:
            begin_output(self.exchange)
        if frames:
            sink.feed(frames)

    async def _follow(self) -> None:
        shared_call, sink = self._shared_call, self._sink
        while True:
            await self._awake.wait()
            self._awake.clear()
            if sink.paused and self._fault is None:
                await self._room()
            self.deliver()
            shared_call.made_room()
            if self._fault is not None:
                raise self._fault
            if self._last is not None:
                sink.feed([await self._kept(self._last)])
                break
            if not shared_call.complete.is_set():
                continue
            if shared_call.error is not None:
                await self._failed(shared_call.error)
                return
            if self.position == shared_call.position:
                break
            self.wake()
        sink.end()

    async def _room(self) -> None:
        """Wait until the client has read enough, or is let go of."""
        try:
            async with asyncio.timeout(None) as self._patience:
                await self._sink.resumed()
        except TimeoutError:
            if self._fault is None:
                raise
        finally:
            self._patience = None

    async def _kept(self, last: Frame) -> Frame:
        final, builder = self._rendering.final, self._rendering.builder
        assert final is not None
        assert builder is not None
        return await persist(self.exchange, builder, final, self._encrypted_reasoning(), last)

    def _encrypted_reasoning(self) -> dict[str, str]:
        record = self._shared_call.carrier.record
        return dict(record.encrypted_reasoning) if isinstance(record, CapturedOutput) else {}

    async def _wait(self) -> None:
        """Be told the whole answer once it is there."""
        shared_call, exchange, sink = self._shared_call, self.exchange, self._sink
        await self._landed()
        if shared_call.error is not None:
            await self._failed(shared_call.error)
            return
        exchange.result.served_model = shared_call.carrier.result.served_model
        if shared_call.body and self._same and not exchange.stream:
            body = self._rendering.follow_whole(shared_call.body)
            final = self._rendering.final
            if final is not None:
                body = await persist_whole(exchange, final, self._encrypted_reasoning(), body)
            sink.finish(200, body, self._headers())
            return
        answer: CachedAnswer | None = shared_call.canonical()
        if answer is None:
            await self._failed(None)
            return
        await tell(exchange, sink, self._rendering, answer, self._headers())

    async def _landed(self) -> None:
        """Wait for the end of the call; a stream is opened when that takes long."""
        complete = self._shared_call.complete
        if self.exchange.stream:
            try:
                async with asyncio.timeout(self._open_after):
                    await complete.wait()
            except TimeoutError:
                self._sink.open(self._headers())
                if opening := self._rendering.opening():
                    self._sink.feed(opening)
        await complete.wait()

    async def _failed(self, error: RouterError | None) -> None:
        """The call has failed (None: it has an answer, but none for this client)."""
        if not self._sink.opened:
            if error is None or not (self._leads or self._shared_call.promoted):
                raise TryAgain(answered=error is None)
            raise error
        await self._fail(error or internal_error(self.exchange))

    async def _fail(self, error: RouterError) -> None:
        """End a stream that has begun with the events that say why."""
        self.exchange.result.fail(error.code)
        frames = self._rendering.fail(error, self._so_far())
        builder, final = self._rendering.builder, self._rendering.final
        if frames and builder is not None and final is not None:
            frames[-1] = await persist(self.exchange, builder, final, {}, frames[-1])
        if frames:
            self._sink.feed(frames)
        self._sink.end()

    def _headers(self) -> dict[str, str]:
        headers = client_headers(self.exchange, self._shared_call.headers)
        if not self._leads:
            for name in _OF_ITS_CALL:
                headers.pop(name, None)
        return headers

    def _take_over_facts(self) -> None:
        """What is known of the call is known of this exchange, for logs and metrics."""
        carrier, exchange = self._shared_call.carrier, self.exchange
        exchange.result.take_over(carrier.result, leads=self._leads)

    def _abandon(self) -> None:
        """The client is gone: what there is of a response that was to be stored is kept."""
        record, builder = self.exchange.record, self._rendering.builder
        if record is None or builder is None:
            return
        captured = self._shared_call.carrier.record
        left = captured.left if isinstance(captured, CapturedOutput) else None
        output = self._so_far() if left is None else left["output"]
        told = {"output": output, "output_text": output_text(output)}
        encrypted_reasoning = {} if left is None else self._encrypted_reasoning()
        record.abandon({**builder.snapshot("cancelled"), **told}, encrypted_reasoning)

    def _so_far(self) -> list[dict[str, Any]]:
        """The output that it was told, the unfinished item marked as such."""
        partial = PartialOutput()
        for frame in self._shared_call.whole[: self.position] if self.live and self._same else ():
            if (field := DELTAS.get(frame.type)) is not None:
                partial.delta(field, frame.json())
            elif frame.type:
                partial.follow(frame.type, frame.json())
        return partial.so_far()


_AT_ONCE: Final = 256
"""Events written with one call, before the client is given the time to read them."""

_PACE_SECONDS: Final = 0.02
"""A paced stream is written so often."""


def begin_output(exchange: Exchange) -> None:
    """The first output is about to leave; asked again it does nothing."""
    if exchange.result.first_output is None:
        exchange.result.first_output = time.monotonic()
        first_output(exchange)


async def tell(
    exchange: Exchange,
    sink: Sink,
    rendering: Rendering,
    answer: CachedAnswer,
    headers: Mapping[str, str],
    rate: float = 0.0,
) -> None:
    """Tell a whole answer, stored first where it is to be. ``rate`` is in tokens per second; 0 is
    at once. Raises RouterError as long as nothing has been sent, and ClientGone.
    """
    if not exchange.stream:
        body = rendering.whole(answer)
        if rendering.final is not None:
            body = await persist_whole(
                exchange, rendering.final, rendering.encrypted_reasoning, body
            )
        sink.finish(200, body, headers)
        return
    frames = rendering.replay(answer)
    if rendering.builder is not None and rendering.final is not None:
        frames[-1] = await persist(
            exchange, rendering.builder, rendering.final, rendering.encrypted_reasoning, frames[-1]
        )
    if not sink.opened:
        sink.open(headers)
    begin_output(exchange)
    if rate:
        told = await _paced(exchange, sink, frames, rate)
        frames = frames[told:]
    await _at_once(sink, frames)
    sink.end()


async def _at_once(sink: Sink, frames: Sequence[Frame]) -> None:
    for start in range(0, len(frames), _AT_ONCE):
        if sink.paused:
            await sink.resumed()
        sink.feed(frames[start : start + _AT_ONCE])


async def _paced(exchange: Exchange, sink: Sink, frames: Sequence[Frame], rate: float) -> int:
    """Tell the events one after the other; how many of them were. Not all are when the router
    stops: nobody need wait for what is there.
    """
    loop = asyncio.get_running_loop()
    due = loop.time()
    told = 0
    try:
        for index, frame in enumerate(frames, 1):
            due += frame_tokens(frame) / rate
            if due - loop.time() < _PACE_SECONDS:
                continue
            batch, told = frames[told:index], index
            sink.feed(batch)
            if sink.paused:
                await sink.resumed()
            await asyncio.sleep(due - loop.time())
    except asyncio.CancelledError:
        if exchange.abort is None:
            raise
    return told
