"""Structured logs on standard error: JSON for machines, console lines for people.

No prompt, answer or key is ever logged. ``configure`` belongs to whoever owns the process (the
``pointsman`` command); an application that mounts the router keeps its own structlog setup.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

__all__ = ["DateTimes", "as_json", "configure", "get_logger", "writes_json"]

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_LOUD: Final = frozenset({"warning", "error", "critical", "exception"})
_ABOUT: Final = ("component", "event", "endpoint")
_LOOKED_AT: Final = ("timestamp", "status", "method", "route", "model", "endpoint", "ms")
_LONGEST: Final = 200
_MOST_SAID: Final = 1000
_AT_ONCE: Final = 20


def get_logger(name: str, **more: object) -> FilteringBoundLogger:
    """A logger whose lines carry ``component=name``, and what ``more`` there is."""
    return cast(FilteringBoundLogger, structlog.get_logger(component=name, **more))


def configure(level: str, form: str) -> None:
    """Set structlog up for this process. ``form``: ``json``, ``console``, or ``auto`` (console
    where standard error is a terminal).

    Can be called again: loggers that exist already follow.
    """
    if form == "auto":
        form = "console" if sys.stderr.isatty() else "json"
    # The same list, whatever is in it: loggers that have been used hold on to it, and to the rest
    # of what is configured here, which is therefore the same for every level and form.
    processors = structlog.get_config()["processors"]
    processors[:] = [
        _AtLeast(_LEVELS[level]), _Damper(), _Stamp(), structlog.processors.format_exc_info
    ]  # fmt: skip
    processors += [_render] if form == "json" else [_one_line, _console()]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=structlog.BytesLoggerFactory(file=sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
    # What becomes of spans, the plugin says itself.
    opentelemetry = logging.getLogger("opentelemetry")
    opentelemetry.handlers, opentelemetry.propagate = [logging.NullHandler()], False
    aiohttp = logging.getLogger("aiohttp")
    aiohttp.handlers, aiohttp.propagate = [_WireTrouble(logging.WARNING)], False


def writes_json(processors: Sequence[Processor], level: str) -> bool:
    """Whether these are the processors of ``configure`` for JSON, and let this level pass."""
    if not processors or processors[-1] is not _render:
        return False
    first = processors[0]
    return isinstance(first, _AtLeast) and level not in first.dropped


class _WireTrouble(logging.Handler):
    """One line for what aiohttp itself could not make sense of.

    It comes from strangers, before any key is checked: neither a traceback nor their bytes.
    """

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._log = get_logger("aiohttp")

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler.emit``."""
        kind = record.exc_info[0] if record.exc_info else None
        self._log.warning("bad HTTP", error=kind.__name__ if kind is not None else record.name)


class _AtLeast:
    """Drops what is of a lower level."""

    def __init__(self, level: int) -> None:
        self.dropped = frozenset(name for name, number in _LEVELS.items() if number < level)

    def __call__(self, logger: Any, method: str, event: EventDict) -> EventDict:
        if method in self.dropped:
            raise structlog.DropEvent
        return event


class _Damper:
    """Drops a warning or an error that is said over and over: of the same one, about the same
    endpoint, some at once and then one a second. The next that passes says how many were dropped.
    """

    def __init__(self) -> None:
        self._said: dict[tuple[str, ...], _Flood] = {}

    def __call__(self, logger: Any, method: str, event: EventDict) -> EventDict:
        if method not in _LOUD:
            return event
        about = tuple([str(event.get(name))[:_LONGEST] for name in _ABOUT])
        flood = self._said.pop(about, None) or _Flood()
        self._said[about] = flood
        if len(self._said) > _MOST_SAID:
            del self._said[next(iter(self._said))]
        dropped = flood.passes(time.monotonic())
        if dropped is None:
            raise structlog.DropEvent
        if dropped:
            event["dropped"] = dropped
        return event


class _Flood:
    """How often something is said: a bucket of ``_AT_ONCE`` that fills up by one a second."""

    __slots__ = ("_dropped", "_left", "_since")

    def __init__(self) -> None:
        self._left = float(_AT_ONCE)
        self._since = 0.0
        self._dropped = 0

    def passes(self, now: float) -> int | None:
        """How many were dropped before this one; None where it is to be dropped, too."""
        self._left = min(float(_AT_ONCE), self._left + now - self._since)
        self._since = now
        if self._left < 1:
            self._dropped += 1
            return None
        self._left -= 1
        dropped, self._dropped = self._dropped, 0
        return dropped


class DateTimes:
    """Writes times as in ISO 8601, in UTC. The date is written out once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._date = ""

    def at(self, now: float) -> str:
        """This time, which is in Unix time."""
        second = int(now)
        if second != self._second:
            self._date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second
        return f"{self._date}.{int((now - second) * 1e6):06}Z"


class _Stamp:
    """Adds the level and the time."""

    def __init__(self) -> None:
        self._date_times = DateTimes()

    def __call__(self, logger: Any, method: str, event: EventDict) -> EventDict:
        event["level"] = method
        event["timestamp"] = self._date_times.at(time.time())
        return event


def as_json(event: Mapping[str, object]) -> bytes:
    """A line without its end."""
    return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS)


def _render(logger: Any, method: str, event: EventDict) -> bytes:
    return as_json(event)


def _console() -> Processor:
    # The plain traceback: others show local variables, and there are prompts in them.
    render = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )

    def rendered(logger: Any, method: str, event: EventDict) -> bytes:
        access = event.get("component") == "access"
        line = _access_line(event) if access else render(logger, method, event)
        return line.encode(sys.stderr.encoding, "backslashreplace")

    return rendered


def _access_line(event: EventDict) -> str:
    """A request in the order in which people look: when, how it went, what, where, how long."""
    first = [_word(event.pop(name, None)) for name in _LOOKED_AT]
    for name in ("level", "component", "event"):
        event.pop(name, None)
    rest = [f"{name}={_word(value)}" for name, value in event.items() if value is not None]
    return " ".join([*first, "ms", *rest])


def _word(value: object) -> str:
    text = "-" if value is None else str(value)
    return text if text and " " not in text and '"' not in text else repr(text)


def _one_line(logger: Any, method: str, event: EventDict) -> EventDict:
    """Keep what others sent from writing lines, or to the terminal, of its own making."""
    for name, value in event.items():
        if isinstance(value, str) and name != "exception" and not value.isprintable():
            event[name] = "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)
    return event
