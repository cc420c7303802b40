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
from router.core.upstream import Adapter, Call
from router.errors import RouterError
from router.response.builder import Draft
from router.response.decoder import Reader
from router.response.frame import Frame

__all__ = ["Delivery", "Job", "answer_headers"]

_MAX_HELD: Final = 256
"""So many events without any output are held back; it is usually two."""


@dataclass(slots=True)
class Job:
    """What an operation wants from whichever endpoint is chosen.

    ``prepare`` makes the call for an adapter, a model, its context in tokens (None: not known) and
    a draft; ``draft`` is the response under
    construction, None for operations without one; ``fail`` ends a stream that no reader has begun.
    ``strict``: what an endpoint's dialect cannot carry is refused.
    """

    prepare: Callable[[Adapter, str, int | None, Draft | None], Call]
    fail: Callable[[RouterError, Draft | None], list[Frame]]
    draft: Draft | None = None
    strict: bool = False


class Delivery:
    """Passes a reader's frames on to the sink, in time."""

    def __init__(
        self,
        exchange: Exchange,
        sink: Sink,
        job: Job,
        open_after: float,
        first_output: Callable[[], None],
    ) -> None:
        self._exchange = exchange
        self._sink = sink
        self._job = job
        self._first_output = first_output
        self._held: list[Frame] = []
        self.notes: dict[str, str] = {}
        """Headers that the current attempt adds to the answer."""
        self._timer: asyncio.TimerHandle | None = None
        if exchange.stream:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(open_after, self._open_early)

    @property
    def has_output(self) -> bool:
        """Whether output has reached the client: nothing can be taken back."""
        return self._exchange.first_output is not None

    def push(self, frames: list[Frame], reader: Reader) -> None:
        """Deliver what a reader made, or hold it while there is no output yet."""
        if not self.has_output:
            if not (reader.has_output or reader.ended):
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
        draft = self._job.draft
        self._held.extend(frames)
        if len(self._held) > _MAX_HELD:
            self._open_early()
        # Without a draft it carries the id of this attempt, which may not be the last.
        if self._sink.opened and (draft is not None or len(self._held) > _MAX_HELD):
            held, self._held = self._held, []
            if draft is not None:
                draft.delivered = True
            self._sink.feed(held)

    def rewind(self) -> None:
        """Forget what an attempt made that has not been delivered."""
        self._held.clear()
        self.notes = {}
        if self._job.draft is not None:
            self._job.draft.rewind()

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
        draft = self._job.draft
        frames: list[Frame] = []
        if draft is not None:
            frames, self._held = self._held or draft.open(), []
        self._open()
        if frames:
            with contextlib.suppress(ClientGone):  # whoever feeds it next is told again
                self._sink.feed(frames)

    def _open(self) -> None:
        self.close()
        if self._job.draft is not None:
            self._job.draft.delivered = True
        exchange = self._exchange
        self._sink.open(answer_headers(exchange, self.notes))


def answer_headers(exchange: Exchange, notes: dict[str, str]) -> dict[str, str]:
    """The headers that say who served the answer, and how."""
    headers = client_headers(exchange, notes)
    headers["X-Pointsman-Attempts"] = str(exchange.attempts)
    if exchange.endpoint is not None:
        headers["X-Pointsman-Endpoint"] = exchange.endpoint
    return headers
