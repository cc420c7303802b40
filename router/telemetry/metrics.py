"""Every metric of the router, declared once, on a registry of its own per application.

    exchange_metrics   requests: how many, how they ended, how long they took
    account_metrics    attempts: tokens, cost, budgets, limits, the ledger
    fleet_metrics      endpoints: up, slots, queue, breakers, retries, hedges
    cache_metrics      the response cache
    state_metrics      the stored state, background runs, reloads
    process_metrics    version, memory, the event loop

Labels are operations, configured endpoint names, names of keys, and models that an endpoint is
known to serve; whatever else a client may send is counted as ``other``. Durations are in seconds.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import choose_encoder

from router.core.exchange import Exchange
from router.telemetry.account_metrics import AccountMetrics
from router.telemetry.cache_metrics import CacheMetrics
from router.telemetry.exchange_metrics import ExchangeMetrics
from router.telemetry.fleet_metrics import FleetMetrics
from router.telemetry.process_metrics import ProcessMetrics
from router.telemetry.series import OTHER, Cap
from router.telemetry.state_metrics import ReloadMetrics, StateMetrics

__all__ = ["OTHER", "Metrics"]


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
        self.accounts = AccountMetrics(registry, cap)
        self.exchanges = ExchangeMetrics(registry, cap)
        self.fleet = FleetMetrics(registry, cap)
        self.state = StateMetrics(registry)
        self.reloads = ReloadMetrics(registry)
        self.cache = CacheMetrics(registry)
        self.process = ProcessMetrics(registry, version)

    def record(self, exchange: Exchange, model: str) -> None:
        """Count a finished exchange; ``model`` is a known name, ``other``, or empty for none."""
        self.exchanges.record(exchange, model)

    def slots_changed(self, slot: tuple[str, str], in_flight: int, *, known: bool) -> None:
        """An endpoint works on so many requests for a model; ``known``: it may be a label."""
        self.fleet.slots_changed(slot, in_flight, known=known)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The body and content type of a scrape that sent this ``Accept`` header."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
