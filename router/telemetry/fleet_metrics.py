"""What is told of the endpoints, of choosing among them and of trying again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from router.errors import UpstreamError
from router.telemetry.meters import CountMeter, CountValue, SpreadMeter
from router.telemetry.series import OTHER, Cap, PolledMetric, Series

__all__ = ["DeploymentGauges", "FleetMetrics"]

_REJECTED: Final = "rejected"
_RESULTS: Final = frozenset(
    {
        "ok",
        "cancelled",
        *(kind.default_code for kind in UpstreamError.__subclasses__() if kind.default_code),
    }
)
_REASONS: Final = ("open", "probe", "cooling", "drained")
_WAIT_SECONDS: Final = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800,
)  # fmt: skip
_BREAKER: Final = {"closed": 0, "half-open": 1, "open": 2}


class DeploymentGauges(NamedTuple):
    """How a model at an endpoint is. ``breaker`` is ``closed``, ``half-open`` or ``open``;
    ``loaded`` whether the model is in memory, None where the endpoint does not tell.
    """

    endpoint: str
    model: str
    slots: int
    breaker: str
    loaded: bool | None


class FleetMetrics:
    """The metrics of one fleet.

    ``known_model`` says whether a name may be a label; until it is set, every name may.
    ``in_flight`` is how many requests an endpoint works on for a model, where it does.
    """

    def __init__(self, registry: CollectorRegistry, cap: Cap) -> None:
        self.known_model: Callable[[str], bool] = lambda model: True
        self.attempts = _Attempts(
            CountMeter(
                "pointsman_upstream_attempts",
                "Attempts at an endpoint, by result (ok, the error's code, or cancelled: another "
                "endpoint asked at the same time was sooner).",
                ("endpoint", "result"),
                registry,
            ),
            cap,
            fold=("endpoint",),
        )
        self.in_flight: Mapping[tuple[str, str], int] = {}
        self._deployments: Callable[[], Iterable[DeploymentGauges]] = tuple
        per_deployment = ("endpoint", "model")
        self._most_in_flight = cap.most
        in_flight = PolledMetric(
            registry, "gauge", "pointsman_requests_in_flight",
            "Requests an endpoint is working on.", per_deployment,
        )  # fmt: skip
        in_flight.values = self._working
        self._folded = cap.folded(in_flight.name)
        self._slots = PolledMetric(
            registry, "gauge", "pointsman_slots",
            "Requests that an endpoint may work on at once for a model.", per_deployment, cap,
        )  # fmt: skip
        self._breaker = PolledMetric(
            registry, "gauge", "pointsman_breaker_state",
            "The breaker of a model at an endpoint: closed (0), half-open (1) or open (2).",
            per_deployment, cap,
        )  # fmt: skip
        self._loaded = PolledMetric(
            registry, "gauge", "pointsman_model_loaded",
            "Whether the model is in the endpoint's memory (1) or not (0), where it tells.",
            per_deployment, cap,
        )  # fmt: skip
        self.queued = Gauge(
            "pointsman_queue_depth", "Requests waiting for a free slot.", registry=registry
        )
        self._queue_wait = SpreadMeter(
            "pointsman_queue_wait_seconds",
            "What requests waited for a slot that did not get one at once.",
            (),
            registry,
            bounds=_WAIT_SECONDS,
        ).labels()
        self._endpoint_up = Gauge(
            "pointsman_endpoint_up",
            "Whether the endpoint answered when last asked (1) or not (0).",
            ("endpoint",),
            registry=registry,
        )
        self._left_alone = Gauge(
            "pointsman_models_left_alone",
            "Models of an endpoint that get no requests, by reason: open (a breaker is, or the "
            "endpoint is down), probe (its breaker is half-open), cooling (it asked for a pause, "
            "has nothing left of its rate limit, or could not load the model), drained.",
            ("endpoint", "reason"),
            registry=registry,
        )
        self.retries_denied = Counter(
            "pointsman_retries_denied",
            "Requests that failed without a further attempt, because the retry budget was spent.",
            registry=registry,
        )
        self.hedges = Counter(
            "pointsman_hedges",
            "Streams for which a second endpoint was asked, because the first was late: the "
            "second won, lost, or failed.",
            ("result",),
            registry=registry,
        )
        self.fallbacks = Counter(
            "pointsman_fallbacks",
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

    def watch_deployments(self, deployments: Callable[[], Iterable[DeploymentGauges]]) -> None:
        """``deployments`` tells how every model that may be a label is, whenever it is asked."""
        self._deployments = deployments
        self._slots.values = lambda: [(one[:2], one.slots) for one in deployments()]
        self._breaker.values = lambda: [(one[:2], _BREAKER[one.breaker]) for one in deployments()]
        self._loaded.values = lambda: [
            (one[:2], one.loaded) for one in deployments() if one.loaded is not None
        ]

    def _working(self) -> Iterable[tuple[tuple[str, str], int]]:
        """How many requests endpoints work on, for models that may be labels and for others."""
        counts = {one[:2]: 0 for one in islice(self._deployments(), self._most_in_flight)}
        for (endpoint, model), count in self.in_flight.items():
            where = endpoint, model if self.known_model(model) else OTHER
            if where not in counts and len(counts) >= self._most_in_flight:
                where = OTHER, OTHER
                self._folded.inc()
            counts[where] = counts.get(where, 0) + count
        return counts.items()

    def queue_waited(self, seconds: float) -> None:
        """A request got a slot for which it had to wait so long."""
        self._queue_wait.observe(seconds)

    def queue_depth(self, waiting: Callable[[], int]) -> None:
        """``waiting`` tells how many requests stand in the queue, whenever it is asked."""
        self.queued.set_function(waiting)


class _Attempts(Series[CountValue]):
    """The counter of attempts by endpoint and result."""

    __slots__ = ()

    def __missing__(self, values: tuple[str, ...]) -> CountValue:
        """Codes that an endpoint made up are all ``rejected``."""
        endpoint, result = values
        if result not in _RESULTS and result != _REJECTED:
            return self[endpoint, _REJECTED]
        return super().__missing__(values)
