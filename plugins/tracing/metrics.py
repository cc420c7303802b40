"""Tokens and durations of attempts, by OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from plugins.tracing.names import (
    ERROR,
    MODEL,
    OPERATION,
    PROVIDER,
    SERVER,
    Attributes,
    error_of,
)
from plugins.tracing.sending import at_collector
from router.plugin import Provenance, UsageRecord

__all__ = ["AttemptMetrics"]

_SECONDS: Final = [0.01 * 2**step for step in range(14)]
_TOKENS: Final = [4**step for step in range(14)]
_KEPT: Final = (OPERATION, PROVIDER, MODEL, SERVER)


class AttemptMetrics:
    """Counts attempts. ``decoder`` is for others than a collector."""

    def __init__(
        self, endpoint: str | None, resource: Resource, decoder: MetricReader | None = None
    ) -> None:
        if decoder is None:
            exporter = OTLPMetricExporter(endpoint=at_collector(endpoint, "/v1/metrics"))
            decoder = PeriodicExportingMetricReader(exporter)
        self._provider = MeterProvider([decoder], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("pointsman")
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Seconds that attempts took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens of attempts.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )

    def count(self, attempt: Attributes, record: UsageRecord) -> None:
        """An attempt is over; ``attempt`` is what its span began with."""
        labels = {name: attempt[name] for name in _KEPT}
        if record.tokens.total or record.provenance is Provenance.REPORTED:
            for kind, count in (("input", record.tokens.input), ("output", record.tokens.output)):
                self._tokens.record(count, {**labels, "gen_ai.token.type": kind})
        if (error := error_of(record)) is not None:
            labels[ERROR] = error
        self._seconds.record(record.duration, labels)

    def close(self) -> None:
        """Send what there is, which may take a while."""
        self._provider.shutdown()
