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
from collections.abc import Awaitable, Coroutine, Sequence
from copy import copy
from typing import Any, Final

import orjson

from router.core.exchange import AnswerKind, ClientGone, Exchange, Sink, internal_error
from router.core.response_lifecycle import new_builder, persist, persist_whole
from router.core.upstream import DIRECT, REASONING_DROPPED
from router.core.usage_record import Kind
from router.dialects.responses.decode_stream import ENDPOINT_ERRORS
from router.dialects.responses.schema import involves_compacting
from router.endpoints.selector import SlotReservation
from router.errors import RouterError, UpstreamTimeout
from router.pipeline.attempt import Attempt, Delivery, answer_headers
from router.pipeline.counting import count_tokens
from router.pipeline.hedging import Fleet, PendingAttempt
from router.pipeline.native import translated
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.frame import Frame
from router.telemetry.log import get_logger
from router.telemetry.metrics import Metrics
from router.tools.compaction import Compaction, Compactor
from router.tools.hosted import HostedTool
from router.tools.loop import ToolLoop
from router.usage.recorder import UsageRecorder

__all__ = ["Pipeline"]

_log = get_logger("router.pipeline.run")

_OF_ITEMS: Final = frozenset({AnswerKind.RESPONSE, AnswerKind.COMPACT, AnswerKind.COUNT})
"""Operations whose input is one of the Responses API."""

_CLIENT_LEFT: Final = RouterError("The client closed its connection.")


class Pipeline:
    """Answers exchanges with the endpoints of one configuration."""

    def __init__(
        self,
        fleet: Fleet,
        open_after: float,
        metrics: Metrics,
        recorder: UsageRecorder,
        tools: ToolLoop,
        compactor: Compactor,
        *,
        strict: bool = False,
    ) -> None:
        self._recorder = recorder
        self._tools = tools
        self._compactor = compactor
        self._registry = fleet.registry
        self._selector = fleet.selector
        self._failover = fleet.failover
        self._hedging = fleet.hedging
        self._open_after = open_after
        self._metrics = metrics
        self._strict = strict

    def answer(self, exchange: Exchange, sink: Sink) -> Coroutine[Any, Any, None]:
        """Answer the exchange, run its tools, and compact what is to be compacted; raises
        RouterError as long as nothing has been sent.
        """
        # No coroutine more than there has to be: each is kept for as long as a stream lasts.
        body, kind = exchange.body, exchange.request.operation.kind
        if not exchange.turn and kind in _OF_ITEMS:
            if kind is AnswerKind.COMPACT or involves_compacting(body):
                return self._compacted(exchange, sink)
            if body.get("tools"):
                return self._with_tools(exchange, sink)
        return self._ask(exchange, sink)

    async def _compacted(self, exchange: Exchange, sink: Sink) -> None:
        """Answer what has summaries in its input, or asks for one."""
        compaction = await self._compactor.prepare(exchange)
        if exchange.request.operation.kind is AnswerKind.COMPACT:
            await self._compactor.answer(exchange, sink, self._ask, self.answer)
        else:
            await self._with_tools(exchange, sink, compaction)

    async def _with_tools(
        self, exchange: Exchange, sink: Sink, compaction: Compaction | None = None
    ) -> None:
        """Answer the exchange with the tools of it that are run here, if there are any."""
        tools: Sequence[HostedTool] = ()
        if exchange.body.get("tools") and not (compaction is not None and compaction.ordered):
            tools = await self._tools.offers.tools(exchange)
        if tools or compaction is not None:
            if (native := exchange.native) is not None:  # its turns have none
                translated(exchange, native, exchange.result.headers, strict=self._strict)
            await self._tools.answer(exchange, sink, tools, self.answer, compaction)
        else:
            await self._ask(exchange, sink)

    async def _ask(self, exchange: Exchange, sink: Sink) -> None:
        """Have an endpoint answer the exchange."""
        kind = exchange.request.operation.kind
        if kind is AnswerKind.COUNT:
            await count_tokens(self._registry, self._selector, exchange, sink)
            return
        builder = None
        if kind not in DIRECT:
            builder = exchange.builder or new_builder(exchange.body, muted=not exchange.stream)
        run = _Run(self, exchange, sink, builder)
        try:
            await self._failover.run(exchange, run)
        except RouterError as error:
            await run.fail(error)
        except asyncio.CancelledError:
            if exchange.abort is None:
                run.abandon()
                raise
            if not sink.opened:
                raise
            await run.fail(exchange.abort)
        except ClientGone:
            run.abandon()
            raise
        except Exception:
            _log.exception("request failed", request_id=exchange.request.id)
            await run.fail(internal_error(exchange))
        finally:
            run.delivery.close()


