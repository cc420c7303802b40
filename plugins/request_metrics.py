"""Counts every exchange in the router's metrics."""

from __future__ import annotations

from router.plugin import Observer, PluginContext

__all__ = ["request_metrics"]


def request_metrics(context: PluginContext) -> Observer:
    """The plugin for the metrics of an application: they observe its exchanges themselves."""
    exchanges = context.services.metrics.exchanges
    exchanges.known_model = context.services.endpoints.known_models.__contains__
    return exchanges
