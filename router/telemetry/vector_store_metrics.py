"""What is told of vector stores: files that are ingested, and searches."""

from __future__ import annotations

from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["IngestionResult", "VectorStoreMetrics"]

IngestionResult = Literal["completed", "failed", "postponed", "dropped"]

_RESULTS: Final[tuple[IngestionResult, ...]] = ("completed", "failed", "postponed", "dropped")
_INGESTION_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_SEARCH_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class VectorStoreMetrics:
    """The metrics of one application's vector stores."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._files = Counter(
            "pointsman_vector_store_files",
            "Ingestions of files in vector stores that are over, by result (completed, failed, "
            "postponed: it is tried again, dropped: the file was removed or cancelled meanwhile).",
            ("result",),
            registry=registry,
        )
        self._file_seconds = Histogram(
            "pointsman_vector_store_ingestion_seconds",
            "How long the ingestion of a file took, however it ended.",
            buckets=_INGESTION_SECONDS,
            registry=registry,
        )
        self._waiting = Gauge(
            "pointsman_vector_store_files_waiting",
            "Files of vector stores in the database that are not ingested yet, those included that "
            "are being ingested.",
            registry=registry,
        )
        self._searches = Counter(
            "pointsman_vector_store_searches",
            "Searches in vector stores, those of the tool file_search included, by result (ok, "
            "failed).",
            ("result",),
            registry=registry,
        )
        self._search_seconds = Histogram(
            "pointsman_vector_store_search_seconds",
            "How long a search in vector stores took.",
            buckets=_SEARCH_SECONDS,
            registry=registry,
        )
        # There from the start, so that a first one is a change.
        for result in _RESULTS:
            self._files.labels(result)
        for ended in ("ok", "failed"):
            self._searches.labels(ended)

    def ingested(self, result: IngestionResult, seconds: float) -> None:
        """The ingestion of a file is over."""
        self._files.labels(result).inc()
        self._file_seconds.observe(seconds)

    def waiting(self, files: int) -> None:
        """So many files are not ingested yet."""
        self._waiting.set(files)

    def searched(self, seconds: float, *, ok: bool) -> None:
        """A search is over."""
        self._searches.labels("ok" if ok else "failed").inc()
        self._search_seconds.observe(seconds)
