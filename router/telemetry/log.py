"""Structured logs on standard error: JSON for machines, console lines for people.

No prompt, answer or key is ever logged. ``configure`` belongs to whoever owns the process (the
``switchyard`` command); an application that mounts the router keeps its own structlog setup.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, cast

import orjson
import structlog
from structlog.typing import FilteringBoundLogger

__all__ = ["configure", "get_logger"]

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry ``component=name``."""
    return cast(FilteringBoundLogger, structlog.get_logger(component=name))


def configure(level: str, form: str) -> None:
    """Set structlog up for this process. ``form``: ``json``, ``console``, or ``auto`` (console
    where standard error is a terminal).
    """
    if form == "auto":
        form = "console" if sys.stderr.isatty() else "json"
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    factory: Any
    if form == "json":
        shared.append(structlog.processors.JSONRenderer(serializer=_dump))
        factory = structlog.BytesLoggerFactory(file=sys.stderr.buffer)
    else:
        shared.append(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
        factory = structlog.PrintLoggerFactory(file=sys.stderr)
    structlog.configure(
        processors=shared,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )


def _dump(value: Any, **_: Any) -> bytes:
    return orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS)
