"""Every metric of the router, declared once, on a registry of its own per application.

Labels are operations, configured endpoint names and models that an endpoint is known to serve;
whatever else a client may send is counted as ``other``. Durations are in seconds.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import choose_encoder

from router.exchange import Exchange

__all__ = ["OTHER", "Metrics"]

OTHER: Final = "other"
_SECONDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800,
)  # fmt: skip
_MAX_SLOTS: Final = 1000
_WHERE: Final = ("operation", "endpoint", "model")


class Metrics:
    """The metrics of one application."""

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "switchyard_requests",
            "Requests answered, by outcome (ok, refused, failed, cancelled) and HTTP status.",
            (*_WHERE, "outcome", "status"),
            registry=registry,
        )
        self.duration = Histogram(
            "switchyard_request_duration_seconds",
            "From a request's head to its last byte.",
            _WHERE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.first_output = Histogram(
            "switchyard_time_to_first_token_seconds",
            "From a streaming request's head to its first output event.",
            _WHERE,
            buckets=_SECONDS,
            registry=registry,
        )
        self.tokens = Counter(
            "switchyard_tokens",
            "Tokens by kind (input, cached, output, reasoning); cached is part of input and "
            "reasoning part of output. Provenance: reported by the endpoint, or estimated.",
            ("endpoint", "model", "kind", "provenance"),
            registry=registry,
        )
        self.in_flight = Gauge(
            "switchyard_requests_in_flight",
            "Requests an endpoint is working on.",
            ("endpoint", "model"),
            registry=registry,
        )
        self.attempts = Counter(
            "switchyard_upstream_attempts",
            "Attempts at an endpoint, by result (ok, or the error's code).",
            ("endpoint", "result"),
            registry=registry,
        )
        self.queued = Gauge(
            "switchyard_queue_depth", "Requests waiting for a free slot.", registry=registry
        )
        self.endpoint_up = Gauge(
            "switchyard_endpoint_up",
            "Whether the endpoint answered when last asked (1) or not (0).",
            ("endpoint",),
            registry=registry,
        )
        info = Info("switchyard_build", "The version that runs.", registry=registry)
        info.info({"version": version})
        self._children: dict[tuple[str, str, str, str, int], _Bound] = {}
        self._gauges: dict[tuple[str, str], Gauge] = {}

    def record(self, exchange: Exchange, model: str) -> None:
        """Count a finished exchange; ``model`` is a known name, or ``other``."""
        outcome = exchange.outcome.value if exchange.outcome else "failed"
        endpoint = exchange.endpoint or ""
        key = (exchange.operation.value, endpoint, model, outcome, exchange.status)
        bound = self._children.get(key)
        if bound is None:
            bound = self._children[key] = _Bound(self, key)
        bound.record(exchange)

    def slots_changed(self, slot: tuple[str, str], in_flight: int, waiting: int) -> None:
        """A slot of (endpoint, model) was taken or given back; ``waiting`` stand in the queue."""
        gauge = self._gauges.get(slot)
        if gauge is None:
            if len(self._gauges) >= _MAX_SLOTS:
                slot = (slot[0], OTHER)
            gauge = self._gauges[slot] = self.in_flight.labels(*slot)
        gauge.set(in_flight)
        self.queued.set(waiting)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The body and content type of a scrape that sent this ``Accept`` header."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class _Bound:
    """The children of one label set, looked up once."""

    def __init__(self, metrics: Metrics, key: tuple[str, str, str, str, int]) -> None:
        operation, endpoint, model, outcome, status = key
        self._requests = metrics.requests.labels(operation, endpoint, model, outcome, str(status))
        self._duration = metrics.duration.labels(operation, endpoint, model)
        self._first_output = metrics.first_output.labels(operation, endpoint, model)
        self._tokens = {
            (kind, provenance): metrics.tokens.labels(endpoint, model, kind, provenance)
            for kind in ("input", "cached", "output", "reasoning")
            for provenance in ("reported", "estimated")
            if endpoint
        }

    def record(self, exchange: Exchange) -> None:
        self._requests.inc()
        if exchange.finished is not None:
            self._duration.observe(exchange.finished - exchange.started)
        if exchange.first_output is not None:
            self._first_output.observe(exchange.first_output - exchange.started)
        usage = exchange.usage
        if usage is None or not self._tokens:
            return
        provenance = "estimated" if usage.get("estimated") else "reported"
        counts = {
            "input": usage.get("input_tokens"),
            "cached": (usage.get("input_tokens_details") or {}).get("cached_tokens"),
            "output": usage.get("output_tokens"),
            "reasoning": (usage.get("output_tokens_details") or {}).get("reasoning_tokens"),
        }
        for kind, count in counts.items():
            if isinstance(count, int | float) and count > 0:
                self._tokens[kind, provenance].inc(count)
