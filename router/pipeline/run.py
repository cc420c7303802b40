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

from router.core.exchange import ClientGone, Exchange, Operation, Outcome, Sink, internal_error
from router.core.new_response import new_draft
from router.core.persist import keep, keep_whole
from router.core.upstream import DIRECT, REASONING_DROPPED, Adapter, Call, cannot_compact
from router.core.usage_record import Kind
from router.dialects.responses.decode_stream import ENDPOINT_ERRORS
from router.endpoints.selector import Reservation
from router.errors import RouterError, UpstreamModelMissing, UpstreamTimeout
from router.pipeline.attempt import Attempt
from router.pipeline.counting import count_tokens
from router.pipeline.delivery import Delivery, Job, answer_headers
from router.pipeline.fleet import Fleet
from router.pipeline.hedging import Opening
from router.response.builder import Draft
from router.response.decoder import Reader
from router.response.frame import Frame
from router.telemetry.log import get_logger
from router.telemetry.metrics import Metrics
from router.usage.recorder import Booking

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
        booking: Booking,
        *,
        strict: bool = False,
    ) -> None:
        self._booking = booking
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
        if exchange.operation is Operation.INPUT_TOKENS:
            await count_tokens(self._registry, self._selector, exchange, sink)
            return
        make_job = _direct_job if exchange.operation in DIRECT else _response_job
        try:
            job = make_job(exchange)
            job.strict = self._strict
            await _Run(self, exchange, sink, job).go()
        except UpstreamModelMissing as error:
            if exchange.operation is not Operation.COMPACT:
                raise
            # It serves the model, or it would not have been asked: what it lacks is the route.
            raise cannot_compact(exchange.model or "") from error


def _response_job(exchange: Exchange) -> Job:
    draft = exchange.draft or new_draft(exchange.body, muted=not exchange.stream)
    compact = exchange.operation is Operation.COMPACT

    def prepare(adapter: Adapter, model: str, context: int | None, draft: Draft | None) -> Call:
        assert draft is not None
        if compact:
            return adapter.compact(exchange, model, draft)
        return adapter.respond(exchange, model, draft, context)

    return Job(prepare, _failed_response, draft)


def _failed_response(error: RouterError, draft: Draft | None) -> list[Frame]:
    assert draft is not None
    failed = draft.finished("failed", [], None, error=error.response_error())
    return [*draft.open(), draft.end(failed)]


def _direct_job(exchange: Exchange) -> Job:
    make = DIRECT[exchange.operation]

    def prepare(adapter: Adapter, model: str, context: int | None, draft: Draft | None) -> Call:
        return make(adapter, exchange, model, context)

    return Job(prepare, lambda error, draft: [Frame("", orjson.dumps(error.envelope()))])


