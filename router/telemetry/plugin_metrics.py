"""Metrics that plugins declare: ``pointsman_plugin_…``, bounded like the router's own.

They outlive the plugins: one that is made again, at a reload, gets the metric that it had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from router.telemetry.series import Cap, Series

__all__ = ["PluginCounter", "PluginGauge", "PluginHistogram", "PluginMetrics"]

M = TypeVar("M", Counter, Gauge, Histogram)
P = TypeVar("P", "PluginCounter", "PluginGauge", "PluginHistogram")

_PREFIX: Final = "pointsman_plugin_"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_BUCKETS: Final = Histogram.DEFAULT_BUCKETS


class _Labelled(Generic[M]):
    """A metric, and its children by the values of its labels. It is one of ``prometheus_client``,
    since plugins may count in threads.
    """

    def __init__(self, metric: M, labels: Sequence[str], cap: Cap) -> None:
        self.name = metric._name
        self.label_names = tuple(labels)
        self._metric: M = metric
        self._series: Series[M] | None = Series(self, cap, fold=labels) if labels else None

    def labels(self, *values: str) -> M:
        """See ``LabelledMetric``."""
        return self._metric.labels(*values)

    def child(self, values: tuple[str, ...]) -> M:
        """The one of these values; raises ValueError where there are too few, or too many."""
        if len(values) != len(self.label_names):
            raise ValueError(f"the labels are {self.label_names}, the values {len(values)}")
        return self._metric if self._series is None else self._series[values]


class PluginCounter:
    """Counts. The values of its labels are given in the order in which they were declared."""

    def __init__(self, metric: Counter, labels: Sequence[str], cap: Cap) -> None:
        self._metric = _Labelled(metric, labels, cap)

    def inc(self, *values: str, by: float = 1) -> None:
        """Count ``by`` more under these label values."""
        self._metric.child(values).inc(by)


class PluginGauge:
    """Goes up and down. The values of its labels are given as they were declared."""

    def __init__(self, metric: Gauge, labels: Sequence[str], cap: Cap) -> None:
        self._metric = _Labelled(metric, labels, cap)

    def set(self, value: float, *values: str) -> None:
        """It is ``value`` now under these label values."""
        self._metric.child(values).set(value)

    def inc(self, *values: str, by: float = 1) -> None:
        """It is ``by`` more, or less where that is negative."""
        self._metric.child(values).inc(by)


class PluginHistogram:
    """Counts values by their size. The values of its labels are given as they were declared."""

    def __init__(self, metric: Histogram, labels: Sequence[str], cap: Cap) -> None:
        self._metric = _Labelled(metric, labels, cap)

    def observe(self, value: float, *values: str) -> None:
        """Count ``value`` under these label values."""
        self._metric.child(values).observe(value)


class PluginMetrics:
    """Declares the metrics of plugins; each name is made once, with ``pointsman_plugin_`` before
    it.

    Past 1000 different sets of label values of one metric, new ones are counted as ``other``.
    Raises ValueError for a name that is none, or that was declared with another kind or labels.
    """

    def __init__(self, registry: CollectorRegistry, cap: Cap) -> None:
        self._registry = registry
        self._cap = cap
        self._made: dict[
            str, tuple[tuple[str, ...], PluginCounter | PluginGauge | PluginHistogram]
        ] = {}

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> PluginCounter:
        """A counter; Prometheus calls it ``pointsman_plugin_NAME_total``."""

        def make(full: str) -> PluginCounter:
            metric = Counter(full, help, labels, registry=self._registry)
            return PluginCounter(metric, labels, self._cap)

        return self._once(name, labels, PluginCounter, make)

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> PluginGauge:
        """A gauge."""

        def make(full: str) -> PluginGauge:
            metric = Gauge(full, help, labels, registry=self._registry)
            return PluginGauge(metric, labels, self._cap)

        return self._once(name, labels, PluginGauge, make)

    def histogram(
        self,
        name: str,
        help: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = _BUCKETS,
    ) -> PluginHistogram:
        """A histogram with these upper bounds."""

        def make(full: str) -> PluginHistogram:
            metric = Histogram(full, help, labels, buckets=buckets, registry=self._registry)
            return PluginHistogram(metric, labels, self._cap)

        return self._once(name, labels, PluginHistogram, make)

    def _once(self, name: str, labels: Sequence[str], kind: type[P], make: Callable[[str], P]) -> P:
        if not _NAME.fullmatch(name):
            raise ValueError(f"'{name}' is no name of a metric: lower case, digits and _ only")
        declared = self._made.get(name)
        if declared is None:
            made = make(_PREFIX + name)
            self._made[name] = tuple(labels), made
            return made
        before, known = declared
        if before != tuple(labels) or not isinstance(known, kind):
            raise ValueError(f"the metric '{name}' has been declared with another kind or labels")
        return known
