"""The few forms that queries have. Names are those of metrics, without ``pointsman_``."""

from __future__ import annotations

import re
from functools import cache

from grafana.table import declared

__all__ = [
    "CHOSEN", "INSTANCE", "WINDOW", "average", "increase", "quantile", "rate", "ratio", "total",
    "value",
]  # fmt: skip

INSTANCE = 'instance=~"$instance"'
CHOSEN = {
    "endpoint": "pointsman_endpoint_up",
    "model": "pointsman_requests_total",
    "key": "pointsman_key_tokens_total",
}
"""Labels that a dashboard has a variable for, and the metric whose values can be chosen from."""

WINDOW = "$__rate_interval"


def value(metric: str, where: str = "") -> str:
    """A metric, of the chosen instances, endpoints, models and keys, as far as it has these labels.
    ``where`` are further matchers.
    """
    labels = _labels().get(re.sub(r"_(bucket|sum|count)$", "", metric), ())
    chosen = [f'{label}=~"${label}"' for label in CHOSEN if label in labels]
    matchers = ", ".join(part for part in (INSTANCE, *chosen, where) if part)
    return f"pointsman_{metric}{{{matchers}}}"


@cache
def _labels() -> dict[str, tuple[str, ...]]:
    return {one.name.removeprefix("pointsman_"): one.labels for one in declared()}


def total(metric: str, by: str = "", where: str = "") -> str:
    """The sum of a gauge over everything but the labels ``by``."""
    return f"{_sum(by)} ({value(metric, where)})"


def rate(metric: str, by: str = "", where: str = "", window: str = WINDOW) -> str:
    """How much a counter grows in a second."""
    return f"{_sum(by)} (rate({value(metric, where)}[{window}]))"


def increase(metric: str, by: str = "", where: str = "") -> str:
    """How much a counter has grown in the range of the page."""
    return f"{_sum(by)} (increase({value(metric, where)}[$__range]))"


def ratio(part: str, whole: str) -> str:
    """A share of something that may be nothing: then there is none."""
    return f"{part} / ({whole} > 0)"


def quantile(q: float, metric: str, by: str = "", where: str = "") -> str:
    """A quantile of a histogram."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q:g}, {rate(f'{metric}_bucket', labels, where)})"


def average(metric: str, by: str = "", where: str = "") -> str:
    """The mean of what a histogram has observed."""
    return ratio(rate(f"{metric}_sum", by, where), rate(f"{metric}_count", by, where))


def _sum(by: str) -> str:
    return f"sum by ({by})" if by else "sum"