class _Run:
    """One exchange's attempts, until one succeeds or none is left. Implements ``Work``."""

    def __init__(self, pipeline: Pipeline, exchange: Exchange, sink: Sink, job: Job) -> None:
        self._selector = pipeline._selector
        self._failover = pipeline._failover
        self._hedging = pipeline._hedging
        self._metrics = pipeline._metrics
        self._tell_first_output = pipeline._first_output
        self._booking = pipeline._booking
        self._tried: str | None = None
        self._exchange = exchange
        self._sink = sink
        self._job = job
        self._attempt: Attempt | None = None
        self._limit: asyncio.Timeout | None = None
        self._delivery = Delivery(exchange, sink, job, pipeline._open_after, self._first_output)

    @property
    def _reader(self) -> Reader | None:
        return self._attempt.reader if self._attempt is not None else None

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
        _log.exception("request failed", request_id=self._exchange.id)
        return internal_error(self._exchange)

    async def _fail(self, error: RouterError) -> None:
        """End a stream that has begun with the events that say why; raise before."""
        if not self._sink.opened:
            raise error
        reader = self._reader
        if reader is None or not reader.ended:
            self._exchange.outcome = Outcome.FAILED
            self._exchange.error_code = error.code
        frames = reader.fail(error) if reader else self._job.fail(error, self._job.draft)
        if len(frames) > 1:
            self._sink.feed(frames[:-1])
        self._delivery.end_with([await self._keep(last) for last in frames[-1:]])

    def _abandon(self) -> None:
        """The client is gone: what there is of a response that was to be stored is kept."""
        record, draft, reader = self._exchange.record, self._job.draft, self._reader
        if record is None or draft is None:
            return
        if reader is None:
            record.abandon(draft.snapshot("cancelled"), {})
            return
        reader.fail(_CLIENT_LEFT)
        final = reader.final or draft.snapshot("cancelled")
        record.abandon({**final, "status": "cancelled", "error": None}, reader.hidden)

    async def _keep(self, last: Frame) -> Frame:
        """Store the response before ``last``, its terminal event, leaves; the event to send."""
        draft = self._job.draft
        if self._exchange.record is None or draft is None:
            return last
        return await keep(self._exchange, draft, *self._final(draft), last)

    async def _keep_whole(self, body: bytes) -> bytes:
        """``_keep`` for an answer in one piece; raises RouterError where it is not stored."""
        draft = self._job.draft
        if self._exchange.record is None or draft is None:
            return body
        return await keep_whole(self._exchange, *self._final(draft), body)

    def _final(self, draft: Draft) -> tuple[dict[str, Any], Mapping[str, str]]:
        reader = self._reader
        if reader is None or reader.final is None:
            return draft.final or draft.snapshot("failed"), {}
        return reader.final, reader.hidden

    @property
    def has_output(self) -> bool:
        """See ``Work.has_output``."""
        return self._delivery.has_output

    def rewind(self, model: str) -> None:
        """See ``Work.rewind``."""
        self._attempt = None
        self._delivery.rewind()
        if self._job.draft is not None:
            self._job.draft.served_by(model)

    def attempt(self, reservation: Reservation) -> Coroutine[Any, Any, None]:
        """See ``Work.attempt``."""
        patience = self._limit = None
        if reservation.probe:
            patience = reservation.target.patience(stream=self._exchange.stream)
        if patience is None:
            return self._try(reservation)
        return self._probe(reservation, patience)

    async def _probe(self, reservation: Reservation, patience: float) -> None:
        try:
            # Whether an endpoint is back is not found out at the expense of one client.
            async with asyncio.timeout(patience) as self._limit:
                await self._try(reservation)
        except TimeoutError:
            if self._limit is None or not self._limit.expired():
                raise
            name = reservation.target.endpoint.name
            raise UpstreamTimeout(
                f"Endpoint '{name}' is not back yet: no output within {patience:g} s."
            ) from None

    async def _try(self, reservation: Reservation) -> None:
        exchange = self._exchange
        attempt = self._attempt_at(reservation, self._job.draft, self._kind())
        self._goes_on_with(attempt)
        try:
            if not exchange.stream:
                await self._whole(attempt)
            elif (delay := self._hedging.delay(exchange, reservation)) is None:
                await attempt.send()
                await self._stream(attempt)
            else:
                await self._hedged(attempt, delay)
        finally:
            if self._attempt is not None:
                self._attempt.close()
            if (reader := self._reader) is not None:
                exchange.usage = reader.usage
        result = "ok"
        if reader is not None and reader.failure is not None:
            exchange.outcome = Outcome.FAILED
            exchange.error_code = reader.failure
            if reader.failure in ENDPOINT_ERRORS:
                result = "upstream_error"
                if reservation.good:  # its output was well until then
                    self._selector.failed(reservation)
        self._metrics.fleet.attempts.labels(reservation.target.endpoint.name, result).inc()

    def _attempt_at(self, reservation: Reservation, draft: Draft | None, kind: Kind) -> Attempt:
        return Attempt(self._exchange, self._job, reservation, draft, self._booking, kind)

    def _kind(self) -> Kind:
        """Why the next attempt is made."""
        exchange = self._exchange
        before, self._tried = self._tried, exchange.served_model
        if before != exchange.served_model:
            return Kind.FALLBACK
        return Kind.RETRY if exchange.attempts else Kind.FIRST

    def _goes_on_with(self, attempt: Attempt) -> None:
        """It is this attempt's answer that the client gets."""
        endpoint = attempt.reservation.target.endpoint
        self._exchange.endpoint = endpoint.name
        self._exchange.account = endpoint.account
        self._attempt = attempt
        # A stream may be opened before the endpoint says anything.
        self._delivery.notes = attempt.notes

    def _first_output(self) -> None:
        """The endpoint has begun to answer; its first output is about to leave."""
        self._has_begun()
        attempt = self._attempt
        if attempt is not None and attempt.reader is not None:
            failure = attempt.reader.failure
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

    def _take_notes(self, attempt: Attempt) -> None:
        self._exchange.partial = bool(attempt.notes)
        if dropped := attempt.notes.get(REASONING_DROPPED):
            name = attempt.reservation.target.endpoint.name
            self._metrics.reasoning_dropped.labels(name).inc(int(dropped))

    async def _hedged(self, attempt: Attempt, delay: float) -> None:
        """Stream, after another endpoint has been asked too if this one was late."""
        job = self._job
        held: list[Frame] = []

        def hold(frames: list[Frame]) -> None:
            if frames:
                assert attempt.reader is not None
                with contextlib.suppress(ClientGone):  # whoever feeds it next is told again
                    self._delivery.push(frames, attempt.reader)

        def another(reservation: Reservation) -> Opening:
            draft = job.draft
            if draft is not None:
                # Both go on from here, whoever has output first and whenever the head leaves.
                hold(draft.open())
                draft = copy(draft)
            return Opening(self._attempt_at(reservation, draft, Kind.HEDGE), held.extend)

        chosen = await self._hedging.race(self._exchange, attempt, delay, hold, another)
        frames = chosen.frames
        if chosen.attempt is not attempt:
            self._take_over(chosen.attempt)
            frames = [*held, *frames]
        if chosen.error is not None:
            raise chosen.error
        await self._stream(chosen.attempt, frames)

    def _take_over(self, second: Attempt) -> None:
        """Go on with the second of two attempts, and with its draft."""
        job = self._job
        if job.draft is None or second.draft is None:
            self._delivery.rewind()
        else:
            second.draft.delivered = job.draft.delivered
            job.draft = second.draft
            if self._exchange.draft is not None:
                self._exchange.draft = second.draft
        self._goes_on_with(second)

    async def _whole(self, attempt: Attempt) -> None:
        await attempt.send()
        self._take_notes(attempt)
        body = await attempt.whole()
        self._has_begun()
        self._selector.answered(attempt.reservation, None)
        body = await self._keep_whole(body)
        self._sink.finish(200, body, answer_headers(self._exchange, self._delivery.notes))
        await attempt.settle()

    async def _stream(self, attempt: Attempt, frames: list[Frame] | None = None) -> None:
        """Deliver what an attempt reads, after the ``frames`` it has read."""
        reader = attempt.reader
        assert reader is not None
        self._take_notes(attempt)
        if frames is not None:
            await self._deliver(frames, reader)
        while not reader.ended:
            await self._deliver(await attempt.read(), reader)
            if self._sink.paused:
                await self._sink.resumed()
        self._exchange.usage = reader.usage
        self._sink.end()
        await attempt.settle()

    async def _deliver(self, frames: list[Frame], reader: Reader) -> None:
        """Push a batch; its frames are not kept beyond it."""
        if reader.ended and self._attempt is not None:
            self._attempt.book()
        if frames:
            if reader.ended and self._exchange.record is not None:
                if len(frames) > 1:
                    self._delivery.push(frames[:-1], reader)
                self._has_begun()
                frames = [await self._keep(frames[-1])]
            self._delivery.push(frames, reader)
        if reader.error is not None:
            raise reader.error
