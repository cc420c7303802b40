"""Every metric of the router, declared once, on a registry of its own per application.

    exchange_metrics   requests: how many, how they ended, how long they took
    account_metrics    attempts: tokens, cost, budgets, limits, the ledger
    fleet_metrics      endpoints: up, slots, queue, breakers, retries, hedges
    cache_metrics      the response cache
    tool_metrics       tools that the router runs itself
    vector_store_metrics  files that are ingested, and searches in them
    plugin_metrics     those that plugins declare

What is counted with every request is counted by ``meters``, the rest by ``prometheus_client``;
``registry.collect()`` gives all of it.
Those of the stored state, background runs, reloads and the process are here.

Labels are operations, configured endpoint names, names of keys, and models that an endpoint is
known to serve; whatever else a client may send is counted as ``other``. Durations are in seconds.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder

from router.telemetry.account_metrics import AccountMetrics, StateMetrics
from router.telemetry.cache_metrics import CacheMetrics
from router.telemetry.descriptors import shortage
from router.telemetry.exchange_metrics import ExchangeMetrics
from router.telemetry.fleet_metrics import FleetMetrics
from router.telemetry.log import get_logger
from router.telemetry.plugin_metrics import PluginMetrics
from router.telemetry.series import OTHER, Cap
from router.telemetry.tool_metrics import ToolMetrics
from router.telemetry.vector_store_metrics import VectorStoreMetrics

__all__ = ["OTHER", "Metrics", "ProcessMetrics", "ReloadMetrics", "StateMetrics"]

_log = get_logger("router.process")

_LOOK_SECONDS: Final = 0.25
_LAG_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ProcessMetrics:
    """The metrics of the process that an application runs in."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        info = Info("pointsman_build", "The version that runs, and Python's.", registry=registry)
        info.info({"version": version, "python": platform.python_version()})
        self._lag = Histogram(
            "pointsman_event_loop_lag_seconds",
            "How much later than it should the event loop came back, four times a second: "
            "something kept it busy.",
            buckets=_LAG_SECONDS,
            registry=registry,
        )
        self._open = Gauge(
            "pointsman_requests_open",
            "Requests that came in and are not over, those that no endpoint works on included.",
            registry=registry,
        )
        self._sockets = Gauge(
            "pointsman_websockets_open",
            "WebSockets that clients have open, those on which nothing is asked included.",
            registry=registry,
        )
        self._exhausted = Counter(
            "pointsman_file_descriptors_exhausted",
            "Looks, four a second, at which the process could open no file and no connection: "
            "clients are turned away, and endpoints cannot be reached.",
            registry=registry,
        )
        # Memory, CPU, open files and the start of the process; on Linux only.
        ProcessCollector(namespace="pointsman", registry=registry)

    def watch_open(self, count: Callable[[], int]) -> None:
        """``count`` tells how many requests are not over, whenever it is asked."""
        self._open.set_function(count)

    def watch_sockets(self, count: Callable[[], int]) -> None:
        """``count`` tells how many WebSockets are open, whenever it is asked."""
        self._sockets.set_function(count)

    async def watch_loop(self) -> None:
        """Measure how late the event loop is, and whether there are file descriptors left, until
        it is cancelled.
        """
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LOOK_SECONDS
            await asyncio.sleep(_LOOK_SECONDS)
            self._lag.observe(max(0.0, loop.time() - due))
            self._look_at_descriptors()

    def _look_at_descriptors(self) -> None:
        """Try one: an event loop that cannot accept a connection need not say so (uvloop's closes
        it), and what cannot be opened is reported by each in another way.
        """
        if (error := shortage()) is not None:
            self._exhausted.inc()
            _log.error("no file descriptors left", reason=error.strerror)


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


class Metrics:
    """The metrics of one application."""

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        cap = Cap(registry)
        self.reasoning_dropped = Counter(
            "pointsman_reasoning_dropped",
            "Reasoning items left out of a history, because the endpoint that answers cannot read "
            "what another account encrypted.",
            ("endpoint",),
            registry=registry,
        )
        self.compactions = Counter(
            "pointsman_compactions",
            "Summaries of conversations that the router had a model write, by what asked for them "
            "(request, trigger, threshold) and result (ok, failed).",
            ("cause", "result"),
            registry=registry,
        )
        self.accounts = AccountMetrics(registry, cap)
        self.exchanges = ExchangeMetrics(registry, cap)
        self.fleet = FleetMetrics(registry, cap)
        self.state = StateMetrics(registry)
        self.reloads = ReloadMetrics(registry)
        self.cache = CacheMetrics(registry)
        self.tools = ToolMetrics(registry, cap)
        self.vector_stores = VectorStoreMetrics(registry)
        self.plugins = PluginMetrics(registry, cap)
        self.process = ProcessMetrics(registry, version)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The body and content type of a scrape that sent this ``Accept`` header."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
