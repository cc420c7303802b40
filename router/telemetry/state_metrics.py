"""What is told of the stored state, of background runs and of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["ReloadMetrics", "StateMetrics"]

_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
)  # fmt: skip
_KINDS: Final = ("read", "write")


class StateMetrics:
    """What is told of the database of the stored state, and of background runs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._up = Gauge(
            "pointsman_state_up",
            "Whether the database of the stored state answers (1) or not (0).",
            registry=registry,
        )
        operations = Counter(
            "pointsman_state_operations",
            "Reads and writes of the stored state, by kind and result (ok, failed).",
            ("kind", "result"),
            registry=registry,
        )
        seconds = Histogram(
            "pointsman_state_operation_seconds",
            "What a read, or a write until it was committed, took.",
            ("kind",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._operations = {
            kind: (
                operations.labels(kind, "ok"),
                operations.labels(kind, "failed"),
                seconds.labels(kind),
            )
            for kind in _KINDS
        }
        self._runs = Gauge(
            "pointsman_runs",
            "Background runs: running in this process, queued in the database.",
            ("state",),
            registry=registry,
        )
        self._ended = Counter(
            "pointsman_runs_ended",
            "Background runs that were not ended by their own router's answer: requeued or failed "
            "(their router was gone, or drained), cancelled.",
            ("result",),
            registry=registry,
        )
        for result in ("requeued", "failed", "cancelled"):
            self._ended.labels(result)  # there from the start, so that a first one is a change

    def watch(
        self, up: Callable[[], bool], running: Callable[[], int], queued: Callable[[], int]
    ) -> None:
        """These are asked whenever the metrics are."""
        self._up.set_function(lambda: 1 if up() else 0)
        self._runs.labels("running").set_function(running)
        self._runs.labels("queued").set_function(queued)

    def operated(self, kind: Literal["read", "write"], seconds: float, *, ok: bool) -> None:
        """The database has done, or failed to do, what it was asked."""
        good, bad, took = self._operations[kind]
        (good if ok else bad).inc()
        took.observe(seconds)

    def run_ended(self, result: Literal["requeued", "failed", "cancelled"]) -> None:
        """A run was ended, or put back, by somebody else than its runner."""
        self._ended.labels(result).inc()


class ReloadMetrics:
    """What is told of reloads of the configuration."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "pointsman_reloads",
            "Reloads of the configuration, by result (ok, refused).",
            ("result",),
            registry=registry,
        )
        for result in ("ok", "refused"):
            self._counter.labels(result)  # there from the start, so that a first one is a change
        self._since = Gauge(
            "pointsman_configuration_timestamp_seconds",
            "When the configuration in force was taken over, in Unix time.",
            registry=registry,
        )

    def loaded(self, at: float) -> None:
        """A configuration is in force since ``at``, in Unix time."""
        self._since.set(at)

    def ended(self, result: Literal["ok", "refused"]) -> None:
        """A reload is over."""
        self._counter.labels(result).inc()
