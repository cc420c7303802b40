"""Metrics that plugins declare."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from router.telemetry.plugin_metrics import PluginMetrics
from router.telemetry.series import Cap


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def shown(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line and not line.startswith("#")]


def test_each_kind(registry: CollectorRegistry) -> None:
    metrics = PluginMetrics(registry, Cap(registry))
    metrics.counter("asked", "How often.").inc()
    metrics.counter("asked", "How often.").inc(by=2)
    metrics.gauge("depth", "How deep.", ("where",)).set(4, "here")
    metrics.gauge("depth", "How deep.", ("where",)).inc("here", by=-1)
    metrics.histogram("took_seconds", "How long.", ("what",), buckets=(1, 2)).observe(1.5, "all")
    found = shown(registry)
    assert "pointsman_plugin_asked_total 3.0" in found
    assert 'pointsman_plugin_depth{where="here"} 3.0' in found
    assert 'pointsman_plugin_took_seconds_bucket{le="1.0",what="all"} 0.0' in found
    assert 'pointsman_plugin_took_seconds_bucket{le="2.0",what="all"} 1.0' in found


def test_labels_are_bounded(registry: CollectorRegistry) -> None:
    counter = PluginMetrics(registry, Cap(registry, 2)).counter("asked", "Who.", ("who", "what"))
    for who in ("ann", "bob", "cyd", "dan", "ann"):
        counter.inc(who, "it")
    assert shown(registry) == [
        'pointsman_series_folded_total{metric="pointsman_plugin_asked"} 2.0',
        'pointsman_plugin_asked_total{what="it",who="ann"} 2.0',
        'pointsman_plugin_asked_total{what="it",who="bob"} 1.0',
        'pointsman_plugin_asked_total{what="other",who="other"} 2.0',
    ]


@pytest.mark.parametrize("name", ["", "Asked", "1st", "a-b", "a b"])
def test_names_that_are_none(name: str, registry: CollectorRegistry) -> None:
    with pytest.raises(ValueError, match="no name of a metric"):
        PluginMetrics(registry, Cap(registry)).gauge(name, "What.")


def test_one_that_was_declared_otherwise(registry: CollectorRegistry) -> None:
    metrics = PluginMetrics(registry, Cap(registry))
    metrics.counter("asked", "Who.", ("who",))
    declare: list[Any] = [
        lambda: metrics.counter("asked", "Who."),
        lambda: metrics.gauge("asked", "Who.", ("who",)),
    ]
    for again in declare:
        with pytest.raises(ValueError, match="another kind or labels"):
            again()


@pytest.mark.parametrize("values", [(), ("ann", "bob")])
def test_the_wrong_number_of_values(values: tuple[str, ...], registry: CollectorRegistry) -> None:
    counter = PluginMetrics(registry, Cap(registry)).counter("asked", "Who.", ("who",))
    with pytest.raises(ValueError, match="labels are"):
        counter.inc(*values)
