"""To the collector, by OTLP over HTTP, in threads of the SDK: nothing here waits for it.

The queue of spans is bounded, and so is the time of every export; ``OTEL_BSP_…`` and
``OTEL_EXPORTER_OTLP_…`` change the bounds. What does not fit is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from router.plugin import get_logger

__all__ = ["LoggedExporter", "at_collector", "in_time", "resource"]

_log = get_logger("tracing")

_PATHS: Final = ("/v1/traces", "/v1/metrics")


def resource() -> Resource:
    """Who sends; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` go before."""
    return Resource.create({"service.name": "pointsman"}).merge(OTELResourceDetector().detect())


def at_collector(base: str | None, path: str) -> str | None:
    """The URL for one kind of data; None leaves it to the environment. ``path`` is of ``_PATHS``,
    and may be given with the base.
    """
    if base is None:
        return None
    for known in _PATHS:
        base = base.removesuffix(known)
    return base + path


async def in_time(work: Callable[[], None], seconds: float) -> bool:
    """Have ``work``, which may block, done in a thread; whether it was in time.

    Not in one of the loop's executor, which is waited for at the end of the process.
    """
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        try:
            work()
        except Exception:
            _log.exception("tracing did not stop cleanly")
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has been closed since
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="pointsman-tracing-stop", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
    except TimeoutError:
        return False
    return True


class LoggedExporter(SpanExporter):
    """Says in the log when spans begin to get lost, and when they do not any more."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See ``SpanExporter.export``. Called by one thread at a time."""
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            if self._lost:
                _log.info("the collector takes spans again", lost=self._lost)
            self._lost = 0
            return result
        if not self._lost:
            _log.warning("the collector does not take spans: they get lost")
        self._lost += len(spans)
        return result

    def shutdown(self) -> None:
        """See ``SpanExporter.shutdown``."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See ``SpanExporter.force_flush``."""
        return self._exporter.force_flush(timeout_millis)
