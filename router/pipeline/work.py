"""What is done for one exchange: attempts, as ``failover`` asks for them, and what they bring."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Coroutine
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.core.exchange import ClientGone, Exchange, Sink
from router.core.response_lifecycle import persist, persist_whole
from router.core.upstream import REASONING_DROPPED
from router.core.usage_record import Kind
from router.dialects.responses.decode_stream import ENDPOINT_ERRORS
from router.endpoints.selector import Selector, SlotReservation
from router.errors import RouterError, UpstreamTimeout
from router.pipeline.attempt import Attempt, answer_headers
from router.pipeline.delivery import Alarms, Delivery
from router.pipeline.hedging import Hedging, PendingAttempt
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.frame import Frame
from router.telemetry.metrics import Metrics
from router.usage.recorder import UsageRecorder

__all__ = ["Means", "Run"]

_CLIENT_LEFT: Final = RouterError("The client closed its connection.")


@dataclass(frozen=True, slots=True)
class Means:
    """What every exchange of one pipeline is answered with. ``alarms`` are those of
    ``server.open_after``; ``strict``: what an endpoint's dialect cannot carry is refused.
    """

    selector: Selector
    hedging: Hedging
    recorder: UsageRecorder
    metrics: Metrics
    alarms: Alarms
    strict: bool


class Run(Delivery):
    """One exchange's attempts, until one succeeds or none is left. Implements ``Work``."""

    __slots__ = ("_attempt", "_limit", "_means", "_selector", "_tried")

    def __init__(
        self, means: Means, exchange: Exchange, sink: Sink, builder: ResponseBuilder | None
    ) -> None:
        super().__init__(exchange, sink, builder, means.alarms)
        self._means = means
        self._selector = means.selector
        self._tried: str | None = None
        self._attempt: Attempt | None = None
        self._limit: asyncio.Timeout | None = None

    async def fail(self, error: RouterError) -> None:
        """End a stream that has begun with the events that say why; raise before."""
        if not self._sink.opened:
            raise error
        decoder = self._attempt.decoder if self._attempt is not None else None
        builder = self.builder
        if decoder is None or not decoder.ended:
            self._exchange.result.fail(error.code)
        if decoder is not None:
            frames = decoder.fail(error)
        elif builder is not None:
            frames = builder.fail(error, [])
        else:
            frames = [Frame("", orjson.dumps(error.envelope()))]
        if len(frames) > 1:
            self._sink.feed(frames[:-1])
        self.end_with([await self._keep(last, decoder) for last in frames[-1:]])

    def abandon(self) -> None:
        """The client is gone: what there is of a response that was to be stored is kept."""
        record, builder = self._exchange.record, self.builder
        decoder = self._attempt.decoder if self._attempt is not None else None
        if record is None or builder is None:
            return
        if decoder is None:
            record.abandon(builder.snapshot("cancelled"), {})
            return
        decoder.fail(_CLIENT_LEFT)
        final = decoder.final or builder.snapshot("cancelled")
        record.abandon({**final, "status": "cancelled", "error": None}, decoder.encrypted_reasoning)

    async def _keep(self, last: Frame, decoder: StreamDecoder | None) -> Frame:
        """Store the response before ``last``, its terminal event, leaves; the event to send."""
        exchange, builder = self._exchange, self.builder
        if exchange.record is None or builder is None:
            return last
        if decoder is None or decoder.final is None:
            final = builder.final or builder.snapshot("failed")
            return await persist(exchange, builder, final, {}, last)
        return await persist(exchange, builder, decoder.final, decoder.encrypted_reasoning, last)

    def rewind(self, model: str) -> None:
        """See ``Work.rewind``."""
        self._attempt = self._limit = None
        self.forget()
        if self.builder is not None:
            self.builder.served_by(model)

    def attempt(self, reservation: SlotReservation) -> Coroutine[Any, Any, None]:
        """See ``Work.attempt``."""
        # No coroutine more than there has to be: each is kept for as long as a stream lasts.
        exchange, hedging = self._exchange, self._means.hedging
        # Why it is made: a fallback's model is asked, or an endpoint for a second time.
        before, self._tried = self._tried, exchange.result.served_model
        kind = Kind.RETRY if exchange.result.attempts else Kind.FIRST
        if before != self._tried:
            kind = Kind.FALLBACK
        elif kind is Kind.FIRST and exchange.turn > 1:
            kind = Kind.TURN
        attempt = self._made(reservation, kind)
        self._goes_on_with(attempt)
        stream = exchange.stream
        patience = reservation.deployment.patience(stream=stream) if reservation.probe else None
        delay = hedging.delay(exchange, reservation) if stream and hedging.on else None
        if delay is not None and patience is None:
            return self._hedged(attempt, delay)
        answer = self._stream(attempt) if stream else self._whole(attempt)
        return answer if patience is None else self._probe(answer, patience, reservation)

    def _made(self, reservation: SlotReservation, kind: Kind) -> Attempt:
        recorder, strict = self._means.recorder, self._means.strict
        return Attempt(self._exchange, reservation, self.builder, recorder, kind, strict=strict)

    def _is_over(self) -> None:
        """The attempt that the client was to have its answer from is over, well or badly."""
        attempt = self._attempt
        if attempt is not None:
            attempt.close()
            if attempt.decoder is not None:
                self._exchange.result.usage = attempt.decoder.usage

    def _count(self) -> None:
        """Count an attempt that brought an answer, be it one that the endpoint says failed."""
        attempt = self._attempt
        assert attempt is not None
        reservation, result = attempt.reservation, "ok"
        if attempt.decoder is not None and (failure := attempt.decoder.failure) is not None:
            self._exchange.result.fail(failure)
            if failure in ENDPOINT_ERRORS:
                result = "upstream_error"
                if reservation.good:  # its output was well until then
                    self._selector.failed(reservation)
        attempts = self._means.metrics.fleet.attempts
        attempts[reservation.deployment.endpoint.name, result].inc()

    async def _probe(
        self, work: Awaitable[None], patience: float, reservation: SlotReservation
    ) -> None:
        """Whether an endpoint is back is not found out at the expense of one client: until the
        first output ``work`` has this many seconds.
        """
        try:
            async with asyncio.timeout(patience) as self._limit:
                await work
        except TimeoutError:
            if self._limit is None or not self._limit.expired():
                raise
            name = reservation.deployment.endpoint.name
            raise UpstreamTimeout(
                f"Endpoint '{name}' is not back yet: no output within {patience:g} s."
            ) from None

    def _goes_on_with(self, attempt: Attempt) -> None:
        """It is this attempt's answer that the client gets."""
        endpoint = attempt.reservation.deployment.endpoint
        self._exchange.result.endpoint = endpoint.name
        self._exchange.result.account = endpoint.account
        self._attempt = attempt
        # A stream may be opened before the endpoint says anything.
        self.response_headers = attempt.response_headers

    def first_output(self) -> None:
        """See ``Delivery.first_output``."""
        if self._limit is not None:
            self._has_begun()
        attempt = self._attempt
        if attempt is not None and attempt.decoder is not None:
            failure = attempt.decoder.failure
            if failure in ENDPOINT_ERRORS:
                self._selector.failed(attempt.reservation)
            elif failure is not None:
                self._selector.refused(attempt.reservation)
            else:
                seconds = time.monotonic() - attempt.sent if self._exchange.stream else None
                self._selector.answered(attempt.reservation, seconds)
        if self._exchange.turn:  # the loop tells of the first output of all turns
            self._exchange.result.first_output = time.monotonic()
        else:
            self._exchange.context.plugin_set.chain.first_output(self._exchange)

    def _has_begun(self) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(None)

    def _learn_of(self, attempt: Attempt) -> None:
        """How the endpoint was asked is how the exchange is answered."""
        self._exchange.result.partial = bool(attempt.response_headers)
        self._exchange.result.passed = attempt.passed
        if dropped := attempt.response_headers.get(REASONING_DROPPED):
            name = attempt.reservation.deployment.endpoint.name
            self._means.metrics.reasoning_dropped.labels(name).inc(int(dropped))

    async def _hedged(self, attempt: Attempt, delay: float) -> None:
        """Stream, after another endpoint has been asked too if this one was late."""
        held: list[Frame] = []

        def hold(frames: list[Frame]) -> None:
            if frames:
                assert attempt.decoder is not None
                with contextlib.suppress(ClientGone):  # whoever feeds it next is told again
                    self.push(frames, attempt.decoder)

        def another(reservation: SlotReservation) -> PendingAttempt:
            builder = self.builder
            if builder is not None:
                # Both go on from here, whoever has output first and whenever the head leaves.
                hold(builder.open())
                builder = copy(builder)
            second = self._made(reservation, Kind.HEDGE)
            second.builder = builder
            return PendingAttempt(second, held.extend)

        try:
            chosen = await self._means.hedging.race(self._exchange, attempt, delay, hold, another)
            frames = chosen.frames
            if chosen.attempt is not attempt:
                self._take_over(chosen.attempt)
                frames = [*held, *frames]
            if chosen.error is not None:
                raise chosen.error
        except BaseException:
            self._is_over()
            raise
        await self._stream(chosen.attempt, frames)

    def _take_over(self, second: Attempt) -> None:
        """Go on with the second of two attempts, and with its response builder."""
        first = self.builder
        if first is None or second.builder is None:
            self.forget()
        else:
            second.builder.delivered = first.delivered
            self.builder = second.builder
            if self._exchange.builder is not None:
                self._exchange.builder = second.builder
        self._goes_on_with(second)

    async def _whole(self, attempt: Attempt) -> None:
        exchange = self._exchange
        try:
            decoder = await attempt.send()
            self._learn_of(attempt)
            body = await attempt.whole()
            if self._limit is not None:
                self._has_begun()
            self._selector.answered(attempt.reservation, None)
            if exchange.record is not None and self.builder is not None:
                assert decoder.final is not None
                self._selector.release(attempt.reservation)  # the endpoint is done with it
                blobs = decoder.encrypted_reasoning
                body = await persist_whole(exchange, decoder.final, blobs, body)
            self._sink.finish(200, body, answer_headers(exchange, self.response_headers))
            await attempt.settle()
        finally:
            self._is_over()
        self._count()

    async def _stream(self, attempt: Attempt, frames: list[Frame] | None = None) -> None:
        """Send it and deliver what it reads; or go on after the ``frames`` that it has read."""
        sink, result = self._sink, self._exchange.result
        try:
            decoder = await attempt.send() if frames is None else attempt.decoder
            assert decoder is not None
            self._learn_of(attempt)
            if attempt.passed:
                self.open_head()
            ended = False
            while not ended:
                if frames is None:
                    frames = await attempt.read()
                if ended := decoder.ended:
                    attempt.record()
                    if frames and self._exchange.record is not None:
                        frames = await self._kept(frames, decoder)
                if frames and result.first_output is not None:
                    sink.feed(frames)
                elif frames:
                    self.push(frames, decoder)
                frames = None  # they are not kept beyond their turn
                if decoder.error is not None:
                    raise decoder.error
                if sink.paused:
                    await sink.resumed()
                if not ended and result.first_output is not None:
                    frames = await attempt.pour(sink)
            result.usage = decoder.usage
            sink.end()
            await attempt.settle()
        finally:
            self._is_over()
        self._count()

    async def _kept(self, frames: list[Frame], decoder: StreamDecoder) -> list[Frame]:
        """Deliver all but the last of these events, and store the response before that one; what is
        left to deliver.
        """
        if len(frames) > 1:
            self.push(frames[:-1], decoder)
        if self._limit is not None:
            self._has_begun()
        attempt = self._attempt
        if attempt is not None and attempt.reservation.good:
            self._selector.release(attempt.reservation)
        return [await self._keep(frames[-1], decoder)]
