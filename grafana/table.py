"""The table of all metrics, made of their declarations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import Metric, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from router.telemetry.meters import CountMeter, SpreadMeter
from router.telemetry.metrics import Metrics
from router.telemetry.series import PolledMetric

__all__ = ["Declared", "declared", "with_table"]

BEGIN: Final = "<!-- metrics, made by python -m grafana.make -->"
END: Final = "<!-- end of metrics -->"
_UNITS: Final = {
    "seconds": "s", "bytes": "bytes", "ratio": "0 to 1", "usd": "US dollars", "tokens": "tokens",
}  # fmt: skip


@dataclass(frozen=True)
class Declared:
    """One metric, by the name that queries use (a histogram's without ``_bucket`` and so on)."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def unit(self) -> str:
        """What its numbers are; by its name, as is the custom."""
        words = self.name.removesuffix("_total").split("_")
        return next((_UNITS[word] for word in reversed(words) if word in _UNITS), "")


def declared() -> list[Declared]:
    """Every metric of the router, by name."""
    metrics = Metrics("")
    metrics.cache.watch(lambda: None, lambda: True, lambda: None)
    collectors = list(metrics.registry._collector_to_names)
    return sorted((one for c in collectors for one in _of(c)), key=lambda one: one.name)


def _of(collector: Collector) -> Iterable[Declared]:
    labels: tuple[str, ...] = ()
    families: Iterable[Metric]
    if isinstance(collector, MetricWrapperBase):
        labels = tuple(collector._labelnames)
        families = collector.describe()
    elif isinstance(collector, PolledMetric | CountMeter | SpreadMeter):
        labels = collector.label_names
        families = collector.describe()
    else:
        assert isinstance(collector, ProcessCollector)
        families = collector.collect()
    for family in families:
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        yield Declared(name, family.type, labels, family.documentation)


def with_table(text: str) -> str:
    """A document with the table between its marks."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the document needs the marks {BEGIN!r} and {END!r}")
    rows = "\n".join(_row(one) for one in declared())
    head = "| metric | kind | unit | labels | what it says |\n|---|---|---|---|---|"
    return f"{before}{BEGIN}\n{head}\n{rows}\n{END}{after}"


def _row(one: Declared) -> str:
    labels = ", ".join(one.labels)
    return f"| `{one.name}` | {one.kind} | {one.unit} | {labels} | {one.help.replace('|', '/')} |"
