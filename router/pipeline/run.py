"""The way of a request: plan → choose an endpoint → attempt → translate → record.

The pipeline is the core of the plugin chain: it gets an admitted, validated exchange and a sink,
and answers one into the other. It knows endpoints by their contracts only. Which of them is tried,
and which next, is ``failover``'s to decide; here is what an attempt does. Everything that goes
wrong before the sink was opened is raised as a RouterError; afterwards the stream itself says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from typing import Any, Final

import orjson

from router.core.exchange import AnswerKind, ClientGone, Exchange, Sink, internal_error
from router.core.response_lifecycle import new_builder, persist, persist_whole
from router.core.upstream import DIRECT, REASONING_DROPPED, Adapter, UpstreamCall, cannot_compact
from router.core.usage_record import Kind
from router.dialects.responses.decode_stream import ENDPOINT_ERRORS
from router.endpoints.selector import SlotReservation
from router.errors import RouterError, UpstreamModelMissing, UpstreamTimeout
from router.pipeline.attempt import Attempt, Delivery, DeliveryJob, answer_headers
from router.pipeline.counting import count_tokens
from router.pipeline.hedging import Fleet, PendingAttempt
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.frame import Frame
from router.telemetry.log import get_logger
from router.telemetry.metrics import Metrics
from router.usage.recorder import UsageRecorder

__all__ = ["Pipeline"]

_log = get_logger("router.pipeline.run")

_CLIENT_LEFT: Final = RouterError("The client closed its connection.")


class Pipeline:
    """Answers exchanges with the endpoints of one configuration."""

    def __init__(
        self,
        fleet: Fleet,
        open_after: float,
        metrics: Metrics,
        first_output: Callable[[Exchange], None],
        recorder: UsageRecorder,
        *,
        strict: bool = False,
    ) -> None:
        self._recorder = recorder
        self._registry = fleet.registry
        self._selector = fleet.selector
        self._failover = fleet.failover
        self._hedging = fleet.hedging
        self._open_after = open_after
        self._metrics = metrics
        self._first_output = first_output
        self._strict = strict

    async def answer(self, exchange: Exchange, sink: Sink) -> None:
        """Answer the exchange; raises RouterError as long as nothing has been sent."""
        if exchange.request.operation.kind is AnswerKind.COUNT:
            await count_tokens(self._registry, self._selector, exchange, sink)
            return
        make_job = _direct_job if exchange.request.operation.kind in DIRECT else _response_job
        try:
            job = make_job(exchange)
            job.strict = self._strict
            await _Run(self, exchange, sink, job).go()
        except UpstreamModelMissing as error:
            if exchange.request.operation.kind is not AnswerKind.COMPACT:
                raise
            # It serves the model, or it would not have been asked: what it lacks is the route.
            raise cannot_compact(exchange.model or "") from error


def _response_job(exchange: Exchange) -> DeliveryJob:
    builder = exchange.builder or new_builder(exchange.body, muted=not exchange.stream)
    compact = exchange.request.operation.kind is AnswerKind.COMPACT

    def prepare(
        adapter: Adapter, model: str, context: int | None, builder: ResponseBuilder | None
    ) -> UpstreamCall:
        assert builder is not None
        if compact:
            return adapter.compact(exchange, model, builder)
        return adapter.respond(exchange, model, builder, context)

    return DeliveryJob(prepare, _failed_response, builder)


def _failed_response(error: RouterError, builder: ResponseBuilder | None) -> list[Frame]:
    assert builder is not None
    return builder.fail(error, [])


def _direct_job(exchange: Exchange) -> DeliveryJob:
    make = DIRECT[exchange.request.operation.kind]

    def prepare(
        adapter: Adapter, model: str, context: int | None, builder: ResponseBuilder | None
    ) -> UpstreamCall:
        return make(adapter, exchange, model, context)

    return DeliveryJob(prepare, lambda error, builder: [Frame("", orjson.dumps(error.envelope()))])


class _Run:
    """One exchange's attempts, until one succeeds or none is left. Implements ``Work``."""

    def __init__(
        self, pipeline: Pipeline, exchange: Exchange, sink: Sink, job: DeliveryJob
    ) -> None:
        self._selector = pipeline._selector
        self._failover = pipeline._failover
        self._hedging = pipeline._hedging
        self._metrics = pipeline._metrics
        self._tell_first_output = pipeline._first_output
        self._recorder = pipeline._recorder
        self._tried: str | None = None
        self._exchange = exchange
        self._sink = sink
        self._job = job
        self._attempt: Attempt | None = None
        self._limit: asyncio.Timeout | None = None
        self._delivery = Delivery(exchange, sink, job, pipeline._open_after, self._first_output)

    @property
    def _decoder(self) -> StreamDecoder | None:
        return self._attempt.decoder if self._attempt is not None else None

    async def go(self) -> None:
        """Run to the end. Raises RouterError only while the sink has not been opened."""
        try:
            await self._failover.run(self._exchange, self)
        except RouterError as error:
            await self._fail(error)
        except asyncio.CancelledError:
            if self._exchange.abort is None:
                self._abandon()
                raise
            if not self._sink.opened:
                raise
            await self._fail(self._exchange.abort)
        except ClientGone:
            self._abandon()
            raise
        except Exception:
            await self._fail(self._bug())
        finally:
            self._delivery.close()

    def _bug(self) -> RouterError:
        """What the client is told of the exception that is being handled."""
        _log.exception("request failed", request_id=self._exchange.request.id)
        return internal_error(self._exchange)

    async def _fail(self, error: RouterError) -> None:
        """End a stream that has begun with the events that say why; raise before."""
        if not self._sink.opened:
            raise error
        decoder = self._decoder
        if decoder is None or not decoder.ended:
            self._exchange.result.fail(error.code)
        frames = decoder.fail(error) if decoder else self._job.fail(error, self._job.builder)
        if len(frames) > 1:
            self._sink.feed(frames[:-1])
        self._delivery.end_with([await self._keep(last) for last in frames[-1:]])

    def _abandon(self) -> None:
        """The client is gone: what there is of a response that was to be stored is kept."""
        record, builder, decoder = self._exchange.record, self._job.builder, self._decoder
        if record is None or builder is None:
            return
        if decoder is None:
            record.abandon(builder.snapshot("cancelled"), {})
            return
        decoder.fail(_CLIENT_LEFT)
        final = decoder.final or builder.snapshot("cancelled")
        record.abandon({**final, "status": "cancelled", "error": None}, decoder.encrypted_reasoning)

    async def _keep(self, last: Frame) -> Frame:
        """Store the response before ``last``, its terminal event, leaves; the event to send."""
        builder = self._job.builder
        if self._exchange.record is None or builder is None:
            return last
        return await persist(self._exchange, builder, *self._final(builder), last)

    async def _keep_whole(self, body: bytes) -> bytes:
        """``_keep`` for an answer in one piece; raises RouterError where it is not stored."""
        builder = self._job.builder
        if self._exchange.record is None or builder is None:
            return body
        return await persist_whole(self._exchange, *self._final(builder), body)

    def _final(self, builder: ResponseBuilder) -> tuple[dict[str, Any], Mapping[str, str]]:
        decoder = self._decoder
        if decoder is None or decoder.final is None:
            return builder.final or builder.snapshot("failed"), {}
        return decoder.final, decoder.encrypted_reasoning

    @property
    def has_output(self) -> bool:
        """See ``Work.has_output``."""
        return self._delivery.has_output

    def rewind(self, model: str) -> None:
        """See ``Work.rewind``."""
        self._attempt = None
        self._delivery.rewind()
        if self._job.builder is not None:
            self._job.builder.served_by(model)

    def attempt(self, reservation: SlotReservation) -> Coroutine[Any, Any, None]:
        """See ``Work.attempt``."""
        self._limit = None
        if not reservation.probe:
            return self._try(reservation)
        patience = reservation.deployment.patience(stream=self._exchange.stream)
        if patience is None:
            return self._try(reservation)
        return self._probe(reservation, patience)

    async def _probe(self, reservation: SlotReservation, patience: float) -> None:
        try:
            # Whether an endpoint is back is not found out at the expense of one client.
            async with asyncio.timeout(patience) as self._limit:
                await self._try(reservation)
        except TimeoutError:
            if self._limit is None or not self._limit.expired():
                raise
            name = reservation.deployment.endpoint.name
            raise UpstreamTimeout(
                f"Endpoint '{name}' is not back yet: no output within {patience:g} s."
            ) from None

    async def _try(self, reservation: SlotReservation) -> None:
        exchange = self._exchange
        # Why it is made: a fallback's model is asked, or an endpoint for a second time.
        before, self._tried = self._tried, exchange.result.served_model
        if before != self._tried:
            kind = Kind.FALLBACK
        else:
            kind = Kind.RETRY if exchange.result.attempts else Kind.FIRST
        attempt = Attempt(exchange, self._job, reservation, self._job.builder, self._recorder, kind)
        self._goes_on_with(attempt)
        try:
            if not exchange.stream:
                await self._whole(attempt)
            elif (
                not self._hedging.on
                or (delay := self._hedging.delay(exchange, reservation)) is None
            ):
                await attempt.send()
                await self._stream(attempt)
            else:
                await self._hedged(attempt, delay)
        finally:
            decoder = None
            if self._attempt is not None:
                self._attempt.close()
                decoder = self._attempt.decoder
            if decoder is not None:
                exchange.result.usage = decoder.usage
        result = "ok"
        if decoder is not None and decoder.failure is not None:
            exchange.result.fail(decoder.failure)
            if decoder.failure in ENDPOINT_ERRORS:
                result = "upstream_error"
                if reservation.good:  # its output was well until then
                    self._selector.failed(reservation)
        self._metrics.fleet.attempts[reservation.deployment.endpoint.name, result].inc()

    def _goes_on_with(self, attempt: Attempt) -> None:
        """It is this attempt's answer that the client gets."""
        endpoint = attempt.reservation.deployment.endpoint
        self._exchange.result.endpoint = endpoint.name
        self._exchange.result.account = endpoint.account
        self._attempt = attempt
        # A stream may be opened before the endpoint says anything.
        self._delivery.response_headers = attempt.response_headers

    def _first_output(self) -> None:
        """The endpoint has begun to answer; its first output is about to leave."""
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
        self._tell_first_output(self._exchange)

    def _has_begun(self) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(None)

    def _count_dropped_reasoning(self, attempt: Attempt) -> None:
        if dropped := attempt.response_headers.get(REASONING_DROPPED):
            name = attempt.reservation.deployment.endpoint.name
            self._metrics.reasoning_dropped.labels(name).inc(int(dropped))

    async def _hedged(self, attempt: Attempt, delay: float) -> None:
        """Stream, after another endpoint has been asked too if this one was late."""
        job = self._job
        held: list[Frame] = []

        def hold(frames: list[Frame]) -> None:
            if frames:
                assert attempt.decoder is not None
                with contextlib.suppress(ClientGone):  # whoever feeds it next is told again
                    self._delivery.push(frames, attempt.decoder)

        def another(reservation: SlotReservation) -> PendingAttempt:
            builder = job.builder
            if builder is not None:
                # Both go on from here, whoever has output first and whenever the head leaves.
                hold(builder.open())
                builder = copy(builder)
            attempt = Attempt(self._exchange, job, reservation, builder, self._recorder, Kind.HEDGE)
            return PendingAttempt(attempt, held.extend)

        chosen = await self._hedging.race(self._exchange, attempt, delay, hold, another)
        frames = chosen.frames
        if chosen.attempt is not attempt:
            self._take_over(chosen.attempt)
            frames = [*held, *frames]
        if chosen.error is not None:
            raise chosen.error
        await self._stream(chosen.attempt, frames)

    def _take_over(self, second: Attempt) -> None:
        """Go on with the second of two attempts, and with its response builder."""
        job = self._job
        if job.builder is None or second.builder is None:
            self._delivery.rewind()
        else:
            second.builder.delivered = job.builder.delivered
            job.builder = second.builder
            if self._exchange.builder is not None:
                self._exchange.builder = second.builder
        self._goes_on_with(second)

    async def _whole(self, attempt: Attempt) -> None:
        await attempt.send()
        self._exchange.result.partial = bool(attempt.response_headers)
        if attempt.response_headers:
            self._count_dropped_reasoning(attempt)
        body = await attempt.whole()
        self._has_begun()
        self._selector.answered(attempt.reservation, None)
        body = await self._keep_whole(body)
        headers = answer_headers(self._exchange, self._delivery.response_headers)
        self._sink.finish(200, body, headers)
        await attempt.settle()

    async def _stream(self, attempt: Attempt, frames: list[Frame] | None = None) -> None:
        """Deliver what an attempt reads, after the ``frames`` it has read."""
        decoder = attempt.decoder
        assert decoder is not None
        self._exchange.result.partial = bool(attempt.response_headers)
        if attempt.response_headers:
            self._count_dropped_reasoning(attempt)
        if frames is not None:
            await self._deliver(frames, decoder)
        while not decoder.ended:
            await self._deliver(await attempt.read(), decoder)
            if self._sink.paused:
                await self._sink.resumed()
        self._exchange.result.usage = decoder.usage
        self._sink.end()
        await attempt.settle()

    async def _deliver(self, frames: list[Frame], decoder: StreamDecoder) -> None:
        """Push a batch; its frames are not kept beyond it."""
        if decoder.ended and self._attempt is not None:
            self._attempt.record()
        if frames:
            if decoder.ended and self._exchange.record is not None:
                if len(frames) > 1:
                    self._delivery.push(frames[:-1], decoder)
                if self._limit is not None:
                    self._has_begun()
                frames = [await self._keep(frames[-1])]
            self._delivery.push(frames, decoder)
        if decoder.error is not None:
            raise decoder.error
