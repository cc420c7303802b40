"""The way of a request: plan → choose an endpoint → attempt → translate → record.

The pipeline is the core of the plugin chain: it gets an admitted, validated exchange and a sink,
and answers one into the other. It knows endpoints by their contracts only. Everything that goes
wrong before the sink was opened is raised as a RouterError; afterwards the stream itself says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from router.counting import count_tokens
from router.delivery import Delivery, Job, answer_headers
from router.drafts import new_draft
from router.endpoints.registry import Registry, Target
from router.errors import (
    InvalidRequest,
    NotSupported,
    Overloaded,
    RouterError,
    UpstreamError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRejected,
    UpstreamUnavailable,
)
from router.exchange import ClientGone, Exchange, Operation, Outcome, Sink, internal_error
from router.settings.schema import Settings
from router.telemetry.log import get_logger
from router.telemetry.metrics import Metrics
from router.translate.draft import Draft
from router.translate.native import unseal
from router.translate.reader import Reader
from router.upstream.contract import REASONING_DROPPED, Adapter, Answer, Call, cannot_compact
from router.wire.frame import Frame

__all__ = ["Pipeline"]

_log = get_logger("router.pipeline")

_MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
"""A streamed answer, which is kept until its end, may be as large as one in one piece."""

_CLIENT_LEFT: Final = RouterError("The client closed its connection.")


class Pipeline:
    """Answers exchanges with the endpoints of one configuration."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        metrics: Metrics,
        first_output: Callable[[Exchange], None],
    ) -> None:
        self._registry = registry
        self._max_attempts = settings.balance.max_attempts
        self._keepalive = settings.server.keepalive_interval
        self._metrics = metrics
        self._first_output = first_output

    async def answer(self, exchange: Exchange, sink: Sink) -> None:
        """Answer the exchange; raises RouterError as long as nothing has been sent."""
        if exchange.operation is Operation.INPUT_TOKENS:
            await count_tokens(self._registry, exchange, sink)
            return
        make_job = _chat_job if exchange.operation is Operation.CHAT else _response_job
        try:
            await _Run(self, exchange, sink, make_job(exchange)).go()
        except UpstreamModelMissing as error:
            if exchange.operation is not Operation.COMPACT:
                raise
            # It serves the model, or it would not have been asked: what it lacks is the route.
            raise cannot_compact(exchange.model or "") from error


def _response_job(exchange: Exchange) -> Job:
    draft = exchange.draft or new_draft(exchange.body, muted=not exchange.stream)
    compact = exchange.operation is Operation.COMPACT

    def prepare(adapter: Adapter, model: str) -> Call:
        make = adapter.compact if compact else adapter.respond
        return make(exchange, model, draft)

    def fail(error: RouterError) -> list[Frame]:
        failed = draft.finished("failed", [], None, error=error.response_error())
        return [*draft.open(), draft.end(failed)]

    return Job(prepare, fail, draft)


def _chat_job(exchange: Exchange) -> Job:
    def prepare(adapter: Adapter, model: str) -> Call:
        return adapter.chat(exchange, model)

    def fail(error: RouterError) -> list[Frame]:
        return [Frame("", orjson.dumps(error.envelope()))]

    return Job(prepare, fail)


