"""What is told of the response cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cache.listener import Listener
from cache.selfcheck import Rate
from cache.store import StoreStats
from router.telemetry.meters import CountMeter, SpreadMeter
from router.telemetry.series import Children

__all__ = ["CacheMetrics"]

_LOOKUP_SECONDS: Final = (
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5,
)  # fmt: skip
_SIMILARITIES: Final = (0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9, 0.925, 0.95, 0.975, 0.99, 1)


class CacheMetrics(Listener):
    """The metrics of one cache. ``saved_input`` and ``saved_output`` count the tokens of answers
    that are given again.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lookups = Children(
            CountMeter(
                "pointsman_cache_lookups",
                "Look-ups in the cache, by tier (exact, semantic) and result (hit, miss, error).",
                ("tier", "result"),
                registry,
            )
        )
        self.lookup_seconds = Children(
            SpreadMeter(
                "pointsman_cache_lookup_seconds",
                "What a look-up took, by tier.",
                ("tier",),
                registry,
                bounds=_LOOKUP_SECONDS,
            )
        )
        self._bypasses = Children(
            CountMeter(
                "pointsman_cache_bypasses",
                "Requests that passed the cache by, by reason.",
                ("reason",),
                registry,
            )
        )
        self._skips = Counter(
            "pointsman_cache_semantic_skips",
            "Questions that the semantic tier did not judge, by reason.",
            ("reason",),
            registry=registry,
        )
        self._vetoes = Counter(
            "pointsman_cache_vetoes",
            "Questions near enough to a stored one that are another question, by reason.",
            ("reason",),
            registry=registry,
        )
        self._similarity = Histogram(
            "pointsman_cache_similarity",
            "How similar questions were that got the same answer.",
            buckets=_SIMILARITIES,
            registry=registry,
        )
        self._shared = Counter(
            "pointsman_cache_shared",
            "Requests answered by a call that another request had made.",
            registry=registry,
        )
        saved = Counter(
            "pointsman_cache_saved_tokens",
            "Tokens of answers from the cache, by kind (input, output), as they were counted when "
            "the answers were made.",
            ("kind",),
            registry=registry,
        )
        self.puts = Children(
            CountMeter(
                "pointsman_cache_stored",
                "Answers handed to the store, by result (kept, refused).",
                ("result",),
                registry,
            )
        )
        self._errors = Counter(
            "pointsman_cache_store_errors",
            "Times the store did not answer as it should, by kind.",
            ("kind",),
            registry=registry,
        )
        self._comparisons = Counter(
            "pointsman_cache_comparisons",
            "Semantic hits that were compared with a fresh answer, by result (agreed, differed).",
            ("result",),
            registry=registry,
        )
        self._registry = registry
        self.saved_input, self.saved_output = saved.labels("input"), saved.labels("output")

    def watch(
        self,
        stats: Callable[[], StoreStats | None],
        up: Callable[[], bool],
        checked: Callable[[], tuple[Rate, int] | None],
    ) -> None:
        """These are asked whenever the metrics are; ``checked`` tells the rate of false hits, and
        in how many namespaces it was too high.
        """
        registry = self._registry

        def gauge(name: str, help: str, value: Callable[[], float]) -> None:
            Gauge(name, help, registry=registry).set_function(value)

        def of_stats(read: Callable[[StoreStats], int]) -> Callable[[], float]:
            return lambda: float("nan") if (now := stats()) is None else read(now)

        gauge("pointsman_cache_entries", "Entries in the store.", of_stats(lambda s: s.entries))
        gauge("pointsman_cache_bytes", "Bytes in the store.", of_stats(lambda s: s.bytes))
        gauge(
            "pointsman_cache_max_bytes",
            "Bytes that the store may hold.",
            of_stats(lambda s: s.max_bytes),
        )
        gauge(
            "pointsman_cache_evicted",
            "Entries that had to make room, since the router began.",
            of_stats(lambda s: s.evicted),
        )
        gauge(
            "pointsman_cache_store_up",
            "Whether the store answers (1) or not (0).",
            lambda: 1 if up() else 0,
        )
        bounds = Gauge(
            "pointsman_cache_false_hit_ratio",
            "The share of semantic hits that are wrong, estimated by the self-check, and the "
            "bounds between which it is with 95 % certainty (estimate, lower, upper).",
            ("bound",),
            registry=registry,
        )
        for bound, field in (("lower", "low"), ("estimate", "rate"), ("upper", "high")):
            bounds.labels(bound).set_function(partial(_bound, checked, field))
        gauge(
            "pointsman_cache_semantic_off",
            "Namespaces for which the self-check has switched the semantic tier off.",
            lambda: 0 if (now := checked()) is None else now[1],
        )

    def skipped(self, reason: str) -> None:
        """See ``Listener.skipped``."""
        self._skips.labels(reason).inc()

    def vetoed(self, reason: str) -> None:
        """See ``Listener.vetoed``."""
        self._vetoes.labels(reason).inc()

    def matched(self, similarity: float) -> None:
        """See ``Listener.matched``."""
        self._similarity.observe(similarity)

    def store_failed(self, kind: str) -> None:
        """See ``Listener.store_failed``."""
        self._errors.labels(kind).inc()

    def compared(self, agreed: bool) -> None:
        """See ``Listener.compared``."""
        self._comparisons.labels("agreed" if agreed else "differed").inc()

    def bypassed(self, reason: str) -> None:
        """A request passed the cache by."""
        self._bypasses[reason,].inc()

    def shared(self) -> None:
        """A request is answered by a call that another one made."""
        self._shared.inc()


def _bound(checked: Callable[[], tuple[Rate, int] | None], field: str) -> float:
    now = checked()
    return float("nan") if now is None or not now[0].compared else float(getattr(now[0], field))
