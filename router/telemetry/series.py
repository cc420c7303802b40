"""Metrics that stay bounded, and metrics that are asked for when they are read.

Labels are configured names, so that there are few of them; but endpoints list ever new models, and
keys are made at run time. Past so many label sets of one metric, what else comes is counted as
``other``, and how often that happened is a metric too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

__all__ = ["OTHER", "Cap", "Children", "LabelledMetric", "PolledMetric", "Series", "Values"]

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
Values = Callable[[], Iterable[tuple[Sequence[str], float]]]
"""Tells label values and the number that belongs to them, whenever it is asked."""

OTHER: Final = "other"
_MOST: Final = 1000
_MAX_SCANNED: Final = 100_000


class Cap:
    """So many label sets may one metric have."""

    def __init__(self, registry: CollectorRegistry, most: int = _MOST) -> None:
        self.most = most
        self._folded = Counter(
            "pointsman_series_folded",
            "New label sets that came when their metric had as many as it may have, and were "
            "counted under 'other'; the same one may count again.",
            ("metric",),
            registry=registry,
        )

    def folded(self, metric: str) -> Counter:
        """Counts what of this metric was folded."""
        return self._folded.labels(metric)


class LabelledMetric(Protocol[M_co]):
    """A metric with labels: see ``router.telemetry.meters``."""

    @property
    def name(self) -> str:
        """Without what is added by its kind."""
        ...

    @property
    def label_names(self) -> Sequence[str]:
        """In the order of their values."""
        ...

    def labels(self, *values: str) -> M_co:
        """The child of these label values."""
        ...


class Children(dict[tuple[str, ...], M]):
    """The children of a metric by their label values, in the order in which those were declared;
    each is looked up once. The labels have to be few by nature.
    """

    __slots__ = ("_metric",)

    def __init__(self, metric: LabelledMetric[M]) -> None:
        super().__init__()
        self._metric = metric

    def __missing__(self, values: tuple[str, ...]) -> M:
        child = self[values] = self._metric.labels(*values)
        return child


class Series(Children[M]):
    """Children whose label values may be many: past the cap, those of the labels named in ``fold``
    are ``other``. The others have to be few by nature.
    """

    __slots__ = ("_fold", "_folded", "_most", "_rest")

    def __init__(self, metric: LabelledMetric[M], cap: Cap, *, fold: Sequence[str]) -> None:
        super().__init__(metric)
        self._most = cap.most
        self._fold = tuple(name in fold for name in metric.label_names)
        self._folded = cap.folded(metric.name)
        self._rest: Children[M] = Children(metric)

    def __missing__(self, values: tuple[str, ...]) -> M:
        if len(self) < self._most:
            return super().__missing__(values)
        self._folded.inc()
        return self._rest[self.bounded(*values)]

    def bounded(self, *values: str) -> tuple[str, ...]:
        """The label values that these are counted under."""
        if values in self or len(self) < self._most:
            return values
        return tuple(OTHER if f else v for f, v in zip(self._fold, values, strict=True))


class PolledMetric(Collector):
    """A metric whose values are asked for when the metrics are.

    It has none until ``values`` is set. Past the cap its label sets are left out.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        kind: Literal["gauge", "counter"],
        name: str,
        help: str,
        labels: Sequence[str] = (),
        cap: Cap | None = None,
    ) -> None:
        self.name = name
        self.values: Values | None = None
        self.label_names = tuple(labels)
        self._kind, self._help = kind, help
        self._most = cap.most if cap is not None else _MAX_SCANNED
        self._left_out = cap.folded(name) if cap is not None else None
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """See ``Collector.describe``."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """See ``Collector.collect``."""
        family = self._family()
        for number, (labels, value) in enumerate(self.values() if self.values else ()):
            if number < self._most:
                family.add_metric(labels, value)
            elif self._left_out is not None:
                self._left_out.inc()
        return [family]

    def _family(self) -> CounterMetricFamily | GaugeMetricFamily:
        make = CounterMetricFamily if self._kind == "counter" else GaugeMetricFamily
        return make(self.name, self._help, labels=self.label_names)
