"""Where traces and metrics go: to a collector, which may be away."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from plugins.tracing import plugin
from plugins.tracing.sending import LoggedExporter, at_collector
from tests.support.router import endpoint
from tests.support.speech import SPEECH
from tests.support.traced import ask, traced
from tests.support.upstream import Upstream, by_path, refused_port, whole
from tests.support.waiting import until

CHAT = SPEECH["chat"]
_LATE = "the collector did not take all spans in time"
_LOST = "the collector does not take spans: they get lost"


class Collector(Upstream):
    """An OTLP/HTTP receiver."""

    def __init__(self) -> None:
        paths = {"/v1/traces": whole(b""), "/v1/metrics": whole(b"")}
        super().__init__(default=by_path(paths))

    @property
    def traces(self) -> list[Any]:
        kind = ExportTraceServiceRequest
        return [kind.FromString(r.body) for r in self.requests if r.path == "/v1/traces"]

    @property
    def metrics(self) -> list[Any]:
        kind = ExportMetricsServiceRequest
        return [kind.FromString(r.body) for r in self.requests if r.path == "/v1/metrics"]


async def test_spans_and_metrics_get_to_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    async with Collector() as collector, Upstream(default=whole(CHAT.whole)) as up:
        tracing = {"endpoint": collector.address, "metrics": True}
        async with traced(endpoint(up, "chat"), tracing=tracing) as router:
            for _ in range(3):
                assert await ask(router) == 200
    kinds = {request.headers["content-type"] for request in collector.requests}
    assert kinds == {"application/x-protobuf"}
    groups = [group for taken in collector.traces for group in taken.resource_spans]
    who = {a.key: a.value.string_value for a in groups[0].resource.attributes}
    assert who["service.name"] == "pointsman"
    assert who["deployment.environment.name"] == "test"
    spans = [s for g in groups for scope in g.scope_spans for s in scope.spans]
    assert sorted(span.name for span in spans) == ["chat m"] * 6
    assert len({span.trace_id for span in spans}) == 3

    measured = {
        metric.name: metric
        for taken in collector.metrics
        for group in taken.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
    }
    tokens = {
        next(a.value.string_value for a in p.attributes if a.key == "gen_ai.token.type"): p.sum
        for p in measured["gen_ai.client.token.usage"].histogram.data_points
    }
    assert tokens == {"input": 21, "output": 12}
    [point] = measured["gen_ai.client.operation.duration"].histogram.data_points
    assert point.count == 3
    labels = {a.key: a.value.string_value for a in point.attributes}
    assert labels == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "server.address": "127.0.0.1",
    }


async def test_the_environment_says_where_the_collector_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Collector() as collector, Upstream(default=whole(CHAT.whole)) as up:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "front-door")
        async with traced(endpoint(up, "chat")) as router:
            assert await ask(router) == 200
    [taken] = collector.traces
    who = {a.key: a.value.string_value for a in taken.resource_spans[0].resource.attributes}
    assert who["service.name"] == "front-door"


@pytest.mark.parametrize("silent", [False, True])
async def test_a_collector_that_is_away_is_not_felt(
    monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    """Requests are answered, and the router stops in time; the log says that spans are lost."""
    if silent:
        monkeypatch.setattr(plugin, "_FLUSH_SECONDS", 0.05)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with socket.socket() as deaf:  # it takes connections, and nothing else
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        async with refused_port() as nobody, Upstream(default=whole(CHAT.whole)) as up:
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}" if silent else nobody
            async with traced(endpoint(up, "chat"), tracing={"endpoint": url}) as router:
                for _ in range(3):
                    assert await ask(router) == 200
            said = [line["event"] for line in router.log if line["log_level"] == "warning"]
            assert (_LATE if silent else _LOST) in said
    await until(lambda: not [thread for thread in threading.enumerate() if _ours(thread)])


def _ours(thread: threading.Thread) -> bool:
    return thread.name.startswith(("Otel", "pointsman-tracing"))


def test_lost_spans_are_told_of_once() -> None:
    class Shaky(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return next(results)

    lost, taken = SpanExportResult.FAILURE, SpanExportResult.SUCCESS
    results = iter([taken, lost, lost, taken, taken, lost])
    told = LoggedExporter(Shaky())
    spans = [ReadableSpan("a"), ReadableSpan("b")]
    with capture_logs() as log:
        for _ in range(6):
            told.export(spans)
    lines = [(line["log_level"], line.get("lost")) for line in log]
    assert lines == [("warning", None), ("info", 4), ("warning", None)]


@pytest.mark.parametrize(
    ("base", "url"),
    [
        (None, None),
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/otlp", "http://collector:4318/otlp/v1/traces"),
        ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
        ("http://collector:4318/v1/metrics", "http://collector:4318/v1/traces"),
    ],
)
def test_where_a_collector_takes_spans(base: str | None, url: str | None) -> None:
    assert at_collector(base, "/v1/traces") == url
