"""One call to one endpoint: sent, and read batch by batch."""

from __future__ import annotations

import time
from typing import Final

from router.delivery import Job
from router.endpoints.selector import Reservation
from router.errors import UpstreamError, UpstreamFailure, UpstreamRejected
from router.exchange import Exchange
from router.translate.draft import Draft
from router.translate.reader import Reader
from router.upstream.contract import Answer
from router.wire.frame import Frame

__all__ = ["Attempt"]

_MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
"""A streamed answer, which is kept until its end, may be as large as one in one piece."""


class Attempt:
    """An attempt at answering an exchange; ``draft`` is the response it goes on with.

    ``sent`` is when the request was, on the monotonic clock. ``notes`` are headers for the answer.
    """

    __slots__ = (
        "_answer",
        "_exchange",
        "_job",
        "_reader",
        "_received",
        "draft",
        "notes",
        "reservation",
        "sent",
    )

    def __init__(
        self, exchange: Exchange, job: Job, reservation: Reservation, draft: Draft | None
    ) -> None:
        self._exchange = exchange
        self._job = job
        self.reservation = reservation
        self.draft = draft
        self.sent = 0.0
        self.notes: dict[str, str] = {}
        self._answer: Answer | None = None
        self._reader: Reader | None = None
        self._received = 0

    @property
    def reader(self) -> Reader | None:
        """What reads the answer, once it has been asked for."""
        return self._reader

    async def send(self) -> Reader:
        """Send the request and wait for the answer's head.

        What was sent is let go of before the answer is waited through. Raises like
        ``Transport.send``, and InvalidRequest or NotSupported where the dialect cannot carry it.
        """
        target = self.reservation.target
        endpoint = target.endpoint
        call = self._job.prepare(endpoint.adapter, target.model, self.draft)
        self._reader = call.reader
        self._exchange.attempts += 1
        self.sent = time.monotonic()
        try:
            answer = await endpoint.transport.send(call.request)
        except UpstreamRejected as error:
            if call.retry is None or not call.retry(error):
                raise
            call = self._job.prepare(endpoint.adapter, target.model, self.draft)
            self._reader = call.reader
            answer = await endpoint.transport.send(call.request)
        self._answer = answer
        self.notes = call.notes
        return call.reader

    async def whole(self) -> bytes:
        """The client's body for an answer in one piece; raises UpstreamError."""
        answer, reader = self._under_way()
        return reader.whole(await answer.body())

    async def read(self) -> list[Frame]:
        """The frames made by the next read; ``reader.error`` says when there will be no more.

        Raises UpstreamError where not even the answer's end can be saved.
        """
        answer, reader = self._under_way()
        if not self._received and answer.headers.get("Content-Type", "").startswith(
            "application/json"
        ):
            return reader.whole_as_stream(await answer.body())
        try:
            data = await answer.read()
        except UpstreamError:
            frames = reader.salvage()
            if not frames and reader.error is None:
                raise
            return frames
        self._received += len(data)
        if self._received > _MAX_STREAM_BYTES:
            raise UpstreamFailure(f"The endpoint's stream exceeds {_MAX_STREAM_BYTES} bytes.")
        return reader.feed(data) if data else reader.finish()

    async def settle(self) -> None:
        """Wait a moment for the end of an answer whose content is complete."""
        answer, _ = self._under_way()
        await answer.settle()

    def close(self) -> None:
        """Done with it: what has not been read is cut off."""
        if self._answer is not None:
            self._answer.close()

    def _under_way(self) -> tuple[Answer, Reader]:
        assert self._answer is not None
        assert self._reader is not None
        return self._answer, self._reader
