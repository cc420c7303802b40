"""What is told of the endpoints, of choosing among them and of trying again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from router.errors import UpstreamError

__all__ = ["FleetMetrics"]

_REJECTED: Final = "rejected"
_RESULTS: Final = frozenset(
    {
        "ok",
        "cancelled",
        *(kind.default_code for kind in UpstreamError.__subclasses__() if kind.default_code),
    }
)
_REASONS: Final = ("open", "probe", "cooling", "drained")


class FleetMetrics:
    """The metrics of one fleet."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.attempts = _Attempts(
            Counter(
                "switchyard_upstream_attempts",
                "Attempts at an endpoint, by result (ok, the error's code, or cancelled: another "
                "endpoint asked at the same time was sooner).",
                ("endpoint", "result"),
                registry=registry,
            )
        )
        self.queued = Gauge(
            "switchyard_queue_depth", "Requests waiting for a free slot.", registry=registry
        )
        self._endpoint_up = Gauge(
            "switchyard_endpoint_up",
            "Whether the endpoint answered when last asked (1) or not (0).",
            ("endpoint",),
            registry=registry,
        )
        self._left_alone = Gauge(
            "switchyard_models_left_alone",
            "Models of an endpoint that get no requests, by reason: open (a breaker is, or the "
            "endpoint is down), probe (its breaker is half-open), cooling (it asked for a pause, "
            "or could not load the model), drained.",
            ("endpoint", "reason"),
            registry=registry,
        )
        self.retries_denied = Counter(
            "switchyard_retries_denied",
            "Requests that failed without a further attempt, because the retry budget was spent.",
            registry=registry,
        )
        self.hedges = Counter(
            "switchyard_hedges",
            "Streams for which a second endpoint was asked, because the first was late: the "
            "second won, lost, or failed.",
            ("result",),
            registry=registry,
        )
        self.fallbacks = Counter(
            "switchyard_fallbacks",
            "Requests for a model that went to another one, as configured in fallbacks.",
            ("model", "fallback"),
            registry=registry,
        )

    def watch_endpoint(
        self, name: str, up: Callable[[], bool], left_alone: Callable[[str], int]
    ) -> None:
        """``up`` tells whether the endpoint of this name answers, ``left_alone`` how many of its
        models get no requests for a reason, whenever they are asked.
        """
        self._endpoint_up.labels(name).set_function(lambda: 1 if up() else 0)
        for reason in _REASONS:
            count = partial(left_alone, reason)
            self._left_alone.labels(name, reason).set_function(count)

    def forget_endpoint(self, name: str) -> None:
        """There is no such endpoint any more."""
        self._endpoint_up.remove(name)
        for reason in _REASONS:
            self._left_alone.remove(name, reason)

    def queue_depth(self, waiting: Callable[[], int]) -> None:
        """``waiting`` tells how many requests stand in the queue, whenever it is asked."""
        self.queued.set_function(waiting)


class _Attempts:
    """The counter of attempts, its children looked up once."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._children: dict[tuple[str, str], Counter] = {}

    def labels(self, endpoint: str, result: str) -> Counter:
        """The counter of one result; codes that an endpoint made up are all ``rejected``."""
        if result not in _RESULTS:
            result = _REJECTED
        child = self._children.get((endpoint, result))
        if child is None:
            child = self._children[endpoint, result] = self._counter.labels(endpoint, result)
        return child