class _Run:
    """One exchange's attempts, until one succeeds or none is left. Implements ``Work``."""

    def __init__(
        self, pipeline: Pipeline, exchange: Exchange, sink: Sink, builder: ResponseBuilder | None
    ) -> None:
        self._selector = pipeline._selector
        self._hedging = pipeline._hedging
        self._metrics = pipeline._metrics
        self._recorder = pipeline._recorder
        self._strict = pipeline._strict
        self._tried: str | None = None
        self._exchange = exchange
        self._sink = sink
        self._attempt: Attempt | None = None
        self._limit: asyncio.Timeout | None = None
        self.delivery = Delivery(exchange, sink, builder, pipeline._open_after, self._first_output)

    async def fail(self, error: RouterError) -> None:
        """End a stream that has begun with the events that say why; raise before."""
        if not self._sink.opened:
            raise error
        decoder = self._attempt.decoder if self._attempt is not None else None
        builder = self.delivery.builder
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
        self.delivery.end_with([await self._keep(last, decoder) for last in frames[-1:]])

    def abandon(self) -> None:
        """The client is gone: what there is of a response that was to be stored is kept."""
        record, builder = self._exchange.record, self.delivery.builder
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
        exchange, builder = self._exchange, self.delivery.builder
        if exchange.record is None or builder is None:
            return last
        if decoder is None or decoder.final is None:
            final = builder.final or builder.snapshot("failed")
            return await persist(exchange, builder, final, {}, last)
        return await persist(exchange, builder, decoder.final, decoder.encrypted_reasoning, last)

    @property
    def has_output(self) -> bool:
        """See ``Work.has_output``."""
        return self.delivery.has_output

    def rewind(self, model: str) -> None:
        """See ``Work.rewind``."""
        self._attempt = None
        self.delivery.rewind()
        if self.delivery.builder is not None:
            self.delivery.builder.served_by(model)

    async def attempt(self, reservation: SlotReservation) -> None:
        """See ``Work.attempt``."""
        exchange = self._exchange
        # Why it is made: a fallback's model is asked, or an endpoint for a second time.
        before, self._tried = self._tried, exchange.result.served_model
        kind = Kind.RETRY if exchange.result.attempts else Kind.FIRST
        if before != self._tried:
            kind = Kind.FALLBACK
        elif kind is Kind.FIRST and exchange.turn > 1:
            kind = Kind.TURN
        builder, strict = self.delivery.builder, self._strict
        attempt = Attempt(exchange, reservation, builder, self._recorder, kind, strict=strict)
        self._goes_on_with(attempt)
        answer = self._stream if exchange.stream else self._whole
        self._limit = delay = patience = None
        if reservation.probe:
            patience = reservation.deployment.patience(stream=exchange.stream)
        if exchange.stream and self._hedging.on:
            delay = self._hedging.delay(exchange, reservation)
        try:
            if patience is not None:
                await self._probe(answer(attempt), patience, reservation)
            elif delay is not None:
                await self._hedged(attempt, delay)
            else:
                await answer(attempt)
        finally:
            decoder = None
            if self._attempt is not None:
                self._attempt.close()
                decoder = self._attempt.decoder
            if decoder is not None:
                exchange.result.usage = decoder.usage
        result = "ok"  # of the deployment that the reservation is for by now
        if decoder is not None and decoder.failure is not None:
            exchange.result.fail(decoder.failure)
            if decoder.failure in ENDPOINT_ERRORS:
                result = "upstream_error"
                if reservation.good:  # its output was well until then
                    self._selector.failed(reservation)
        self._metrics.fleet.attempts[reservation.deployment.endpoint.name, result].inc()

    async def _probe(
        self, work: Awaitable[None], patience: float, reservation: SlotReservation
    ) -> None:
        """``work`` has so many seconds until its first output: no client pays for a probe."""
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
        endpoint, result = attempt.reservation.deployment.endpoint, self._exchange.result
        result.endpoint, result.account = endpoint.name, endpoint.account
        self._attempt = attempt
        # A stream may be opened before the endpoint says anything.
        self.delivery.response_headers = attempt.response_headers

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
            self._metrics.reasoning_dropped.labels(name).inc(int(dropped))

    async def _hedged(self, attempt: Attempt, delay: float) -> None:
        """Stream, after another endpoint has been asked too if this one was late."""
        held: list[Frame] = []

        def hold(frames: list[Frame]) -> None:
            if frames:
                assert attempt.decoder is not None
                with contextlib.suppress(ClientGone):  # whoever feeds it next is told again
                    self.delivery.push(frames, attempt.decoder)

        def another(reservation: SlotReservation) -> PendingAttempt:
            builder = self.delivery.builder
            if builder is not None:
                # Both go on from here, whoever has output first and whenever the head leaves.
                hold(builder.open())
                builder = copy(builder)
            recorder, strict = self._recorder, self._strict
            second = Attempt(
                self._exchange, reservation, builder, recorder, Kind.HEDGE, strict=strict
            )
            return PendingAttempt(second, held.extend)

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
        first = self.delivery.builder
        if first is None or second.builder is None:
            self.delivery.rewind()
        else:
            second.builder.delivered = first.delivered
            self.delivery.builder = second.builder
            if self._exchange.builder is not None:
                self._exchange.builder = second.builder
        self._goes_on_with(second)

    async def _whole(self, attempt: Attempt) -> None:
        decoder = await attempt.send()
        self._learn_of(attempt)
        body = await attempt.whole()
        if self._limit is not None:
            self._has_begun()
        self._selector.answered(attempt.reservation, None)
        if self._exchange.record is not None and self.delivery.builder is not None:
            assert decoder.final is not None
            self._selector.release(attempt.reservation)  # the endpoint is done with it
            blobs = decoder.encrypted_reasoning
            body = await persist_whole(self._exchange, decoder.final, blobs, body)
        headers = answer_headers(self._exchange, self.delivery.response_headers)
        self._sink.finish(200, body, headers)
        await attempt.settle()

    async def _stream(self, attempt: Attempt, frames: list[Frame] | None = None) -> None:
        """Send it and deliver what it reads; or go on after the ``frames`` that it has read."""
        decoder = await attempt.send() if frames is None else attempt.decoder
        assert decoder is not None
        self._learn_of(attempt)
        if attempt.passed:
            self.delivery.open_head()
        while True:
            if frames is None:
                frames = await attempt.read()
            if decoder.ended:
                attempt.record()
                if frames and self._exchange.record is not None:
                    if len(frames) > 1:
                        self.delivery.push(frames[:-1], decoder)
                    if self._limit is not None:
                        self._has_begun()
                    if attempt.reservation.good:
                        self._selector.release(attempt.reservation)
                    frames = [await self._keep(frames[-1], decoder)]
            if frames:
                self.delivery.push(frames, decoder)
            frames = None  # they are not kept beyond their turn
            if decoder.error is not None:
                raise decoder.error
            if self._sink.paused:
                await self._sink.resumed()
            if decoder.ended:
                break
        self._exchange.result.usage = decoder.usage
        self._sink.end()
        await attempt.settle()