class _Run:
    """One exchange's attempts, until one succeeds or none is left."""

    def __init__(self, pipeline: Pipeline, exchange: Exchange, sink: Sink, job: Job) -> None:
        self._registry = pipeline._registry
        self._metrics = pipeline._metrics
        self._max_attempts = pipeline._max_attempts
        self._exchange = exchange
        self._sink = sink
        self._job = job
        self._reader: Reader | None = None
        self._delivery = Delivery(exchange, sink, job, pipeline._keepalive, pipeline._first_output)

    async def go(self) -> None:
        """Run to the end. Raises RouterError only while the sink has not been opened."""
        try:
            await self._attempts()
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
        frames = self._job.fail(error) if reader is None else reader.fail(error)
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
        """Store the response before ``last``, its terminal event, leaves.

        Returns the event to send: another one where the response could not be stored.
        """
        record, draft = self._exchange.record, self._job.draft
        if record is None or draft is None:
            return last
        final, hidden = self._final(draft)
        try:
            kept = await record.finish(final, hidden, last)
        except ClientGone:
            raise
        except Exception as exc:
            error = exc if isinstance(exc, RouterError) else self._bug()
            self._exchange.outcome = Outcome.FAILED
            self._exchange.error_code = error.code
            _log.warning("response not stored", request_id=self._exchange.id, error=error.message)
            failed = {"status": "failed", "completed_at": None, "error": error.response_error()}
            return draft.end_otherwise({**final, **failed})
        return last if kept else draft.end_otherwise({**final, "store": False})

    async def _keep_whole(self, body: bytes) -> bytes:
        """``_keep`` for an answer in one piece; raises RouterError where it is not stored."""
        record, draft = self._exchange.record, self._job.draft
        if record is None or draft is None:
            return body
        final, hidden = self._final(draft)
        if await record.finish(final, hidden, None):
            return body
        return orjson.dumps({**final, "store": False})

    def _final(self, draft: Draft) -> tuple[dict[str, Any], Mapping[str, str]]:
        reader = self._reader
        if reader is None or reader.final is None:
            return draft.final or draft.snapshot("failed"), {}
        return reader.final, reader.hidden

    async def _attempts(self) -> None:
        every = await self._registry.targets(self._exchange.model or "")
        preferred = self._issuers(every)
        left: Sequence[Target] = every
        tried: set[str] = set()
        failure: RouterError | None = None
        while True:
            try:
                async with self._registry.reserve(left, preferred) as target:
                    tried.add(target.endpoint.name)
                    await self._attempt(target)
                    return
            except UpstreamError as error:
                failure = error
                self._note_failure(target, error)
                left = self._what_is_left(error, every, tried)
            except (InvalidRequest, NotSupported) as error:
                # Its dialect cannot carry the request: another one may.
                failure = failure or error
                every = tuple(t for t in every if t != target)
                left = [t for t in every if t.endpoint.name not in tried]
            except Overloaded:
                # Nowhere else is room: why it had to go elsewhere says more.
                if failure is None:
                    raise
                left = ()
            if not left:
                raise failure
            self._reader = None
            self._delivery.rewind()

    def _issuers(self, targets: Sequence[Target]) -> Sequence[Target]:
        """The targets whose account issued encrypted reasoning that the request brings back."""
        items = self._exchange.body.get("input")
        if not isinstance(items, list):
            return ()
        for item in reversed(items):
            blob = item.get("encrypted_content") if isinstance(item, dict) else None
            if isinstance(blob, str) and (account := unseal(blob)[0]) is not None:
                return [t for t in targets if t.endpoint.account == account]
        return ()

    def _what_is_left(
        self, error: UpstreamError, every: Sequence[Target], tried: set[str]
    ) -> Sequence[Target]:
        """Where to try next. An endpoint is tried twice only when it is the only one and nothing
        but its connection failed.
        """
        attempts = self._exchange.attempts
        if self._delivery.has_output or not error.elsewhere or attempts >= self._max_attempts:
            return ()
        others = [target for target in every if target.endpoint.name not in tried]
        if others:
            return others
        return every if error.again and attempts == 1 else ()

    def _note_failure(self, target: Target, error: UpstreamError) -> None:
        error.message = target.endpoint.redacted(error.message)
        self._metrics.attempts.labels(target.endpoint.name, error.code or "error").inc()
        if isinstance(error, UpstreamUnavailable) and error.again:
            # No connection; an endpoint that answers 503 is there, and may serve other models.
            target.endpoint.failed_to_connect()
        _log.warning(
            "attempt failed",
            request_id=self._exchange.id,
            endpoint=target.endpoint.name,
            model=target.model,
            attempt=self._exchange.attempts,
            error=error.message,
        )

    async def _attempt(self, target: Target) -> None:
        exchange = self._exchange
        exchange.endpoint = target.endpoint.name
        exchange.account = target.endpoint.account
        answer, reader = await self._send(target)
        try:
            if exchange.stream:
                await self._stream(answer, reader)
            else:
                await self._whole(answer, reader)
            if reader.failure is not None:
                exchange.outcome = Outcome.FAILED
                exchange.error_code = reader.failure
        finally:
            exchange.usage = reader.usage
            answer.close()
        target.endpoint.answers = True
        self._metrics.attempts.labels(target.endpoint.name, "ok").inc()

    async def _send(self, target: Target) -> tuple[Answer, Reader]:
        """Make the call; what was sent is let go of before the answer is waited through."""
        call = self._job.prepare(target.endpoint.adapter, target.model)
        self._exchange.attempts += 1
        send = target.endpoint.transport.send
        try:
            answer = await send(call.request)
        except UpstreamRejected as error:
            if call.retry is None or not call.retry(error):
                raise
            call = self._job.prepare(target.endpoint.adapter, target.model)
            answer = await send(call.request)
        self._delivery.notes = call.notes
        if dropped := call.notes.get(REASONING_DROPPED):
            self._metrics.reasoning_dropped.labels(target.endpoint.name).inc(int(dropped))
        return answer, call.reader

    async def _whole(self, answer: Answer, reader: Reader) -> None:
        body = reader.whole(await answer.body())
        self._reader = reader
        body = await self._keep_whole(body)
        self._sink.finish(200, body, answer_headers(self._exchange, self._delivery.notes))

    async def _stream(self, answer: Answer, reader: Reader) -> None:
        self._reader = reader
        if answer.headers.get("Content-Type", "").startswith("application/json"):
            await self._deliver(reader.whole_as_stream(await answer.body()), reader)
        received = 0
        while not reader.ended:
            try:
                data = await answer.read()
            except UpstreamError:
                frames = reader.salvage()
                if not frames and reader.error is None:
                    raise
                await self._deliver(frames, reader)
                break
            received += len(data)
            if received > _MAX_STREAM_BYTES:
                raise UpstreamFailure(f"The endpoint's stream exceeds {_MAX_STREAM_BYTES} bytes.")
            await self._deliver(reader.feed(data) if data else reader.finish(), reader)
            if self._sink.paused:
                await self._sink.resumed()
        self._exchange.usage = reader.usage
        self._sink.end()
        # The answer is complete: who is cancelled from here on has nothing to undo or to tell.
        with contextlib.suppress(asyncio.CancelledError):
            await answer.settle()

    async def _deliver(self, frames: list[Frame], reader: Reader) -> None:
        """Push a batch; its frames are not kept beyond it."""
        if frames:
            if reader.ended and self._exchange.record is not None:
                if len(frames) > 1:
                    self._delivery.push(frames[:-1], reader)
                frames = [await self._keep(frames[-1])]
            self._delivery.push(frames, reader)
        if reader.error is not None:
            raise reader.error
