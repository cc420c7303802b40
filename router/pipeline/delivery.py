"""The beginning of a stream: when its head leaves, and what may still be taken back.

The head and ``response.created`` are held until the endpoint has produced output, or until
``server.open_after`` has passed; until then a failure is a plain HTTP error, or moves to another
endpoint unseen. After ``created`` went out, another endpoint may still take over until the first
output: its own opening events are swallowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from router.core.exchange import ClientGone, Exchange, Sink
from router.core.response_headers import client_headers
from router.core.upstream import Adapter, UpstreamCall
from router.errors import RouterError
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.frame import Frame

__all__ = ["Delivery", "DeliveryJob", "answer_headers"]

_MAX_HELD: Final = 256
"""So many events without any output are held back; it is usually two."""


@dataclass(slots=True)
class DeliveryJob:
    """What an operation wants from whichever endpoint is chosen.

    ``prepare`` makes the call for an adapter, a model, its context in tokens (None: not known) and
    a response builder; ``builder`` is the response under
    construction, None for operations without one; ``fail`` ends a stream that no reader has begun.
    ``strict``: what an endpoint's dialect cannot carry is refused.
    """

    prepare: Callable[[Adapter, str, int | None, ResponseBuilder | None], UpstreamCall]
    fail: Callable[[RouterError, ResponseBuilder | None], list[Frame]]
    builder: ResponseBuilder | None = None
    strict: bool = False


class Delivery:
    """Passes a reader's frames on to the sink, in time."""

    def __init__(
        self,
        exchange: Exchange,
        sink: Sink,
        job: DeliveryJob,
        open_after: float,
        first_output: Callable[[], None],
    ) -> None:
        self._exchange = exchange
        self._sink = sink
        self._job = job
        self._first_output = first_output
        self._held: list[Frame] = []
        self.response_headers: dict[str, str] = {}
        """Headers that the current attempt adds to the answer."""
        self._timer: asyncio.TimerHandle | None = None
        if exchange.stream:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(open_after, self._open_early)

    @property
    def has_output(self) -> bool:
        """Whether output has reached the client: nothing can be taken back."""
        return self._exchange.first_output is not None

    def push(self, frames: list[Frame], decoder: StreamDecoder) -> None:
        """Deliver what a reader made, or hold it while there is no output yet."""
        if not self.has_output:
            if not (decoder.has_output or decoder.ended):
                self._hold(frames)
                return
            frames = [*self._held, *frames]
            self._held = []
            if not self._sink.opened:
                self._open()
            self._exchange.first_output = time.monotonic()
            self._first_output()
        if frames:
            self._sink.feed(frames)

    def _hold(self, frames: list[Frame]) -> None:
        """Keep what is no output back, as long as it may be kept back."""
        builder = self._job.builder
        self._held.extend(frames)
        if len(self._held) > _MAX_HELD:
            self._open_early()
        # Without a response builder it carries the id of this attempt, which may not be the last.
        if self._sink.opened and (builder is not None or len(self._held) > _MAX_HELD):
            held, self._held = self._held, []
            if builder is not None:
                builder.delivered = True
            self._sink.feed(held)

    def rewind(self) -> None:
        """Forget what an attempt made that has not been delivered."""
        self._held.clear()
        self.response_headers = {}
        if self._job.builder is not None:
            self._job.builder.rewind()

    def end_with(self, frames: list[Frame]) -> None:
        """End a stream that has begun with these events, after what was still held."""
        frames = [*self._held, *frames]
        if frames:
            self._sink.feed(frames)
        self._sink.end()

    def close(self) -> None:
        """Drop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _open_early(self) -> None:
        if self._sink.opened:
            return
        builder = self._job.builder
        frames: list[Frame] = []
        if builder is not None:
            frames, self._held = self._held or builder.open(), []
        self._open()
        if frames:
            with contextlib.suppress(ClientGone):  # whoever feeds it next is told again
                self._sink.feed(frames)

    def _open(self) -> None:
        self.close()
        if self._job.builder is not None:
            self._job.builder.delivered = True
        exchange = self._exchange
        self._sink.open(answer_headers(exchange, self.response_headers))


def answer_headers(exchange: Exchange, response_headers: dict[str, str]) -> dict[str, str]:
    """The headers that say who served the answer, and how."""
    headers = client_headers(exchange, response_headers)
    headers["X-Pointsman-Attempts"] = str(exchange.attempts)
    if exchange.endpoint is not None:
        headers["X-Pointsman-Endpoint"] = exchange.endpoint
    return headers
