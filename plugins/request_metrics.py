"""Counts every exchange in the router's metrics."""

from __future__ import annotations

from collections.abc import Callable

from router.plugin import OTHER, Exchange, Metrics, Observer, PluginContext

__all__ = ["KnownModel", "RequestMetrics"]

KnownModel = Callable[[str], bool]
"""Whether a name is one that an endpoint is known to serve, and so may be a label."""


class RequestMetrics(Observer):
    """Requests, errors, durations, time to first token and between tokens, clients that left."""

    name = "request_metrics"

    def __init__(self, metrics: Metrics, known_model: KnownModel) -> None:
        self._record = metrics.exchanges.record
        self._known_model = known_model

    @classmethod
    def from_context(cls, context: PluginContext) -> RequestMetrics:
        """The plugin for the metrics of an application."""
        services = context.services
        return cls(services.metrics, services.endpoints.known_models.__contains__)

    def ended(self, exchange: Exchange) -> None:
        """See ``Observer.ended``."""
        model = exchange.model
        label = ""
        if model is not None:
            label = model if self._known_model(model) else OTHER
        self._record(exchange, label)
