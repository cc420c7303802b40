"""The observer, and the spans.

A request is a span of the kind SERVER, and each attempt at an endpoint one of the kind CLIENT
below it. Tokens and cost are on attempts only, so that they can be added up. A trace that the
client began (``traceparent``) is continued, and told to the endpoints. Requests that the guards
refuse have no span: strangers make none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from plugins.tracing import names
from plugins.tracing.metrics import AttemptMetrics
from plugins.tracing.sending import LoggedExporter, at_collector, in_time, resource
from router.plugin import (
    NO_TRACE,
    AttemptTrace,
    EndpointSettings,
    Exchange,
    Observer,
    Outcome,
    TracingSettings,
    UsageRecord,
    get_logger,
)

__all__ = ["TracingPlugin"]

_log = get_logger("tracing")

_FLUSH_SECONDS: Final = 4.0
"""What is left when the router stops has so long to get to the collector; metrics as long again."""

_W3C: Final = TraceContextTextMapPropagator()
_FIELDS: Final = ("traceparent", "tracestate")


class TracingPlugin(Observer):
    """Makes the spans, and has them sent. ``exporter`` is for others than a collector."""

    name = "tracing"

    def __init__(self, settings: TracingSettings, exporter: SpanExporter | None = None) -> None:
        self._settings = settings
        self._exporter = exporter
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        self._metrics: AttemptMetrics | None = None

    async def start(self) -> None:
        """See ``Plugin.start``."""
        settings, who = self._settings, resource()
        sampler = ParentBased(TraceIdRatioBased(settings.sample))
        # Its own, not the process's: several applications can live in one.
        self._provider = TracerProvider(sampler, who, shutdown_on_exit=False)
        if self._exporter is None:
            url = at_collector(settings.endpoint, "/v1/traces")
            self._exporter = OTLPSpanExporter(endpoint=url)
        self._provider.add_span_processor(BatchSpanProcessor(LoggedExporter(self._exporter)))
        self._tracer = self._provider.get_tracer("pointsman")
        if settings.metrics:
            self._metrics = AttemptMetrics(settings.endpoint, who)

    async def stop(self) -> None:
        """See ``Plugin.stop``: what is left is sent, as long as there is time."""
        self._tracer = None
        provider, self._provider = self._provider, None
        metrics, self._metrics = self._metrics, None
        if provider is not None and not await in_time(provider.shutdown, _FLUSH_SECONDS):
            _log.warning("the collector did not take all spans in time", seconds=_FLUSH_SECONDS)
            if self._exporter is not None:
                self._exporter.shutdown()  # it gives up what it is at
        if metrics is not None and not await in_time(metrics.close, _FLUSH_SECONDS):
            _log.warning("the collector did not take the metrics in time", seconds=_FLUSH_SECONDS)

    def started(self, exchange: Exchange) -> None:
        """See ``Observer.started``."""
        if self._tracer is not None and exchange.request.operation.kind in names.OPERATIONS:
            exchange.context.trace = _RequestSpan(
                self._tracer, exchange, self._metrics, self._settings
            )

    def ended(self, exchange: Exchange) -> None:
        """See ``Observer.ended``."""
        if isinstance(exchange.context.trace, _RequestSpan):
            exchange.context.trace.over()


class _RequestSpan:
    """Implements ``router.telemetry.trace.Trace``."""

    __slots__ = ("_context", "_exchange", "_metrics", "_propagate", "_span", "_tracer")

    def __init__(
        self,
        tracer: Tracer,
        exchange: Exchange,
        metrics: AttemptMetrics | None,
        settings: TracingSettings,
    ) -> None:
        self._tracer = tracer
        self._exchange = exchange
        self._metrics = metrics
        self._propagate = settings.propagate
        ago = time.monotonic() - exchange.request.started
        self._span = tracer.start_span(
            names.title(exchange.request.operation.kind, exchange.model),
            context=_W3C.extract(_given(exchange.request.headers), Context()),
            kind=SpanKind.SERVER,
            attributes=names.of_request(exchange),
            start_time=time.time_ns() - int(ago * 1e9),
        )
        self._context = set_span_in_context(self._span, Context())

    def attempt(self, endpoint: EndpointSettings, model: str) -> AttemptTrace:
        """See ``Trace.attempt``."""
        try:
            attributes = names.of_attempt(self._exchange, endpoint, model)
            span = self._tracer.start_span(
                names.title(self._exchange.request.operation.kind, model),
                context=self._context,
                kind=SpanKind.CLIENT,
                attributes=attributes,
            )
            headers: dict[str, str] = {}
            if self._propagate:
                _W3C.inject(headers, set_span_in_context(span, Context()))
            return _AttemptSpan(span, attributes, headers, self._metrics)
        except Exception:
            _log.exception("attempt not traced", request_id=self._exchange.request.id)
            return NO_TRACE

    def tool(self, name: str, kind: str, server: str, seconds: float, error: str | None) -> None:
        """See ``Trace.tool``."""
        try:
            span = self._tracer.start_span(
                f"execute_tool {name}",
                context=self._context,
                kind=SpanKind.CLIENT,
                attributes=names.of_tool(name, kind, server, error),
                start_time=time.time_ns() - int(seconds * 1e9),
            )
            if error is not None:
                span.set_status(Status(StatusCode.ERROR))
            span.end()
        except Exception:
            _log.exception("tool not traced", request_id=self._exchange.request.id)

    def over(self) -> None:
        """The request is over."""
        exchange, span = self._exchange, self._span
        span.set_attributes(names.of_result(exchange))
        if exchange.result.outcome is Outcome.FAILED:
            span.set_status(Status(StatusCode.ERROR))
        span.end()


class _AttemptSpan:
    """Implements ``router.telemetry.trace.AttemptTrace``."""

    __slots__ = ("_attributes", "_metrics", "_span", "headers")

    def __init__(
        self,
        span: Span,
        attributes: names.Attributes,
        headers: Mapping[str, str],
        metrics: AttemptMetrics | None,
    ) -> None:
        self._span = span
        self._attributes = attributes
        self._metrics = metrics
        self.headers = headers

    def over(self, record: UsageRecord) -> None:
        """See ``AttemptTrace.over``."""
        try:
            self._span.set_attributes(names.of_record(record))
            if record.outcome in {"failed", "refused"}:
                self._span.set_status(Status(StatusCode.ERROR))
            self._span.end()
            if self._metrics is not None:
                self._metrics.count(self._attributes, record)
        except Exception:
            _log.exception("attempt not traced", request_id=record.request)


def _given(headers: Mapping[str, str]) -> dict[str, str]:
    """The trace that the client says it is in."""
    return {name: value for name in _FIELDS if (value := headers.get(name)) is not None}
