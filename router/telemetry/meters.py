"""Counters and histograms that are plain numbers: what Prometheus is shown is made of them when the
metrics are read.

For what is counted with every request: to add to one of ``prometheus_client``'s takes five calls
and a lock. They belong to the event loop; what threads count goes to those of the library. Names,
labels, buckets and ``_created`` are as the library has them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Metric
from prometheus_client import metrics as library
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

__all__ = ["CountMeter", "CountValue", "Spread", "SpreadMeter"]

_Child = TypeVar("_Child", "CountValue", "Spread")
_Labels = Mapping[str, str]


class CountValue:
    """One number that only rises: ``value``, since ``created`` (Unix time)."""

    __slots__ = ("created", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.created = time.time()

    def inc(self, amount: float = 1.0) -> None:
        """It is so much more."""
        self.value += amount


class Spread:
    """How many values there were up to each of ``bounds`` and above the one before, the last number
    being that of those above all; and their ``sum``.
    """

    __slots__ = ("bounds", "counts", "created", "exemplars", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.created = time.time()
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float, request: str | None = None) -> None:
        """Count a value; ``request`` is the id of a request that is an example of such ones."""
        place = bisect_left(self.bounds, value)
        self.counts[place] += 1
        self.sum += value
        if request is not None:
            self.exemplars[place] = Exemplar({"request_id": request}, value, time.time())


class _Meter(Collector, Generic[_Child]):
    """A metric and its children, by the values of its labels; they are shown in the order in which
    they came.
    """

    kind: str

    def __init__(
        self, name: str, help: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self.name = name
        self.label_names = tuple(labels)
        self._help = help
        self._children: dict[tuple[str, ...], _Child] = {}
        registry.register(self)

    def labels(self, *values: str) -> _Child:
        """The child of these label values, in the order in which they were declared."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}")
            child = self._children[values] = self._new()
        return child

    def describe(self) -> Iterable[Metric]:
        """See ``Collector.describe``."""
        return [Metric(self.name, self._help, self.kind)]

    def collect(self) -> Iterable[Metric]:
        """See ``Collector.collect``."""
        family = Metric(self.name, self._help, self.kind)
        for values, child in list(self._children.items()):
            labels = dict(zip(self.label_names, values, strict=True))
            family.samples += self._samples(labels, child)
            if library._use_created:
                family.add_sample(f"{self.name}_created", labels, child.created)
        return [family]

    def _new(self) -> _Child:
        raise NotImplementedError

    def _samples(self, labels: _Labels, child: _Child) -> Iterable[Sample]:
        raise NotImplementedError


class CountMeter(_Meter[CountValue]):
    """A counter; ``name`` is without ``_total``."""

    kind = "counter"

    def _new(self) -> CountValue:
        return CountValue()

    def _samples(self, labels: _Labels, child: CountValue) -> Iterable[Sample]:
        yield Sample(f"{self.name}_total", dict(labels), float(child.value))


class SpreadMeter(_Meter[Spread]):
    """A histogram with these upper ``bounds``, which rise, and one without end."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        help: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        *,
        bounds: Sequence[float],
    ) -> None:
        super().__init__(name, help, labels, registry)
        self._bounds: Final = tuple(map(float, bounds))
        with_endless = (*self._bounds, inf)
        self._shown: Final = [floatToGoString(bound) for bound in with_endless]  # type: ignore[no-untyped-call]

    def _new(self) -> Spread:
        return Spread(self._bounds)

    def _samples(self, labels: _Labels, child: Spread) -> Iterable[Sample]:
        total = 0.0
        for place, (bound, count) in enumerate(zip(self._shown, child.counts, strict=True)):
            total += count
            example = child.exemplars.get(place)
            yield Sample(f"{self.name}_bucket", {**labels, "le": bound}, total, exemplar=example)
        yield Sample(f"{self.name}_count", dict(labels), total)
        yield Sample(f"{self.name}_sum", dict(labels), child.sum)
