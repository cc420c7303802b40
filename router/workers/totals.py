"""Metrics of several processes as those of one.

Counters and histograms are added up, with those of processes that have ended. What a gauge says of
several processes depends on what it is: most are added up (requests in flight, memory, slots), of
some the least or the most is what matters (``GAUGES``). A process that has ended has no gauges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar, Sample

__all__ = ["GAUGES", "Snapshot", "Totals", "exposition", "snapshot"]

Snapshot = list[list[Any]]
"""Families as JSON: name, help, type, unit, samples; of these name, labels, value, exemplar."""

_MOST_SAMPLES: Final = 50_000
"""Of one metric; each process bounds the label sets of its own."""

_SUMMED: Final = frozenset({"counter", "histogram", "gaugehistogram", "summary"})

GAUGES: Final[Mapping[str, Literal["min", "max"]]] = {
    "pointsman_endpoint_up": "min",
    "pointsman_state_up": "min",
    "pointsman_limits_store_up": "min",
    "pointsman_cache_store_up": "min",
    "pointsman_budget_left_ratio": "min",
    "pointsman_configuration_timestamp_seconds": "min",
    "pointsman_process_start_time_seconds": "min",
    "pointsman_slots": "max",
    "pointsman_breaker_state": "max",
    "pointsman_model_loaded": "max",
    "pointsman_models_left_alone": "max",
    "pointsman_ledger_journal_bytes": "max",
    "pointsman_cache_entries": "max",
    "pointsman_cache_bytes": "max",
    "pointsman_cache_max_bytes": "max",
    "pointsman_cache_evicted": "max",
    "pointsman_cache_false_hit_ratio": "max",
    "pointsman_cache_semantic_off": "max",
    "pointsman_runs queued": "max",
    "pointsman_vector_store_files_waiting": "max",
}
"""The gauges that are not added up, by name, or by name and the values of their labels."""


def snapshot(registry: CollectorRegistry, *, gauges: bool = True) -> Snapshot:
    """What the metrics of a process are at this moment."""
    return [
        [
            family.name,
            family.documentation,
            family.type,
            family.unit,
            [
                [sample.name, [*sample.labels.items()], _plain(sample.value), _seen(sample)]
                for sample in family.samples
            ],
        ]
        for family in registry.collect()
        if gauges or family.type in _SUMMED
    ]


def exposition(snapshots: Iterable[Snapshot], accept: str) -> tuple[bytes, str]:
    """The body and content type of a scrape of processes that have these metrics."""
    totals = Totals()
    for one in snapshots:
        totals.add(one)
    encode, content_type = choose_encoder(accept)
    return encode(totals), content_type


class _MetricTotals:
    """One metric: its samples by name and labels."""

    __slots__ = ("documentation", "kind", "name", "samples", "unit")

    def __init__(self, name: str, documentation: str, kind: str, unit: str) -> None:
        self.name = name
        self.documentation = documentation
        self.kind = kind
        self.unit = unit
        self.samples: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, Any]] = {}

    def add(self, samples: Iterable[list[Any]]) -> None:
        known = self.samples
        for name, labels, value, exemplar in samples:
            key = name, tuple(map(tuple, labels))
            had = known.get(key)
            if had is None:
                if len(known) < _MOST_SAMPLES:
                    known[key] = float(value), exemplar
                continue
            join = self._join(name, labels)
            known[key] = join(had[0], float(value)), _later(had[1], exemplar)

    def _join(self, name: str, labels: Iterable[Sequence[str]]) -> Callable[[float, float], float]:
        if name.endswith("_created"):
            return min
        if self.kind in _SUMMED:
            return _sum
        if self.kind != "gauge":
            return max  # of an info, which is always 1
        values = " ".join([name, *(value for _, value in labels)])
        rule = GAUGES.get(name) or GAUGES.get(values)
        return _sum if rule is None else min if rule == "min" else max

    def metric(self) -> Metric:
        metric = Metric(self.name, self.documentation, self.kind, self.unit)
        for (name, labels), (value, exemplar) in self.samples.items():
            seen = Exemplar(dict(exemplar[0]), exemplar[1], exemplar[2]) if exemplar else None
            metric.samples.append(Sample(name, dict(labels), value, None, seen))
        return metric


class Totals(CollectorRegistry):
    """The metrics of all processes whose snapshots were added; a registry to be encoded."""

    def __init__(self) -> None:
        super().__init__()
        self._families: dict[str, _MetricTotals] = {}

    def add(self, added: Snapshot) -> None:
        """Add those of one more process."""
        for name, documentation, kind, unit, samples in added:
            family = self._families.get(name)
            if family is None:
                family = self._families[name] = _MetricTotals(name, documentation, kind, unit)
            family.add(samples)

    def collect(self) -> Iterable[Metric]:
        """See ``CollectorRegistry``."""
        return [family.metric() for family in self._families.values()]


def _sum(one: float, other: float) -> float:
    return one + other


def _plain(value: float) -> float | str:
    """JSON has no infinity."""
    return value if isfinite(value) else str(value)


def _seen(sample: Sample) -> list[Any] | None:
    exemplar = sample.exemplar
    if exemplar is None:
        return None
    return [[*exemplar.labels.items()], exemplar.value, exemplar.timestamp]


def _later(one: list[Any] | None, other: list[Any] | None) -> list[Any] | None:
    if one is None or other is None:
        return one or other
    return one if (one[2] or 0.0) >= (other[2] or 0.0) else other
