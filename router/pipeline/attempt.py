"""One call to one endpoint, which is sent, and read batch by batch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from router.balance.pauses import stated_pause
from router.core.exchange import AnswerKind, Exchange, Sink
from router.core.response_lifecycle import client_headers
from router.core.upstream import DIRECT, UpstreamCall, UpstreamResponse
from router.core.usage_record import Kind
from router.dialects.dropped import dropped_header, refuse_dropped
from router.endpoints.selector import SlotReservation
from router.errors import (
    UpstreamError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRejected,
)
from router.pipeline.native import translated
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.frame import Frame
from router.telemetry.trace import AttemptTrace
from router.usage.recorder import UsageRecorder

__all__ = ["Attempt", "answer_headers"]

_LARGE: Final = 1024 * 1024
"""Bytes of an answer beyond which it is read beside the event loop: thousands of embeddings, that
may have to be packed, would hold up everybody else.
"""

_MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
"""A streamed answer, which is kept until its end, may be as large as one in one piece."""

_LESSONS: Final = 6
"""So often an adapter may learn from a refusal, and ask in another way."""


class Attempt:
    """An attempt at answering an exchange; ``builder`` is the response it goes on with, None for
    operations without one. ``strict``: what the endpoint's dialect cannot carry is refused.

    ``sent`` is when the request was, on the monotonic clock. ``response_headers`` are headers for
    the answer. ``kind`` is why it is made, ``error`` why it failed, ``answered`` whether an answer
    has begun, ``complete`` whether all of it came, ``passed`` whether it passes as it came
    (``UpstreamCall.passes``). ``decoder`` reads the answer, once it has been
    asked for.
    """

    __slots__ = (
        "_answer",
        "_assembles",
        "_exchange",
        "_in_json",
        "_received",
        "_recorded",
        "_recorder",
        "_strict",
        "answered",
        "builder",
        "complete",
        "decoder",
        "error",
        "kind",
        "passed",
        "reservation",
        "response_headers",
        "sent",
        "trace",
    )

    def __init__(
        self,
        exchange: Exchange,
        reservation: SlotReservation,
        builder: ResponseBuilder | None,
        recorder: UsageRecorder,
        kind: Kind,
        *,
        strict: bool,
    ) -> None:
        self._exchange = exchange
        self._strict = strict
        self.reservation = reservation
        self.builder = builder
        self.sent = 0.0
        self.trace: AttemptTrace | None = None
        self.response_headers: dict[str, str] = {}
        self._answer: UpstreamResponse | None = None
        self.decoder: StreamDecoder | None = None
        self._received = 0
        self._assembles = False
        self._in_json = False
        """Whether a stream was asked for, and the answer is one piece of JSON."""
        self._recorder = recorder
        self._recorded = False
        self.kind = kind
        self.error: UpstreamError | None = None
        self.answered = False
        self.complete = False
        self.passed = False

    async def send(self) -> StreamDecoder:
        """Send the request and wait for the answer's head.

        What was sent is let go of before the answer is waited through. Raises like
        ``Transport.send``, and InvalidRequest or NotSupported where the dialect cannot carry it.
        """
        deployment, exchange = self.reservation.deployment, self._exchange
        large = exchange.large
        call = await exchange.compute(self._prepared) if large else self._prepared()
        exchange.result.attempts += 1
        self.sent = time.monotonic()
        if (trace := exchange.context.trace) is not None:
            self.trace = trace.attempt(deployment.endpoint.settings, deployment.model)
        transport = deployment.endpoint.transport
        inferred = 0
        while True:
            request = call.request
            if self.trace is not None and self.trace.headers:
                headers = {**(request.headers or {}), **self.trace.headers}
                request = replace(request, headers=headers)
            try:
                self._answer = await transport.send(request)
                break
            except UpstreamError as error:
                self.error = error
                if not self._learns(error, call, inferred):
                    raise
            inferred += 1
            call = await exchange.compute(self._prepared)
        self.error = None
        self.answered = True
        self._assembles = call.assembles
        self._in_json = self._answer.is_json
        if self._answer.tells_limits:
            self._heed_limits(self._answer)
        self.passed = call.passes is not None
        if call.passes is not None:
            exchange.result.headers |= call.passes(self._answer.headers)
        return call.decoder

    def _heed_limits(self, answer: UpstreamResponse) -> None:
        """Have the endpoint spared while nothing is left of its rate limit."""
        pause, now = stated_pause(answer.headers, datetime.now(UTC)), time.monotonic()
        self.reservation.deployment.spent(now + pause, now)

    @staticmethod
    def _learns(error: UpstreamError, call: UpstreamCall, inferred: int) -> bool:
        """Whether the adapter has learned from this refusal, and may ask in another way."""
        if not isinstance(error, UpstreamRejected | UpstreamModelMissing):
            return False
        if call.retry is not None and call.retry(error) and inferred < _LESSONS:
            return True
        if call.named is not None and error.param is not None:
            error.param = call.named(error.param)
        return False

    def _prepared(self) -> UpstreamCall:
        """The call for this endpoint. Where nothing may be left out, one that does is refused."""
        deployment, exchange, builder = self.reservation.deployment, self._exchange, self.builder
        adapter, model = deployment.endpoint.adapter, deployment.model
        operation = exchange.request.operation
        if operation.templated:
            exchange.prompts = deployment.prompts
        if builder is None:
            call = DIRECT[operation.kind](adapter, exchange, model, deployment.context)
        elif operation.kind is AnswerKind.COMPACT:
            call = adapter.compact(exchange, model, builder)
        else:
            call = adapter.respond(exchange, model, builder, deployment.context)
        if exchange.native is not None and call.passes is None:
            translated(exchange, exchange.native, call.response_headers, strict=self._strict)
        if call.dropped and (names := exchange.context.api_format.names):
            call.dropped = tuple([names.get(name, name) for name in call.dropped])
        if call.dropped and self._strict:
            refuse_dropped(call.dropped, exchange.body)
        self.decoder = call.decoder
        if self.response_headers or call.response_headers:
            self.response_headers.clear()
            self.response_headers.update(call.response_headers)
        if call.dropped:
            self.response_headers.update(dropped_header(call.dropped))
        return call

    async def whole(self) -> bytes:
        """The client's body for an answer in one piece; raises UpstreamError."""
        answer, decoder = self._answer, self.decoder
        assert answer is not None
        assert decoder is not None
        try:
            # Who was asked for a stream need not have sent one.
            if self._assembles and not self._in_json:
                body = await self._assembled(decoder)
            else:
                body = await answer.body()
                large = len(body) > _LARGE
                body = (
                    await asyncio.to_thread(decoder.whole, body) if large else decoder.whole(body)
                )
        except UpstreamError as error:
            self.error = error
            raise
        self.record()
        return body

    async def _assembled(self, decoder: StreamDecoder) -> bytes:
        """What a stream amounts to."""
        while not decoder.ended:
            await self.read()
            if decoder.error is not None:
                raise decoder.error
        if self._received > _LARGE:
            return await asyncio.to_thread(decoder.assembled)
        return decoder.assembled()

    async def read(self) -> list[Frame]:
        """The frames made by the next read; ``decoder.error`` says when there will be no more.

        Raises UpstreamError where not even the answer's end can be saved.
        """
        answer, decoder = self._answer, self.decoder
        assert answer is not None
        assert decoder is not None
        try:
            if self._in_json:
                return decoder.whole_as_stream(await answer.body())
            try:
                while (data := answer.take()) is None:
                    await answer.news()
            except UpstreamError:
                frames = decoder.salvage()
                if not frames and decoder.error is None:
                    raise
                return frames
            self._received += len(data)
            if self._received > _MAX_STREAM_BYTES:
                raise _too_long()
            return decoder.feed(data) if data else decoder.finish()
        except UpstreamError as error:
            self.error = error
            raise
        finally:
            self.error = self.error or decoder.error

    async def pour(self, sink: Sink) -> list[Frame] | None:
        """Pass on what arrives, as it arrives, until the end of the answer has been read or the
        client reads too slowly; the frames of the last read, where it has not been passed on.

        Raises ClientGone, and UpstreamError like ``read``. Where the router stops when the end has
        been read, but nobody had a turn to pass it on yet, it is returned all the same.
        """
        answer, decoder = self._answer, self.decoder
        assert answer is not None
        assert decoder is not None
        last: list[Frame] | None = None

        def take(data: bytes) -> bool:
            nonlocal last
            self._received += len(data)
            if self._received > _MAX_STREAM_BYTES:
                raise _too_long()
            frames = decoder.feed(data)
            if decoder.ended or decoder.error is not None:
                last = frames
                return False
            if frames:
                sink.feed(frames)
            return not sink.paused

        try:
            await answer.each(take)
        except UpstreamError as error:
            self.error = error
            raise
        except asyncio.CancelledError:
            if last is None or self._exchange.abort is None:
                raise
        finally:
            self.error = self.error or decoder.error
        return last

    async def settle(self) -> None:
        """Wait a moment for the end of an answer whose content is complete.

        The client has it: who is cancelled from here on has nothing to undo or to tell.
        """
        assert self._answer is not None
        if not self._answer.complete:
            with contextlib.suppress(asyncio.CancelledError):
                await self._answer.settle()

    def close(self) -> None:
        """Done with it: what has not been read is cut off."""
        if self._answer is not None:
            self._answer.close()
        if not self._recorded:
            self.record(complete=False)

    def record(self, *, complete: bool = True) -> None:
        """Have it recorded, once; of a complete answer before the end of it leaves."""
        self.complete = complete
        if self.sent and not self._recorded:
            self._recorded = True
            self._recorder.over(self._exchange, self)


def _too_long() -> UpstreamFailure:
    return UpstreamFailure(f"The endpoint's stream exceeds {_MAX_STREAM_BYTES} bytes.")


def answer_headers(exchange: Exchange, response_headers: dict[str, str]) -> dict[str, str]:
    """The headers that say who served the answer, and how."""
    headers = client_headers(exchange, response_headers)
    headers["X-Pointsman-Attempts"] = str(exchange.result.attempts)
    if exchange.result.endpoint is not None:
        headers["X-Pointsman-Endpoint"] = exchange.result.endpoint
    return headers
