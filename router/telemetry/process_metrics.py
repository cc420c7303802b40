"""What is told of the process: its version, memory, files, and whether its event loop keeps up."""

from __future__ import annotations

import asyncio
import errno
import os
import platform
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from router.telemetry.log import get_logger

__all__ = ["ProcessMetrics"]

_log = get_logger("router.process")
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)

_LOOK_SECONDS: Final = 0.25
_LAG_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ProcessMetrics:
    """The metrics of the process that an application runs in."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        info = Info("pointsman_build", "The version that runs, and Python's.", registry=registry)
        info.info({"version": version, "python": platform.python_version()})
        self._lag = Histogram(
            "pointsman_event_loop_lag_seconds",
            "How much later than it should the event loop came back, four times a second: "
            "something kept it busy.",
            buckets=_LAG_SECONDS,
            registry=registry,
        )
        self._open = Gauge(
            "pointsman_requests_open",
            "Requests that came in and are not over, those that no endpoint works on included.",
            registry=registry,
        )
        self._exhausted = Counter(
            "pointsman_file_descriptors_exhausted",
            "Looks, four a second, at which the process could open no file and no connection: "
            "clients are turned away, and endpoints cannot be reached.",
            registry=registry,
        )
        # Memory, CPU, open files and the start of the process; on Linux only.
        ProcessCollector(namespace="pointsman", registry=registry)

    def watch_open(self, count: Callable[[], int]) -> None:
        """``count`` tells how many requests are not over, whenever it is asked."""
        self._open.set_function(count)

    async def watch_loop(self) -> None:
        """Measure how late the event loop is, and whether there are file descriptors left, until
        it is cancelled.
        """
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LOOK_SECONDS
            await asyncio.sleep(_LOOK_SECONDS)
            self._lag.observe(max(0.0, loop.time() - due))
            self._look_at_descriptors()

    def _look_at_descriptors(self) -> None:
        """Try one: an event loop that cannot accept a connection need not say so (uvloop's closes
        it), and what cannot be opened is reported by each in another way.
        """
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as exc:
            if exc.errno not in _NO_DESCRIPTORS:
                return
            self._exhausted.inc()
            _log.error("no file descriptors left", reason=os.strerror(exc.errno))
