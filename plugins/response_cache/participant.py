"""A client that is told the answer of a call which it may share with others."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from cache.answer import Answer
from plugins.response_cache.flight import Flight, Overheard
from plugins.response_cache.surfaces import Rendering
from plugins.response_cache.telling import begin_output, tell
from router.core.exchange import ClientGone, Exchange, Outcome, Sink, internal_error
from router.core.persist import keep, keep_whole
from router.core.response_headers import client_headers
from router.errors import Overloaded, RouterError
from router.response.builder import output_text
from router.response.frame import Frame
from router.response.partial import DELTAS, PartialOutput

__all__ = ["Participant", "TryAgain"]

_OF_ITS_CALL: Final = ("X-Pointsman-Endpoint", "X-Pointsman-Attempts")
"""Headers that are true for the client whose call it was only."""


class TryAgain(Exception):
    """The call came to nothing that this client could be told, and it has been told nothing.

    ``answered``: there is an answer, but only for those who asked in the same form.
    """

    def __init__(self, *, answered: bool) -> None:
        super().__init__()
        self.answered = answered


class Participant:
    """One client of a flight. ``leads``: the call was begun for it.

    ``live``: it is told the events as they come; ``position`` is how many of them it was told.
    """

    def __init__(
        self,
        exchange: Exchange,
        sink: Sink,
        rendering: Rendering,
        flight: Flight,
        *,
        leads: bool,
        open_after: float,
    ) -> None:
        self.exchange = exchange
        self.position = 0
        self._sink = sink
        self._rendering = rendering
        self._flight = flight
        self._leads = leads
        self._open_after = open_after
        self._same = exchange.operation is flight.carrier.operation
        self.live = exchange.stream and flight.carrier.stream and self._same
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
        flight = self._flight
        flight.join(self)
        try:
            if self.live:
                self.deliver()
                if flight.complete.is_set():
                    self.wake()
                await self._follow()
            else:
                await self._wait()
            self._told = True
            await flight.done.wait()  # what the call took is known then
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
            await flight.leave(self)
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
        flight, sink = self._flight, self._sink
        if not flight.opened or sink.paused:
            return
        if not sink.opened:
            sink.open(self._headers())
        batch = flight.since(self.position)
        if not batch:
            return
        self.position += len(batch)
        self.exchange.served_model = flight.carrier.served_model
        frames = self._rendering.follow(batch)
        if self.exchange.record is not None and self._rendering.final is not None:
            self._last = frames.pop()
        if flight.carrier.first_output is not None:
            begin_output(self.exchange)
        if frames:
            sink.feed(frames)

    async def _follow(self) -> None:
        flight, sink = self._flight, self._sink
        while True:
            await self._awake.wait()
            self._awake.clear()
            if sink.paused and self._fault is None:
                await self._room()
            self.deliver()
            flight.made_room()
            if self._fault is not None:
                raise self._fault
            if self._last is not None:
                sink.feed([await self._kept(self._last)])
                break
            if not flight.complete.is_set():
                continue
            if flight.error is not None:
                await self._failed(flight.error)
                return
            if self.position == flight.position:
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
        final, draft = self._rendering.final, self._rendering.draft
        assert final is not None
        assert draft is not None
        return await keep(self.exchange, draft, final, self._hidden(), last)

    def _hidden(self) -> dict[str, str]:
        record = self._flight.carrier.record
        return dict(record.hidden) if isinstance(record, Overheard) else {}

    async def _wait(self) -> None:
        """Be told the whole answer once it is there."""
        flight, exchange, sink = self._flight, self.exchange, self._sink
        await self._landed()
        if flight.error is not None:
            await self._failed(flight.error)
            return
        exchange.served_model = flight.carrier.served_model
        if flight.body and self._same and not exchange.stream:
            body = self._rendering.follow_whole(flight.body)
            final = self._rendering.final
            if final is not None:
                body = await keep_whole(exchange, final, self._hidden(), body)
            sink.finish(200, body, self._headers())
            return
        answer: Answer | None = flight.canonical()
        if answer is None:
            await self._failed(None)
            return
        await tell(exchange, sink, self._rendering, answer, self._headers())

    async def _landed(self) -> None:
        """Wait for the end of the call; a stream is opened when that takes long."""
        complete = self._flight.complete
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
            if error is None or not (self._leads or self._flight.promoted):
                raise TryAgain(answered=error is None)
            raise error
        await self._fail(error or internal_error(self.exchange))

    async def _fail(self, error: RouterError) -> None:
        """End a stream that has begun with the events that say why."""
        self.exchange.outcome = Outcome.FAILED
        self.exchange.error_code = error.code
        frames = self._rendering.fail(error, self._so_far())
        draft, final = self._rendering.draft, self._rendering.final
        if frames and draft is not None and final is not None:
            frames[-1] = await keep(self.exchange, draft, final, {}, frames[-1])
        if frames:
            self._sink.feed(frames)
        self._sink.end()

    def _headers(self) -> dict[str, str]:
        headers = client_headers(self.exchange, self._flight.headers)
        if not self._leads:
            for name in _OF_ITS_CALL:
                headers.pop(name, None)
        return headers

    def _take_over_facts(self) -> None:
        """What is known of the call is known of this exchange, for logs and metrics."""
        carrier, exchange = self._flight.carrier, self.exchange
        exchange.account = carrier.account
        exchange.served_model = carrier.served_model
        if self._leads:
            exchange.endpoint = carrier.endpoint
            exchange.attempts = carrier.attempts
        if carrier.outcome is not None and exchange.outcome is None:
            exchange.outcome = carrier.outcome
            exchange.error_code = carrier.error_code

    def _abandon(self) -> None:
        """The client is gone: what there is of a response that was to be stored is kept."""
        record, draft = self.exchange.record, self._rendering.draft
        if record is None or draft is None:
            return
        overheard = self._flight.carrier.record
        left = overheard.left if isinstance(overheard, Overheard) else None
        output = self._so_far() if left is None else left["output"]
        told = {"output": output, "output_text": output_text(output)}
        hidden = {} if left is None else self._hidden()
        record.abandon({**draft.snapshot("cancelled"), **told}, hidden)

    def _so_far(self) -> list[dict[str, Any]]:
        """The output that it was told, the unfinished item marked as such."""
        partial = PartialOutput()
        for frame in self._flight.whole[: self.position] if self.live and self._same else ():
            if (field := DELTAS.get(frame.type)) is not None:
                partial.delta(field, frame.json())
            elif frame.type:
                partial.follow(frame.type, frame.json())
        return partial.so_far()
