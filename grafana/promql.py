"""The few forms that queries have. Names are those of metrics, without ``switchyard_``."""

from __future__ import annotations

__all__ = ["INSTANCE", "WINDOW", "average", "quantile", "rate", "ratio", "total", "value"]

INSTANCE = 'instance=~"$instance"'
WINDOW = "$__rate_interval"


def value(metric: str, where: str = "") -> str:
    """A metric, of the chosen instances. ``where`` are further matchers."""
    matchers = ", ".join(part for part in (INSTANCE, where) if part)
    return f"switchyard_{metric}{{{matchers}}}"


def total(metric: str, by: str = "", where: str = "") -> str:
    """The sum of a gauge over everything but the labels ``by``."""
    return f"{_sum(by)} ({value(metric, where)})"


def rate(metric: str, by: str = "", where: str = "", window: str = WINDOW) -> str:
    """How much a counter grows in a second."""
    return f"{_sum(by)} (rate({value(metric, where)}[{window}]))"


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
