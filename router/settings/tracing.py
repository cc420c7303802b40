"""The settings of tracing by OpenTelemetry."""

from __future__ import annotations

from router.settings.section import Section
from router.settings.values import BaseUrl, Share

__all__ = ["TracingSettings"]


class TracingSettings(Section):
    """Spans of requests and of their attempts, sent by OTLP over HTTP; needs the extra ``otel``.

    ``endpoint`` is the base URL of a collector, such as ``http://collector:4318``; left out, the
    variables ``OTEL_EXPORTER_OTLP_…`` say where it is, which also give it headers and deadlines.
    ``sample`` is the share of the requests that are traced, of those that are not part of a trace
    already: there, whoever began it has decided. ``propagate`` is whether endpoints are told of
    the trace (``traceparent``). ``metrics`` sends token counts and durations of attempts too, by
    the conventions for generative AI.
    """

    enabled: bool = False
    """Whether spans are sent; needs the extra `otel`."""
    endpoint: BaseUrl | None = None
    """The collector (OTLP over HTTP); without it `OTEL_EXPORTER_OTLP_ENDPOINT`."""
    sample: Share = 1.0
    """The share of requests that are traced where the client has not decided."""
    propagate: bool = True
    """Whether endpoints are told of the trace."""
    metrics: bool = False
    """Token counts and durations by OpenTelemetry's GenAI conventions, too."""
