"""When what is read of an answer is passed on to the client.

What an attempt makes is delivered by ``Delivery``, which decides when a stream leaves, and what may
still be taken back: the head and ``response.created`` are held until the endpoint has produced
output, or until ``server.open_after`` has passed; until then a failure is a plain HTTP error, or
moves to another endpoint unseen. After ``created`` went out, another endpoint may still take over
until the first output: its own opening events are swallowed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

from router.core.exchange import ClientGone, Exchange, Sink
from router.pipeline.attempt import answer_headers
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.frame import Frame

__all__ = ["Alarm", "Alarms", "Delivery"]


class Alarm:
    """A call that is due; ``cancel`` lets go of what it would have called."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """It is not called any more."""
        self.call = None


class Alarms:
    """Calls back after ``seconds``, with one timer for everybody: all wait equally long, so that
    they are due in the order in which they came.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: deque[Alarm] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def after(self, call: Callable[[], None]) -> Alarm:
        """Have ``call`` called when the time has passed."""
        loop = asyncio.get_running_loop()
        alarm = Alarm(loop.time() + self._seconds, call)
        waiting = self._waiting
        while waiting and waiting[0].call is None:
            waiting.popleft()
        waiting.append(alarm)
        if self._timer is None:
            self._timer = loop.call_at(alarm.due, self._fire, loop)
        return alarm

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting
        try:
            while waiting and (waiting[0].call is None or waiting[0].due <= loop.time()):
                call = waiting.popleft().call
                if call is not None:
                    call()
        finally:
            self._timer = loop.call_at(waiting[0].due, self._fire, loop) if waiting else None


_MAX_HELD: Final = 256
"""So many events without any output are held back; it is usually two."""


class Delivery:
    """Passes an answer on to the sink, in time. ``builder`` is the response under construction,
    None for operations without one; ``response_headers`` are headers that the current attempt adds.
    """

    __slots__ = ("_alarm", "_exchange", "_held", "_sink", "builder", "response_headers")

    def __init__(
        self, exchange: Exchange, sink: Sink, builder: ResponseBuilder | None, alarms: Alarms
    ) -> None:
        self._exchange = exchange
        self._sink = sink
        self.builder = builder
        self.response_headers: dict[str, str] = {}
        self._held: list[Frame] = []
        self._alarm: Alarm | None = None
        # What passes as it comes has the status and the headers of its endpoint, too.
        if exchange.stream and exchange.native is None:
            self._alarm = alarms.after(self._open_early)

    def first_output(self) -> None:
        """The endpoint has begun to answer; its first output is about to leave."""
        raise NotImplementedError

    @property
    def has_output(self) -> bool:
        """Whether output has reached the client: nothing can be taken back."""
        return self._exchange.result.first_output is not None

    def push(self, frames: list[Frame], decoder: StreamDecoder) -> None:
        """Deliver what a reader made, or hold it while there is no output yet."""
        if self._exchange.result.first_output is None:
            if not (decoder.has_output or decoder.ended):
                self._hold(frames)
                return
            frames = [*self._held, *frames]
            self._held = []
            if not self._sink.opened:
                self._open()
            self.first_output()
        if frames:
            self._sink.feed(frames)

    def _hold(self, frames: list[Frame]) -> None:
        """Keep what is no output back, as long as it may be kept back."""
        builder = self.builder
        self._held.extend(frames)
        if len(self._held) > _MAX_HELD:
            self._open_early()
        # Without a response builder it carries the id of this attempt, which may not be the last.
        if self._sink.opened and (builder is not None or len(self._held) > _MAX_HELD):
            held, self._held = self._held, []
            if builder is not None:
                builder.delivered = True
            self._sink.feed(held)

    def forget(self) -> None:
        """Forget what an attempt made that has not been delivered."""
        self._held.clear()
        self.response_headers = {}
        if self.builder is not None:
            self.builder.rewind()

    def end_with(self, frames: list[Frame]) -> None:
        """End a stream that has begun with these events, after what was still held."""
        frames = [*self._held, *frames]
        if frames:
            self._sink.feed(frames)
        self._sink.end()

    def close(self) -> None:
        """Open no head any more without an answer."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def open_head(self) -> None:
        """Begin a stream whose endpoint has, though it has said nothing yet."""
        if not self._sink.opened:
            self._open()

    def _open_early(self) -> None:
        if self._sink.opened:
            return
        builder = self.builder
        frames: list[Frame] = []
        if builder is not None:
            frames, self._held = self._held or builder.open(), []
        self._open()
        if frames:
            with contextlib.suppress(ClientGone):  # whoever feeds it next is told again
                self._sink.feed(frames)

    def _open(self) -> None:
        self.close()
        if self.builder is not None:
            self.builder.delivered = True
        exchange = self._exchange
        self._sink.open(answer_headers(exchange, self.response_headers))
