"""The way of a request: plan → choose an endpoint → attempt → translate → record.

The pipeline is the core of the plugin chain: it gets an admitted, validated exchange and a sink,
and answers one into the other. It knows endpoints by their contracts only. Everything that goes
wrong before the sink was opened is raised as a RouterError; afterwards the stream itself says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from router.delivery import Delivery, Job, answer_headers
from router.endpoints.registry import Registry, Target
from router.errors import (
    InvalidRequest,
    Overloaded,
    RouterError,
    UpstreamError,
    UpstreamFailure,
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
from router.translate.usage import estimate_tokens, prompt_chars
from router.upstream.contract import Adapter, Answer, Call, UpstreamRequest
from router.wire.echo import echo_fields
from router.wire.frame import Frame

__all__ = ["Pipeline", "new_id"]

_log = get_logger("router.pipeline")

_MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
"""A streamed answer, which is kept until its end, may be as large as one in one piece."""


def new_id(prefix: str) -> str:
    """A fresh id: the prefix and 48 hex digits, as OpenAI's are."""
    return prefix + os.urandom(24).hex()


def _now() -> int:
    return int(time.time())


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
            await self._count_tokens(exchange, sink)
            return
        make_job = _chat_job if exchange.operation is Operation.CHAT else _response_job
        await _Run(self, exchange, sink, make_job(exchange)).go()

    async def _count_tokens(self, exchange: Exchange, sink: Sink) -> None:
        """Ask an endpoint that can count; estimate, and say so, where none can."""
        requests = {
            target: request
            for target in await self._registry.targets(exchange.model or "")
            if (request := target.endpoint.adapter.count_tokens(exchange, target.model))
        }
        count = await self._counted(exchange, requests) if requests else None
        if count is not None:
            self._send_count(exchange, sink, count, {})
            return
        count = estimate_tokens(prompt_chars(exchange.body))
        self._send_count(exchange, sink, count, {"X-Switchyard-Estimated": "true"})

    async def _counted(
        self, exchange: Exchange, requests: dict[Target, UpstreamRequest]
    ) -> int | None:
        """What one endpoint counted, or None; raises UpstreamRejected for a bad request."""
        async with self._registry.reserve(tuple(requests)) as target:
            exchange.endpoint = target.endpoint.name
            exchange.attempts += 1
            try:
                answer = await target.endpoint.transport.send(requests[target])
                try:
                    return _input_tokens(await answer.body())
                finally:
                    answer.close()
            except UpstreamRejected:
                raise
            except UpstreamError as error:
                message = target.endpoint.redacted(error.message)
                _log.warning("token count failed", endpoint=exchange.endpoint, error=message)
                return None

    @staticmethod
    def _send_count(exchange: Exchange, sink: Sink, count: int, notes: dict[str, str]) -> None:
        body = {"object": "response.input_tokens", "input_tokens": count}
        sink.finish(200, orjson.dumps(body), answer_headers(exchange, notes))


def _response_job(exchange: Exchange) -> Job:
    draft = Draft(
        echo=echo_fields(exchange.body, model=exchange.model or ""),
        new_id=new_id,
        now=_now,
        muted=not exchange.stream,
    )

    def prepare(adapter: Adapter, model: str) -> Call:
        return adapter.respond(exchange, model, draft)

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
            self._fail(error)
        except asyncio.CancelledError:
            if self._exchange.abort is None or not self._sink.opened:
                raise
            self._fail(self._exchange.abort)
        except ClientGone:
            raise
        except Exception:
            _log.exception("request failed", request_id=self._exchange.id)
            self._fail(internal_error(self._exchange))
        finally:
            self._delivery.close()

    def _fail(self, error: RouterError) -> None:
        if not self._sink.opened:
            raise error
        if self._reader is None or not self._reader.ended:
            self._exchange.outcome = Outcome.FAILED
            self._exchange.error_code = error.code
        self._delivery.fail(error, self._reader)

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
            except InvalidRequest as error:
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
        answer, reader = await self._send(target)
        try:
            if exchange.stream:
                await self._stream(answer, reader)
            else:
                body = reader.whole(await answer.body())
                self._sink.finish(200, body, answer_headers(exchange, self._delivery.notes))
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
        self._delivery.notes = call.notes
        return await target.endpoint.transport.send(call.request), call.reader

    async def _stream(self, answer: Answer, reader: Reader) -> None:
        self._reader = reader
        if answer.headers.get("Content-Type", "").startswith("application/json"):
            self._delivery.push(reader.whole_as_stream(await answer.body()), reader)
        received = 0
        while not reader.ended:
            try:
                data = await answer.read()
            except UpstreamError:
                frames = reader.salvage()
                if not frames and reader.error is None:
                    raise
                self._deliver(frames, reader)
                break
            received += len(data)
            if received > _MAX_STREAM_BYTES:
                raise UpstreamFailure(f"The endpoint's stream exceeds {_MAX_STREAM_BYTES} bytes.")
            self._deliver(reader.feed(data) if data else reader.finish(), reader)
            if self._sink.paused:
                await self._sink.resumed()
        self._exchange.usage = reader.usage
        self._sink.end()
        # The answer is complete: who is cancelled from here on has nothing to undo or to tell.
        with contextlib.suppress(asyncio.CancelledError):
            await answer.settle()

    def _deliver(self, frames: list[Frame], reader: Reader) -> None:
        """Push a batch; its frames are not kept beyond it."""
        if frames:
            self._delivery.push(frames, reader)
        if reader.error is not None:
            raise reader.error


def _input_tokens(body: bytes) -> int | None:
    try:
        count = orjson.loads(body)["input_tokens"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) else None
