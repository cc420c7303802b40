"""Every metric of the router, declared once, on a registry of its own per application.

Labels are operations, configured endpoint names and models that an endpoint is known to serve;
whatever else a client may send is counted as ``other``. Durations are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import choose_encoder

from router.exchange import Exchange, Operation, Outcome
from router.telemetry.cache_metrics import CacheMetrics
from router.telemetry.fleet_metrics import FleetMetrics

__all__ = ["OTHER", "Metrics", "ReloadMetrics", "StateMetrics"]

_Key = tuple[Operation, str | None, str, Outcome | None, int]

OTHER: Final = "other"
_SECONDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800,
)  # fmt: skip
_MAX_MODELS: Final = 1000
_MAX_BOUND: Final = 10_000
_MAX_TOKENS: Final = 10**9
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
        self.reasoning_dropped = Counter(
            "switchyard_reasoning_dropped",
            "Reasoning items left out of a history, because the endpoint that answers cannot read "
            "what another account encrypted.",
            ("endpoint",),
            registry=registry,
        )
        self.fleet = FleetMetrics(registry)
        self.state = StateMetrics(registry)
        self.reloads = ReloadMetrics(registry)
        self.cache = CacheMetrics(registry)
        info = Info("switchyard_build", "The version that runs.", registry=registry)
        info.info({"version": version})
        self._bound: dict[_Key, _Bound] = {}
        self._slots: dict[tuple[str, str], _SlotGauge] = {}
        self._models: set[str] = {"", OTHER}

    def record(self, exchange: Exchange, model: str) -> None:
        """Count a finished exchange; ``model`` is a known name, ``other``, or empty for none."""
        outcome = exchange.outcome
        key = (exchange.operation, exchange.endpoint, model, outcome, exchange.status)
        bound = self._bound.get(key)
        if bound is None:
            labels = (
                exchange.operation.value,
                exchange.endpoint or "",
                self._label(model),
                outcome.value if outcome else Outcome.FAILED.value,
                str(exchange.status),
            )
            bound = _Bound(self, *labels)
            if len(self._bound) < _MAX_BOUND:
                self._bound[key] = bound
        bound.record(exchange)

    def slots_changed(self, slot: tuple[str, str], in_flight: int, *, known: bool) -> None:
        """An endpoint works on so many requests for a model; ``known``: it may be a label."""
        gauge = self._slots.get(slot)
        if gauge is None:
            endpoint, model = slot
            label = self._label(model) if known else OTHER
            gauge = self._slots[slot] = _SlotGauge(self.in_flight, endpoint, label)
        gauge.child.inc(in_flight - gauge.in_flight)
        gauge.in_flight = in_flight
        if not in_flight and gauge.shared:
            del self._slots[slot]  # of these names there may be any number

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The body and content type of a scrape that sent this ``Accept`` header."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _label(self, model: str) -> str:
        """The model as a label: endpoints may list ever new names, but labels stay bounded."""
        if model not in self._models:
            if len(self._models) >= _MAX_MODELS:
                return OTHER
            self._models.add(model)
        return model


class StateMetrics:
    """What is told of the database of the stored state, and of background runs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._up = Gauge(
            "switchyard_state_up",
            "Whether the database of the stored state answers (1) or not (0).",
            registry=registry,
        )
        self._runs = Gauge(
            "switchyard_runs",
            "Background runs: running in this process, queued in the database.",
            ("state",),
            registry=registry,
        )
        self._ended = Counter(
            "switchyard_runs_ended",
            "Background runs that were not ended by their own router's answer: requeued or failed "
            "(their router was gone, or drained), cancelled.",
            ("result",),
            registry=registry,
        )

    def watch(
        self, up: Callable[[], bool], running: Callable[[], int], queued: Callable[[], int]
    ) -> None:
        """These are asked whenever the metrics are."""
        self._up.set_function(lambda: 1 if up() else 0)
        self._runs.labels("running").set_function(running)
        self._runs.labels("queued").set_function(queued)

    def run_ended(self, result: Literal["requeued", "failed", "cancelled"]) -> None:
        """A run was ended, or put back, by somebody else than its runner."""
        self._ended.labels(result).inc()


class ReloadMetrics:
    """What is told of reloads of the configuration."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "switchyard_reloads",
            "Reloads of the configuration, by result (ok, refused).",
            ("result",),
            registry=registry,
        )
        for result in ("ok", "refused"):
            self._counter.labels(result)  # there from the start, so that a first one is a change
        self._since = Gauge(
            "switchyard_configuration_timestamp_seconds",
            "When the configuration in force was taken over, in Unix time.",
            registry=registry,
        )

    def loaded(self, at: float) -> None:
        """A configuration is in force since ``at``, in Unix time."""
        self._since.set(at)

    def ended(self, result: Literal["ok", "refused"]) -> None:
        """A reload is over."""
        self._counter.labels(result).inc()


class _SlotGauge:
    """What of a gauge is due to one slot; all unknown models share one gauge."""

    __slots__ = ("child", "in_flight", "shared")

    def __init__(self, gauge: Gauge, endpoint: str, label: str) -> None:
        self.child = gauge.labels(endpoint, label)
        self.shared = label == OTHER
        self.in_flight = 0


class _Bound:
    """The children of one label set, looked up once."""

    __slots__ = ("_count", "_duration", "_first_output", "_metrics", "_tokens", "_where")

    def __init__(
        self, metrics: Metrics, operation: str, endpoint: str, model: str, outcome: str, status: str
    ) -> None:
        self._metrics = metrics
        self._where = where = (operation, endpoint, model)
        self._count = metrics.requests.labels(*where, outcome, status)
        self._duration = metrics.duration.labels(*where)
        self._first_output: Histogram | None = None
        self._tokens = _Tokens(metrics.tokens, endpoint, model)

    def record(self, exchange: Exchange) -> None:
        self._count.inc()
        if exchange.finished is not None:
            self._duration.observe(exchange.finished - exchange.started)
        if exchange.first_output is not None:
            if self._first_output is None:
                self._first_output = self._metrics.first_output.labels(*self._where)
            self._first_output.observe(exchange.first_output - exchange.started)
        if exchange.usage is not None:
            self._tokens.record(exchange.usage)


class _Tokens:
    """The token counters of an endpoint and model."""

    __slots__ = ("_children", "_counter", "_where")

    def __init__(self, counter: Counter, endpoint: str, model: str) -> None:
        self._counter = counter
        self._where = (endpoint, model)
        self._children: dict[tuple[str, bool], Counter] = {}

    def record(self, usage: dict[str, Any]) -> None:
        estimated = bool(usage.get("estimated"))
        self._add("input", estimated, usage.get("input_tokens"))
        self._add("output", estimated, usage.get("output_tokens"))
        details = usage.get("input_tokens_details")
        if type(details) is dict:
            self._add("cached", estimated, details.get("cached_tokens"))
        details = usage.get("output_tokens_details")
        if type(details) is dict:
            self._add("reasoning", estimated, details.get("reasoning_tokens"))

    def _add(self, kind: str, estimated: bool, count: Any) -> None:
        # An endpoint's numbers are whatever it sent.
        if type(count) is not int or not 0 < count <= _MAX_TOKENS:
            return
        child = self._children.get((kind, estimated))
        if child is None:
            provenance = "estimated" if estimated else "reported"
            child = self._counter.labels(*self._where, kind, provenance)
            self._children[kind, estimated] = child
        child.inc(count)
