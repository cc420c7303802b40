"""One call to one endpoint: sent, and read batch by batch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Final

from router.core.exchange import Exchange
from router.core.upstream import UpstreamCall, UpstreamRequest, UpstreamResponse
from router.core.usage_record import Kind
from router.dialects.dropped import dropped_header, refuse_dropped
from router.endpoints.selector import SlotReservation
from router.errors import (
    UpstreamError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRejected,
)
from router.pipeline.delivery import DeliveryJob
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.frame import Frame
from router.telemetry.trace import AttemptTrace
from router.usage.recorder import UsageRecorder

__all__ = ["Attempt"]

_LARGE: Final = 1024 * 1024
"""Bytes of an answer beyond which it is read beside the event loop: thousands of embeddings, that
may have to be packed, would hold up everybody else.
"""

_MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
"""A streamed answer, which is kept until its end, may be as large as one in one piece."""

_LESSONS: Final = 2
"""So often an adapter may learn from a refusal, and ask in another way."""


class Attempt:
    """An attempt at answering an exchange; ``builder`` is the response it goes on with.

    ``sent`` is when the request was, on the monotonic clock. ``response_headers`` are headers for
    the answer. ``kind`` is why it is made, ``error`` why it failed, ``answered`` whether an answer
    has begun, ``complete`` whether all of it came.
    """

    __slots__ = (
        "_answer",
        "_assembles",
        "_booked",
        "_decoder",
        "_exchange",
        "_job",
        "_received",
        "_recorder",
        "answered",
        "builder",
        "complete",
        "error",
        "kind",
        "reservation",
        "response_headers",
        "sent",
        "trace",
    )

    def __init__(
        self,
        exchange: Exchange,
        job: DeliveryJob,
        reservation: SlotReservation,
        builder: ResponseBuilder | None,
        recorder: UsageRecorder,
        kind: Kind,
    ) -> None:
        self._exchange = exchange
        self._job = job
        self.reservation = reservation
        self.builder = builder
        self.sent = 0.0
        self.trace: AttemptTrace | None = None
        self.response_headers: dict[str, str] = {}
        self._answer: UpstreamResponse | None = None
        self._decoder: StreamDecoder | None = None
        self._received = 0
        self._assembles = False
        self._recorder = recorder
        self._booked = False
        self.kind = kind
        self.error: UpstreamError | None = None
        self.answered = False
        self.complete = False

    @property
    def decoder(self) -> StreamDecoder | None:
        """What reads the answer, once it has been asked for."""
        return self._decoder

    async def send(self) -> StreamDecoder:
        """Send the request and wait for the answer's head.

        What was sent is let go of before the answer is waited through. Raises like
        ``Transport.send``, and InvalidRequest or NotSupported where the dialect cannot carry it.
        """
        deployment = self.reservation.deployment
        call = await self._exchange.compute(self._prepared)
        self._exchange.attempts += 1
        self.sent = time.monotonic()
        if (trace := self._exchange.trace) is not None:
            self.trace = trace.attempt(deployment.endpoint.settings, deployment.model)
        try:
            call, self._answer = await self._sent(call)
            self.error = None
        except UpstreamError as error:
            self.error = error
            raise
        self.answered = True
        self._assembles = call.assembles
        return call.decoder

    def _prepared(self) -> UpstreamCall:
        """The call for this endpoint. Where nothing may be left out, one that does is refused."""
        deployment = self.reservation.deployment
        call = self._job.prepare(
            deployment.endpoint.adapter, deployment.model, deployment.context, self.builder
        )
        if call.dropped and (names := self._exchange.api_format.names):
            call.dropped = tuple([names.get(name, name) for name in call.dropped])
        if call.dropped and self._job.strict:
            refuse_dropped(call.dropped, self._exchange.body)
        self._decoder = call.decoder
        self.response_headers.clear()
        self.response_headers.update(call.response_headers)
        if call.dropped:
            self.response_headers.update(dropped_header(call.dropped))
        return call

    async def _sent(self, call: UpstreamCall) -> tuple[UpstreamCall, UpstreamResponse]:
        """The call that was answered at last, and its answer."""
        transport = self.reservation.deployment.endpoint.transport
        inferred = 0
        while True:
            try:
                return call, await transport.send(self._traced(call.request))
            except (UpstreamRejected, UpstreamModelMissing) as error:
                learned = call.retry is not None and call.retry(error)
                if not learned or inferred == _LESSONS:
                    if call.named is not None and error.param is not None:
                        error.param = call.named(error.param)
                    raise
                self.error = error
            inferred += 1
            call = await self._exchange.compute(self._prepared)

    def _traced(self, request: UpstreamRequest) -> UpstreamRequest:
        """The request, which tells the endpoint of the trace it is part of."""
        if self.trace is None or not self.trace.headers:
            return request
        return replace(request, headers=self.trace.headers)

    async def whole(self) -> bytes:
        """The client's body for an answer in one piece; raises UpstreamError."""
        try:
            body = await (self._assembled() if self._assembles else self._in_one_piece())
        except UpstreamError as error:
            self.error = error
            raise
        self.record()
        return body

    async def _in_one_piece(self) -> bytes:
        answer, decoder = self._under_way()
        body = await answer.body()
        if len(body) > _LARGE:
            return await asyncio.to_thread(decoder.whole, body)
        return decoder.whole(body)

    async def _assembled(self) -> bytes:
        """What a stream amounts to; who was asked for one need not have sent one."""
        decoder = self._under_way()[1]
        if self._is_json():
            return await self._in_one_piece()
        while not decoder.ended:
            await self._read()
            if decoder.error is not None:
                raise decoder.error
        if self._received > _LARGE:
            return await asyncio.to_thread(decoder.assembled)
        return decoder.assembled()

    def _is_json(self) -> bool:
        """Whether the answer is one piece of JSON."""
        answer, _ = self._under_way()
        return answer.headers.get("Content-Type", "").startswith("application/json")

    async def read(self) -> list[Frame]:
        """The frames made by the next read; ``decoder.error`` says when there will be no more.

        Raises UpstreamError where not even the answer's end can be saved.
        """
        try:
            frames = await self._read()
        except UpstreamError as error:
            self.error = error
            raise
        self.error = self._under_way()[1].error
        return frames

    async def _read(self) -> list[Frame]:
        answer, decoder = self._under_way()
        if not self._received and self._is_json():
            return decoder.whole_as_stream(await answer.body())
        try:
            data = await answer.read()
        except UpstreamError:
            frames = decoder.salvage()
            if not frames and decoder.error is None:
                raise
            return frames
        self._received += len(data)
        if self._received > _MAX_STREAM_BYTES:
            raise UpstreamFailure(f"The endpoint's stream exceeds {_MAX_STREAM_BYTES} bytes.")
        return decoder.feed(data) if data else decoder.finish()

    async def settle(self) -> None:
        """Wait a moment for the end of an answer whose content is complete.

        The client has it: who is cancelled from here on has nothing to undo or to tell.
        """
        answer, _ = self._under_way()
        with contextlib.suppress(asyncio.CancelledError):
            await answer.settle()

    def record(self) -> None:
        """Its answer is complete: have it recorded, before the end of it leaves."""
        self.complete = True
        self._record()

    def close(self) -> None:
        """Done with it: what has not been read is cut off."""
        if self._answer is not None:
            self._answer.close()
        self._record()

    def _record(self) -> None:
        if self.sent and not self._booked:
            self._booked = True
            self._recorder.over(self._exchange, self)

    def _under_way(self) -> tuple[UpstreamResponse, StreamDecoder]:
        assert self._answer is not None
        assert self._decoder is not None
        return self._answer, self._decoder
